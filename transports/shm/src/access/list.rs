//! All accesses that have not ended: found by their tokens, and by peer, in turns.

use super::Access;
use petasos_fabric::{Slice, Token};
use slab::Slab;
use std::collections::{HashMap, VecDeque};

/// Where an access is in the list, and the serial number that tells it from others there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessId(usize, u32);

#[derive(Default)]
pub(crate) struct Accesses {
    list: Slab<Entry>,
    tokens: HashMap<Token, AccessId>,
    /// By the peer's slot.
    queues: Vec<Queue>,
    /// Connected peers with accesses that can be moved on.
    scheduled: VecDeque<u32>,
    serial: u32,
    /// Entries of queues that were visited, to see that none is visited again and again.
    #[cfg(test)]
    pub(crate) steps: u64,
}

struct Entry {
    serial: u32,
    peer: u32,
    /// None while it is moved on.
    access: Option<Access>,
}

/// Those of one peer. A cancelled one stays in the line until its turn comes, or until there are
/// more of them than of others.
#[derive(Default)]
struct Queue {
    line: VecDeque<AccessId>,
    live: usize,
    /// The peer waits for a turn, or has it.
    scheduled: bool,
}

impl Accesses {
    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// How many there are of a peer.
    pub(crate) fn of(&self, peer: u32) -> usize {
        self.queues.get(peer as usize).map_or(0, |queue| queue.live)
    }

    // Turns of peers.

    /// The peer is connected: it gets a turn, if there is anything to do, and it has none.
    pub(crate) fn schedule(&mut self, peer: u32) {
        let queue = self.queues.get_mut(peer as usize).filter(|queue| queue.live > 0);
        if queue.is_some_and(|queue| !std::mem::replace(&mut queue.scheduled, true)) {
            self.scheduled.push_back(peer);
        }
    }

    /// The peer is not connected any more.
    pub(crate) fn unschedule(&mut self, peer: u32) {
        if let Some(queue) = self.queues.get_mut(peer as usize) {
            queue.scheduled = false;
        }
        self.scheduled.retain(|other| *other != peer);
    }

    /// Peers that wait for a turn.
    #[inline]
    pub(crate) fn scheduled(&self) -> &VecDeque<u32> {
        &self.scheduled
    }

    /// The peer whose turn it is: see [`Accesses::end_turn`].
    pub(crate) fn next_peer(&mut self) -> Option<u32> {
        self.scheduled.pop_front()
    }

    /// The turn of a peer is over: another one follows if it is connected and has accesses left.
    pub(crate) fn end_turn(&mut self, peer: u32, connected: bool) {
        let more = connected && self.of(peer) > 0;
        if more {
            self.scheduled.push_back(peer);
        } else if let Some(queue) = self.queues.get_mut(peer as usize) {
            queue.scheduled = false;
        }
    }

    // The accesses of a peer.

    /// Those of a peer.
    pub(crate) fn all_of(&self, peer: u32) -> impl Iterator<Item = &Access> {
        let line = self.queues.get(peer as usize).map(|queue| queue.line.iter());
        line.into_iter().flatten().filter_map(|id| {
            let entry = self.list.get(id.0).filter(|entry| entry.serial == id.1)?;
            entry.access.as_ref()
        })
    }

    /// One that moves bytes of this memory, and its peer.
    pub(crate) fn using(&self, memory: &Slice) -> Option<(Token, u32)> {
        let mut all =
            self.list.iter().filter_map(|(_, entry)| Some((entry, entry.access.as_ref()?)));
        let (entry, access) = all.find(|(_, access)| access.uses(memory))?;
        Some((access.token(), entry.peer))
    }

    /// Adds an access behind the others of its peer.
    pub(crate) fn push(&mut self, peer: u32, access: Access) {
        let index = peer as usize;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, Queue::default);
        }
        self.serial = self.serial.wrapping_add(1);
        let (serial, token) = (self.serial, access.token());
        let id = AccessId(self.list.insert(Entry { serial, peer, access: Some(access) }), serial);
        self.tokens.insert(token, id);
        let queue = &mut self.queues[index];
        queue.line.push_back(id);
        queue.live += 1;
    }

    /// Takes the next one of a peer, to move it on: it ends ([`Accesses::end`]), or goes back.
    pub(crate) fn next(&mut self, peer: u32) -> Option<(AccessId, Access)> {
        let queue = self.queues.get_mut(peer as usize)?;
        while let Some(id) = queue.line.pop_front() {
            #[cfg(test)]
            {
                self.steps += 1;
            }
            let entry = self.list.get_mut(id.0).filter(|entry| entry.serial == id.1);
            if let Some(access) = entry.and_then(|entry| entry.access.take()) {
                return Some((id, access));
            }
        }
        None
    }

    /// Back behind the others of its peer, or in front of them.
    pub(crate) fn put_back(&mut self, id: AccessId, access: Access, in_front: bool) {
        let Some(entry) = self.list.get_mut(id.0) else { return };
        entry.access = Some(access);
        let line = &mut self.queues[entry.peer as usize].line;
        if in_front { line.push_front(id) } else { line.push_back(id) }
    }

    /// One that was taken has ended: by its token it is not found any more.
    pub(crate) fn end(&mut self, id: AccessId, token: Token) {
        let Some(entry) = self.list.try_remove(id.0) else { return };
        self.queues[entry.peer as usize].live -= 1;
        if self.tokens.get(&token) == Some(&id) {
            self.tokens.remove(&token);
        }
    }

    /// Cancels an access, which is not being moved on: gives it, and the peer to which it went.
    pub(crate) fn cancel(&mut self, token: Token) -> Option<(u32, Access)> {
        let id = self.tokens.remove(&token)?;
        let Entry { peer, access, .. } = self.list.try_remove(id.0)?;
        let Accesses { list, queues, .. } = self;
        let queue = &mut queues[peer as usize];
        queue.live -= 1;
        if queue.line.len() > 2 * queue.live + 16 {
            #[cfg(test)]
            {
                self.steps += queue.line.len() as u64;
            }
            let there = |id: &AccessId| list.get(id.0).is_some_and(|e| e.serial == id.1);
            queue.line.retain(there);
        }
        Some((peer, access?))
    }

    /// Takes the next one of a peer that has ended.
    pub(crate) fn take(&mut self, peer: u32) -> Option<Access> {
        let (id, access) = self.next(peer)?;
        self.end(id, access.token());
        Some(access)
    }
}
