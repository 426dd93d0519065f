//! How pairs are made: attempts of ours, arrivals of others, and which of them wins when two
//! endpoints reach for each other at the same time.
//!
//! Who connects makes the pair, sends a greeting with its table, the pair and its bell, and waits;
//! who accepts checks all of it and answers with its own table and bell. Both check by the
//! kernel's word which user the other is before they look at anything else.
//!
//! Of two attempts that cross, the one of the larger incarnation wins: the other side's is told to
//! try again, and takes the greeting that is on its way in the meantime. Nobody can take the
//! address of a peer that lives.

use crate::{
    Shm,
    bell::Bell,
    channel::Channel,
    channels::NextPending,
    cross,
    hello::{Greeting, Note},
    name::Name,
    pair::{Pair, Sizes},
    poller::{Ready, Source},
    socket::{self, Credentials, Fds},
    state::SCHEME,
    table::PeerTable,
};
use petasos_fabric::{
    Accepted, Address, EventFd, LostReason, Patience, Peer, PeerState, ResolveError, Time,
    acceptor::unauthenticated_limit,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const FIRST_RETRY: Duration = Duration::from_millis(1);
const LAST_RETRY: Duration = Duration::from_millis(100);
/// What we are to who connects.
const LISTENER: &str = "the listening process";
/// Connections accepted in one pass.
const AT_ONCE: usize = 16;

/// A connection that we want.
pub(crate) struct Attempt {
    pub(crate) peer: Peer,
    name: Name,
    address: Address,
    pub(crate) patience: Patience,
    /// It is to be running already: if nothing listens there, it is lost.
    pub(crate) running: bool,
    next: Time,
    delay: Duration,
    waiting: Option<Greeted>,
    /// Why the last try failed.
    reason: String,
    /// Whether the other side said so: that is worth more than that it says nothing now.
    told: bool,
}

/// A connection on which we have sent our greeting.
struct Greeted {
    socket: OwnedFd,
    pair: Pair,
    bell: EventFd,
    who: Credentials,
}

/// Somebody who came and has not said who he is.
struct Arrival {
    socket: OwnedFd,
    who: Credentials,
    deadline: Time,
}

#[derive(Default)]
pub(crate) struct Arrivals {
    slots: Vec<(u32, Option<Arrival>)>,
    count: usize,
    /// There may be more who wait to be accepted.
    pub(crate) more: bool,
    /// When the listener is to be looked at again, where it was left alone.
    pub(crate) resumes: Option<Time>,
}

impl Arrivals {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn take(&mut self, index: u32) -> Option<Arrival> {
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        let arrival = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.count -= 1;
        Some(arrival)
    }

    /// Closes the oldest of the user who has most: a peer says who it is as soon as it is connected, so one that has
    /// been here for a while is not about to.
    fn make_room(&mut self) {
        let all = || {
            let slots = self.slots.iter().enumerate();
            slots.filter_map(|(index, (_, slot))| Some((index, slot.as_ref()?)))
        };
        let mut of = BTreeMap::<u32, usize>::new();
        all().for_each(|(_, arrival)| *of.entry(arrival.who.uid).or_default() += 1);
        let Some((user, _)) = of.into_iter().max_by_key(|(_, count)| *count) else { return };
        let own = all().filter(|(_, arrival)| arrival.who.uid == user);
        let oldest = own.min_by_key(|(_, arrival)| arrival.deadline).map(|(index, _)| index);
        if let Some(index) = oldest {
            self.take(index as u32);
        }
    }

    /// When the first of them must have spoken, or the listener is to be looked at again.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let spoken = self.slots.iter().filter_map(|(_, slot)| Some(slot.as_ref()?.deadline));
        spoken.chain(self.resumes).min()
    }
}

impl Attempt {
    pub(crate) fn new(peer: Peer, address: Address, name: Name, patience: Duration) -> Attempt {
        Attempt {
            peer,
            name,
            address,
            patience: Patience::new(patience),
            running: false,
            next: Time::ZERO,
            delay: FIRST_RETRY,
            waiting: None,
            reason: "nothing was tried yet".to_owned(),
            told: false,
        }
    }

    /// When it must be looked at, if nothing happens.
    pub(crate) fn due(&self) -> Time {
        let end = self.patience.end();
        if self.waiting.is_some() { end } else { end.min(self.next) }
    }

    fn again(&mut self, now: Time, reason: String) {
        self.waiting = None;
        self.reason = reason;
        self.next = now.after(self.delay);
        self.delay = (self.delay * 2).min(LAST_RETRY);
    }
}

