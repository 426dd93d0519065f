//! Bulk data through memory: a plain copy, and copies out of and into another process.

use std::hint::black_box;
use std::io::{IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::buffer::{Buffer, last_level_cache};
use super::helper::Helper;
use super::order::Request;
use super::report::Bulk;
use super::{LimitError, Plan, on_client_core, timing};

pub(super) const MEMCPY: &str = "memcpy";
pub(super) const VM_READV: &str = "process_vm_readv";
pub(super) const VM_WRITEV: &str = "process_vm_writev";

/// The kernel moves at most this many bytes in one call.
const PIECE: usize = 0x7fff_f000;

/// One thread copies between two page-aligned buffers: the limit of memory mapped by both sides.
///
/// The pair is reused, so a pair that fits the cache is copied within it. Once a single buffer does
/// not fit, enough pairs take turns that none of it is still there from the last time.
///
/// # Errors
///
/// [`LimitError::OutOfMemory`], or [`LimitError::EmptySize`] for a size of 0.
pub fn memcpy(plan: &Plan, sizes: &[usize]) -> Result<Bulk, LimitError> {
    largest(sizes)?;
    let cache = last_level_cache();
    let points = on_client_core(plan, || {
        let measure = |&bytes: &usize| {
            let count = pairs(bytes, cache);
            let mut pairs = (0..count)
                .map(|_| Ok((Buffer::pattern(bytes)?, Buffer::blank(bytes)?)))
                .collect::<Result<Vec<_>, _>>()?;
            let mut turn = 0;
            let point = timing::transfers(plan, bytes, 0, || {
                let (source, target) = &mut pairs[turn % count];
                target.copy_from_slice(black_box(source));
                black_box(&mut **target);
                turn += 1;
                Ok(())
            })?;
            pairs[0].1.check(MEMCPY, bytes)?;
            Ok(point)
        };
        sizes.iter().map(measure).collect::<Result<Vec<_>, LimitError>>()
    })?;
    let how = format!(
        "one thread{}, a fixed pair of page-aligned buffers, or more in turn for sizes past the \
         cache of {} MiB; median of copies",
        on_core(plan),
        cache >> 20,
    );
    Ok(Bulk { name: MEMCPY, unit: "GB/s", points, how })
}

/// One thread reads another process's memory: the limit of bulk between memories of any kind.
///
/// One buffer in each process, both reused.
///
/// # Errors
///
/// [`LimitError::Refused`] where the system does not let it, [`LimitError::Helper`] when the other
/// process fails, [`LimitError::OutOfMemory`], or [`LimitError::EmptySize`] for a size of 0.
pub fn vm_readv(plan: &Plan, sizes: &[usize]) -> Result<Bulk, LimitError> {
    let most = largest(sizes)?;
    let points = on_client_core(plan, || {
        let mut helper = Helper::start(plan, Request::Memory { bytes: most })?;
        let address = helper.number("address")?;
        let mut target = Buffer::blank(most)?;
        let measure = |&bytes: &usize| {
            target.fill(0xff);
            let into = &mut target[..bytes];
            let point =
                timing::transfers(plan, bytes, 0, || read_all(helper.pid(), address, into))?;
            target.check(VM_READV, bytes)?;
            Ok(point)
        };
        sizes.iter().map(measure).collect::<Result<Vec<_>, LimitError>>()
    })?;
    let how = format!(
        "one thread{} reads a child process, a fixed page-aligned buffer in each, pieces of at \
         most {PIECE:#x} bytes; median of transfers",
        on_core(plan),
    );
    Ok(Bulk { name: VM_READV, unit: "GB/s", points, how })
}

/// One thread writes another process's memory: the same the other way, which the kernel does more
/// slowly, because it has to note each page that it changes.
///
/// # Errors
///
/// As of [`vm_readv`].
pub fn vm_writev(plan: &Plan, sizes: &[usize]) -> Result<Bulk, LimitError> {
    let most = largest(sizes)?;
    let points = on_client_core(plan, || {
        let mut helper = Helper::start(plan, Request::Memory { bytes: most })?;
        let (pid, address) = (helper.pid(), helper.number("address")?);
        let source = Buffer::pattern(most)?;
        let mut copy = Buffer::blank(most)?;
        let measure = |&bytes: &usize| {
            copy.fill(0xff);
            write_all(pid, address, &copy[..bytes])?;
            let point =
                timing::transfers(plan, bytes, 0, || write_all(pid, address, &source[..bytes]))?;
            read_all(pid, address, &mut copy[..bytes])?;
            copy.check(VM_WRITEV, bytes)?;
            Ok(point)
        };
        sizes.iter().map(measure).collect::<Result<Vec<_>, LimitError>>()
    })?;
    let how = format!(
        "one thread{} writes into a child process, a fixed page-aligned buffer in each, pieces of \
         at most {PIECE:#x} bytes; median of transfers",
        on_core(plan),
    );
    Ok(Bulk { name: VM_WRITEV, unit: "GB/s", points, how })
}

/// Fills `into` from the memory of process `pid` at `address`.
fn read_all(pid: u32, address: usize, into: &mut [u8]) -> Result<(), LimitError> {
    in_pieces(pid, VM_READV, address, into.len(), |at, remote| {
        let mut local = [IoSliceMut::new(&mut into[at..at + remote.len])];
        process_vm_readv(Pid::from_raw(pid as i32), &mut local, &[remote])
    })
}

/// Copies `from` to the memory of process `pid` at `address`.
fn write_all(pid: u32, address: usize, from: &[u8]) -> Result<(), LimitError> {
    in_pieces(pid, VM_WRITEV, address, from.len(), |at, remote| {
        let local = [IoSlice::new(&from[at..at + remote.len])];
        process_vm_writev(Pid::from_raw(pid as i32), &local, &[remote])
    })
}

/// Moves `len` bytes in as many calls as it takes.
fn in_pieces(
    pid: u32,
    call: &'static str,
    address: usize,
    len: usize,
    mut move_one: impl FnMut(usize, RemoteIoVec) -> Result<usize, Errno>,
) -> Result<(), LimitError> {
    let mut done = 0;
    while done < len {
        match move_one(done, RemoteIoVec { base: address + done, len: (len - done).min(PIECE) }) {
            Ok(0) => {
                let reason = "its memory ended early".into();
                return Err(LimitError::Helper { pid, reason });
            }
            Ok(moved) => done += moved,
            Err(errno @ (Errno::EPERM | Errno::ENOSYS | Errno::EACCES)) => {
                return Err(LimitError::Refused { call, pid, source: errno.into() });
            }
            Err(Errno::ESRCH) => {
                return Err(LimitError::Helper { pid, reason: "it has ended".into() });
            }
            Err(errno) => return Err(LimitError::system(call)(errno)),
        }
    }
    Ok(())
}

/// How many pairs of buffers must take turns so that nothing of a size past the cache stays in it:
/// four times the cache in all.
fn pairs(bytes: usize, cache: usize) -> usize {
    if bytes <= cache { 1 } else { (2 * cache).div_ceil(bytes) }
}

/// The largest of `sizes`; 1 when there are none.
pub(super) fn largest(sizes: &[usize]) -> Result<usize, LimitError> {
    if sizes.contains(&0) {
        return Err(LimitError::EmptySize);
    }
    Ok(sizes.iter().copied().max().unwrap_or(1))
}

fn on_core(plan: &Plan) -> String {
    plan.cores.client.map_or(String::new(), |core| format!(" on core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_exceed_the_cache_only_past_it() {
        let cache = 32 << 20;
        assert_eq!(pairs(1, cache), 1);
        assert_eq!(pairs(cache, cache), 1);
        assert_eq!(pairs(cache + 1, cache), 2);
        assert_eq!(pairs(2 * cache, cache), 1);
        assert_eq!(pairs(64 * cache, cache), 1);
    }
}
