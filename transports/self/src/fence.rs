//! Fences: what is accepted for a peer from a fence on waits until nothing is under way with the
//! peer.

use crate::{
    local::Local,
    peers::{Entry, State},
};
use petasos_fabric::{OpError, OpErrorKind, Operation, Peer, Remote, fence::Next};

/// So many operations of one peer go on at a time.
const AT_ONCE: usize = 1024;

impl Entry {
    /// Whether operations or messages wait for their turn, or for the connection.
    fn has_queued(&self) -> bool {
        let queued = self.messages.len() + self.tagged.len() + self.accesses.len();
        queued > 0 || !matches!(self.state, State::Up { .. })
    }
}

impl Local {
    /// Takes in an operation that carries a fence, or may have to wait for one.
    pub(crate) fn accept_held(&mut self, operation: Operation) {
        let Some(peer) = operation.target() else {
            if !operation.is_fenced() {
                return self.accept(operation);
            }
            self.outstanding += 1;
            let kind = OpErrorKind::Unsupported("a fence on an operation without a target");
            return self.done(operation.token(), Err(OpError::local(kind)));
        };
        let held = self.peers.get(peer).is_some_and(|entry| !entry.deferred.is_empty());
        if !(held || operation.is_fenced()) || self.alive(peer).is_err() {
            return self.accept(match operation {
                Operation::Fenced(fenced) => fenced.into_plain(),
                plain => plain,
            });
        }
        self.outstanding += 1;
        self.peers.at(peer.index).deferred.push(operation);
        self.peers.activate(peer.index);
        self.go_on(peer.index);
    }

    /// Takes in what has waited for a fence, as far as nothing is under way. True if there was
    /// some.
    pub(crate) fn go_on(&mut self, index: u32) -> bool {
        for count in 0..AT_ONCE {
            let offers = self.offers.of(index);
            let entry = self.peers.at(index);
            match entry.deferred.take_next() {
                None => return count > 0,
                Some(Next::Fence) if entry.has_queued() || offers > 0 => return count > 0,
                Some(Next::Fence) => entry.deferred.pass(),
                Some(Next::Operation(operation)) => {
                    self.outstanding -= 1;
                    self.accept(operation);
                }
                Some(Next::Release(remote)) => self.remotes.release(remote),
            }
        }
        true
    }

    /// Whether all that a peer has to do here is to wait behind a fence for what others end.
    pub(crate) fn waits_for_offers(&mut self, index: u32) -> bool {
        let offers = self.offers.of(index);
        let entry = self.peers.at(index);
        !entry.deferred.is_empty() && !entry.has_queued() && offers > 0
    }

    /// Gives back what `import` gave, once nothing that waits needs it.
    pub(crate) fn release_later(&mut self, remote: Remote) {
        let known = self.peers.get(remote.peer).is_some();
        if !known || !self.peers.at(remote.peer.index).deferred.release(remote) {
            self.remotes.release(remote);
        }
    }

    /// Whether what is accepted for some peer may have to wait.
    pub(crate) fn is_deferred(&self, operation: &Operation) -> bool {
        let held =
            |peer: Peer| self.peers.get(peer).is_some_and(|entry| !entry.deferred.is_empty());
        operation.is_fenced() || operation.target().is_some_and(held)
    }
}