impl Shm {
    fn greeting(&self) -> Greeting {
        Greeting {
            address: self.engine.address().clone(),
            incarnation: self.engine.incarnation(),
            sizes: self.config.sizes(),
            probe: Arc::as_ptr(&self.probe).expose_provenance() as u64,
        }
    }

    fn admits(&self, uid: u32) -> bool {
        uid == self.uid || self.config.admit.contains(&uid)
    }

    // Ours.

    /// The peer at an address, whether or not it is `running` already.
    pub(crate) fn reach(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        let address = address.clone();
        if address.scheme() != SCHEME {
            return Err(ResolveError::WrongScheme { address, scheme: SCHEME });
        }
        let name = match Name::parse(address.rest()) {
            Ok(name) => name,
            Err(reason) => return Err(ResolveError::Malformed { address, reason }),
        };
        if let Some(peer) = self.engine.find_peer(&address) {
            if let Some(channel) = self.channel(peer.index) {
                channel.uninvited = false;
            }
            if let Some(attempt) = self.attempts.iter_mut().find(|a| a.peer == peer) {
                attempt.patience.renew(patience);
                attempt.running &= running;
            }
            return Ok(peer);
        }
        let peer = self.engine.add_peer(&address)?;
        if !self.engine.is_self(peer) {
            let attempt = Attempt::new(peer, address, name, patience);
            self.attempts.push(Attempt { running, ..attempt });
            self.schedule.hurry();
        }
        Ok(peer)
    }

    /// Moves the attempts on. True if anything was done.
    pub(crate) fn attempt_all(&mut self, now: Time) -> bool {
        let mut worked = false;
        let mut i = 0;
        while i < self.attempts.len() {
            let attempt = &mut self.attempts[i];
            let peer = attempt.peer;
            if attempt.waiting.is_none() && now >= attempt.next {
                worked = true;
                let mut attempt = self.attempts.swap_remove(i);
                match self.dial(&attempt) {
                    Ok(greeted) => {
                        attempt.waiting = Some(greeted);
                        if !attempt.told {
                            attempt.reason = "it does not answer".to_owned();
                        }
                    }
                    Err(Ok(reason)) => {
                        self.engine.peer_lost(peer, reason);
                        self.let_go(peer, &LostReason::Closed);
                        continue;
                    }
                    Err(Err(error @ (Errno::CONNREFUSED | Errno::NOENT))) if attempt.running => {
                        let why = socket::reason(error, "this process");
                        self.lose(peer.index, LostReason::Unreachable(Duration::ZERO, why));
                        continue;
                    }
                    Err(Err(error)) => attempt.again(now, socket::reason(error, "this process")),
                }
                self.attempts.push(attempt);
                let last = self.attempts.len() - 1;
                self.attempts.swap(i, last);
            }
            let attempt = &mut self.attempts[i];
            if attempt.patience.is_over(now) {
                let patience = attempt.patience.longest();
                let reason = LostReason::Unreachable(patience, attempt.reason.clone());
                self.lose(peer.index, reason);
                worked = true;
            } else {
                i += 1;
            }
        }
        worked
    }

    /// One try: on its way, lost for good, or an error after which it is tried again.
    fn dial(&self, attempt: &Attempt) -> Result<Greeted, Result<LostReason, Errno>> {
        let socket = socket::dial(&attempt.name, self.uid).map_err(Err)?;
        let who = socket::credentials(&socket).map_err(Err)?;
        let wanted = match attempt.name {
            Name::Of(uid, _) => who.uid == uid && self.admits(uid),
            _ => self.admits(who.uid),
        };
        if !wanted {
            let text = format!("user {} listens at {}", who.uid, attempt.address);
            return Err(Ok(LostReason::Refused(text)));
        }
        let (fd, pair) = Pair::create(self.config.sizes()).map_err(Err)?;
        let bell = EventFd::new().map_err(Err)?;
        let fds = [self.exports.fd(), fd.as_fd(), bell.as_fd()];
        match socket::send(&socket, &Note::Hello(self.greeting()).encode(), &fds) {
            // Closed already: why may be there to read.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(Err(error)),
        }
        self.poller.add(&socket, Source::Attempt, attempt.peer).map_err(Err)?;
        Ok(Greeted { socket, pair, bell, who })
    }

