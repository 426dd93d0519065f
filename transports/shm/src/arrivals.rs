//! Connections that other endpoints make.

use crate::{
    Shm,
    control::{ControlMessage, Greeting},
    join::Joined,
    name::Name,
    pair::{Pair, Sizes},
    poller::{Poller, Source},
    socket::{self, Credentials, Fds, Listener, Received},
    state::SCHEME,
    table::PeerTable,
};
use petasos_fabric::{
    Accepted, Acceptor, EventFd, LostReason, Peer, Time, acceptor::unauthenticated_limit,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
};
use std::collections::BTreeMap;

/// This process, in the words of the one that connects.
const LISTENER: &str = "the listening process";
/// Connections accepted in one pass.
const AT_ONCE: usize = 16;

/// A connection whose greeting has not come yet.
struct Arrival {
    socket: OwnedFd,
    credentials: Credentials,
    deadline: Time,
}

/// The listener, and the connections whose greetings have not come yet.
pub(crate) struct Arrivals {
    listener: Listener,
    acceptor: Acceptor,
    /// With the generation of each slot.
    slots: Vec<(u32, Option<Arrival>)>,
    count: usize,
    /// More connections may wait to be accepted.
    backlog: bool,
    /// When the listener is polled again, where it was left alone.
    resumes: Option<Time>,
}

impl Arrivals {
    /// Polls the listener from now on.
    pub(crate) fn new(listener: Listener, poller: &Poller) -> Result<Arrivals, Errno> {
        poller.add_listener(&listener.fd)?;
        Ok(Arrivals {
            listener,
            acceptor: Acceptor::new(),
            slots: Vec::new(),
            count: 0,
            backlog: false,
            resumes: None,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog
    }

    /// The listener is ready.
    pub(crate) fn set_backlog(&mut self) {
        self.backlog = true;
    }

    /// System calls that took a connection, or tried to.
    pub(crate) fn tries(&self) -> u64 {
        self.acceptor.tries()
    }

    /// Connections that could not be kept for want of descriptors or memory.
    pub(crate) fn turned_away(&self) -> u64 {
        self.acceptor.turned_away()
    }

    /// When the first greeting is overdue, or the listener is polled again.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let greeting = self.slots.iter().filter_map(|(_, slot)| Some(slot.as_ref()?.deadline));
        greeting.chain(self.resumes).min()
    }

    /// Accepts a connection, if one waits.
    fn accept(&mut self, now: Time, poller: &Poller) -> Option<OwnedFd> {
        let Arrivals { listener, acceptor, backlog, resumes, .. } = self;
        let accepted = acceptor.accept(&listener.fd, now, |socket, shortage| {
            let note = ControlMessage::Refused { again: true, text: shortage.to_string() };
            let _ = socket::send(socket, &note.encode(), &[]);
        });
        match accepted {
            Accepted::Connection(fd) => return Some(fd),
            Accepted::None => {}
            Accepted::Exhausted(_) => {
                *resumes = Some(acceptor.resumes());
                poller.set_polled(&listener.fd, false);
            }
        }
        *backlog = false;
        None
    }

    /// Polls a listener that was left alone again, if it is time to.
    pub(crate) fn resume(&mut self, now: Time, poller: &Poller) {
        if self.resumes.is_some_and(|then| now >= then) {
            (self.backlog, self.resumes) = (true, None);
            self.acceptor.resume();
            poller.set_polled(&self.listener.fd, true);
        }
    }

    /// Waits for the greeting of a connection: its slot and that slot's generation.
    fn insert(&mut self, arrival: Arrival, poller: &Poller) -> Option<Peer> {
        let free = self.slots.iter().position(|(_, slot)| slot.is_none());
        let index = free.unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        let (generation, slot) = &mut self.slots[index];
        let handle = Peer { index: index as u32, generation: *generation };
        poller.add(&arrival.socket, Source::Arrival, handle).ok()?;
        *slot = Some(arrival);
        self.count += 1;
        Some(handle)
    }

    fn take(&mut self, index: u32) -> Option<Arrival> {
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        let arrival = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.count -= 1;
        Some(arrival)
    }

    /// Reads the greeting of a connection, which leaves its slot, if something has come.
    fn receive(
        &mut self,
        index: u32,
        is_current: impl Fn(u32) -> bool,
    ) -> Option<(Arrival, Result<Received, Errno>)> {
        let (generation, slot) = self.slots.get(index as usize)?;
        let arrival = slot.as_ref().filter(|_| is_current(*generation))?;
        match socket::receive(&arrival.socket) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            received => Some((self.take(index)?, received)),
        }
    }

