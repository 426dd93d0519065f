//! Records in memory that one process writes and others only read: bytes that change as a whole, without
//! a lock, as a reader could hold one for ever.
//!
//! A record is four words, and somewhere else in the same memory its bytes:
//!
//! ```text
//! counter | where | how long | its users'
//! ```
//!
//! The writer makes the counter odd, changes what it has to, and makes it even. Who reads looks at the
//! counter before and after: if it is not the same even number, what lies between may be of two states,
//! and is not used. Nobody waits for anybody: a writer that dies in the middle leaves the counter odd,
//! and its readers a record that changes for ever.

use super::{Shared, SharedView};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::fence;

#[cfg(all(loom, test))]
use loom::sync::atomic::fence;

/// Bytes of a record's own words.
pub const RECORD: usize = 32;
/// Where among them the word is that no record uses: who keeps records has it for something else.
pub const RECORD_SPARE: usize = 24;

/// What a reader finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nothing was ever written, or it was taken away.
    Absent,
    /// It was being changed at each look.
    Changing,
    /// What was written together.
    Here(Vec<u8>),
}

impl Shared {
    /// Writes a record whose words begin at `record`, and its bytes from `at` on, which are nobody else's; no
    /// bytes take it away. All before it was written are in place when a reader sees it.
    ///
    /// # Panics
    /// If it does not lie within, on multiples of 8.
    pub fn put_record(&mut self, record: usize, at: usize, bytes: &[u8]) {
        put(&*self, record, at, bytes);
    }
}

impl SharedView {
    /// Reads the record whose words begin at `record`, looking so many times at most if it changes meanwhile.
    ///
    /// Whatever the words say, nothing but this memory is read. [`Record::Absent`] if they do not lie within.
    #[must_use]
    pub fn record(&self, record: usize, looks: u32) -> Record {
        for _ in 0..looks {
            match look(self, record) {
                Some(Record::Changing) => std::hint::spin_loop(),
                found => return found.unwrap_or(Record::Absent),
            }
        }
        Record::Changing
    }
}

/// Memory as its one writer has it.
trait Written {
    fn load(&self, at: usize) -> u64;
    fn store(&self, at: usize, word: u64, order: std::sync::atomic::Ordering);
    fn write(&self, at: usize, bytes: &[u8]);
}

/// Memory as its readers have it.
trait Seen {
    fn load(&self, at: usize, order: std::sync::atomic::Ordering) -> Option<u64>;
    fn read(&self, at: usize, len: usize) -> Option<Vec<u8>>;
}

impl Written for Shared {
    fn load(&self, at: usize) -> u64 {
        Shared::load(self, at, Relaxed)
    }

    fn store(&self, at: usize, word: u64, order: std::sync::atomic::Ordering) {
        Shared::store(self, at, word, order);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        Shared::write(self, at, bytes);
    }
}

impl Seen for SharedView {
    fn load(&self, at: usize, order: std::sync::atomic::Ordering) -> Option<u64> {
        SharedView::load(self, at, order)
    }

    fn read(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        SharedView::read(self, at, len)
    }
}

fn put(memory: &impl Written, record: usize, at: usize, bytes: &[u8]) {
    let counter = memory.load(record);
    memory.store(record, counter + 1, Relaxed);
    // Whoever sees one of the stores below sees the odd counter after its own fence.
    fence(Release);
    memory.write(at, bytes);
    memory.store(record + 8, at as u64, Relaxed);
    memory.store(record + 16, bytes.len() as u64, Relaxed);
    memory.store(record, counter + 2, Release);
}

