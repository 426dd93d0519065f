//! A queue of owners of foreign memory, which the program drops on a thread of its choice.

use crate::EventFd;
use rustix::io::Errno;
use std::{
    any::Any,
    collections::VecDeque,
    fmt, mem,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// The owner of foreign memory: dropping it frees the memory, or tells its program that the fabric
/// does not use it any more.
pub type Owner = Box<dyn Any + Send + Sync>;

/// A queue to which regions of foreign memory return their owners.
///
/// The last holder of a region may be dropped on any thread, and often is inside of
/// [`progress`](crate::Endpoint::progress). An owner that must not be dropped there, because it
/// takes the lock of an interpreter, say, or calls code of the program, goes to such a queue, if
/// its region is made so ([`RegionBuilder::release_to`](super::RegionBuilder::release_to)). It
/// moves into the queue, and is dropped by the thread that calls [`Releases::drain`], or by the
/// one that drops the queue; never by another one, and never inside of a call of an endpoint.
///
/// * To know that all memory came back, wait until [`Releases::lent`] is 0.
/// * An owner whose region is dropped after its queue is leaked: it is never dropped, so what it
///   frees stays for the rest of the process. No other thread would be right for it.
/// * The queue is as long as the program makes it: it holds one owner for each region that was
///   dropped since the last drain. A queue that is forgotten ([`std::mem::forget`]) or never
///   drained keeps all of them.
/// * Any thread may call it at the same time as others. It belongs to one process: a child that is
///   forked must not use its copy.
///
/// ```
/// use petasos_fabric::memory::{RegionBuilder, Releases};
/// use std::ptr::NonNull;
///
/// let releases = Releases::new();
/// let mut memory = vec![7u8; 4096];
/// let base = NonNull::new(memory.as_mut_ptr()).expect("not null");
/// // SAFETY: the vector is the owner, keeps its memory, and is not touched otherwise.
/// let region = unsafe {
///     RegionBuilder::new(base, 4096).release_to(&releases).build(Box::new(memory))
/// };
/// // The last holder goes on another thread; the owner waits for this one.
/// std::thread::spawn(move || drop(region)).join().expect("no panic");
/// assert_eq!((releases.lent(), releases.len()), (0, 1));
/// assert_eq!(releases.drain(), 1);
/// ```
#[derive(Default)]
pub struct Releases(Arc<Queue>);

/// What the regions share with it.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Made when it is first asked for. It is readable exactly while owners wait: it changes with
    /// the state, under its lock.
    fd: OnceLock<EventFd>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Owner>,
    /// Owners whose regions still have holders.
    lent: usize,
    closed: bool,
}

impl Releases {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Releases {
        Releases::default()
    }

    /// Owners that wait to be dropped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Whether no owner waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Owners that are still to come: of regions that have a holder.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.0.lock().lent
    }

    /// The owner that has waited for longest, for the caller to drop, or to have its memory back.
    #[must_use]
    pub fn take(&self) -> Option<Owner> {
        self.0.take(false)
    }

    /// Drops the owners that wait, on this thread, and returns how many there were. Those that
    /// come meanwhile wait for the next call.
    ///
    /// No lock is held while an owner is dropped: it may use this queue, and drop other regions.
    ///
    /// # Panics
    /// If an owner panics when it is dropped. The others stay in the queue.
    pub fn drain(&self) -> usize {
        let most = self.len();
        (0..most).take_while(|_| self.take().map(drop).is_some()).count()
    }

    /// A descriptor that is readable while owners wait, to be slept on (in `poll`, `epoll`, an
    /// event loop). It is made by the first call: a program that does not sleep needs none.
    ///
    /// # Errors
    /// The process or the system has no descriptor or memory for it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        let Releases(queue) = self;
        let state = queue.lock();
        if queue.fd.get().is_none() {
            let fd = EventFd::new()?;
            if !state.waiting.is_empty() {
                fd.signal();
            }
            // It is set under the lock, and so by one thread.
            let _ = queue.fd.set(fd);
        }
        Ok(queue.fd.get().expect("it was set just now").as_fd())
    }

    /// What a region keeps to return its owner.
    pub(super) fn queue(&self) -> Arc<Queue> {
        self.0.clone()
    }
}

