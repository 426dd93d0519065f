//! Numbers that threads read without a lock: the values of counters, the lengths of queues.

use super::sync::{AtomicU64, Ordering, fence, yield_now};
use std::sync::OnceLock;

/// Places in the first chunk; each later one is twice as long.
const FIRST: u32 = if cfg!(all(loom, test)) { 1 } else { 64 };
/// As many chunks as make a place for each index.
const CHUNKS: usize = 33;

/// Places by number, each with two numbers that belong together, and a stamp that says whose they
/// are: what one thread writes under a lock, and all others read without it. Written by one thread
/// at a time. Memory is taken as places are written, and kept.
///
/// ```
/// use petasos_fabric::driver::Board;
///
/// let board = Board::default();
/// // Counter 3, in its first life: 10 successes, no failure.
/// board.set(3, 1, [10, 0]);
/// assert_eq!(board.get(3, 1), Some([10, 0]));
/// // It is gone, and its place is used again.
/// board.set(3, 2, [0, 0]);
/// assert_eq!((board.get(3, 1), board.get(4, 1)), (None, None));
/// ```
#[derive(Debug)]
pub struct Board {
    chunks: [OnceLock<Box<[Place]>>; CHUNKS],
}

#[derive(Debug)]
struct Place {
    /// Odd while it is written.
    version: AtomicU64,
    stamp: AtomicU64,
    numbers: [AtomicU64; 2],
}

impl Default for Board {
    fn default() -> Board {
        Board { chunks: [const { OnceLock::new() }; CHUNKS] }
    }
}

impl Board {
    /// The chunk of a place, and where it is there.
    #[inline]
    fn locate(index: u32) -> (usize, usize) {
        let chunk = (u64::from(index) / u64::from(FIRST) + 1).ilog2();
        let start = u64::from(FIRST) * ((1 << chunk) - 1);
        (chunk as usize, (u64::from(index) - start) as usize)
    }

    /// Writes a place. Not to be called by two threads at once.
    #[inline]
    pub fn set(&self, index: u32, stamp: u64, numbers: [u64; 2]) {
        let (chunk, at) = Board::locate(index);
        let places = match self.chunks[chunk].get() {
            Some(places) => places,
            None => self.chunks[chunk].get_or_init(|| Board::chunk(chunk)),
        };
        places[at].write(stamp, numbers);
    }

    #[cold]
    fn chunk(chunk: usize) -> Box<[Place]> {
        let word = || AtomicU64::new(0);
        let place = || Place { version: word(), stamp: word(), numbers: [word(), word()] };
        (0..u64::from(FIRST) << chunk).map(|_| place()).collect()
    }

    /// What was written last to a place, together; `None` if that has another stamp, or nothing was
    /// written. Takes no lock: it reads again if the numbers are changed meanwhile.
    #[inline]
    #[must_use]
    pub fn get(&self, index: u32, stamp: u64) -> Option<[u64; 2]> {
        let (chunk, at) = Board::locate(index);
        let (found, numbers) = self.chunks[chunk].get()?[at].read();
        (found == stamp).then_some(numbers)
    }
}

impl Place {
    #[inline]
    fn write(&self, stamp: u64, numbers: [u64; 2]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Whoever reads what follows reads that it is being written, too.
        fence(Ordering::Release);
        self.stamp.store(stamp, Ordering::Relaxed);
        self.numbers[0].store(numbers[0], Ordering::Relaxed);
        self.numbers[1].store(numbers[1], Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    #[inline]
    fn read(&self) -> (u64, [u64; 2]) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let stamp = self.stamp.load(Ordering::Relaxed);
            let numbers = [&self.numbers[0], &self.numbers[1]];
            let numbers = numbers.map(|number| number.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && version == self.version.load(Ordering::Relaxed) {
                return (stamp, numbers);
            }
            // The thread that writes may be waiting for this processor.
            yield_now();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_index_has_a_place_of_its_own() {
        let mut next = (0, 0);
        for index in 0..5000 {
            assert_eq!(Board::locate(index), next);
            let last = next.1 + 1 == (FIRST as usize) << next.0;
            next = if last { (next.0 + 1, 0) } else { (next.0, next.1 + 1) };
        }
        assert!(Board::locate(u32::MAX).0 < CHUNKS);
        let board = Board::default();
        (0..1000).for_each(|index| board.set(index, 1, [index.into(), 0]));
        assert!((0..1000).all(|index| board.get(index, 1) == Some([index.into(), 0])));
        assert_eq!(
            (board.get(1000, 1), board.get(1 << 20, 1), board.get(7, 2)),
            (None, None, None)
        );
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::{sync::Arc, thread};

    /// Numbers that belong together are never read apart, and never with the stamp of others.
    #[test]
    fn numbers_are_read_together() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let board = Arc::new(Board::default());
            board.set(0, 1, [0, 0]);
            let theirs = board.clone();
            let writer = thread::spawn(move || {
                theirs.set(0, 1, [1, 1]);
                theirs.set(0, 2, [7, 8]);
            });
            match board.get(0, 1) {
                None => assert_eq!(board.get(0, 2), Some([7, 8])),
                Some(numbers) => assert!(numbers == [0, 0] || numbers == [1, 1]),
            }
            writer.join().unwrap();
            assert_eq!((board.get(0, 1), board.get(0, 2)), (None, Some([7, 8])));
        });
    }
}
