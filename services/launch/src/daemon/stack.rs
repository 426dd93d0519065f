//! The stack of a process that has the memory of another one: what runs beyond its end touches
//! nothing of the other's.

#![allow(unsafe_code)]

use rustix::{
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
    param::page_size,
};
use std::{io, ptr::NonNull, slice};

/// The stack of a process until it becomes its program, in bytes: it calls a few functions deep.
const LEN: usize = 64 << 10;

/// A stack, and below it a page that cannot be read or written: the kernel ends a process that gets
/// there.
#[derive(Debug)]
pub(super) struct Stack {
    /// Where the page below begins.
    base: NonNull<u8>,
    guard: usize,
}

// SAFETY: a mapping belongs to the process and to no thread of it, and is reached only by `&mut
// self`.
unsafe impl Send for Stack {}

impl Stack {
    /// # Errors
    /// If there is no memory.
    pub(super) fn new() -> io::Result<Stack> {
        let guard = page_size();
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, at a place that the system chooses.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), guard + LEN, rights, flags)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let stack = Stack { base, guard };
        // SAFETY: the first page of the mapping, of which there is no reference.
        unsafe { mprotect(base.as_ptr().cast(), guard, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// The stack, without the page below.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped with `LEN` bytes behind the first page, initialised as zeroes, as long as
        // this lives; it is borrowed as a whole.
        unsafe { slice::from_raw_parts_mut(self.base.add(self.guard).as_ptr(), LEN) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped once; nothing borrows it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.guard + LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::{
        libc,
        sched::{CloneCb, CloneFlags, clone},
        sys::{
            signal::{SigSet, SigmaskHow, Signal},
            wait::{WaitStatus, waitpid},
        },
    };
    use rustix::process::{Resource, Rlimit, setrlimit};
    use std::{fs, hint::black_box};

    /// The rights of this process to the byte before a place, as the system writes them.
    fn rights_before(at: usize) -> String {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let found = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16).unwrap());
            (from < at && at <= to).then(|| rest.split(' ').next().unwrap_or_default().to_owned())
        });
        found.unwrap_or_else(|| "unmapped".to_owned())
    }

    #[test]
    fn below_its_stack_nothing_can_be_written() {
        let mut stack = Stack::new().unwrap();
        let at = stack.bytes().as_mut_ptr().addr();
        assert_eq!((rights_before(at), rights_before(at + 1)), ("---p".into(), "rw-p".into()));
    }

    /// Each call takes some of the stack, and there is no last one.
    #[expect(unconditional_recursion, reason = "to see where it ends")]
    fn deeper(depth: usize) -> usize {
        let some = black_box([depth; 32]);
        black_box(deeper(depth + 1)) + some[depth % 32]
    }

    #[test]
    fn a_process_that_needs_more_ends_and_harms_nothing() {
        let mut stack = Stack::new().unwrap();
        let begin: CloneCb<'_> = Box::new(|| {
            let none = Rlimit { current: Some(0), maximum: Some(0) };
            let _ = setrlimit(Resource::Core, none);
            deeper(0) as isize
        });
        // As where processes are started: no handler of this one runs in the other.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).unwrap();
        // SAFETY: the process runs in this one's memory, on a stack of its own, while this thread
        // stands still. It calls nothing but the system, and itself until it is at the end of its
        // stack.
        let cloned = unsafe {
            let shared = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
            clone(begin, stack.bytes(), shared, Some(libc::SIGCHLD))
        };
        before.thread_set_mask().unwrap();
        let ended = waitpid(cloned.unwrap(), None).unwrap();
        assert!(matches!(ended, WaitStatus::Signaled(_, Signal::SIGSEGV, _)), "{ended:?}");
        assert!(stack.bytes()[..256].iter().any(|byte| *byte != 0), "it was at its end");
    }
}
