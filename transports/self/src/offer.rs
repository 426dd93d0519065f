//! Data that stays with its sender until the receiver takes it.

use petasos_fabric::Payload;
use std::sync::{Mutex, PoisonError};

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
}
