//! How many descriptors this process may have.
//!
//! The soft limit of most systems (1,024) is that of programs which call `select(2)`. A server of
//! files and a mount need more: they raise it to the hard limit, which takes no rights. Programs
//! that they start get the former one back.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The limits before they were raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one, where that is allowed. For programs: a library leaves the
/// limits of its process alone. To be called once, at the beginning.
pub fn raise() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => drop(BEFORE.set(before)),
        Err(error) => tracing::warn!(%error, "the limit of descriptors stays as it is"),
    }
}

/// The soft limit.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Gives a program that this process has just started the limits from before [`raise`].
#[cfg(feature = "mount")]
pub(crate) fn give_back(child: &std::process::Child) {
    use rustix::process::{Pid, prlimit};
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(before), Some(pid)) = (BEFORE.get(), pid) {
        // It fails for one that has ended, which needs none.
        let _ = prlimit(Some(pid), Resource::Nofile, *before);
    }
}
