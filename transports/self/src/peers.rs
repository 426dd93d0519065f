//! The table of peers: by handle, by address, by incarnation, and by link.
//!
//! A *link* is a process-wide number for one connection between two endpoints. Both ends may
//! connect at once; then the peer has two links, and either ends it.

use crate::{
    allotment::Allotment,
    flush::{Queued, Refusals},
    hub::Hub,
    outgoing::Outgoing,
};
use petasos_fabric::{
    Address, Incarnation, LostReason, Peer, PeerInfo, PeerQuota, PeerState, Time, fence::Deferred,
};
use smallvec::SmallVec;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

pub(crate) struct Entry {
    generation: u32,
    pub(crate) address: Address,
    pub(crate) state: State,
    /// This peer was resolved: its slot stays until it is forgotten.
    pub(crate) resolved: bool,
    /// Free to be used again; may still be read until it is.
    free: bool,
    /// Forgotten: not even to be read.
    stale: bool,
    /// Messages that wait for the connection, or for leases there.
    pub(crate) messages: VecDeque<Outgoing>,
    /// Expected ones, which need no lease: they wait for the connection alone.
    pub(crate) tagged: VecDeque<Outgoing>,
    pub(crate) accesses: VecDeque<Queued>,
    pub(crate) refusals: Refusals,
    /// What waits for a fence.
    pub(crate) deferred: Deferred,
    /// The first access waits for room for its event.
    pub(crate) stalled: bool,
    /// `inject` said `Full`.
    pub(crate) wants_room: bool,
    /// What it may have here, if that was set.
    pub(crate) quota: Option<PeerQuota>,
}

pub(crate) enum State {
    Connecting {
        patience: Duration,
        /// Known from the first `progress` on.
        deadline: Option<Time>,
    },
    Up {
        hub: Arc<Hub>,
        links: SmallVec<[u64; 2]>,
        /// What this endpoint may have of the peer's memory.
        may: Arc<Allotment>,
    },
    Lost(LostReason),
}

#[derive(Default)]
pub(crate) struct Peers {
    entries: Vec<Entry>,
    free: VecDeque<u32>,
    by_address: HashMap<Address, u32>,
    by_incarnation: HashMap<Incarnation, u32>,
    links: HashMap<u64, u32>,
    /// Those with something to do in `progress`. A peer may be in it without having any.
    active: Vec<u32>,
}

impl Entry {
    pub(crate) fn busy(&self) -> bool {
        let connecting = matches!(self.state, State::Connecting { .. });
        let queued = self.messages.len() + self.tagged.len() + self.accesses.len();
        connecting || self.wants_room || queued > 0 || !self.deferred.is_empty()
    }

    pub(crate) fn up(&self) -> Option<(Arc<Hub>, u64)> {
        match &self.state {
            State::Up { hub, links, .. } => Some((Arc::clone(hub), links[0])),
            _ => None,
        }
    }

    /// Whether a message to it of any length would find room.
    pub(crate) fn has_room(&self) -> bool {
        matches!(&self.state, State::Up { hub, may, .. } if hub.has_room(may))
    }
}

impl Peers {
    pub(crate) fn get(&self, peer: Peer) -> Option<&Entry> {
        let entry = self.entries.get(peer.index as usize)?;
        (entry.generation == peer.generation && !entry.stale).then_some(entry)
    }

