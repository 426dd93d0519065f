//! The table of peers.

use super::connection::{Connection, PeerEntry};
use crate::{Address, Peer};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Peers {
    slots: Vec<(u32, Slot)>,
    free: Vec<u32>,
    by_address: HashMap<Address, Peer>,
}

/// Most peers of many are idle, and then little is kept.
#[derive(Debug)]
enum Slot {
    Free,
    Idle(Box<PeerEntry>),
    Busy(Box<Connection>),
}

impl Slot {
    fn entry(&self) -> Option<&PeerEntry> {
        match self {
            Slot::Free => None,
            Slot::Idle(entry) => Some(entry),
            Slot::Busy(conn) => Some(&conn.entry),
        }
    }

    /// All of it, made if it was not kept.
    fn connection(&mut self) -> Option<&mut Connection> {
        if let Slot::Idle(_) = self
            && let Slot::Idle(entry) = std::mem::replace(self, Slot::Free)
        {
            *self = Slot::Busy(Box::new(Connection::new(*entry)));
        }
        match self {
            Slot::Busy(conn) => Some(conn),
            _ => None,
        }
    }
}

impl Peers {
    /// Peers in the table, lost ones included.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, address: &Address, own: bool) -> Peer {
        let index = self.free.pop().unwrap_or_else(|| {
            if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact(16 + self.slots.len() / 8);
            }
            self.slots.push((0, Slot::Free));
            self.slots.len() as u32 - 1
        });
        let (generation, slot) = &mut self.slots[index as usize];
        let handle = Peer { index, generation: *generation };
        self.by_address.insert(address.clone(), handle);
        *slot = Slot::Idle(Box::new(PeerEntry::new(handle, address.clone(), own)));
        handle
    }

    pub(super) fn find(&self, address: &Address) -> Option<Peer> {
        self.by_address.get(address).copied()
    }

    /// The address is not this peer's any more.
    pub(super) fn release_address(&mut self, address: &Address, peer: Peer) {
        if self.find(address) == Some(peer) {
            self.by_address.remove(address);
        }
    }

    fn slot(&self, peer: Peer) -> Option<&Slot> {
        let (generation, slot) = self.slots.get(peer.index as usize)?;
        (*generation == peer.generation).then_some(slot)
    }

    pub(super) fn get(&self, peer: Peer) -> Option<&PeerEntry> {
        self.slot(peer)?.entry()
    }

    /// The same, and what is going on with the peer, if anything is.
    pub(super) fn entry_and_connection(
        &self,
        peer: Peer,
    ) -> Option<(&PeerEntry, Option<&Connection>)> {
        match self.slot(peer)? {
            Slot::Free => None,
            Slot::Idle(entry) => Some((entry, None)),
            Slot::Busy(conn) => Some((&conn.entry, Some(conn))),
        }
    }

    pub(super) fn get_mut(&mut self, peer: Peer) -> Option<&mut Connection> {
        let (generation, slot) = self.slots.get_mut(peer.index as usize)?;
        if *generation == peer.generation { slot.connection() } else { None }
    }

    /// Those with which something is going on.
    pub(super) fn busy(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|(_, slot)| match slot {
            Slot::Busy(conn) => Some(&**conn),
            _ => None,
        })
    }

    /// What is known of a peer in any case, to be changed.
    #[inline]
    pub(super) fn entry_mut(&mut self, peer: Peer) -> Option<&mut PeerEntry> {
        let (generation, slot) = self.slots.get_mut(peer.index as usize)?;
        match slot {
            _ if *generation != peer.generation => None,
            Slot::Free => None,
            Slot::Idle(entry) => Some(entry),
            Slot::Busy(conn) => Some(&mut conn.entry),
        }
    }

    /// All of them.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().filter_map(|(_, slot)| slot.connection())
    }

    /// Credit of all that they have not used.
    pub(super) fn promised(&self) -> usize {
        let entries = self.slots.iter().filter_map(|(_, slot)| slot.entry());
        entries.map(|entry| entry.credit.promised()).sum()
    }

    pub(super) fn at(&self, index: u32) -> Option<&PeerEntry> {
        self.slots.get(index as usize)?.1.entry()
    }

    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.slots.get_mut(index as usize)?.1.connection()
    }

    /// Keeps no more of a peer than is needed.
    pub(super) fn trim(&mut self, peer: Peer) {
        let Some((generation, slot)) = self.slots.get_mut(peer.index as usize) else { return };
        if *generation != peer.generation {
            return;
        }
        match std::mem::replace(slot, Slot::Free) {
            Slot::Busy(conn) if conn.is_plain() => *slot = Slot::Idle(Box::new(conn.entry)),
            Slot::Busy(mut conn) => {
                conn.trim();
                *slot = Slot::Busy(conn);
            }
            other => *slot = other,
        }
    }

    pub(super) fn remove(&mut self, peer: Peer) {
        if self.get(peer).is_some() {
            let slot = &mut self.slots[peer.index as usize];
            *slot = (slot.0.wrapping_add(1), Slot::Free);
            self.free.push(peer.index);
        }
    }
}
