//! Copies between the memory of two processes: `process_vm_readv` and `process_vm_writev`.
//!
//! The kernel allows it to processes that could attach a debugger: those of the same user, unless
//! the target is closed to that, or a security module or a container's filter says no.

use crate::socket::last_error;
use rustix::io::Errno;
use smallvec::SmallVec;

/// Pieces in one call, on each side: the kernel's limit.
pub(crate) const MAX_PIECES: usize = 1024;

/// Pieces of memory of one side.
pub(crate) type Pieces = SmallVec<[libc::iovec; 8]>;

/// A piece of memory.
pub(crate) fn piece(base: u64, len: usize) -> libc::iovec {
    libc::iovec { iov_base: base as usize as *mut libc::c_void, iov_len: len }
}

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Get,
    Put,
}

/// Moves data between our pieces and those of the process `pid`, and says how many bytes that
/// were: fewer, if a piece of its cannot be reached.
///
/// # Safety
/// Our pieces are mapped, writable for `Get`, readable for `Put`, and no code has references into
/// them. (The kernel checks the other's. That they are what the caller means is the caller's
/// business.)
pub(crate) unsafe fn transfer(
    direction: Direction,
    pid: i32,
    ours: &[libc::iovec],
    theirs: &[libc::iovec],
) -> Result<usize, Errno> {
    debug_assert!(ours.len() <= MAX_PIECES && theirs.len() <= MAX_PIECES);
    let call = match direction {
        Direction::Get => libc::process_vm_readv,
        Direction::Put => libc::process_vm_writev,
    };
    let (mine, yours) = (ours.len() as libc::c_ulong, theirs.len() as libc::c_ulong);
    // SAFETY: both arrays are as long as is said; the caller's promise for what ours describe.
    let moved = unsafe { call(pid, ours.as_ptr(), mine, theirs.as_ptr(), yours, 0) };
    usize::try_from(moved).map_err(|_| last_error())
}

/// Reads one word of the process `pid`.
pub(crate) fn peek(pid: i32, at: u64) -> Result<u64, Errno> {
    let mut word = 0u64;
    let ours = [piece(&raw mut word as usize as u64, 8)];
    // SAFETY: our piece is `word`.
    match unsafe { transfer(Direction::Get, pid, &ours, &[piece(at, 8)])? } {
        8 => Ok(word),
        _ => Err(Errno::FAULT),
    }
}

/// Whether processes of one user may reach into each other here: if not, why.
pub(crate) fn allowed() -> Result<(), String> {
    let word = 0x5eed_u64;
    let own = std::process::id() as i32;
    match peek(own, &raw const word as usize as u64) {
        Ok(0x5eed) => {}
        Ok(_) => return Err("process_vm_readv reads something else".to_owned()),
        Err(Errno::NOSYS) => return Err("the kernel has no process_vm_readv".to_owned()),
        Err(error) => {
            return Err(format!(
                "process_vm_readv is refused ({error}): a container's system call filter does \
                 that; allow it, or give the container CAP_SYS_PTRACE"
            ));
        }
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "" | "0" => Ok(()),
        scope => Err(format!(
            "kernel.yama.ptrace_scope is {scope}, which keeps processes of one user out of each \
             other's memory: 0 allows it"
        )),
    }
}
