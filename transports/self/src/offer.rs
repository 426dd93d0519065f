//! Data that stays with its sender until the receiver takes it.

use petasos_fabric::{Payload, Token};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The body of a long or of a big tagged message. It goes to the side that takes it first: the
/// receiver to copy it, or the sender to revoke it.
pub(crate) struct Offer {
    /// Names the sender's operation.
    pub(crate) id: u64,
    pub(crate) len: u64,
    payload: Mutex<Option<Payload>>,
}

impl Offer {
    pub(crate) fn new(id: u64, payload: Payload) -> Offer {
        Offer { id, len: payload.len() as u64, payload: Mutex::new(Some(payload)) }
    }

    pub(crate) fn take(&self) -> Option<Payload> {
        self.payload.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether it can still be taken.
    pub(crate) fn is_open(&self) -> bool {
        self.payload.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// An operation whose data waits for the other side.
struct Waiting {
    token: Token,
    peer: u32,
    offer: Arc<Offer>,
}

/// The offers of this endpoint that receivers may still take.
#[derive(Default)]
pub(crate) struct Offers {
    waiting: HashMap<u64, Waiting>,
    next: u64,
}

impl Offers {
    /// The name of the next one that is added.
    pub(crate) fn next_id(&self) -> u64 {
        self.next
    }

    /// Adds the offer of an operation, which was made to the peer with this index.
    pub(crate) fn add(&mut self, token: Token, peer: u32, offer: Arc<Offer>) {
        self.next = offer.id + 1;
        self.waiting.insert(offer.id, Waiting { token, peer, offer });
    }

    /// The receiver is done with an offer. Returns the operation's token.
    pub(crate) fn finish(&mut self, id: u64) -> Option<Token> {
        self.waiting.remove(&id).map(|waiting| waiting.token)
    }

    /// Revokes the offer of an operation, and returns the peer to which it was made; `None` if that
    /// has taken it.
    pub(crate) fn revoke(&mut self, token: Token) -> Option<u32> {
        let (&id, waiting) = self.waiting.iter().find(|(_, waiting)| waiting.token == token)?;
        let peer = waiting.peer;
        waiting.offer.take()?;
        self.waiting.remove(&id);
        Some(peer)
    }

    /// Takes out the offers to a peer that is lost. Returns the operations' tokens.
    pub(crate) fn lose(&mut self, peer: u32) -> Vec<Token> {
        let lost = self.waiting.extract_if(|_, waiting| waiting.peer == peer);
        let lost = lost.map(|(_, waiting)| {
            waiting.offer.take();
            waiting.token
        });
        lost.collect()
    }

    /// Revokes all, at the end of the endpoint.
    pub(crate) fn revoke_all(&self) {
        for waiting in self.waiting.values() {
            waiting.offer.take();
        }
    }
}
