//! Fences: messages by which a flush learns that all before them has come in.

use crate::{Handle, outstanding::Outstanding};
use petasos_fabric::Peer;

/// Fences: at most one for each peer at a time, in rounds.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// The latest operation when the last round began ([`State::latest_link`]), and when the last
    /// began that is over.
    ///
    /// [`State::latest_link`]: crate::state::State::latest_link
    upto: u64,
    done: u64,
    /// Peers that are still to be asked.
    ahead: Vec<Peer>,
    /// Those that have not been answered.
    open: Vec<Handle<Outstanding>>,
}

impl Fences {
    /// Whether a round is over that began after this operation.
    pub(crate) fn have_passed(&self, operation: u64) -> bool {
        self.done >= operation
    }

    /// Begins a round. `latest`: the operation before it.
    pub(crate) fn begin_round(&mut self, latest: u64, peers: Vec<Peer>) {
        (self.upto, self.ahead) = (latest, peers);
    }

    /// The next peer to ask. Report what became of it by [`Fences::sent`] or [`Fences::postpone`].
    pub(crate) fn next_peer(&mut self) -> Option<Peer> {
        self.ahead.pop()
    }

    /// A peer could not be asked now.
    pub(crate) fn postpone(&mut self, peer: Peer) {
        self.ahead.push(peer);
    }

    /// A peer was asked.
    pub(crate) fn sent(&mut self, fence: Handle<Outstanding>) {
        self.open.push(fence);
    }

    /// Removes the fences that were answered. With the last one the round is over.
    pub(crate) fn end_answered(&mut self, is_open: impl Fn(Handle<Outstanding>) -> bool) {
        self.open.retain(|fence| is_open(*fence));
        if self.is_over() {
            self.done = self.upto;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.open.is_empty()
    }
}
