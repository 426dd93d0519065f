//! What the tests of several crates share: tests that are skipped aloud, processes that end with
//! the test, tests run again as another user, and emulated hosts whose link can be cut.

#![forbid(unsafe_code)]

mod hosts;
mod process;
mod skip;

pub use hosts::{Hosts, in_host};
pub use process::{Process, again, again_as_nobody, is_root, role};
pub use skip::skip;
