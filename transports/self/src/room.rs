//! Room for operations: one peer has no more of it than is free.

use crate::{local::Local, peers::State};
use petasos_fabric::{Event, Full, Operation};

impl Local {
    /// Whether there is room for an operation.
    #[inline]
    pub(crate) fn room_for(&mut self, operation: &Operation) -> Result<(), Full> {
        // No peer has more than all have together. Completions that were not taken count, too.
        match 2 * (self.outstanding + self.ready.len()) < self.capabilities.limits.max_operations {
            true => Ok(()),
            false => self.room_where_many_are(operation),
        }
    }

    fn free(&self) -> usize {
        self.capabilities.limits.max_operations.saturating_sub(self.outstanding)
    }

    #[cold]
    fn room_where_many_are(&mut self, operation: &Operation) -> Result<(), Full> {
        let free = self.free();
        if free <= self.ready.len() {
            return Err(Full::Endpoint);
        }
        let target = operation.target().filter(|peer| self.alive(*peer).is_ok());
        match target {
            Some(peer) if self.under_way(peer.index) >= free => {
                if !self.refused.contains(&peer) {
                    self.refused.push(peer);
                }
                Err(Full::Peer)
            }
            _ => Ok(()),
        }
    }

    /// Operations with a peer that are not over.
    fn under_way(&mut self, index: u32) -> usize {
        let offers = self.offers.of(index);
        let entry = self.peers.at(index);
        entry.messages.len()
            + entry.tagged.len()
            + entry.accesses.len()
            + entry.deferred.len()
            + offers
    }

    /// Tells the program of peers that were full and have room again.
    pub(crate) fn tell_room(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        let mut refused = std::mem::take(&mut self.refused);
        refused.retain(|peer| {
            let Some(entry) = self.peers.get(*peer) else { return false };
            let up = match entry.state {
                State::Lost(_) => return false,
                // Nothing of a peer is reported before it is up.
                State::Connecting { .. } => false,
                State::Up { .. } => true,
            };
            let free = self.free();
            let room = up && free > 0 && 2 * self.under_way(peer.index) <= free;
            if room {
                self.ready.push_back(Event::Writable { peer: *peer });
            }
            !room
        });
        self.refused = refused;
    }
}
