//! What the tests of several crates share: tests that are skipped aloud, processes that end with
//! the test, tests run again as another user, emulated hosts whose link can be cut, and an allocator
//! that counts.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "an allocator cannot be written without it")]
mod counting;
mod hosts;
mod process;
mod skip;

pub use counting::Counting;
pub use hosts::{Hosts, in_host};
pub use process::{Process, again, again_as_nobody, is_root, role};
pub use skip::skip;