    /// Something came on the socket of an attempt.
    pub(crate) fn answered(&mut self, ready: Ready, now: Time) {
        let of = |peer: Peer| peer.index == ready.index && ready.is_of(peer.generation);
        let Some(at) = self.attempts.iter().position(|attempt| of(attempt.peer)) else { return };
        let attempt = &mut self.attempts[at];
        let peer = attempt.peer;
        let Some(greeted) = &attempt.waiting else { return };
        let (note, fds) = match socket::receive(&greeted.socket) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            // Nothing is wrong with the peer.
            Ok(received) if received.cut => {
                return attempt.again(now, socket::out_of_descriptors("this process"));
            }
            Ok(received) if !received.bytes.is_empty() => {
                (Note::decode(&received.bytes), received.fds)
            }
            Ok(_) => return attempt.again(now, "it closed the connection".to_owned()),
            Err(error) => return attempt.again(now, error.to_string()),
        };
        let lost = match note {
            Ok(Note::Refused { again: true, text }) => {
                attempt.told = true;
                return attempt.again(now, text);
            }
            Ok(Note::Refused { again: false, text }) => LostReason::Refused(text),
            Ok(Note::Welcome(greeting)) => match self.welcomed(at, greeting, fds) {
                Ok(()) => return,
                Err(what) => LostReason::Protocol(what),
            },
            Ok(_) => LostReason::Protocol("a wrong answer to a greeting".to_owned()),
            Err(garbled) => LostReason::Protocol(garbled.to_string()),
        };
        if let LostReason::Protocol(what) = &lost {
            self.violated(peer.index, what.clone());
        } else {
            self.lose(peer.index, lost);
        }
    }

    fn welcomed(&mut self, at: usize, greeting: Greeting, fds: Fds) -> Result<(), String> {
        let attempt = &self.attempts[at];
        if greeting.address != attempt.address {
            return Err(format!("{} answered for {}", greeting.address, attempt.address));
        }
        let attempt = self.attempts.swap_remove(at);
        let Some(Greeted { socket, pair, bell, who }) = attempt.waiting else {
            return Ok(());
        };
        let fds: [OwnedFd; 2] = fds.into_vec().try_into().map_err(|_| "descriptors missing")?;
        let [table, bell_out] = fds;
        let table = PeerTable::adopt(&table).map_err(|unfit| unfit.to_string())?;
        let joined = Joined { pair, table, bell, bell_out, who, uninvited: false };
        self.join(attempt.peer, greeting, socket, joined);
        Ok(())
    }

    // Others'.

    /// Accepts who waits. True if anybody did.
    pub(crate) fn accept(&mut self, now: Time) -> bool {
        self.arrivals.more = true;
        for accepted in 0..AT_ONCE {
            let taken = self.acceptor.accept(&self.listener.fd, now, |socket, shortage| {
                let note = Note::Refused { again: true, text: shortage.to_string() };
                let _ = socket::send(socket, &note.encode(), &[]);
            });
            let fd = match taken {
                Accepted::Connection(fd) => fd,
                Accepted::None => {
                    self.arrivals.more = false;
                    return accepted > 0;
                }
                Accepted::Exhausted(_) => {
                    self.leave_listener(self.acceptor.resumes());
                    return accepted > 0;
                }
            };
            let Ok(who) = socket::credentials(&fd) else { continue };
            if !self.admits(who.uid) {
                self.counters.refused += 1;
                let text = format!("user {} is not admitted here", who.uid);
                tracing::debug!(why = text, "a client is refused");
                let note = Note::Refused { again: false, text };
                let _ = socket::send(&fd, &note.encode(), &[]);
                continue;
            }
            if self.arrivals.count >= unauthenticated_limit(self.config.max_handshakes) {
                self.arrivals.make_room();
                self.counters.failed_handshakes += 1;
            }
            let free = self.arrivals.slots.iter().position(|(_, slot)| slot.is_none());
            let index = free.unwrap_or_else(|| {
                self.arrivals.slots.push((0, None));
                self.arrivals.slots.len() - 1
            });
            let generation = self.arrivals.slots[index].0;
            let as_peer = Peer { index: index as u32, generation };
            if self.poller.add(&fd, Source::Arrival, as_peer).is_err() {
                continue;
            }
            let deadline = now.after(self.config.handshake);
            self.arrivals.slots[index].1 = Some(Arrival { socket: fd, who, deadline });
            self.arrivals.count += 1;
            // Mostly the greeting is there already.
            self.greeted(index as u32, |current| current == generation);
        }
        true
    }

    /// Does not look at the listener before then: it would be ready all the time.
    fn leave_listener(&mut self, until: Time) {
        (self.arrivals.more, self.arrivals.resumes) = (false, Some(until));
        self.poller.set_polled(&self.listener.fd, false);
    }

    /// Looks at the listener again, if it is time to.
    pub(crate) fn resume_listener(&mut self, now: Time) {
        if self.arrivals.resumes.is_some_and(|then| now >= then) {
            (self.arrivals.more, self.arrivals.resumes) = (true, None);
            self.acceptor.resume();
            self.poller.set_polled(&self.listener.fd, true);
        }
    }

    /// Cuts those who have not spoken in time.
    pub(crate) fn cut_arrivals(&mut self, now: Time) {
        for index in 0..self.arrivals.slots.len() {
            let late = |slot: &Arrival| now >= slot.deadline;
            if self.arrivals.slots[index].1.as_ref().is_some_and(late) {
                self.arrivals.take(index as u32);
                self.counters.failed_handshakes += 1;
            }
        }
    }

    /// Something came from somebody who has not said who he is.
    pub(crate) fn greeted(&mut self, index: u32, is_current: impl Fn(u32) -> bool) {
        let slot = self.arrivals.slots.get(index as usize);
        let Some((now, Some(arrival))) = slot else { return };
        if !is_current(*now) {
            return;
        }
        let received = match socket::receive(&arrival.socket) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            received => received,
        };
        let Some(arrival) = self.arrivals.take(index) else { return };
        let result = match received {
            Ok(received) => match Note::decode(&received.bytes) {
                Ok(Note::Hello(_)) if received.cut => {
                    Err((true, socket::out_of_descriptors(LISTENER)))
                }
                Ok(Note::Hello(greeting)) => self.admit(&arrival, greeting, received.fds),
                Ok(_) => Err((false, "a greeting was expected".to_owned())),
                Err(garbled) => Err((false, garbled.to_string())),
            },
            Err(error) => Err((false, error.to_string())),
        };
        match result {
            Ok((peer, greeting, joined)) => self.join(peer, greeting, arrival.socket, joined),
            Err((again, text)) => {
                self.counters.failed_handshakes += u64::from(!again);
                tracing::debug!(why = text, again, "a client is refused");
                let note = Note::Refused { again, text };
                let _ = socket::send(&arrival.socket, &note.encode(), &[]);
            }
        }
    }

    /// Checks a greeting, and answers it.
    fn admit(
        &mut self,
        arrival: &Arrival,
        greeting: Greeting,
        fds: Fds,
    ) -> Result<(Peer, Greeting, Joined), (bool, String)> {
        let no = |text: String| (false, text);
        let who = arrival.who;
        let name = match greeting.address.scheme() {
            SCHEME => Name::parse(greeting.address.rest()).map_err(no)?,
            _ => return Err(no("an address of another transport".to_owned())),
        };
        if !name.may_be_claimed_by(who.uid, self.uid) {
            let hint = "open with shm://UID@NAME to talk to other users";
            return Err(no(format!(
                "{} is not user {}'s to say: {hint}",
                greeting.address, who.uid
            )));
        }
        if greeting.address == *self.engine.address() {
            return Err(no(format!("{} is the address of this endpoint", greeting.address)));
        }
        let (sizes, ours) = (greeting.sizes, self.config.sizes());
        if !sizes.are_possible() || sizes.max != ours.max {
            let Sizes { ring, long, max } = sizes;
            let text = format!("packets of {max} bytes in rings of {ring} and {long}");
            return Err(no(format!("{text}, here packets have up to {}", ours.max)));
        }
        if self.closing.is_full() {
            let text = "too many connections ended in the middle of a copy that is not over";
            return Err((true, text.to_owned()));
        }
        let fds: Result<[OwnedFd; 3], _> = fds.into_vec().try_into();
        let [table, pair, bell_out] = fds.map_err(|_| no("descriptors missing".to_owned()))?;
        let table = PeerTable::adopt(&table).map_err(|unfit| no(unfit.to_string()))?;
        let pair = Pair::adopt(&pair, sizes).map_err(|unfit| no(unfit.to_string()))?;
        let (peer, uninvited) = self.seat(&greeting)?;
        let bell = EventFd::new().map_err(|error| (true, socket::reason(error, LISTENER)))?;
        let fds = [self.exports.fd(), bell.as_fd()];
        let welcome = Note::Welcome(self.greeting()).encode();
        if let Err(error) = socket::send(&arrival.socket, &welcome, &fds) {
            if uninvited {
                self.engine.forget(peer);
            }
            return Err((true, error.to_string()));
        }
        Ok((peer, greeting, Joined { pair, table, bell, bell_out, who, uninvited }))
    }

    /// The entry for who comes to us, and whether it is new.
    fn seat(&mut self, greeting: &Greeting) -> Result<(Peer, bool), (bool, String)> {
        let Some(peer) = self.engine.find_peer(&greeting.address) else {
            let peer = self.engine.add_peer(&greeting.address);
            return peer.map(|peer| (peer, true)).map_err(|error| (false, error.to_string()));
        };
        if let Some(channel) = self.channel(peer.index) {
            let over = channel.is_over();
            if over {
                self.channels.hang_up(peer.index, LostReason::Closed);
            }
            return Err((true, "it is connected already".to_owned()));
        }
        let ours = self.engine.incarnation() > greeting.incarnation;
        let attempt = self.attempts.iter().find(|attempt| attempt.peer == peer);
        if ours && attempt.is_some_and(|attempt| attempt.waiting.is_some()) {
            return Err((true, "both connect, and the other attempt goes first".to_owned()));
        }
        Ok((peer, false))
    }

    // Both.

    /// The pair is complete: packets flow.
    fn join(&mut self, peer: Peer, greeting: Greeting, socket: OwnedFd, joined: Joined) {
        let Joined { pair, table, bell, bell_out, who, uninvited } = joined;
        self.attempts.retain(|attempt| attempt.peer != peer);
        let watched = self
            .poller
            .change(&socket, Source::Socket, peer)
            .and_then(|()| self.poller.add_doorbell(&bell, peer));
        if let Err(error) = watched {
            return self.lose(peer.index, LostReason::System(error.to_string()));
        }
        let process = socket::process(&socket, who.pid);
        let cross_memory = self.config.cross_memory
            && who.pid > 0
            && process.is_some()
            && cross::peek(who.pid, greeting.probe) == Ok(greeting.incarnation.get());
        let bell_out = match who.uid == self.uid {
            true => Bell::Event(EventFd::from(bell_out)),
            false => Bell::Socket,
        };
        let channel = Channel {
            handle: peer,
            incarnation: greeting.incarnation,
            pair,
            table,
            socket,
            bell_in: bell,
            bell_out,
            pid: who.pid,
            user: who.uid,
            process,
            cross_memory,
            may_write: None,
            uninvited,
            stuck: None,
            unposted: false,
            served: false,
            watched: false,
            next_pending: NextPending::NONE,
            overdrawn: false,
            assembly: None,
            touched: self.now,
            ending: None,
            mapped: Vec::new(),
            wanted: Vec::new(),
            uses: 0,
            given: Vec::new(),
        };
        self.channels.insert(channel);
        self.start_watching(peer.index);
        if self.accesses.of(peer.index) > 0 && self.accesses.enlist(peer.index) {
            self.working.push_back(peer.index);
        }
        self.engine.peer_up(peer, greeting.incarnation);
        debug_assert!(
            self.engine.peer_info(peer).is_some_and(|info| info.state == PeerState::Up),
            "a seat is for a peer that is connecting"
        );
    }
}

/// All that a pair is made of, beside its socket.
struct Joined {
    pair: Pair,
    table: PeerTable,
    bell: EventFd,
    bell_out: OwnedFd,
    who: Credentials,
    /// It came to us, and nobody has asked for it.
    uninvited: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_user_with_most_goes() {
        let mut arrivals = Arrivals::default();
        for (at, uid) in [(1, 7), (5, 8), (3, 8), (4, 9)] {
            let socket = rustix::stdio::stdin().try_clone_to_owned().unwrap();
            let who = Credentials { pid: 1, uid };
            let arrival = Arrival { socket, who, deadline: Time(at) };
            arrivals.slots.push((0, Some(arrival)));
            arrivals.count += 1;
        }
        arrivals.make_room();
        let left = |arrivals: &Arrivals| -> Vec<u64> {
            let slots = arrivals.slots.iter();
            slots.filter_map(|(_, slot)| Some(slot.as_ref()?.deadline.0)).collect()
        };
        assert_eq!((left(&arrivals), arrivals.count), (vec![1, 5, 4], 3));
        for _ in 0..4 {
            arrivals.make_room();
        }
        assert!(arrivals.is_empty() && left(&arrivals).is_empty());
    }
}
