//! How a pair of endpoints comes up: a line each way, and both sides have proven their addresses.

use super::*;
use crate::{
    Received, Sent,
    greeting::{proof, proves},
};

/// Proofs that an endpoint may send on one line: one for each of our hellos, as often as we connect
/// again.
const PROOFS: u32 = 64;

impl<M: Medium> Packets<M> {
    /// The peer at an address, which the user asks for.
    pub(super) fn want(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        if address.scheme() != self.capabilities.scheme {
            let (address, scheme) = (address.clone(), self.capabilities.scheme);
            return Err(ResolveError::WrongScheme { address, scheme });
        }
        if let Some(peer) = self.engine.find_peer(address) {
            let pair = self.pair(peer);
            pair.running = running && (pair.running || !pair.wanted);
            match &mut pair.patience {
                Some(known) if pair.wanted => known.renew(patience),
                patient => *patient = Some(Patience::new(patience)),
            }
            pair.wanted = true;
            return Ok(peer);
        }
        let peer = self.add(address, Some((patience, running)))?;
        // What the medium says of the address is said at once.
        if let Err(reason) = self.connect(peer) {
            self.clear(peer);
            self.engine.forget(peer);
            return Err(ResolveError::Malformed { address: address.clone(), reason });
        }
        Ok(peer)
    }

