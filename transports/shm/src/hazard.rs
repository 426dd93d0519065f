//! Accesses to a region and its closing, ordered without a lock, as by hazard pointers: one word of
//! each side.
//!
//! A peer that reaches into a region announces its tag, and then looks whether it is still open.
//! The owner that closes it takes the tag away, and then looks whether a peer announces it. So one
//! of the two sees the other: no peer begins to reach into memory that its owner has taken back.
//! Tags are never used twice.

use crate::sync::{AtomicU64, Ordering, fence};

/// In the owner's table: the tag of the region that is open in a slot, or zero.
#[derive(Clone, Copy)]
pub(crate) struct Opened<'a>(pub(crate) &'a AtomicU64);

impl Opened<'_> {
    /// A peer that finds the region open sees what was written about it.
    pub(crate) fn open(self, tag: u64) {
        self.0.store(tag, Ordering::Release);
    }

    /// From now on no peer begins to reach into it, except those that a look at the announcements,
    /// after this, shows.
    pub(crate) fn close(self) {
        self.0.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// Whether a region is open, as a peer finds it, by a relaxed load of that word: good for as long
/// as it is announced.
///
/// Peers have the table in pages that they cannot write, of which no other loads are promised to
/// work.
pub(crate) fn is_open(load: impl FnOnce() -> u64, tag: u64) -> bool {
    let open = tag != 0 && load() == tag;
    fence(Ordering::Acquire);
    open
}

/// In the memory of a pair: the tag of the region into which one side reaches, or zero.
#[derive(Clone, Copy)]
pub(crate) struct Announced<'a>(pub(crate) &'a AtomicU64);

impl Announced<'_> {
    pub(crate) fn announce(self, tag: u64) {
        self.0.store(tag, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// What was done in the region is done.
    pub(crate) fn withdraw(self) {
        self.0.store(0, Ordering::Release);
    }

    /// To be asked after [`Opened::close`].
    pub(crate) fn read(self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// In the memory of a pair: whether one side has given it up.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a>(pub(crate) &'a AtomicU64);

impl Ended<'_> {
    /// From now on the other side begins no access through the pair, except one that a look at the
    /// announcement, after this, shows.
    pub(crate) fn end(self) {
        self.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// To be asked after [`Announced::announce`]: if not, the other side will see that.
    pub(crate) fn is(self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    struct Shared {
        opened: AtomicU64,
        announced: [AtomicU64; 2],
        /// loom complains of a write while it is read.
        memory: UnsafeCell<u64>,
    }

    // SAFETY: whether access to the cell is ordered is what the model finds out.
    unsafe impl Sync for Shared {}

    const TAG: u64 = 7;

    fn reach(shared: &Shared, side: usize) -> bool {
        let announced = Announced(&shared.announced[side]);
        announced.announce(TAG);
        let open = is_open(|| shared.opened.load(Ordering::Relaxed), TAG);
        if open {
            // SAFETY: open, and announced: its owner leaves it alone, or loom says so.
            shared.memory.with(|memory| assert_eq!(unsafe { *memory }, 5));
        }
        announced.withdraw();
        open
    }

    /// The owner takes memory back, while two peers may be reaching into it.
    #[test]
    fn memory_that_was_taken_back_is_not_reached() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new(Shared {
                opened: AtomicU64::new(0),
                announced: [AtomicU64::new(0), AtomicU64::new(0)],
                memory: UnsafeCell::new(0),
            });
            // SAFETY: no other thread has it yet.
            shared.memory.with_mut(|memory| unsafe { *memory = 5 });
            Opened(&shared.opened).open(TAG);
            let peers = [0, 1].map(|side| {
                let shared = shared.clone();
                thread::spawn(move || reach(&shared, side))
            });
            Opened(&shared.opened).close();
            while shared.announced.iter().any(|word| Announced(word).read() == TAG) {
                thread::yield_now();
            }
            // SAFETY: no peer reaches into it, or loom says so.
            shared.memory.with_mut(|memory| unsafe { *memory = 9 });
            for peer in peers {
                peer.join().unwrap();
            }
            assert!(!reach(&shared, 0), "it was closed");
        });
    }

    /// The owner gives up the pair of a peer that may be reaching into memory. It takes the memory
    /// back later, by a look at the announcements alone.
    #[test]
    fn no_access_begins_through_a_pair_that_was_given_up() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let ended = Arc::new(AtomicU64::new(0));
            let shared = Arc::new(Shared {
                opened: AtomicU64::new(TAG),
                announced: [AtomicU64::new(0), AtomicU64::new(0)],
                memory: UnsafeCell::new(5),
            });
            let (theirs, word) = (shared.clone(), ended.clone());
            let peer = thread::spawn(move || {
                // Two slices of one copy.
                for _ in 0..2 {
                    let announced = Announced(&theirs.announced[0]);
                    announced.announce(TAG);
                    if !Ended(&word).is() {
                        // SAFETY: announced, and not given up: or loom says so.
                        theirs.memory.with(|memory| assert_eq!(unsafe { *memory }, 5));
                    }
                    announced.withdraw();
                }
            });
            Ended(&ended).end();
            while Announced(&shared.announced[0]).read() != 0 {
                thread::yield_now();
            }
            // SAFETY: no peer reaches into it, or loom says so.
            shared.memory.with_mut(|memory| unsafe { *memory = 9 });
            peer.join().unwrap();
        });
    }

    /// A peer that finds a region open sees what the owner wrote about it.
    #[test]
    fn an_open_region_is_described() {
        loom::model(|| {
            let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let theirs = words.clone();
            let owner = thread::spawn(move || {
                theirs[1].store(3, Ordering::Relaxed);
                Opened(&theirs[0]).open(TAG);
            });
            if is_open(|| words[0].load(Ordering::Relaxed), TAG) {
                assert_eq!(words[1].load(Ordering::Relaxed), 3);
            }
            owner.join().unwrap();
        });
    }
}
