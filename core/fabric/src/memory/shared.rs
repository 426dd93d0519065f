//! Memory that one process writes and others of the node only read.
//!
//! It is a file without a name, gone with the last process that has it. Its length is sealed, so
//! that no access can fail, and so are its contents for every process but the one that made it: a
//! process that gets the file, by whatever way, can map it to be read and no more.
//!
//! Both sides go through whole words, atomically. What belongs together over several words is a
//! [`Record`](super::Record), or its users' business. Readers may sleep until a word changes.

use super::memfd::{self, Mapping, Unfit};
use rustix::{event::Timespec, thread::futex};
use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const WORD: usize = 8;

/// The lower half of a word, which is what the kernel looks at for a sleeper. For the kernel alone:
/// the processes load and store whole words.
fn lower_half(mapping: &Mapping, at: usize) -> Option<&AtomicU32> {
    let word = mapping.place_of_word(at)?.cast::<AtomicU32>();
    let half = word.as_ptr().wrapping_add(usize::from(cfg!(target_endian = "big")));
    // SAFETY: a half of a word that lies within the mapping, which lives as long as the reference,
    // and aligned. No half is ever loaded or stored here, so that accesses of two sizes do not
    // meet.
    Some(unsafe { &*half })
}

/// The writer's side.
pub struct Shared {
    mapping: Mapping,
    file: OwnedFd,
}

impl Shared {
    /// So many bytes of zeroes. Pages take memory once they are written. The name is for people
    /// that look at the process.
    ///
    /// # Errors
    /// If the system refuses, or has no such seals (Linux before 5.1).
    ///
    /// # Panics
    /// If it is to have no bytes.
    pub fn create(name: &str, len: usize) -> io::Result<Shared> {
        assert!(len > 0, "memory of no bytes cannot be mapped");
        let (file, mapping) = memfd::create(name, len)?;
        memfd::seal_for_readers(&file)?;
        Ok(Shared { mapping, file })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.mapping.len()
    }

    /// Stores a word.
    ///
    /// # Panics
    /// If it does not lie within, on a multiple of 8.
    pub fn store(&self, at: usize, value: u64, order: Ordering) {
        self.mapping.word(at).expect("a word of this memory").store(value, order);
    }

    /// A word, as it was stored last.
    ///
    /// # Panics
    /// If it does not lie within, on a multiple of 8.
    #[must_use]
    pub fn load(&self, at: usize, order: Ordering) -> u64 {
        self.mapping.word(at).expect("a word of this memory").load(order)
    }

