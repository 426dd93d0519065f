//! All accesses that have not ended: found by their tokens, and in turns by their peers.

use super::Access;
use petasos_fabric::Token;
use slab::Slab;
use std::collections::{HashMap, VecDeque};

/// Where an access is in the list; which of the place's users it is, the queues say as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize, u32);

#[derive(Default)]
pub(crate) struct Accesses {
    list: Slab<Entry>,
    tokens: HashMap<Token, Place>,
    /// By the peer's slot.
    queues: Vec<Queue>,
    serial: u32,
    /// Entries of queues that were looked at, to see that none is looked at again and again.
    #[cfg(test)]
    pub(crate) steps: u64,
}

struct Entry {
    serial: u32,
    peer: u32,
    /// Away while it is moved on.
    access: Option<Access>,
}

/// Those of one peer. What was taken back stays in the line until it is met, or there is more of that than of others.
#[derive(Default)]
struct Queue {
    line: VecDeque<Place>,
    live: usize,
    /// The peer is in the list of those whose turn comes.
    listed: bool,
}

impl Accesses {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// How many there are of a peer.
    pub(crate) fn of(&self, peer: u32) -> usize {
        self.queues.get(peer as usize).map_or(0, |queue| queue.live)
    }

    /// The peer is to be put into the list of those whose turn comes. False if it is there.
    pub(crate) fn enlist(&mut self, peer: u32) -> bool {
        let queue = self.queues.get_mut(peer as usize);
        queue.is_some_and(|queue| !std::mem::replace(&mut queue.listed, true))
    }

    /// It left that list.
    pub(crate) fn delist(&mut self, peer: u32) {
        if let Some(queue) = self.queues.get_mut(peer as usize) {
            queue.listed = false;
        }
    }

    /// Those of a peer.
    pub(crate) fn all_of(&self, peer: u32) -> impl Iterator<Item = &Access> {
        let line = self.queues.get(peer as usize).map(|queue| queue.line.iter());
        line.into_iter().flatten().filter_map(|place| {
            let entry = self.list.get(place.0).filter(|entry| entry.serial == place.1)?;
            entry.access.as_ref()
        })
    }

    /// Puts a new one behind the others of its peer.
    pub(crate) fn push(&mut self, peer: u32, access: Access) {
        let index = peer as usize;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, Queue::default);
        }
        self.serial = self.serial.wrapping_add(1);
        let (serial, token) = (self.serial, access.token());
        let place = Place(self.list.insert(Entry { serial, peer, access: Some(access) }), serial);
        self.tokens.insert(token, place);
        let queue = &mut self.queues[index];
        queue.line.push_back(place);
        queue.live += 1;
    }

    /// Takes the next one of a peer, to move it on: it ends ([`Accesses::end`]), or goes back.
    pub(crate) fn next(&mut self, peer: u32) -> Option<(Place, Access)> {
        let queue = self.queues.get_mut(peer as usize)?;
        while let Some(place) = queue.line.pop_front() {
            #[cfg(test)]
            {
                self.steps += 1;
            }
            let entry = self.list.get_mut(place.0).filter(|entry| entry.serial == place.1);
            if let Some(access) = entry.and_then(|entry| entry.access.take()) {
                return Some((place, access));
            }
        }
        None
    }

    /// Back behind the others of its peer, or in front of them.
    pub(crate) fn put_back(&mut self, place: Place, access: Access, in_front: bool) {
        let Some(entry) = self.list.get_mut(place.0) else { return };
        entry.access = Some(access);
        let line = &mut self.queues[entry.peer as usize].line;
        if in_front { line.push_front(place) } else { line.push_back(place) }
    }

    /// One that was taken has ended: by its token it is not found any more.
    pub(crate) fn end(&mut self, place: Place, token: Token) {
        let Some(entry) = self.list.try_remove(place.0) else { return };
        self.queues[entry.peer as usize].live -= 1;
        if self.tokens.get(&token) == Some(&place) {
            self.tokens.remove(&token);
        }
    }

    /// Takes one back: whose it was.
    pub(crate) fn cancel(&mut self, token: Token) -> Option<u32> {
        let place = self.tokens.remove(&token)?;
        let peer = self.list.try_remove(place.0)?.peer;
        let Accesses { list, queues, .. } = self;
        let queue = &mut queues[peer as usize];
        queue.live -= 1;
        if queue.line.len() > 2 * queue.live + 16 {
            #[cfg(test)]
            {
                self.steps += queue.line.len() as u64;
            }
            let there = |place: &Place| list.get(place.0).is_some_and(|e| e.serial == place.1);
            queue.line.retain(there);
        }
        Some(peer)
    }

    /// Takes the next one of a peer that is over.
    pub(crate) fn take(&mut self, peer: u32) -> Option<Access> {
        let (place, access) = self.next(peer)?;
        self.end(place, access.token());
        Some(access)
    }
}
