//! Meeting peers and losing them, by the control endpoint.
//!
//! Peers find each other over a transport of this machine's own: TCP, or shared memory. It proves the
//! secret, or has the kernel's word, before anything is parsed; tries again while a peer has not started;
//! settles who connects; and tells when a peer's process or machine is gone, which not all networks do.
//! On it both sides greet each other ([`Control::Hello`]), and then packets flow through the library.

use crate::{
    Config, OpenError,
    frame::Control,
    link::{Link, State, Watch},
    network::{Medium, Meeting, Network, Node},
    state::Datagrams,
};
use petasos_fabric::{Address, Endpoint, Event, LostReason, Peer, ResolveError};
use std::time::Duration;

/// Control messages to one peer that may wait.
const MOST_LETTERS: usize = 1 << 16;
/// The longest control message: [`Control::Hello`], or [`Control::Grant`].
const LONGEST: usize = crate::frame::MAX_NAME + 128;
/// Nodes that are not used any more and stay in the table of addresses, and for how long the others do.
const GRAVES: usize = 32;
const BURIED: Duration = Duration::from_secs(2);
/// Lost peers that came to us, whose handles are still known.
const KEPT: usize = 64;
/// How long the last words of a peer may be on their way that ended without a word.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// The same for one that said how much it sent.
const PROMISED: Duration = Duration::from_secs(2);

impl Medium {
    /// Opens the endpoint by which peers meet at this place.
    pub(crate) fn meet(&self, rest: &str, config: &Config) -> Result<Box<dyn Endpoint>, OpenError> {
        Ok(match self.meeting {
            Meeting::Tcp if rest.contains('?') => {
                let what = "the packets, which go through a library, are not encrypted";
                return Err(OpenError::Config(format!("an option in `{rest}`: {what}")));
            }
            Meeting::Tcp => {
                let mut numbers = petasos_tcp::Config::default();
                numbers.secret.clone_from(&config.secret);
                numbers.silence = config.silence;
                // Packets go past that endpoint: who comes in is to be who he says before there are any.
                numbers.verify = true;
                numbers.limits.max_peers = config.limits.max_peers;
                numbers.limits.max_message = LONGEST;
                numbers.limits.max_inject = LONGEST;
                let address = Address::parse(&format!("tcp://{rest}"))
                    .map_err(petasos_tcp::OpenError::from)?;
                Box::new(petasos_tcp::TcpEndpoint::open(&address, numbers)?)
            }
            Meeting::Shm => {
                let mut numbers = petasos_shm::Config::default();
                (numbers.ring, numbers.long_ring) = (16 << 10, 16 << 10);
                numbers.max_message = LONGEST;
                numbers.max_peers = config.limits.max_peers;
                numbers.cross_memory = false;
                let address = Address::parse(&format!("shm://{rest}"))
                    .map_err(petasos_shm::OpenError::from)?;
                Box::new(petasos_shm::Shm::open_with(&address, numbers)?)
            }
        })
    }

    /// Our address for one of the control endpoint's.
    pub(crate) fn ours(&self, control: &Address) -> Address {
        let url = format!("{}://{}", self.scheme, control.rest());
        Address::parse(&url).unwrap_or_else(|_| control.clone())
    }

    /// The control endpoint's address for one of ours.
    pub(crate) fn theirs(&self, address: &Address) -> Result<Address, ResolveError> {
        let scheme = match self.meeting {
            Meeting::Tcp => "tcp",
            Meeting::Shm => "shm",
        };
        if address.rest().contains('?') {
            let reason = "packets that go through a library are not encrypted".to_owned();
            return Err(ResolveError::Malformed { address: address.clone(), reason });
        }
        Ok(Address::parse(&format!("{scheme}://{}", address.rest()))?)
    }
}