impl Drop for Releases {
    /// Drops the owners that wait, on this thread. Those that come later are leaked.
    fn drop(&mut self) {
        while let Some(owner) = self.0.take(true) {
            drop(owner);
        }
    }
}

impl fmt::Debug for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        write!(f, "Releases({} wait, {} are lent)", state.waiting.len(), state.lent)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of owners runs under the lock, so the state is whole whatever panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A region is made whose owner will come. Room for it is made here, so that its return, maybe
    /// inside of `progress`, allocates nothing.
    pub(super) fn lend(&self) {
        let mut state = self.lock();
        state.lent += 1;
        let most = state.lent;
        state.waiting.reserve(most);
    }

    /// The last holder of a region was dropped.
    pub(super) fn put(&self, owner: Owner) {
        let mut state = self.lock();
        state.lent -= 1;
        if state.closed {
            drop(state);
            mem::forget(owner);
            return;
        }
        state.waiting.push_back(owner);
        if state.waiting.len() == 1
            && let Some(fd) = self.fd.get()
        {
            fd.signal();
        }
    }

    /// The next owner. If there is none, and none is to come any more, it is closed.
    fn take(&self, close: bool) -> Option<Owner> {
        let mut state = self.lock();
        let owner = state.waiting.pop_front();
        if state.waiting.is_empty()
            && let Some(fd) = self.fd.get()
        {
            fd.take();
        }
        state.closed |= close && owner.is_none();
        owner
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Left only if an owner panicked while the queue was dropped: this may be any thread.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.waiting.drain(..).for_each(mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Region, memory::RegionBuilder};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        ptr::NonNull,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        thread::{self, ThreadId},
    };

    /// Memory that may be freed on one thread only.
    struct Bound {
        thread: ThreadId,
        freed: Arc<AtomicUsize>,
        memory: Vec<u8>,
        /// Dropped with it.
        _other: Option<Region>,
    }

    impl Drop for Bound {
        fn drop(&mut self) {
            assert_eq!(self.thread, thread::current().id(), "freed on another thread");
            assert_eq!(self.memory, [5; 64]);
            self.freed.fetch_add(1, SeqCst);
        }
    }

    fn bound(releases: &Releases, freed: &Arc<AtomicUsize>, other: Option<Region>) -> Region {
        let mut memory = vec![0; 64];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        let (thread, freed) = (thread::current().id(), freed.clone());
        let owner = Bound { thread, freed, memory, _other: other };
        let builder = RegionBuilder::new(base, 64).release_to(releases);
        // SAFETY: the owner keeps the vector, and looks at it only when it is dropped, which the
        // region does not outlive.
        let region = unsafe { builder.build(Box::new(owner)) };
        region.write(0, &[5; 64]);
        region
    }

    fn is_readable(releases: &Releases) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let fd = releases.fd().unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn owners_are_dropped_by_the_thread_that_drains() {
        const EACH: usize = if cfg!(miri) { 10 } else { 500 };
        let (releases, freed) = (Releases::new(), Arc::default());
        let regions: Vec<Vec<Region>> =
            (0..8).map(|_| (0..EACH).map(|_| bound(&releases, &freed, None)).collect()).collect();
        assert_eq!((releases.lent(), releases.len()), (8 * EACH, 0));
        thread::scope(|threads| {
            let dropping: Vec<_> = regions
                .into_iter()
                .map(|regions| {
                    threads.spawn(move || {
                        for region in regions {
                            // Two holders, of which the part is the last.
                            let part = region.slice(1, 2).unwrap();
                            drop(region);
                            assert_eq!(part.to_vec(), [5; 2]);
                        }
                    })
                })
                .collect();
            let mut drained = 0;
            while drained < 8 * EACH {
                drained += releases.drain();
                assert_eq!(freed.load(SeqCst), drained);
                thread::yield_now();
            }
            dropping.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!((releases.lent(), releases.len(), releases.drain()), (0, 0, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "nothing is polled there")]
    fn a_thread_may_sleep_until_owners_wait() {
        let (releases, freed) = (Releases::new(), Arc::default());
        let region = bound(&releases, &freed, None);
        let other = bound(&releases, &freed, None);
        assert!(!is_readable(&releases));
        let dropped = thread::spawn(move || drop(region));
        let fd = releases.fd().unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
        dropped.join().unwrap();
        drop(other);
        assert!(releases.take().is_some() && is_readable(&releases), "another one waits");
        assert_eq!(releases.drain(), 1);
        assert!(!is_readable(&releases) && releases.take().is_none());
        // A descriptor that is made while owners wait is readable.
        let late = Releases::new();
        drop(bound(&late, &freed, None));
        assert!(is_readable(&late));
    }

    #[test]
    fn an_owner_may_hold_another_region_of_the_queue() {
        let (releases, freed) = (Releases::new(), Arc::default());
        let inner = bound(&releases, &freed, None);
        drop(bound(&releases, &freed, Some(inner)));
        assert_eq!((releases.drain(), releases.lent(), releases.len()), (1, 0, 1));
        assert_eq!(releases.drain(), 1);
        let inner = bound(&releases, &freed, None);
        drop(bound(&releases, &freed, Some(inner)));
        drop(releases);
        assert_eq!(freed.load(SeqCst), 4, "the queue waits for what its owners held");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it leaks, as is said")]
    fn after_the_queue_owners_are_kept() {
        let (releases, freed) = (Releases::new(), Arc::default());
        let (first, second) = (bound(&releases, &freed, None), bound(&releases, &freed, None));
        drop(first);
        drop(releases);
        assert_eq!(freed.load(SeqCst), 1, "dropped with the queue");
        assert_eq!(second.to_vec(), [5; 64], "the memory is there as long as the region");
        thread::spawn(move || drop(second)).join().unwrap();
        assert_eq!(freed.load(SeqCst), 1, "no thread is right for it");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it leaks, as is said")]
    fn a_forgotten_queue_keeps_its_owners() {
        let (releases, freed) = (Releases::new(), Arc::default());
        let regions = [(); 3].map(|()| bound(&releases, &freed, None));
        mem::forget(releases);
        thread::spawn(move || drop(regions)).join().unwrap();
        assert_eq!(freed.load(SeqCst), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it leaks, as is said")]
    fn an_owner_that_panics_costs_no_other() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("as it was made to");
            }
        }
        let (releases, freed) = (Releases::new(), Arc::default());
        let fill = |releases: &Releases| {
            drop(bound(releases, &freed, None));
            let base = NonNull::dangling();
            // SAFETY: there are no bytes.
            drop(unsafe {
                RegionBuilder::new(base, 0).release_to(releases).build(Box::new(Panics))
            });
            drop(bound(releases, &freed, None));
        };
        fill(&releases);
        assert!(catch_unwind(AssertUnwindSafe(|| releases.drain())).is_err());
        assert_eq!((freed.load(SeqCst), releases.len()), (1, 1));
        assert_eq!((releases.drain(), freed.load(SeqCst)), (1, 2));
        fill(&releases);
        let last = bound(&releases, &freed, None);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(releases))).is_err());
        // What it had not come to is kept, and dropped by no other thread.
        thread::spawn(move || drop(last)).join().unwrap();
        assert_eq!(freed.load(SeqCst), 3);
    }

    #[test]
    fn memory_that_is_returned_finds_room() {
        let (releases, freed) = (Releases::new(), Arc::default());
        for _ in 0..3 {
            let regions: Vec<Region> = (0..100).map(|_| bound(&releases, &freed, None)).collect();
            let room = releases.0.lock().waiting.capacity();
            assert!(room >= 100);
            drop(regions);
            assert_eq!(releases.0.lock().waiting.capacity(), room);
            assert_eq!(releases.drain(), 100);
        }
    }
}
