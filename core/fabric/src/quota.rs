//! So many things at a time, and so many bytes of them, taken and given back from any thread.

#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU64, Ordering};

/// How much of something is taken, and how much of it there is: buffers of a pool, say. One word,
/// so that one load sees things and bytes of the same moment.
///
/// ```
/// use petasos_fabric::Quota;
///
/// let quota = Quota::with_bytes(3, 1000);
/// // One more than the bytes hold, at most: what is admitted may be long.
/// assert!(quota.take(900) && quota.take(5000));
/// assert!(!quota.take(1) && !quota.has_room());
/// quota.give_back(5000);
/// assert!(quota.has_room());
/// assert_eq!((quota.taken(), quota.limit()), (1, 3));
/// ```
#[derive(Debug)]
pub struct Quota {
    taken: AtomicU64,
    things: u64,
    bytes: u64,
}

/// A thing, above so many bits for the bytes: a terabyte.
const THING: u64 = 1 << 40;

fn many(things: usize, each: usize) -> u64 {
    things as u64 * (THING + each as u64)
}

impl Quota {
    /// So many things, whatever they weigh.
    #[must_use]
    pub fn new(things: usize) -> Quota {
        Quota { taken: AtomicU64::new(0), things: things as u64, bytes: THING }
    }

    /// So many things, and another one while less than `bytes` bytes are taken: so one more than
    /// these hold, at most, however long it is. A terabyte at most.
    #[must_use]
    pub fn with_bytes(things: usize, bytes: usize) -> Quota {
        Quota { taken: AtomicU64::new(0), things: things as u64, bytes: bytes as u64 }
    }

    /// Takes a thing of so many bytes, if there is room. A request while another one is being
    /// refused may be refused, too, though there is room by then; of several that want the last
    /// thing at a time one gets it.
    #[inline]
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        let more = THING + bytes as u64;
        let admitted = self.admits(self.taken.fetch_add(more, Ordering::Relaxed));
        if !admitted {
            self.taken.fetch_sub(more, Ordering::Relaxed);
        }
        admitted
    }

    /// Takes so many things of so many bytes each, whether there is room for them or not: for a
    /// thread that asked before ([`Quota::usage`]), and is the only one that takes.
    #[inline]
    pub(crate) fn take_many(&self, things: usize, each: usize) {
        self.taken.fetch_add(many(things, each), Ordering::Relaxed);
    }

    /// Gives a thing back that was taken with so many bytes.
    #[inline]
    pub fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(THING + bytes as u64, Ordering::Relaxed);
    }

    /// Gives so many things of so many bytes each back.
    #[inline]
    pub(crate) fn give_back_many(&self, things: usize, each: usize) {
        self.taken.fetch_sub(many(things, each), Ordering::Relaxed);
    }

    /// Gives bytes back, and no thing: what was taken weighs less than it was taken for.
    #[inline]
    pub(crate) fn lighten(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether another thing can be taken.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.admits(self.taken.load(Ordering::Relaxed))
    }

    /// Things and bytes that are taken, at one moment.
    #[inline]
    pub(crate) fn usage(&self) -> (u64, u64) {
        let taken = self.taken.load(Ordering::Relaxed);
        (taken / THING, taken % THING)
    }

    /// Things and bytes that there are.
    #[inline]
    pub(crate) fn all(&self) -> (u64, u64) {
        (self.things, self.bytes)
    }

    /// Things that are taken now.
    #[inline]
    #[must_use]
    pub fn taken(&self) -> usize {
        (self.taken.load(Ordering::Relaxed) / THING) as usize
    }

    /// How many there are.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.things as usize
    }

    #[inline]
    fn admits(&self, taken: u64) -> bool {
        taken / THING < self.things && taken % THING < self.bytes
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn things_and_bytes_have_a_bound() {
        let quota = Quota::with_bytes(2, 100);
        assert!(quota.take(99) && quota.has_room());
        assert!(quota.take(5000), "one more, however long");
        assert!(!quota.has_room() && !quota.take(0) && quota.taken() == 2);
        quota.give_back(99);
        assert!(!quota.take(0), "too many bytes");
        quota.give_back(5000);
        assert!(quota.take(0) && quota.take(0) && !quota.take(0));
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::{sync::Arc, thread};

    /// Takes what there is, says how much is held, and gives it back.
    fn come_and_go(quota: &Quota, held: &AtomicU64, bytes: usize) -> bool {
        let taken = quota.take(bytes);
        if taken {
            let now = held.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(now <= quota.limit() as u64, "{now} are held");
            held.fetch_sub(1, Ordering::Relaxed);
            quota.give_back(bytes);
        }
        taken
    }

    /// Three that want one of two: never more than two hold one, and in the end all is there.
    #[test]
    fn no_more_are_taken_than_there_are() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (quota, held) = (Arc::new(Quota::new(2)), Arc::new(AtomicU64::new(0)));
            let others = [7, 1 << 30].map(|bytes| {
                let (quota, held) = (quota.clone(), held.clone());
                thread::spawn(move || come_and_go(&quota, &held, bytes))
            });
            come_and_go(&quota, &held, 0);
            for other in others {
                other.join().unwrap();
            }
            assert!(quota.taken() == 0 && quota.has_room());
            assert!(quota.take(0) && quota.take(0) && !quota.take(0), "nothing is left over");
        });
    }

    /// Two that want the last one, and keep it: one of them gets it.
    #[test]
    fn the_last_one_goes_to_one_of_the_threads() {
        loom::model(|| {
            let quota = Arc::new(Quota::with_bytes(9, 100));
            assert!(quota.take(99));
            let theirs = quota.clone();
            let other = thread::spawn(move || theirs.take(5000));
            let ours = quota.take(1);
            let taken = [ours, other.join().unwrap()].map(u8::from);
            // One byte is no more than there was room for; with 5000 there is none.
            assert!(taken.iter().sum::<u8>() >= 1, "both were refused");
            assert_eq!(quota.taken() as u8, 1 + taken.iter().sum::<u8>());
            assert!(!quota.has_room());
        });
    }
}