    /// Makes room for another connection where `most` have not greeted. False if there is room.
    ///
    /// Closes the oldest of the user that has most: a peer greets as soon as it is connected, so
    /// one that has been silent for a while is not about to.
    fn make_room(&mut self, most: usize) -> bool {
        if self.count < most {
            return false;
        }
        let all = || {
            let slots = self.slots.iter().enumerate();
            slots.filter_map(|(index, (_, slot))| Some((index, slot.as_ref()?)))
        };
        let mut of = BTreeMap::<u32, usize>::new();
        all().for_each(|(_, arrival)| *of.entry(arrival.credentials.uid).or_default() += 1);
        let user = of.into_iter().max_by_key(|(_, count)| *count).map(|(user, _)| user);
        let own = all().filter(|(_, arrival)| Some(arrival.credentials.uid) == user);
        let oldest = own.min_by_key(|(_, arrival)| arrival.deadline).map(|(index, _)| index);
        if let Some(index) = oldest {
            self.take(index as u32);
        }
        true
    }

    /// Closes connections whose greeting is overdue: how many.
    fn cut_late(&mut self, now: Time) -> u64 {
        let late = |slot: &(u32, Option<Arrival>)| {
            slot.1.as_ref().is_some_and(|arrival| now >= arrival.deadline)
        };
        let mut cut = 0;
        for index in 0..self.slots.len() {
            if late(&self.slots[index]) {
                self.take(index as u32);
                cut += 1;
            }
        }
        cut
    }
}

impl Shm {
    /// Accepts the connections that wait. True if there was one.
    pub(crate) fn accept(&mut self, now: Time) -> bool {
        for accepted in 0..AT_ONCE {
            let Some(fd) = self.arrivals.accept(now, &self.poller) else { return accepted > 0 };
            let Ok(credentials) = socket::credentials(&fd) else { continue };
            if !self.admits(credentials.uid) {
                self.counters.refused += 1;
                let text = format!("user {} is not admitted here", credentials.uid);
                tracing::debug!(why = text, "a client is refused");
                let note = ControlMessage::Refused { again: false, text };
                let _ = socket::send(&fd, &note.encode(), &[]);
                continue;
            }
            if self.arrivals.make_room(unauthenticated_limit(self.config.max_handshakes)) {
                self.counters.failed_handshakes += 1;
            }
            let deadline = now.after(self.config.handshake);
            let arrival = Arrival { socket: fd, credentials, deadline };
            if let Some(handle) = self.arrivals.insert(arrival, &self.poller) {
                // Mostly the greeting is there already.
                self.greeted(handle.index, |current| current == handle.generation);
            }
        }
        true
    }

    /// Closes connections whose greeting is overdue.
    pub(crate) fn cut_arrivals(&mut self, now: Time) {
        if !self.arrivals.is_empty() {
            self.counters.failed_handshakes += self.arrivals.cut_late(now);
        }
    }

