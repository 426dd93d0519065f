//! Records in memory that one process writes and others only read: bytes that change as a whole,
//! without a lock, as a reader could hold one for ever.
//!
//! A record is four words, and somewhere else in the same memory its bytes:
//!
//! ```text
//! counter | where | how long | its users'
//! ```
//!
//! The writer makes the counter odd, changes what it has to, and makes it even. A reader looks at
//! the counter before and after: if it is not the same even number, what lies between may be of two
//! states, and is not used. Neither waits for the other: a writer that dies in the middle leaves
//! the counter odd, and its readers a record that changes for ever. (One that panics and goes on
//! leaves an empty record.)

use super::{Shared, SharedView};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::fence;

#[cfg(all(loom, test))]
use loom::sync::atomic::fence;

/// Bytes of a record's own words.
pub const RECORD: usize = 32;
/// Where among them the word is that no record uses: the code that keeps records has it for
/// something else.
pub const RECORD_SPARE: usize = 24;

/// What a reader finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nothing was ever written, or it was taken away.
    Absent,
    /// It was being changed at each attempt.
    Changing,
    /// What was written together.
    Here(Vec<u8>),
}

impl Shared {
    /// Writes a record whose words begin at `record`, and its bytes from `at` on, which no
    /// other record has; no bytes take it away. All before it was written are in place when a
    /// reader sees it.
    ///
    /// # Panics
    /// If it does not lie within, on multiples of 8. Then the record is what it was.
    pub fn put_record(&mut self, record: usize, at: usize, bytes: &[u8]) {
        let fits = |at: usize, len: usize| {
            at.is_multiple_of(8) && at.checked_add(len).is_some_and(|end| end <= self.size())
        };
        let words = bytes.len().next_multiple_of(8);
        assert!(fits(record, RECORD) && fits(at, words), "a record that lies within its memory");
        put(&*self, record, at, bytes);
    }
}

impl SharedView {
    /// Reads the record whose words begin at `record`, looking so many times at most if it changes
    /// meanwhile.
    ///
    /// Whatever the words say, nothing but this memory is read, and no more of it than `most`
    /// bytes: it is their writer that says how long a record is, as it says how long its file is.
    /// [`Record::Absent`] if they do not lie within, or if it is longer than that.
    #[must_use]
    pub fn record(&self, record: usize, attempts: u32, most: usize) -> Record {
        for _ in 0..attempts {
            match try_read(self, record, most) {
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
    let mut change = Change::begin(memory, record);
    memory.write(at, bytes);
    change.says = [at as u64, bytes.len() as u64];
}

/// A record that is being changed: its counter is odd until this is dropped. Where that is before
/// all was written, by a panic that is caught, there is nothing in the record.
struct Change<'a, M: Written> {
    memory: &'a M,
    record: usize,
    odd: u64,
    /// Where the bytes are then, and how many.
    says: [u64; 2],
}

impl<M: Written> Change<'_, M> {
    fn begin(memory: &M, record: usize) -> Change<'_, M> {
        let odd = memory.load(record) | 1;
        memory.store(record, odd, Relaxed);
        // A reader that sees one of the stores that follow sees the odd counter after its own
        // fence.
        fence(Release);
        Change { memory, record, odd, says: [0, 0] }
    }
}

impl<M: Written> Drop for Change<'_, M> {
    fn drop(&mut self) {
        let [at, len] = self.says;
        self.memory.store(self.record + 8, at, Relaxed);
        self.memory.store(self.record + 16, len, Relaxed);
        self.memory.store(self.record, self.odd.wrapping_add(1), Release);
    }
}

/// Reads once, without waiting for a writer. None if the words do not lie within.
fn try_read(memory: &impl Seen, record: usize, most: usize) -> Option<Record> {
    let counter = memory.load(record, Acquire)?;
    let at = memory.load(record + 8, Relaxed)?;
    let len = memory.load(record + 16, Relaxed)?;
    if counter % 2 == 1 {
        return Some(Record::Changing);
    }
    // What does not lie within is of a record that changes, or of a writer that lies.
    let place = usize::try_from(at).ok().zip(usize::try_from(len).ok());
    let bytes = place.filter(|(_, len)| *len <= most).map(|(at, len)| memory.read(at, len));
    fence(Acquire);
    if memory.load(record, Relaxed)? != counter {
        return Some(Record::Changing);
    }
    match bytes {
        Some(Some(bytes)) if !bytes.is_empty() => Some(Record::Here(bytes)),
        _ => Some(Record::Absent),
    }
}

/// Memory of a record on the heap, with room for two words of its bytes: for models, and where
/// nothing can be mapped.
#[cfg(test)]
mod heap {
    use super::*;
    #[cfg(loom)]
    use loom::sync::atomic::AtomicU64;
    #[cfg(not(loom))]
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;

    pub(super) const AT: usize = RECORD;

    pub(super) struct Words([AtomicU64; 6]);