    /// A new peer, to which we connect.
    fn add(
        &mut self,
        address: &Address,
        wanted: Option<(Duration, bool)>,
    ) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        let index = peer.index as usize;
        if self.pairs.len() <= index {
            self.pairs.resize_with(index + 1, Pair::default);
        }
        let (patience, running) = wanted.unwrap_or((PATIENCE, false));
        self.pairs[index] = Pair {
            patience: Some(Patience::new(patience)),
            wanted: wanted.is_some(),
            running,
            pause: RETRY,
            why: "it does not answer".to_owned(),
            ..Pair::default()
        };
        if !self.engine.is_self(peer) {
            self.connecting.push(peer);
        }
        Ok(peer)
    }

    /// Ends the lines of a peer, and of those that would be it.
    pub(super) fn clear(&mut self, peer: Peer) {
        let pair = std::mem::take(self.pair(peer));
        [pair.out, pair.inward].into_iter().flatten().for_each(|line| self.end_line(line, true));
        self.candidates_of(peer).into_iter().for_each(|line| self.end_line(line, true));
        self.freed = true;
    }

    /// Nothing more goes to this peer, or comes from it.
    pub(super) fn lose(&mut self, peer: Peer, reason: LostReason) {
        let (wanted, was_up) = (self.pair(peer).wanted, self.engine.is_up(peer));
        self.clear(peer);
        match was_up || wanted {
            true => self.engine.peer_lost(peer, reason),
            // The user does not know it.
            false => self.engine.forget(peer),
        }
        if was_up && !wanted {
            self.lost.push_back(peer);
            if self.lost.len() > KEPT {
                self.lost.pop_front().into_iter().for_each(|peer| self.engine.reuse(peer));
            }
        }
    }

    /// Moves on what is not up yet.
    pub(super) fn pair_up(&mut self) {
        for peer in std::mem::take(&mut self.connecting) {
            self.tend(peer);
        }
        let freed = std::mem::take(&mut self.freed);
        for line in self.accepted.clone() {
            let Line::Accepted(candidate) = &self.lines[line as usize] else { continue };
            match candidate.peer {
                _ if self.now >= candidate.until => self.dismiss(line),
                None if freed => self.attach(line),
                None => {}
                Some(_) => self.answer(line),
            }
        }
    }

    /// Connects to a peer, again and again, until its patience is over.
    fn tend(&mut self, peer: Peer) {
        let state = self.engine.peer_info(peer).map(|info| info.state);
        if state != Some(PeerState::Connecting) {
            return;
        }
        if let Some(why) = self.broken.clone().or_else(|| self.connect(peer).err()) {
            return self.lose(peer, LostReason::System(why));
        }
        let now = self.now;
        let pair = self.pair(peer);
        if pair.running && pair.out.is_none() {
            let why = std::mem::take(&mut pair.why);
            return self.lose(peer, LostReason::Unreachable(Duration::ZERO, why));
        }
        if pair.patience.as_mut().is_some_and(|patience| patience.is_over(now)) {
            let longest = pair.patience.map_or(Duration::ZERO, |patience| patience.longest());
            let why = std::mem::take(&mut pair.why);
            return self.lose(peer, LostReason::Unreachable(longest, why));
        }
        self.connecting.push(peer);
    }

    /// Begins the line to a peer, if there is none and it is time, and says hello. Says what is
    /// wrong with the address, if that is wrong.
    fn connect(&mut self, peer: Peer) -> Result<(), String> {
        let Some(info) = self.engine.peer_info(peer).filter(|_| !self.engine.is_self(peer)) else {
            return Ok(());
        };
        let (now, pair) = (self.now, self.pair(peer));
        if pair.out.is_none() && now >= pair.retry {
            pair.retry = now.after(pair.pause);
            pair.pause = (pair.pause * 2).min(LONGEST_RETRY);
            let line = self.new_line(Line::Out(peer));
            match self.medium.connect(line, info.address.as_str()) {
                Ok(()) => {
                    let pair = self.pair(peer);
                    (pair.out, pair.greeted) = (Some(line), false);
                    getrandom::fill(&mut pair.nonce).expect("the system has random numbers");
                }
                Err(ConnectError::Refused(why)) => {
                    self.end_line(line, false);
                    self.pair(peer).note(why);
                }
                Err(ConnectError::Malformed(why)) => {
                    self.end_line(line, false);
                    return Err(why);
                }
            }
        }
        self.greet(peer);
        Ok(())
    }

    fn hello(&self, nonce: Nonce) -> Hello {
        Hello {
            max_packet: self.medium.max_packet() as u32,
            incarnation: self.engine.incarnation(),
            nonce,
            secret: self.prover.is_some(),
            address: self.engine.address().clone(),
        }
    }

    /// Says hello to a peer, unless that is done.
    pub(super) fn greet(&mut self, peer: Peer) {
        let &mut Pair { out, greeted, nonce, .. } = self.pair(peer);
        let Some(out) = out.filter(|_| !greeted) else { return };
        match self.medium.send(out, &self.hello(nonce).encode()) {
            Sent::All => {
                self.pair(peer).greeted = true;
                self.candidates_of(peer).into_iter().for_each(|line| self.answer(line));
            }
            Sent::Later => {}
            Sent::Closed(why) => self.outward_ended(peer, why),
        }
    }

    /// The line to a peer has ended. What the peer sent before is read before it is lost; one that
    /// is not up is tried again.
    pub(super) fn outward_ended(&mut self, peer: Peer, why: String) {
        if let Some(out) = self.pair(peer).out.take() {
            self.end_line(out, true);
        }
        match self.engine.is_up(peer) {
            true => self.read(peer, usize::MAX),
            false => self.pair(peer).note(why),
        }
    }

    // Endpoints that connect to us.

    fn candidates_of(&self, peer: Peer) -> Vec<u32> {
        let is = |line: &u32| match &self.lines[*line as usize] {
            Line::Accepted(candidate) => candidate.peer == Some(peer),
            _ => false,
        };
        self.accepted.iter().copied().filter(is).collect()
    }

    /// Takes lines that other endpoints began. At the limit, in place of the oldest, first of those
    /// that have said nothing.
    pub(super) fn accept(&mut self) {
        for _ in 0..TURN {
            let until = self.now.after(PATIENCE);
            let line = self.new_line(Line::Accepted(Candidate::new(until)));
            if !self.medium.accept(line) {
                return self.end_line(line, false);
            }
            if self.accepted.len() >= ACCEPTED {
                let age = |line: &u32| match &self.lines[*line as usize] {
                    Line::Accepted(candidate) => (candidate.hello.is_some(), candidate.until),
                    _ => (true, Time::NEVER),
                };
                let oldest = self.accepted.iter().copied().min_by_key(age);
                oldest.into_iter().for_each(|line| self.dismiss(line));
            }
            self.accepted.push(line);
        }
    }

    /// Ends a line that is of no peer, and forgets the peer of which nothing else is known.
    fn dismiss(&mut self, line: u32) {
        let Line::Accepted(Candidate { peer, .. }) = self.lines[line as usize] else { return };
        self.end_line(line, true);
        if let Some(peer) = peer
            && !self.pair(peer).wanted
            && self.candidates_of(peer).is_empty()
        {
            self.lose(peer, LostReason::Closed);
        }
    }

    /// Reads from an endpoint that has not proven its address: its hello, then proofs.
    pub(super) fn read_candidate(&mut self, line: u32) {
        while let Line::Accepted(candidate) = &mut self.lines[line as usize] {
            if candidate.proven.is_some() {
                // Packets of the engine follow, and are read when this side has answered.
                return;
            }
            let len = match self.medium.receive(line, &mut self.buffer) {
                Received::Packet(len) => len,
                Received::Later => return,
                Received::Closed(_) | Received::Lent { .. } | Received::Fetched => {
                    return self.dismiss(line);
                }
            };
            let packet = &self.buffer[..len];
            let Some(theirs) = &candidate.hello else {
                candidate.hello = Hello::decode(packet)
                    .filter(|hello| hello.address.scheme() == self.capabilities.scheme)
                    .filter(|hello| hello.address != *self.engine.address());
                match candidate.hello {
                    Some(_) => self.attach(line),
                    None => return self.dismiss(line),
                }
                continue;
            };
            candidate.proofs += 1;
            let (last, theirs) = (candidate.proofs >= PROOFS, theirs.clone());
            let nonce = candidate.peer.map(|peer| self.pairs[peer.index as usize].nonce);
            if let Some(nonce) = nonce
                && proves(packet, &theirs, &self.hello(nonce), self.prover.as_ref())
            {
                candidate_of(&mut self.lines, line).proven = Some(nonce);
                self.answer(line);
            } else if last {
                return self.dismiss(line);
            }
        }
    }

    /// Finds the peer that an endpoint says it is. While that one is up it waits, for its end.
    fn attach(&mut self, line: u32) {
        let Some(hello) = candidate_of(&mut self.lines, line).hello.clone() else { return };
        let known = self.engine.find_peer(&hello.address);
        if known.is_some_and(|peer| self.engine.is_up(peer)) {
            return;
        }
        let Some(peer) = known.or_else(|| self.add(&hello.address, None).ok()) else {
            return self.dismiss(line);
        };
        candidate_of(&mut self.lines, line).peer = Some(peer);
        let max_packet = self.medium.max_packet();
        let differ = match (self.prover.is_some(), hello.secret) {
            (true, false) => Some("it has no secret, and this endpoint has one".to_owned()),
            (false, true) => Some("it has a secret, and this endpoint has none".to_owned()),
            _ if hello.max_packet as usize == max_packet => None,
            _ => Some(format!(
                "its packets have up to {} bytes, those of this endpoint {max_packet}",
                hello.max_packet
            )),
        };
        if let Some(why) = differ {
            // It has not proven its address: this ends nothing. It learns the same from our hello.
            self.pair(peer).note(why);
            candidate_of(&mut self.lines, line).refused = true;
            return;
        }
        if self.prover.is_some() {
            self.pair(peer).note("it does not prove that it has the same secret".to_owned());
        }
        self.answer(line);
    }

    /// Sends the proof to an endpoint that says it is a peer, by the line to that peer's address,
    /// unless that is done. The peer is up when both sides have given theirs.
    fn answer(&mut self, line: u32) {
        let Line::Accepted(candidate) = &self.lines[line as usize] else { return };
        let Candidate { hello: Some(theirs), peer: Some(peer), answered, refused: false, .. } =
            candidate
        else {
            return;
        };
        let (peer, incarnation) = (*peer, theirs.incarnation);
        let Pair { out: Some(out), greeted: true, nonce, .. } = self.pairs[peer.index as usize]
        else {
            return;
        };
        if *answered != Some(nonce) {
            let packet = proof(&self.hello(nonce), theirs, self.prover.as_ref());
            match self.medium.send(out, &packet) {
                Sent::All => {}
                Sent::Later => return,
                Sent::Closed(why) => return self.outward_ended(peer, why),
            }
        }
        let candidate = candidate_of(&mut self.lines, line);
        candidate.answered = Some(nonce);
        // One that is for a line of ours that has ended is followed by another.
        candidate.proven = candidate.proven.filter(|proven| *proven == nonce);
        if candidate.proven.is_some() {
            self.lines[line as usize] = Line::In(peer);
            self.accepted.retain(|accepted| *accepted != line);
            self.pair(peer).inward = Some(line);
            self.candidates_of(peer).into_iter().for_each(|line| self.end_line(line, true));
            self.engine.peer_up(peer, incarnation);
        }
    }
}

/// The candidate of a line that is one.
fn candidate_of(lines: &mut [Line], line: u32) -> &mut Candidate {
    match &mut lines[line as usize] {
        Line::Accepted(candidate) => candidate,
        _ => unreachable!("the line was looked at before"),
    }
}

impl Candidate {
    fn new(until: Time) -> Candidate {
        Candidate {
            until,
            hello: None,
            peer: None,
            refused: false,
            answered: None,
            proven: None,
            proofs: 0,
        }
    }
}

impl Pair {
    /// Remembers why the peer is not up.
    fn note(&mut self, why: String) {
        if !why.is_empty() {
            self.why = why;
        }
    }
}