impl<N: Network> Datagrams<N> {
    /// A peer that the control endpoint knows as `control`.
    pub(crate) fn add(
        &mut self,
        address: &Address,
        control: Peer,
        asked: bool,
    ) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        let index = peer.index as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
            self.serials.resize(index + 1, 0);
        }
        let ticket = getrandom::u64().expect("the system's random source answers");
        let link = Link::new(peer, control, asked, ticket, self.serials[index]);
        self.links[index] = Some(Box::new(link));
        self.met.insert(control, peer);
        Ok(peer)
    }

    /// Moves the control endpoint on. True if anything was done.
    pub(crate) fn attend(&mut self) -> bool {
        if self.kept.look_after() {
            self.net.close_memory();
        }
        let mut mail = std::mem::take(&mut self.mail);
        let mut worked = self.control.progress(self.now, 64, &mut mail);
        worked |= !mail.is_empty();
        for event in mail.drain(..) {
            match event {
                Event::PeerUp { peer, .. } => self.reached(peer),
                Event::PeerLost { peer, reason } => self.left(peer, reason),
                Event::Message { peer, message } => {
                    if let Some(index) = self.met.get(&peer).map(|peer| peer.index) {
                        match Control::from_bytes(&message) {
                            Ok(control) => self.heard(index, control),
                            Err(garbled) => self.wrong(index, &garbled.to_string()),
                        }
                    }
                }
                Event::LongMessage { peer, .. } | Event::PutArrived { peer, .. } => {
                    if let Some(index) = self.met.get(&peer).map(|peer| peer.index) {
                        self.wrong(index, "that is never sent here");
                    }
                }
                _ => {}
            }
        }
        mail.append(&mut self.mail);
        self.mail = mail;
        if !self.errands.is_empty() {
            self.run_errands();
        }
        worked
    }

    /// A peer can be greeted.
    fn reached(&mut self, control: Peer) {
        let peer = match self.met.get(&control) {
            Some(peer) => *peer,
            None => {
                let Some(info) = self.control.peer(control) else { return };
                let address = self.medium.ours(&info.address);
                // Its earlier life, whose last words were still waited for.
                if let Some(earlier) = self.engine.find_peer(&address)
                    && let Some(Link { state: State::Ending(reason, _), .. }) = self.link(earlier)
                {
                    let reason = reason.clone();
                    self.finish(earlier, reason);
                }
                let Ok(peer) = self.add(&address, control, false) else {
                    return self.control.forget(control);
                };
                peer
            }
        };
        if let Some(link) = self.link(peer) {
            link.greeting = true;
            self.errand(peer.index);
        }
    }

    /// There is something to be told to a peer, when the control endpoint has its turn.
    pub(crate) fn errand(&mut self, index: u32) {
        if let Some(Some(link)) = self.links.get_mut(index as usize)
            && !link.errand
        {
            link.errand = true;
            self.errands.push(index);
        }
    }

    /// Tells peers what there is to be told.
    fn run_errands(&mut self) {
        for index in std::mem::take(&mut self.errands) {
            let Some(Some(link)) = self.links.get_mut(index as usize) else { continue };
            link.errand = false;
            if !self.tell(index) {
                self.errand(index);
            }
        }
    }

    /// Tells a peer what there is to be told. False if something is left.
    fn tell(&mut self, index: u32) -> bool {
        let Datagrams { links, control, net, .. } = self;
        let Some(Some(link)) = links.get_mut(index as usize) else { return true };
        let mut say =
            |message: Control| control.inject(link.control, &[&message.to_bytes()]).is_ok();
        if link.greeting {
            let (protocol, name) = (net.facts().protocol.clone(), net.name().to_vec());
            link.greeting =
                !say(Control::Hello { slot: index, ticket: link.ticket, protocol, name });
        }
        while !link.greeting
            && let Some(letter) = link.letters.pop_front()
        {
            if !say(letter.clone()) {
                link.letters.push_front(letter);
                break;
            }
        }
        if link.rung_owed && link.running == 0 {
            link.rung_owed = !say(Control::Rung(link.sent));
        }
        if link.ring_owed {
            link.ring_owed = !say(Control::Ring);
        }
        !(link.greeting || link.rung_owed || link.ring_owed) && link.letters.is_empty()
    }

    /// Sends a control message, now or when there is room.
    pub(crate) fn write_letter(&mut self, peer: Peer, letter: Control) {
        let Some(link) = self.link(peer) else { return };
        link.letters.push_back(letter);
        let many = link.letters.len() > MOST_LETTERS;
        self.errand(peer.index);
        if many {
            self.wrong(peer.index, "it does not read what is answered");
        }
    }

    /// A peer said something.
    fn heard(&mut self, index: u32, message: Control) {
        let passes = self.passes;
        let Some(Some(link)) = self.links.get_mut(index as usize) else { return };
        match message {
            Control::Hello { slot, ticket, protocol, name } => {
                if !matches!(link.state, State::Meeting) || link.node.is_some() {
                    return self.wrong(index, "it greeted twice");
                }
                let ours = &self.net.facts().protocol;
                if protocol != *ours {
                    let why = format!("it speaks `{protocol}`, this endpoint `{ours}`");
                    return self.wrong(index, &why);
                }
                let node = match self.net.insert(&name) {
                    Ok(node) => node,
                    Err(why) => return self.wrong(index, &why),
                };
                (link.node, link.slot_there, link.ticket_there) = (Some(node), slot, ticket);
                (link.name, link.state) = (name, State::Up);
                let (peer, control) = (link.peer, link.control);
                if let Some(incarnation) =
                    self.control.peer(control).and_then(|info| info.incarnation)
                {
                    self.engine.peer_up(peer, incarnation);
                }
            }
            Control::Ring => {
                self.quiet = 0;
                // It is told once that this is not needed while we spin.
                if passes > crate::sleep::SPINNING && link.watch == Watch::Rings {
                    let told = self.control.inject(link.control, &[&Control::Awake.to_bytes()]);
                    if told.is_ok() {
                        link.watch = Watch::Silent;
                    }
                }
            }
            Control::Awake => link.ring = false,
            Control::Sleep => {
                (link.ring, link.rung_owed) = (true, true);
                self.errand(index);
            }
            Control::Rung(count) => {
                if link.watch == Watch::Asked {
                    let all = link.received.wrapping_sub(count) as i32 >= 0;
                    link.watch = if all { Watch::Rings } else { Watch::Owed(count) };
                }
            }
            Control::Bye(count) => link.bye = Some(count),
            Control::Ask(target) => self.asked(index, target),
            Control::Grant(target, leave) => self.granted(index, target, Some(leave)),
            Control::Refuse(target) => self.granted(index, target, None),
            Control::Revoke(target) => self.revoked(index, target),
            Control::Released(target) => self.released(index, target),
            Control::Returned => self.returned(index),
        }
    }

    /// The control endpoint has lost a peer.
    fn left(&mut self, control: Peer, reason: LostReason) {
        let Some(peer) = self.met.get(&control).copied() else { return };
        self.end(peer.index, reason);
    }

    /// A peer is gone: what it said before is heard, and then it is lost.
    pub(crate) fn end(&mut self, index: u32, reason: LostReason) {
        let now = self.now;
        let Some(Some(link)) = self.links.get_mut(index as usize) else { return };
        let peer = link.peer;
        match &mut link.state {
            State::Meeting => self.finish(peer, reason),
            State::Up => {
                let patience = if link.bye.is_some() { PROMISED } else { LAST_WORDS };
                link.state = State::Ending(reason, now.after(patience));
                self.ending.push(peer);
            }
            // What the control endpoint says is nearer to the cause than what the library does.
            State::Ending(known, _) if matches!(known, LostReason::System(_)) => *known = reason,
            State::Ending(..) => {}
        }
    }

    /// Loses those who have nothing more to say.
    pub(crate) fn finish_ended(&mut self) -> bool {
        let mut worked = false;
        for peer in std::mem::take(&mut self.ending) {
            let now = self.now;
            let Some(link) = self.link(peer) else { continue };
            let State::Ending(reason, until) = &link.state else { continue };
            let heard = link.bye.is_some_and(|count| count == link.received);
            // What is not there yet of a payload may never come.
            let late = now >= *until && (link.deferred.is_empty() || !link.is_due());
            let over = (link.deferred.is_empty() && heard) || late;
            let reason = reason.clone();
            match over {
                true => {
                    self.finish(peer, reason);
                    worked = true;
                }
                false => self.ending.push(peer),
            }
        }
        worked
    }

    /// A peer broke the protocol.
    #[cold]
    pub(crate) fn wrong(&mut self, index: u32, why: &str) {
        self.counters.violations += 1;
        if let Some(Some(link)) = self.links.get(index as usize) {
            let peer = link.peer;
            self.finish(peer, LostReason::Protocol(why.to_owned()));
        }
    }

    /// A peer is lost: nothing more goes to it, or comes of it.
    pub(crate) fn finish(&mut self, peer: Peer, reason: LostReason) {
        let Some(asked) = self.let_go(peer, &reason) else { return };
        self.engine.peer_lost(peer, reason);
        if !asked {
            self.gone.push_back(peer);
            if self.gone.len() > KEPT
                && let Some(oldest) = self.gone.pop_front()
            {
                self.engine.forget(oldest);
            }
        }
    }

    /// A node is not used any more. Libraries may still work for it, or find something of it in their queues, and
    /// not all of them put up with one that has left the table; so it leaves later, if nothing is under way with
    /// it, and when it had time to notice that it was let go.
    pub(crate) fn bury(&mut self, node: Node, peer: Peer) {
        self.buried.push_back((node, self.now.after(BURIED), peer));
        self.exhume();
    }

    /// Takes those out of the table of addresses whose time has come: the oldest of many.
    fn exhume(&mut self) {
        while self.buried.len() > GRAVES
            && let Some((node, until, peer)) = self.buried.front().copied()
            && self.now >= until
        {
            self.buried.pop_front();
            // What does not come back may refer to it.
            if !self.lost.keeps(peer, node) {
                self.net.remove(node);
            }
        }
    }

    /// Takes a peer out of all tables but the engine's. Says whether it had been asked for.
    pub(crate) fn let_go(&mut self, peer: Peer, reason: &LostReason) -> Option<bool> {
        self.link(peer)?;
        let link = self.links[peer.index as usize].take()?;
        if self.accesses.can_return(peer) {
            let _ = self.control.inject(link.control, &[&Control::Returned.to_bytes()]);
            // It leaves before the connection is closed; what is heard meanwhile waits for its turn.
            self.control.progress(self.now, 0, &mut self.mail);
        }
        let accesses = self.end_accesses(peer, reason);
        self.keep_lost(&link, accesses);
        self.forget_holder(peer);
        self.serials[peer.index as usize] = link.next_serial();
        self.met.remove(&link.control);
        self.notices.remove(&link.notice);
        self.control.forget(link.control);
        self.net.clean_up(&link.name);
        if let Some(node) = link.node {
            self.bury(node, peer);
        }
        Some(link.asked)
    }
}
