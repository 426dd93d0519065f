//! The peers of an endpoint, by the slots of their handles: those to which there is something to
//! send, those that are lost, and the sessions without a connection.

use crate::{
    connection::Connection,
    dial::Dial,
    handshake::{Identity, Name, Session},
};
use petasos_fabric::{Peer, Time};
use std::collections::{HashMap, VecDeque};

/// Lost peers that were never resolved here, and whose handles are still known.
const REMEMBERED: usize = 64;

/// What the endpoint knows of a peer.
#[derive(Debug, Default)]
pub(crate) struct PeerEntry {
    pub(crate) peer: Option<Peer>,
    pub(crate) connectivity: Connectivity,
    /// The session, which goes on over one connection after the other.
    pub(crate) session: Option<Session>,
    /// Whether the peer was resolved here.
    pub(crate) asked: bool,
    /// Whether we made the connection with which the session began.
    pub(crate) made: bool,
    /// What is known of its address, and whether that is meant here.
    pub(crate) standing: Standing,
    pub(crate) meant: bool,
    /// The identity that it claims, until something comes from it, where peers are to be known
    /// again.
    pub(crate) unheard: Option<Identity>,
    /// Whether it is in the list of those to which there is something to send.
    dirty: bool,
    /// The traffic of the connection when it was last checked, and since when it is as much.
    pub(crate) seen: u64,
    pub(crate) since: Time,
}

/// What is known of the address that a peer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The peer connected, and claims it.
    #[default]
    Claimed,
    /// The peer connected, and the endpoint at the address confirms it.
    Vouched,
    /// It was dialled.
    Dialled,
}

/// How a peer is connected.
#[derive(Debug, Default)]
pub(crate) enum Connectivity {
    #[default]
    None,
    Dialing(Box<Dial>),
    Open(Box<Connection>),
    /// Closed as idle: to be made again.
    Suspended,
}

#[derive(Debug, Default)]
pub(crate) struct Peers {
    entries: Vec<PeerEntry>,
    /// Those to which there is something to send.
    dirty: Vec<Peer>,
    /// Lost peers that were never resolved here, the oldest first.
    lost: VecDeque<Peer>,
    /// Sessions whose connection was closed as idle, or is about to be.
    suspended: HashMap<Name, Peer>,
}

impl Peers {
    /// Adds a peer, in place of the one that had its slot before.
    pub(crate) fn add(&mut self, peer: Peer, asked: bool) {
        let index = peer.index as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, PeerEntry::default);
        }
        self.entries[index] = PeerEntry { peer: Some(peer), asked, ..PeerEntry::default() };
    }

    pub(crate) fn get(&self, peer: Peer) -> Option<&PeerEntry> {
        self.entries.get(peer.index as usize).filter(|entry| entry.peer == Some(peer))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, peer: Peer) -> Option<&mut PeerEntry> {
        self.entries.get_mut(peer.index as usize).filter(|entry| entry.peer == Some(peer))
    }

    /// The peer in a slot.
    pub(crate) fn at(&self, slot: u32) -> Option<Peer> {
        self.entries.get(slot as usize)?.peer
    }

    /// The connection to a peer, if it is open.
    #[inline]
    pub(crate) fn connection(&mut self, peer: Peer) -> Option<&mut Connection> {
        match self.get_mut(peer).map(|entry| &mut entry.connectivity) {
            Some(Connectivity::Open(connection)) => Some(connection),
            _ => None,
        }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, PeerEntry> {
        self.entries.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, PeerEntry> {
        self.entries.iter_mut()
    }

    /// Remembers the handle of a lost peer that was never resolved here. Returns one that is to be
    /// forgotten.
    pub(crate) fn remember_lost(&mut self, peer: Peer) -> Option<Peer> {
        self.lost.push_back(peer);
        if self.lost.len() > REMEMBERED { self.lost.pop_front() } else { None }
    }

    // Peers to which there is something to send.

    /// There is something to send to this peer.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, peer: Peer) {
        let entry = self.entries.get_mut(peer.index as usize);
        if let Some(entry) = entry.filter(|entry| entry.peer == Some(peer))
            && !entry.dirty
        {
            entry.dirty = true;
            self.dirty.push(peer);
        }
    }

    #[inline]
    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes them out of the list, to be sent to ([`Peers::begin_write`]).
    pub(crate) fn take_dirty(&mut self) -> Vec<Peer> {
        std::mem::take(&mut self.dirty)
    }

    /// Takes back the memory of the list that was taken out.
    pub(crate) fn reuse_dirty(&mut self, mut list: Vec<Peer>) {
        if self.dirty.is_empty() {
            list.clear();
            self.dirty = list;
        }
    }

    /// What waits for a peer is sent now: it may be marked again.
    #[inline]
    pub(crate) fn begin_write(&mut self, peer: Peer) -> Option<&mut PeerEntry> {
        let entry = self.get_mut(peer)?;
        entry.dirty = false;
        Some(entry)
    }

    // Sessions.

    /// From now on a session may go on over another connection.
    pub(crate) fn suspend(&mut self, session: &Session, peer: Peer) {
        self.suspended.insert(session.name(), peer);
    }

    /// A session goes on over its connection, or has ended.
    pub(crate) fn resume(&mut self, session: &Session) {
        self.suspended.remove(&session.name());
    }

    /// The peer of a session that may go on over another connection.
    pub(crate) fn suspended(&self, name: &Name) -> Option<Peer> {
        self.suspended.get(name).copied()
    }
}
