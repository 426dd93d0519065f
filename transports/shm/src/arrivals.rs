//! Connections that other endpoints have made, and whose greetings have not come yet.

use crate::{
    control::ControlMessage,
    poller::{Poller, Source},
    socket::{self, Credentials, Listener, Received},
};
use petasos_fabric::{Accepted, Acceptor, Peer, Time};
use rustix::{fd::OwnedFd, io::Errno};
use std::collections::BTreeMap;

/// A connection whose greeting has not come yet.
pub(crate) struct Arrival {
    pub(crate) socket: OwnedFd,
    pub(crate) credentials: Credentials,
    pub(crate) deadline: Time,
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
    pub(crate) fn accept(&mut self, now: Time, poller: &Poller) -> Option<OwnedFd> {
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
    pub(crate) fn insert(&mut self, arrival: Arrival, poller: &Poller) -> Option<Peer> {
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
    pub(crate) fn receive(
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
    pub(crate) fn make_room(&mut self, most: usize) -> bool {
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
    pub(crate) fn cut_late(&mut self, now: Time) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    #[test]
    fn the_oldest_of_the_user_with_most_is_closed() {
        let name = Name::random(None, petasos_fabric::Incarnation::random().get());
        let uid = rustix::process::geteuid().as_raw();
        let listener = Listener::bind(&name, uid, false).unwrap();
        let mut arrivals = Arrivals::new(listener, &Poller::new().unwrap()).unwrap();
        for (at, uid) in [(1, 7), (5, 8), (3, 8), (4, 9)] {
            let socket = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned().unwrap();
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