    /// Something came on a connection whose greeting was still to come.
    pub(crate) fn greeted(&mut self, index: u32, is_current: impl Fn(u32) -> bool) {
        let Some((arrival, received)) = self.arrivals.receive(index, is_current) else { return };
        let result = match received {
            Ok(received) => match ControlMessage::decode(&received.bytes) {
                Ok(ControlMessage::Hello(_)) if received.cut => {
                    Err((true, socket::out_of_descriptors(LISTENER)))
                }
                Ok(ControlMessage::Hello(greeting)) => self.admit(&arrival, greeting, received.fds),
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
                let note = ControlMessage::Refused { again, text };
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
        let credentials = arrival.credentials;
        let name = match greeting.address.scheme() {
            SCHEME => Name::parse(greeting.address.rest()).map_err(no)?,
            _ => return Err(no("an address of another transport".to_owned())),
        };
        if !name.may_be_claimed_by(credentials.uid, self.uid) {
            let hint = "open with shm://UID@NAME to talk to other users";
            return Err(no(format!(
                "{} is not user {}'s to claim: {hint}",
                greeting.address, credentials.uid
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
        let [table, pair, peer_doorbell] = fds.map_err(|_| no("descriptors missing".to_owned()))?;
        let table = PeerTable::adopt(&table).map_err(|unfit| no(unfit.to_string()))?;
        let pair = Pair::adopt(&pair, sizes).map_err(|unfit| no(unfit.to_string()))?;
        let (peer, uninvited) = self.assign_peer(&greeting)?;
        let doorbell = EventFd::new().map_err(|error| (true, socket::reason(error, LISTENER)))?;
        let fds = [self.exports.fd(), doorbell.as_fd()];
        let welcome = ControlMessage::Welcome(self.greeting()).encode();
        if let Err(error) = socket::send(&arrival.socket, &welcome, &fds) {
            if uninvited {
                self.engine.forget(peer);
            }
            return Err((true, error.to_string()));
        }
        Ok((
            peer,
            greeting,
            Joined { pair, table, doorbell, peer_doorbell, credentials, uninvited },
        ))
    }

    /// The handle of the peer that connects, and whether it is new.
    fn assign_peer(&mut self, greeting: &Greeting) -> Result<(Peer, bool), (bool, String)> {
        let Some(peer) = self.engine.find_peer(&greeting.address) else {
            let peer = self.engine.add_peer(&greeting.address);
            return peer.map(|peer| (peer, true)).map_err(|error| (false, error.to_string()));
        };
        if let Some(channel) = self.channel(peer.index) {
            if channel.is_over() {
                self.channels.hang_up(peer.index, LostReason::Closed);
            }
            return Err((true, "it is connected already".to_owned()));
        }
        let ours = self.engine.incarnation() > greeting.incarnation;
        if ours && self.attempts.awaits_answer(peer) {
            return Err((true, "both connect, and the other attempt goes first".to_owned()));
        }
        Ok((peer, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_user_with_most_is_closed() {
        let name = Name::random(None, petasos_fabric::Incarnation::random().get());
        let uid = rustix::process::geteuid().as_raw();
        let listener = Listener::bind(&name, uid, false).unwrap();
        let mut arrivals = Arrivals::new(listener, &Poller::new().unwrap()).unwrap();
        for (at, uid) in [(1, 7), (5, 8), (3, 8), (4, 9)] {
            let socket = rustix::stdio::stdin().try_clone_to_owned().unwrap();
            let credentials = Credentials { pid: 1, uid };
            let arrival = Arrival { socket, credentials, deadline: Time(at) };
            arrivals.slots.push((0, Some(arrival)));
            arrivals.count += 1;
        }
        assert!(!arrivals.make_room(5) && arrivals.make_room(4));
        let left = |arrivals: &Arrivals| -> Vec<u64> {
            let slots = arrivals.slots.iter();
            slots.filter_map(|(_, slot)| Some(slot.as_ref()?.deadline.0)).collect()
        };
        assert_eq!((left(&arrivals), arrivals.count), (vec![1, 5, 4], 3));
        for _ in 0..4 {
            arrivals.make_room(0);
        }
        assert!(arrivals.is_empty() && left(&arrivals).is_empty());
    }
}
