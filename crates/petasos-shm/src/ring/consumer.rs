//! The receiver's end of a ring.

use super::{CELL, FIRST, HEADER, Memory, PAD, Report, RingError, WORDS, cells_for, lap_of};
use crate::sync::Ordering;

/// The only one who reads the cells of a ring, and reports what it has consumed.
pub(crate) struct Consumer<M> {
    memory: M,
    cells: usize,
    /// Cells consumed since the beginning, and the lap that this is.
    tail: u64,
    lap: u32,
    /// What was last reported.
    reported: u64,
    max: usize,
}

/// A message that is there: its cells are the receiver's until [`Consumer::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    /// What the sender called it.
    pub(crate) kind: u8,
    /// Its length in bytes, checked: it lies within the ring and is no longer than the longest.
    pub(crate) len: usize,
    cell: usize,
}

impl<M: Memory> Consumer<M> {
    /// The receiver of a ring, for messages of at most `max` bytes.
    pub(crate) fn new(memory: M, max: usize) -> Consumer<M> {
        let cells = memory.words() / WORDS;
        Consumer { memory, cells, tail: 0, lap: 1, reported: 0, max }
    }

    /// Whether nothing has been published where the next message is expected.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let cell = self.tail as usize & (self.cells - 1);
        let word = self.memory.word(cell * WORDS).load(Ordering::Relaxed);
        (word >> 32) as u32 != self.lap
    }

    /// The next message, if it is there. The same one until `finish`.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<Incoming>, RingError> {
        let cell = self.tail as usize & (self.cells - 1);
        let word = self.memory.word(cell * WORDS).load(Ordering::Acquire);
        if (word >> 32) as u32 != self.lap {
            return Ok(None);
        }
        self.check(word, cell)
    }

    fn check(&mut self, mut word: u64, mut cell: usize) -> Result<Option<Incoming>, RingError> {
        if (word >> 24) as u8 == PAD {
            if cell == 0 {
                return Err(RingError::Pad(cell));
            }
            self.advance(self.cells - cell);
            cell = 0;
            word = self.memory.word(0).load(Ordering::Acquire);
            if (word >> 32) as u32 != self.lap {
                return Ok(None);
            }
        }
        let (kind, len) = ((word >> 24) as u8, word as usize & 0xFF_FFFF);
        match kind {
            0 => return Err(RingError::Kind(cell)),
            PAD => return Err(RingError::Pad(cell)),
            _ => {}
        }
        if len > self.max || cell + cells_for(len) > self.cells {
            let (cells, max) = (self.cells, self.max);
            return Err(RingError::Length { len, cell, cells, max });
        }
        Ok(Some(Incoming { kind, len, cell }))
    }

    /// All that the first cell of a message holds: the message, if it is short, and what lay there
    /// before.
    #[inline]
    pub(crate) fn first(&self, incoming: &Incoming) -> [u8; FIRST] {
        let mut bytes = [0; FIRST];
        let (chunks, _) = bytes.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(&self.memory.cell(incoming.cell)[1..]) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        bytes
    }

    /// Copies bytes of a message out, from `at` in it on.
    #[inline]
    pub(crate) fn read(&self, incoming: &Incoming, at: usize, into: &mut [u8]) {
        // SAFETY: a slice of ours is writable, and lies in no ring.
        unsafe { self.read_raw(incoming, at, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes of a message out, to memory that others may write.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, and does not lie in the ring.
    #[inline]
    pub(crate) unsafe fn read_raw(&self, incoming: &Incoming, at: usize, to: *mut u8, len: usize) {
        assert!(at + len <= incoming.len, "beyond the end of a packet");
        // SAFETY: `check` made sure that the message lies within the ring.
        unsafe { self.memory.copy_out(incoming.cell * CELL + HEADER + at, to, len) }
    }

    /// Gives the cells of the message back. True if that was reported to the sender.
    #[inline]
    pub(crate) fn finish(&mut self, incoming: Incoming, report: Report<'_>) -> bool {
        self.advance(cells_for(incoming.len));
        if self.tail - self.reported < self.cells as u64 / 4 {
            return false;
        }
        self.reported = self.tail;
        report.consumed.store(self.tail, Ordering::Release);
        true
    }

    #[inline]
    fn advance(&mut self, cells: usize) {
        self.tail += cells as u64;
        if self.tail as usize & (self.cells - 1) == 0 {
            self.lap = lap_of(self.tail, self.cells as u64);
        }
    }
}