    impl Words {
        pub(super) fn new() -> Words {
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
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const AT: usize = 1024;

    fn both() -> (Shared, SharedView) {
        let ours = Shared::create("test", 4096).unwrap();
        let theirs = SharedView::open(&ours, 4096).unwrap();
        (ours, theirs)
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn what_was_put_is_there_until_it_is_taken_away() {
        let (mut ours, theirs) = both();
        assert_eq!(theirs.record(RECORD, 1, 64), Record::Absent);
        ours.put_record(RECORD, AT, b"eleven byte");
        assert_eq!(theirs.record(RECORD, 1, 64), Record::Here(b"eleven byte".to_vec()));
        ours.put_record(RECORD, AT, b"less");
        assert_eq!(theirs.record(RECORD, 1, 64), Record::Here(b"less".to_vec()));
        ours.put_record(RECORD, AT, b"");
        assert_eq!(theirs.record(RECORD, 1, 64), Record::Absent);
        assert_eq!(
            (theirs.record(0, 1, 64), theirs.record(4096, 1, 64)),
            (Record::Absent, Record::Absent)
        );
    }

    /// The thread that catches the panic goes on, and so does the record.
    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn what_has_no_room_leaves_a_record_that_can_be_read_and_written() {
        let (mut ours, theirs) = both();
        ours.put_record(RECORD, AT, b"before");
        for (record, at) in [(RECORD, 4090), (RECORD, 4096 - 8), (RECORD, AT + 1), (4096, AT)] {
            let put = std::panic::AssertUnwindSafe(|| ours.put_record(record, at, &[7; 16]));
            assert!(std::panic::catch_unwind(put).is_err(), "{record} {at}");
            assert_eq!(theirs.record(RECORD, 1, 64), Record::Here(b"before".to_vec()));
        }
        ours.put_record(RECORD, AT, b"after");
        assert_eq!(theirs.record(RECORD, 1, 64), Record::Here(b"after".to_vec()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
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
            assert_eq!(theirs.record(0, 3, 64), found, "{counter} {at} {len}");
        }
    }

    /// So many words that all say the same.
    fn state(words: usize, says: u8) -> Vec<u8> {
        vec![says; 8 * words]
    }

    #[test]
    fn what_is_found_on_the_heap_was_written_together() {
        let rounds = if cfg!(miri) { 60 } else { 20_000 };
        let words = std::sync::Arc::new(heap::Words::new());
        let theirs = words.clone();
        let reader = std::thread::spawn(move || {
            let mut found = 0;
            while found < rounds {
                if let Some(Record::Here(bytes)) = try_read(&*theirs, 0, 64) {
                    assert_eq!(bytes, state(bytes.len() / 8, bytes[0]));
                    found += 1;
                }
            }
        });
        let mut says = 0u8;
        while !reader.is_finished() {
            says = says % 250 + 1;
            put(&*words, 0, heap::AT, &state(1 + usize::from(says % 2), says));
        }
        reader.join().unwrap();
    }

    /// Memory whose writes fail in the middle.
    struct Failing(heap::Words);

    impl Written for Failing {
        fn load(&self, at: usize) -> u64 {
            Written::load(&self.0, at)
        }

        fn store(&self, at: usize, word: u64, order: std::sync::atomic::Ordering) {
            self.0.store(at, word, order);
        }

        fn write(&self, at: usize, bytes: &[u8]) {
            self.0.write(at, &bytes[..8]);
            panic!("no more than the first word");
        }
    }

    #[test]
    fn a_change_that_does_not_end_leaves_nothing() {
        let words = heap::Words::new();
        put(&words, 0, heap::AT, &state(2, 1));
        let failing = Failing(words);
        let put_half = std::panic::AssertUnwindSafe(|| put(&failing, 0, heap::AT, &state(2, 2)));
        assert!(std::panic::catch_unwind(put_half).is_err());
        assert_eq!(try_read(&failing.0, 0, 64), Some(Record::Absent));
        put(&failing.0, 0, heap::AT, &state(2, 3));
        assert_eq!(try_read(&failing.0, 0, 64), Some(Record::Here(state(2, 3))));
        assert_eq!(try_read(&failing.0, 0, 15), Some(Record::Absent), "longer than is taken");
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::{
        heap::{AT, Words},
        *,
    };
    use loom::{sync::Arc, thread};

    /// So many words that all say the same.
    fn state(words: usize, says: u8) -> Vec<u8> {
        vec![says; 8 * words]
    }

    /// The first of these states is there when others begin to read, and then the others, one after
    /// the other. What is found was written together.
    fn no_reader_sees_halves(states: Vec<Vec<u8>>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let words = Arc::new(Words::new());
            put(&*words, 0, AT, &states[0]);
            let theirs = (words.clone(), states.clone());
            let reader = thread::spawn(move || {
                let (words, states) = theirs;
                match try_read(&*words, 0, 64).expect("it lies within") {
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
            assert_eq!(try_read(&*words, 0, 64), Some(Record::Here(last.clone())));
        });
    }

    #[test]
    fn no_reader_sees_halves_of_words() {
        no_reader_sees_halves(vec![state(2, 1), state(2, 2)]);
    }

    #[test]
    fn no_reader_sees_one_length_with_the_bytes_of_another() {
        no_reader_sees_halves(vec![Vec::new(), state(2, 1)]);
        no_reader_sees_halves(vec![state(1, 1), state(2, 2)]);
    }

    #[test]
    fn no_reader_sees_halves_of_three() {
        no_reader_sees_halves(vec![state(2, 1), state(2, 2), state(2, 3)]);
    }
}
