//! The table of peers.

use super::link::Link;
use crate::{Address, Peer};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Peers {
    slots: Vec<(u32, Option<Box<Link>>)>,
    free: Vec<u32>,
    by_address: HashMap<Address, Peer>,
}

impl Peers {
    /// Peers in the table, lost ones included.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, address: &Address, own: bool) -> &mut Link {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, slot) = &mut self.slots[index as usize];
        let handle = Peer { index, generation: *generation };
        self.by_address.insert(address.clone(), handle);
        slot.insert(Box::new(Link::new(handle, address.clone(), own)))
    }

    pub(super) fn find(&self, address: &Address) -> Option<Peer> {
        self.by_address.get(address).copied()
    }

    /// The address is not this peer's any more.
    pub(super) fn unname(&mut self, address: &Address, peer: Peer) {
        if self.find(address) == Some(peer) {
            self.by_address.remove(address);
        }
    }

    pub(super) fn get(&self, peer: Peer) -> Option<&Link> {
        let (generation, link) = self.slots.get(peer.index as usize)?;
        link.as_deref().filter(|_| *generation == peer.generation)
    }

    pub(super) fn get_mut(&mut self, peer: Peer) -> Option<&mut Link> {
        let (generation, link) = self.slots.get_mut(peer.index as usize)?;
        link.as_deref_mut().filter(|_| *generation == peer.generation)
    }

    pub(super) fn at(&self, index: u32) -> Option<&Link> {
        self.slots.get(index as usize)?.1.as_deref()
    }

    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut Link> {
        self.slots.get_mut(index as usize)?.1.as_deref_mut()
    }

    pub(super) fn remove(&mut self, peer: Peer) {
        if self.get(peer).is_some() {
            let slot = &mut self.slots[peer.index as usize];
            *slot = (slot.0.wrapping_add(1), None);
            self.free.push(peer.index);
        }
    }
}
