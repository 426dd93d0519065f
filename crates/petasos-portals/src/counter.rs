//! Counting events.

/// A counter of events: successes (operations or bytes) and failures.
#[derive(Debug, Default)]
pub struct Counter;