/// One look. None if the words do not lie within.
fn look(memory: &impl Seen, record: usize) -> Option<Record> {
    let counter = memory.load(record, Acquire)?;
    let at = memory.load(record + 8, Relaxed)?;
    let len = memory.load(record + 16, Relaxed)?;
    if counter % 2 == 1 {
        return Some(Record::Changing);
    }
    // What does not lie within is of a record that changes, or of a writer that lies.
    let place = usize::try_from(at).ok().zip(usize::try_from(len).ok());
    let bytes = place.map(|(at, len)| memory.read(at, len));
    fence(Acquire);
    if memory.load(record, Relaxed)? != counter {
        return Some(Record::Changing);
    }
    match bytes {
        Some(Some(bytes)) if !bytes.is_empty() => Some(Record::Here(bytes)),
        _ => Some(Record::Absent),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const AT: usize = 1024;

    fn both() -> (Shared, SharedView) {
        let ours = Shared::create("test", 4096).unwrap();
        let theirs = SharedView::open(&ours).unwrap();
        (ours, theirs)
    }

    #[test]
    fn what_was_put_is_there_until_it_is_taken_away() {
        let (mut ours, theirs) = both();
        assert_eq!(theirs.record(RECORD, 1), Record::Absent);
        ours.put_record(RECORD, AT, b"eleven byte");
        assert_eq!(theirs.record(RECORD, 1), Record::Here(b"eleven byte".to_vec()));
        ours.put_record(RECORD, AT, b"less");
        assert_eq!(theirs.record(RECORD, 1), Record::Here(b"less".to_vec()));
        ours.put_record(RECORD, AT, b"");
        assert_eq!(theirs.record(RECORD, 1), Record::Absent);
        assert_eq!((theirs.record(0, 1), theirs.record(4096, 1)), (Record::Absent, Record::Absent));
    }

    #[test]
    fn a_writer_that_dies_or_lies_does_no_harm() {
        let (ours, theirs) = both();
        for (counter, at, len, found) in [
            (1, AT as u64, 8, Record::Changing),
            (2, u64::MAX, 8, Record::Absent),
            (2, AT as u64, u64::MAX, Record::Absent),
            (2, AT as u64 + 1, 8, Record::Absent),
            (u64::MAX, 0, 0, Record::Changing),
        ] {
            for (word, value) in [counter, at, len].into_iter().enumerate() {
                ours.store(8 * word, value, Relaxed);
            }
            assert_eq!(theirs.record(0, 3), found, "{counter} {at} {len}");
        }
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::{
        sync::{Arc, atomic::AtomicU64},
        thread,
    };
    use std::sync::atomic::Ordering;

    const AT: usize = RECORD;

    /// A record, and room for two words of its bytes.
    struct Words([AtomicU64; 6]);

    impl Words {
        fn new() -> Words {
            Words(std::array::from_fn(|_| AtomicU64::new(0)))
        }
    }

    impl Written for Words {
        fn load(&self, at: usize) -> u64 {
            self.0[at / 8].load(Relaxed)
        }

        fn store(&self, at: usize, word: u64, order: Ordering) {
            self.0[at / 8].store(word, order);
        }

        fn write(&self, at: usize, bytes: &[u8]) {
            for (nth, word) in bytes.as_chunks().0.iter().enumerate() {
                self.0[at / 8 + nth].store(u64::from_le_bytes(*word), Relaxed);
            }
        }
    }

    impl Seen for Words {
        fn load(&self, at: usize, order: Ordering) -> Option<u64> {
            Some(self.0.get(at / 8)?.load(order))
        }

        fn read(&self, at: usize, len: usize) -> Option<Vec<u8>> {
            let words = self.0.get(at / 8..(at + len) / 8)?;
            Some(words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect())
        }
    }

    /// So many words that all say the same.
    fn state(words: usize, says: u8) -> Vec<u8> {
        vec![says; 8 * words]
    }

    /// The first of these states is there when others begin to read, and then the others, one after the other.
    /// What is found was written together.
    fn nobody_sees_halves(states: Vec<Vec<u8>>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let words = Arc::new(Words::new());
            put(&*words, 0, AT, &states[0]);
            let theirs = (words.clone(), states.clone());
            let reader = thread::spawn(move || {
                let (words, states) = theirs;
                match look(&*words, 0).expect("it lies within") {
                    Record::Changing => {}
                    Record::Absent => assert!(states.contains(&Vec::new())),
                    Record::Here(bytes) => assert!(states.contains(&bytes), "{bytes:?}"),
                }
            });
            for state in &states[1..] {
                put(&*words, 0, AT, state);
            }
            reader.join().unwrap();
            let last = states.last().expect("a state");
            assert_eq!(look(&*words, 0), Some(Record::Here(last.clone())));
        });
    }

    #[test]
    fn nobody_sees_halves_of_words() {
        nobody_sees_halves(vec![state(2, 1), state(2, 2)]);
    }

    #[test]
    fn nobody_sees_one_length_with_the_bytes_of_another() {
        nobody_sees_halves(vec![Vec::new(), state(2, 1)]);
        nobody_sees_halves(vec![state(1, 1), state(2, 2)]);
    }

    #[test]
    fn nobody_sees_halves_of_three() {
        nobody_sees_halves(vec![state(2, 1), state(2, 2), state(2, 3)]);
    }
}
