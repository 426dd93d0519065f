//! Numbers of descriptors that are not used again at once.
//!
//! UCX's shared memory has no name: a peer opens a segment as `/proc/PID/fd/N` when it first needs
//! it, at any time while it does not know that this endpoint has ended, and neither the library nor
//! the system tells it when N has become something else. It would then map that, a segment of
//! another endpoint or a file of the program, and write packets to it, or be ended by SIGBUS where
//! that is shorter. So the numbers of segments are kept when a worker is destroyed, by descriptors
//! that cannot be mapped.
//!
//! The library closes them, and a moment passes before they are taken again. Another thread that
//! opens something meanwhile gets the lowest number that is free: so some that are lower are kept
//! as well, and are free for that moment.

use rustix::{
    fs::{Mode, OFlags},
    io::fcntl_dupfd_cloexec,
};
use std::{
    collections::VecDeque,
    fs,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many numbers of segments this process keeps: a worker has two to four, so those of the last
/// ten.
const MOST: usize = 32;

/// How many numbers are kept to be free for a moment.
const SPARE: usize = 16;

/// What the files of segments are called, in `/dev/shm` or another directory (`UCX_POSIX_DIR`).
const NAME: &str = "/ucx_shm_posix_";

struct Numbers {
    of_segments: VecDeque<OwnedFd>,
    spare: Vec<OwnedFd>,
}

static KEPT: Mutex<Numbers> =
    Mutex::new(Numbers { of_segments: VecDeque::new(), spare: Vec::new() });

fn kept() -> MutexGuard<'static, Numbers> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Numbers {
    /// Takes what is missing of the spare ones, if there are descriptors: the lowest that are free.
    fn refill(&mut self, null: &OwnedFd) {
        while self.spare.len() < SPARE {
            let Ok(spare) = fcntl_dupfd_cloexec(null, 0) else { return };
            self.spare.push(spare);
        }
    }
}

/// Prepares for the numbers of a worker that is opened after this.
pub(super) fn prepare() {
    if let Some(null) = null() {
        kept().refill(&null);
    }
}

/// Descriptors that the library opens at most to begin with.
pub(super) const FIRST: usize = 12;
/// The same for a peer: with the first one a worker begins to listen to a network.
pub(super) const PEER: usize = 8;

/// Whether the library may open so many descriptors: 1.13 ends the process by an assertion where
/// some of its parts get none.
pub(super) fn suffice(count: usize) -> rustix::io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let others = (1..count).map(|_| fcntl_dupfd_cloexec(&null, 0));
    others.collect::<Result<Vec<_>, _>>().map(drop)
}

/// Calls `destroy`, which destroys a worker, and keeps the numbers of segments that it closed.
pub(super) fn keep_those_closed_by(destroy: impl FnOnce()) {
    let segments = segments();
    // Opened first: later it would have one of the numbers. Without descriptors left there is
    // nothing with which to keep some.
    let Some(null) = null() else { return destroy() };
    // Not locked while the library is called, which may take its time.
    kept().spare.clear();
    destroy();
    let closed = segments.into_iter().filter_map(|number| the_same(&null, number));
    let closed: Vec<_> = closed.collect();
    let mut kept = kept();
    kept.of_segments.extend(closed);
    let too_many = kept.of_segments.len().saturating_sub(MOST);
    kept.of_segments.drain(..too_many);
    kept.refill(&null);
}

/// What cannot be mapped.
fn null() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// A descriptor with this number, if it is free.
fn the_same(null: &OwnedFd, number: RawFd) -> Option<OwnedFd> {
    // The first number that is free from there on.
    let found = fcntl_dupfd_cloexec(null, number).ok()?;
    (found.as_raw_fd() == number).then_some(found)
}

/// The descriptors of segments that this process has open.
fn segments() -> Vec<RawFd> {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let is_segment = |target: &Path| target.to_string_lossy().contains(NAME);
    open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| is_segment(&target)))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}
