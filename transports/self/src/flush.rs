//! Flushes. Accesses to a peer are carried out in order, and a flush waits in their queue: when its
//! turn comes, all before it are over.

use crate::{access::Access, local::Local};
use petasos_fabric::{Done, OpError, OpErrorKind, Operation, Peer, Token};

/// Which accesses to a peer failed that no flush has told of.
#[derive(Default)]
pub(crate) struct Refusals {
    /// The first that failed in its turn since the last flush had its turn.
    in_turn: Option<OpErrorKind>,
    /// The first that was not even queued since the last flush was.
    at_once: Option<OpErrorKind>,
}

impl Refusals {
    /// An access failed in its turn.
    pub(crate) fn in_turn(&mut self, kind: &OpErrorKind) {
        if !matches!(kind, OpErrorKind::PeerLost(_)) {
            self.in_turn.get_or_insert_with(|| kind.clone());
        }
    }

    /// An access failed when it was submitted.
    fn at_once(&mut self, kind: &OpErrorKind) {
        if !matches!(kind, OpErrorKind::PeerLost(_)) {
            self.at_once.get_or_insert_with(|| kind.clone());
        }
    }
}

/// What waits for its turn.
pub(crate) enum Queued {
    Access(Access),
    Flush(Token, Flush),
}

impl Queued {
    pub(crate) fn token(&self) -> Token {
        match self {
            Queued::Access(access) => access.token,
            Queued::Flush(token, _) => *token,
        }
    }
}

/// A flush in the queue of accesses.
pub(crate) struct Flush {
    /// The first access before it that was not queued.
    at_once: Option<OpErrorKind>,
}

impl Flush {
    /// Its turn has come.
    pub(crate) fn end(&mut self, refusals: &mut Refusals) -> Result<Done, OpErrorKind> {
        let in_turn = refusals.in_turn.take();
        self.at_once.take().or(in_turn).map_or(Ok(Done::Flushed), Err)
    }
}

/// The peer of an operation whose failure a flush tells of.
pub(crate) fn accessed(operation: &Operation) -> Option<Peer> {
    match operation {
        Operation::Put { remote, .. }
        | Operation::Get { remote, .. }
        | Operation::Atomic { remote, .. } => Some(remote.peer),
        _ => None,
    }
}

impl Local {
    /// An access to a peer failed when it was submitted.
    pub(crate) fn access_failed(&mut self, peer: Peer, error: &OpError) {
        if self.peers.get(peer).is_some() {
            self.peers.at(peer.index).refusals.at_once(&error.kind);
        }
    }

    /// Queues a flush.
    pub(crate) fn flush(&mut self, token: Token, peer: Peer) -> Result<(), OpError> {
        self.alive(peer)?;
        let entry = self.peers.at(peer.index);
        let mut flush = Flush { at_once: entry.refusals.at_once.take() };
        if entry.accesses.is_empty() {
            let result = flush.end(&mut entry.refusals);
            self.done_with(peer.index, token, result);
        } else {
            entry.accesses.push_back(Queued::Flush(token, flush));
        }
        Ok(())
    }

    /// Takes a flush or an access out of the queue of a peer.
    pub(crate) fn take_queued(&mut self, index: u32, token: Token) -> bool {
        let entry = self.peers.at(index);
        let Some(at) = entry.accesses.iter().position(|queued| queued.token() == token) else {
            return false;
        };
        if let Some(Queued::Flush(_, flush)) = entry.accesses.remove(at)
            && let Some(kind) = flush.at_once
        {
            // The next flush tells of it.
            let mut later = entry.accesses.range_mut(at..);
            let next = later.find_map(|queued| match queued {
                Queued::Flush(_, next) => Some(&mut next.at_once),
                Queued::Access(_) => None,
            });
            *next.unwrap_or(&mut entry.refusals.at_once) = Some(kind);
        }
        true
    }
}
