//! Room for operations. There is so much for all, and one peer has no more of it than is free: what
//! is under way with peers that do not go on leaves room for operations with others, however many
//! such peers there are.

use super::{Engine, ledger::Ledger};
use crate::{Event, Full, Operation, Peer, PeerState};

impl Engine {
    /// Whether an operation may be submitted now.
    ///
    /// # Errors
    /// What is full. If it is the peer, `Event::Writable` follows.
    #[inline]
    pub fn room_for(&mut self, operation: &Operation) -> Result<(), Full> {
        // No peer has more than all have together. Completions that were not taken count, too.
        let Ledger { live, events, .. } = &self.ledger;
        match 2 * (live + events.len()) < self.config.limits.max_operations {
            true => Ok(()),
            false => self.room_where_many_are(operation),
        }
    }

    #[cold]
    fn room_where_many_are(&mut self, operation: &Operation) -> Result<(), Full> {
        let most = self.config.limits.max_operations;
        if self.ledger.live + self.ledger.events.len() >= most {
            return Err(Full::Endpoint);
        }
        let free = most - self.ledger.live;
        let Some(peer) = operation.target() else { return Ok(()) };
        match self.under_way(peer) {
            Some(count) if count >= free => {
                if let Some(entry) = self.peers.entry_mut(peer)
                    && !std::mem::replace(&mut entry.refused, true)
                {
                    self.ledger.seldom.refuse(peer);
                }
                Err(Full::Peer)
            }
            _ => Ok(()),
        }
    }

    /// Operations with a peer that are not over; `None` if the peer is lost, or not known.
    fn under_way(&self, peer: Peer) -> Option<usize> {
        let (entry, conn) = self.peers.entry_and_connection(peer)?;
        let ops = conn.map_or(0, |conn| conn.outstanding.ops() + conn.deferred_len());
        let lost = matches!(entry.state, PeerState::Lost(_));
        (!lost).then_some(ops + entry.outside as usize)
    }

    /// Whether a peer that was full has twice the room that it needs. `None` if it is lost.
    fn has_room_again(&self, peer: Peer) -> Option<bool> {
        let free = self.config.limits.max_operations.saturating_sub(self.ledger.live);
        let up = self.peers.get(peer)?.is_up();
        // Nothing of a peer is reported before it is up.
        self.under_way(peer).map(|count| up && free > 0 && 2 * count <= free)
    }

    /// Whether the program is to be told that there is room again.
    pub(super) fn has_room_to_tell(&self) -> bool {
        self.ledger.seldom.refused().iter().any(|peer| self.has_room_again(*peer) == Some(true))
    }

    /// Tells the program of peers that have room again.
    #[inline]
    pub(super) fn tell_room(&mut self) {
        if !self.ledger.seldom.refused().is_empty() {
            self.tell_room_to_some();
        }
    }

    #[cold]
    fn tell_room_to_some(&mut self) {
        let mut refused = self.ledger.seldom.take_refused();
        refused.retain(|peer| {
            let room = self.has_room_again(*peer);
            if room == Some(true) {
                self.ledger.events.push_back(Event::Writable { peer: *peer });
                if let Some(entry) = self.peers.entry_mut(*peer) {
                    entry.refused = false;
                }
            }
            room == Some(false)
        });
        self.ledger.seldom.put_refused_back(refused);
    }

    // Operations that the transport carries out itself.

    /// Counts an operation that the transport carries out itself, and that is no access
    /// ([`Engine::begin_access`] counts those): mapping, say.
    #[inline]
    pub fn begin_outside(&mut self, peer: Peer) {
        if let Some(entry) = self.peers.entry_mut(peer) {
            entry.outside += 1;
            self.ledger.live += 1;
        }
    }

    /// It is over.
    #[inline]
    pub fn end_outside(&mut self, peer: Peer) {
        // None are counted of a peer that is lost.
        if let Some(entry) = self.peers.entry_mut(peer)
            && entry.outside > 0
        {
            entry.outside -= 1;
            self.ledger.live -= 1;
            if entry.held
                && let Some(conn) = self.peers.get_mut(peer)
            {
                conn.may_go_on(&mut self.ledger);
            }
        }
    }
}
