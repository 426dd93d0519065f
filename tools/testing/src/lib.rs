//! What the tests of several crates share: tests that are skipped visibly, processes that end with
//! the test, tests run again as another user, seeds tried in processes that may crash, processes
//! that fork, numbers that a seed repeats, medians, emulated hosts whose link can be cut, mapped
//! files, libraries that stand in for others, facts of C's headers, and which version of a library
//! is tested.

#![deny(unsafe_code)]

mod fork;
mod headers;
mod hosts;
mod mapped;
mod median;
mod pretended;
mod process;
mod random;
mod root;
mod seeds;
mod skip;
mod version;

pub use fork::fork;
pub use headers::ask_the_headers;
pub use hosts::{Hosts, in_host};
pub use mapped::Mapped;
pub use median::median;
pub use pretended::Pretended;
pub use process::{Process, again, again_as_nobody, copy_program, role};
pub use random::{Random, Xorshift};
pub use root::is_root;
pub use seeds::survived;
pub use skip::skip;
pub use version::assert_at_least;
