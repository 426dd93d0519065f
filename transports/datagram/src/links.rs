//! The peers of an endpoint, by their slots and by what else they are known by.

use crate::link::Link;
use petasos_fabric::Peer;
use std::collections::{HashMap, hash_map::Entry};

/// All links.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// By the slot of the peer.
    links: Vec<Option<Box<Link>>>,
    /// By the handles at the control endpoint.
    control_handles: HashMap<Peer, Peer>,
    /// The slots of peers, by what their completion data begins with.
    completions: HashMap<u64, u32>,
}

impl Links {
    /// Adds a peer that the control endpoint knows as `control`.
    pub(crate) fn add(&mut self, peer: Peer, control: Peer, ticket: u64) {
        let index = peer.index as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        self.links[index] = Some(Box::new(Link::new(peer, control, ticket)));
        self.control_handles.insert(control, peer);
    }

    /// Takes a peer out.
    pub(crate) fn remove(&mut self, peer: Peer) -> Option<Box<Link>> {
        self.of(peer)?;
        let link = self.links[peer.index as usize].take()?;
        self.control_handles.remove(&link.control());
        self.completions.remove(&link.inward.completion_name());
        Some(link)
    }

    /// The link in a slot.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Link> {
        self.links.get(index as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Link> {
        self.links.get_mut(index as usize)?.as_deref_mut()
    }

    /// The link to a peer; `None` if its handle is stale.
    #[inline]
    pub(crate) fn of(&mut self, peer: Peer) -> Option<&mut Link> {
        self.get_mut(peer.index).filter(|link| link.peer() == peer)
    }

    /// The number of slots.
    #[inline]
    pub(crate) fn slots(&self) -> u32 {
        self.links.len() as u32
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().flatten().map(|link| &**link)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut().flatten().map(|link| &mut **link)
    }

    /// The peer that the control endpoint knows by this handle.
    #[inline]
    pub(crate) fn by_control(&self, control: Peer) -> Option<Peer> {
        self.control_handles.get(&control).copied()
    }

    /// The slot of the peer whose completion data begins so.
    #[inline]
    pub(crate) fn by_completion(&self, name: u64) -> Option<u32> {
        self.completions.get(&name).copied()
    }

    /// Has a peer's completion data begin with this name. False if another's does, or there is no
    /// such peer.
    pub(crate) fn name_completion(&mut self, index: u32, name: u64) -> bool {
        let Links { links, completions, .. } = self;
        if let Entry::Vacant(vacant) = completions.entry(name)
            && let Some(Some(link)) = links.get_mut(index as usize)
        {
            vacant.insert(index);
            link.inward.set_completion_name(name);
            return true;
        }
        false
    }
}
