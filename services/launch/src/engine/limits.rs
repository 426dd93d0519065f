//! Bounds of requests and answers that several kinds of them share, and the error beyond a bound.

use petasos_pmix::Error;
use std::time::Duration;

/// No request waits longer than a year.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// Bytes of one answer, about: in a frame for a client they take up to half as much again.
pub(super) const MAX_ANSWER: usize = 40 << 20;

/// Something is more than its limit.
pub(super) fn limit(what: &str, asked: usize, limit: usize) -> Error {
    Error::Limit { what: what.to_owned(), asked: asked as u64, limit: limit as u64 }
}

/// An answer has more bytes than [`MAX_ANSWER`].
pub(super) fn answer_limit(bytes: usize) -> Error {
    limit("bytes in one answer", bytes, MAX_ANSWER)
}
