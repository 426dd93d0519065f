//! How peers break the protocol.

/// How a peer broke the protocol. Close it: `peer_lost(peer, LostReason::Protocol(...))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({value})")]
pub struct Violation {
    /// What was wrong.
    pub what: &'static str,
    /// The offending value.
    pub value: u64,
}

impl Violation {
    pub(super) fn new(what: &'static str, value: u64) -> Violation {
        Violation { what, value }
    }
}

/// The peer broke the protocol.
pub(super) fn broken<T>(what: &'static str, value: u64) -> Result<T, Violation> {
    Err(Violation::new(what, value))
}

/// Refuses a value that is above its limit.
pub(super) fn at_most(what: &'static str, value: usize, limit: usize) -> Result<(), Violation> {
    match value <= limit {
        true => Ok(()),
        false => broken(what, value as u64),
    }
}