    pub(crate) fn at(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    pub(crate) fn handle(&self, index: u32) -> Peer {
        let generation = self.entries[index as usize].generation;
        Peer { index, generation }
    }

    pub(crate) fn info(&self, peer: Peer) -> Option<PeerInfo> {
        let entry = self.get(peer)?;
        let (incarnation, state) = match &entry.state {
            State::Connecting { .. } => (None, PeerState::Connecting),
            State::Up { hub, .. } => (Some(hub.incarnation), PeerState::Up),
            State::Lost(reason) => (None, PeerState::Lost(reason.clone())),
        };
        let attended = matches!(&entry.state, State::Up { hub, .. } if hub.is_attended());
        let info = PeerInfo::new(entry.address.clone(), incarnation, state);
        let info = info.with_attended(attended);
        // All of them are in this process.
        Some(info.with_user(Some(rustix::process::geteuid().as_raw())))
    }

    pub(crate) fn by_address(&self, address: &Address) -> Option<u32> {
        self.by_address.get(address).copied()
    }

    pub(crate) fn by_incarnation(&self, incarnation: Incarnation) -> Option<u32> {
        self.by_incarnation.get(&incarnation).copied()
    }

    pub(crate) fn by_link(&self, link: u64) -> Option<u32> {
        self.links.get(&link).copied()
    }

    /// A new peer that is not connected yet; `None` if there are `limit` already.
    pub(crate) fn add(
        &mut self,
        address: Address,
        patience: Duration,
        limit: usize,
    ) -> Option<u32> {
        let fresh = |generation| Entry {
            generation,
            address: address.clone(),
            state: State::Connecting { patience, deadline: None },
            resolved: false,
            free: false,
            stale: false,
            messages: VecDeque::new(),
            tagged: VecDeque::new(),
            accesses: VecDeque::new(),
            refusals: Refusals::default(),
            deferred: Deferred::default(),
            stalled: false,
            wants_room: false,
            quota: None,
        };
        // The slot that was given up first is used first: lost peers stay readable for longer.
        let index = if self.entries.len() < limit.min(64) || self.free.is_empty() {
            if self.entries.len() >= limit {
                return None;
            }
            self.entries.push(fresh(0));
            self.entries.len() as u32 - 1
        } else {
            let index = self.free.pop_front()?;
            let entry = &mut self.entries[index as usize];
            *entry = fresh(entry.generation.wrapping_add(1));
            index
        };
        self.by_address.insert(address, index);
        Some(index)
    }

    pub(crate) fn connect(&mut self, index: u32, hub: Arc<Hub>, link: u64) {
        self.by_incarnation.insert(hub.incarnation, index);
        self.links.insert(link, index);
        let links = SmallVec::from_slice(&[link]);
        let may = hub.allotment(link);
        self.at(index).state = State::Up { hub, links, may };
    }

    pub(crate) fn add_link(&mut self, index: u32, link: u64) {
        let State::Up { links, .. } = &mut self.entries[index as usize].state else {
            return;
        };
        if !links.contains(&link) {
            links.push(link);
            self.links.insert(link, index);
        }
    }

    /// Marks a peer as lost, and gives its connection if it had one.
    pub(crate) fn lose(
        &mut self,
        index: u32,
        reason: LostReason,
    ) -> Option<(Arc<Hub>, SmallVec<[u64; 2]>)> {
        let entry = &mut self.entries[index as usize];
        self.by_address.remove(&entry.address);
        entry.wants_room = false;
        let was = std::mem::replace(&mut entry.state, State::Lost(reason));
        if !entry.resolved {
            self.give_up(index);
        }
        let State::Up { hub, links, .. } = was else {
            return None;
        };
        self.by_incarnation.remove(&hub.incarnation);
        for link in &links {
            self.links.remove(link);
        }
        Some((hub, links))
    }

    /// Makes the handle of a lost peer stale.
    pub(crate) fn forget(&mut self, index: u32) {
        self.entries[index as usize].stale = true;
        self.give_up(index);
    }

    fn give_up(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if !entry.free {
            entry.free = true;
            self.free.push_back(index);
        }
    }

    pub(crate) fn activate(&mut self, index: u32) {
        if !self.active.contains(&index) {
            self.active.push(index);
        }
    }

    /// The peers with something to do; those that have nothing left drop out.
    pub(crate) fn active(&mut self) -> Vec<u32> {
        let entries = &self.entries;
        self.active.retain(|index| entries[*index as usize].busy());
        self.active.clone()
    }

    pub(crate) fn is_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// All, with their handles.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Peer, &Entry)> {
        let handle = |index: usize, entry: &Entry| Peer {
            index: index as u32,
            generation: entry.generation,
        };
        self.entries.iter().enumerate().map(move |(at, entry)| (handle(at, entry), entry))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}