    /// Wakes all readers that sleep until this word changes: after it was stored.
    ///
    /// # Panics
    /// If it does not lie within, on a multiple of 8.
    pub fn wake(&self, at: usize) {
        let half = lower_half(&self.mapping, at).expect("a word of this memory");
        // It cannot fail: there is such a word. Where it did, sleepers would look up when their
        // time is over.
        let _ = futex::wake(half, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Stores bytes from a multiple of 8 on; the last word is filled up with zeroes.
    ///
    /// # Panics
    /// If they do not lie within.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (nth, part) in bytes.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            self.store(at + nth * WORD, u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} bytes)", self.mapping.len())
    }
}

/// A reader's side. What is there may change at any time.
pub struct SharedView(Mapping);

impl SharedView {
    /// Maps all of a file that another process made by [`Shared::create`], of `most` bytes at most:
    /// its length is that process's word, and costs it nothing.
    ///
    /// # Errors
    /// If its length could change, or is more than that, or it cannot be mapped.
    pub fn open(file: impl AsFd, most: usize) -> io::Result<SharedView> {
        let mapping = memfd::adopt_whole(file, most);
        mapping.map(SharedView).map_err(|unfit| match unfit {
            Unfit::System(errno) => errno.into(),
            unfit => io::Error::new(io::ErrorKind::InvalidData, unfit),
        })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// A word, if it lies within, on a multiple of 8.
    ///
    /// # Panics
    /// If that is no order of a load.
    #[must_use]
    pub fn load(&self, at: usize, order: Ordering) -> Option<u64> {
        self.0.load(at, order)
    }

    /// Sleeps until the writer [wakes](Shared::wake) its readers, unless the word's lower half is
    /// another by now than that of `seen`; so long at most, and shorter where a signal comes. A
    /// thread that wakes has to check by itself.
    pub fn sleep(&self, at: usize, seen: u64, most: Duration) {
        let Some(half) = lower_half(&self.0, at) else { return };
        let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
        let most = Timespec { tv_sec: seconds, tv_nsec: i64::from(most.subsec_nanos()) };
        let _ = futex::wait(half, futex::Flags::empty(), seen as u32, Some(&most));
    }

    /// Bytes from a multiple of 8 on, if they lie within, and there is memory for so many: a length
    /// that the writer said is to be bounded first.
    #[must_use]
    pub fn read(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        let end = at.checked_add(len)?;
        if end > self.0.len() {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len.next_multiple_of(WORD)).ok()?;
        while bytes.len() < len {
            let word = self.load(at + bytes.len(), Ordering::Relaxed)?;
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(len);
        Some(bytes)
    }
}

impl fmt::Debug for SharedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedView({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn one_writes_and_others_read() {
        let ours = Shared::create("test", 4096).unwrap();
        let theirs = SharedView::open(&ours, 4096).unwrap();
        assert_eq!((ours.size(), theirs.size()), (4096, 4096));
        ours.write(8, b"eleven byte");
        ours.store(0, 7, Ordering::Release);
        assert_eq!(theirs.load(0, Ordering::Acquire), Some(7));
        assert_eq!(theirs.read(8, 11).unwrap(), b"eleven byte");
        assert_eq!(
            theirs.read(16, 8).unwrap(),
            b"yte\0\0\0\0\0"[..3].iter().copied().chain([0; 5]).collect::<Vec<_>>()
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn what_does_not_lie_within_is_not_read() {
        let ours = Shared::create("test", 4096).unwrap();
        let theirs = SharedView::open(&ours, 4096).unwrap();
        for at in [1, 4089, 4096, usize::MAX, usize::MAX - 7] {
            assert_eq!(theirs.load(at, Ordering::Relaxed), None, "{at}");
        }
        assert!(theirs.read(4088, 8).is_some() && theirs.read(4088, 9).is_none());
        assert!(theirs.read(8, usize::MAX).is_none());
        assert_eq!(theirs.read(4096, 0).unwrap(), []);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn readers_sleep_until_a_word_changes() {
        let ours = Shared::create("test", 4096).unwrap();
        let theirs = SharedView::open(&ours, 4096).unwrap();
        // Longer than any test may take: a sleeper that is not woken does not end.
        let long = Duration::from_secs(3600);
        let reader = std::thread::spawn(move || {
            for value in 0..100 {
                while theirs.load(16, Ordering::Acquire) == Some(value) {
                    theirs.sleep(16, value, long);
                }
            }
            // Of another value it does not sleep, nor of no word.
            theirs.sleep(16, 7, long);
            theirs.sleep(4096, 0, long);
            theirs.sleep(17, 0, long);
            theirs.sleep(16, 100, Duration::from_millis(1));
        });
        for value in 1..=100 {
            std::thread::sleep(Duration::from_micros(100));
            ours.store(16, value, Ordering::Release);
            ours.wake(16);
        }
        reader.join().unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn no_other_process_can_write_or_change_the_length() {
        let ours = Shared::create("test", 4096).unwrap();
        assert!(memfd::adopt(&ours, 4096, true).is_err());
        assert!(rustix::io::pwrite(&ours, b"x", 0).is_err());
        assert!([0, 8192].iter().all(|len| rustix::fs::ftruncate(&ours, *len).is_err()));
    }

    /// A writer says how long its file is, which costs it nothing, and how long what is in it.
    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn a_writer_that_lies_of_lengths_costs_its_readers_nothing() {
        use crate::memory::{RECORD, Record};
        let huge = Shared::create("test", 1 << 40).unwrap();
        for (word, value) in [2, 4096, (1 << 40) - 4096].into_iter().enumerate() {
            huge.store(8 * word, value, Ordering::Relaxed);
        }
        assert!(SharedView::open(&huge, (1 << 40) - 1).is_err());
        let view = SharedView::open(&huge, 1 << 40).unwrap();
        assert_eq!(view.record(0, 1, 1 << 20), Record::Absent);
        assert_eq!(view.read(RECORD, 8), Some(vec![0; 8]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn a_file_that_could_shrink_is_not_mapped() {
        let (loose, _mapping) = memfd::create("test", 4096).unwrap();
        assert!(SharedView::open(&loose, 4096).is_err());
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(SharedView::open(&pipe, 4096).is_err());
    }
}
