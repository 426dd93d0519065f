//! The receiver's end of a ring.

use super::{CELL, FIRST, HEADER, Memory, PAD, Report, RingError, cells_for, header, lap_of};
use crate::sync::Ordering;

/// The only one who reads the cells of a ring, and reports what it has consumed.
///
/// Most messages take one cell: [`Consumer::look`] finds them, and touches the first fields only.
#[repr(C)]
pub(crate) struct Consumer<M> {
    memory: M,
    /// Cells consumed since the beginning, and the lap that this is.
    tail: u64,
    lap: u64,
    /// Where to report next: at each quarter of the ring, so at each change of the lap as well.
    due: u64,

    cells: usize,
    max: usize,
}

/// A header, and in what it differs from the expected one of an empty message.
#[derive(Clone, Copy)]
pub(crate) struct Seen(u64);

impl Seen {
    /// The length of a message of the expected kind, all of it in its first cell, which lies within
    /// the ring wherever it begins: take [`Consumer::words`], and then [`Consumer::advance`].
    #[inline]
    pub(crate) fn short(self) -> Option<usize> {
        // Nothing but the length is left if lap and kind are the expected ones.
        (self.0 <= FIRST as u64).then_some(self.0 as usize)
    }

    /// Whether it is of this lap: something is there, and [`Consumer::peek`] says what.
    #[inline]
    pub(crate) fn is_there(self) -> bool {
        self.0 >> 32 == 0
    }
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
    /// The receiver of a ring, for messages of at most `max` bytes: no less than a cell takes.
    pub(crate) fn new(memory: M, max: usize) -> Consumer<M> {
        let cells = memory.cells();
        assert!(cells >= 8 && max >= FIRST);
        let (due, lap) = (cells as u64 / 4, lap_of(0, cells as u64));
        Consumer { memory, tail: 0, lap, due, cells, max }
    }

    /// Whether nothing has been published where the next message is expected.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // What follows from it is looked at again, with acquire.
        let word = self.memory.cell(self.tail)[0].load(Ordering::Relaxed);
        !Seen(word ^ self.lap).is_there()
    }

    /// What is there, seen by who expects short messages of this kind.
    #[inline]
    pub(crate) fn look(&self, kind: u8) -> Seen {
        let word = self.memory.cell(self.tail)[0].load(Ordering::Acquire);
        Seen(word ^ header(self.lap, kind, 0))
    }

    /// The payload of the next cell: that of a short message, and what lay there before.
    #[inline]
    pub(crate) fn words(&self) -> [u64; FIRST / 8] {
        let [_, words @ ..] = self.memory.cell(self.tail);
        words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// The next message, if it is there. The same one until `finish`.
    pub(crate) fn peek(&mut self) -> Result<Option<Incoming>, RingError> {
        let mut word = self.memory.cell(self.tail)[0].load(Ordering::Acquire);
        let mut cell = self.tail as usize & (self.cells - 1);
        if !Seen(word ^ self.lap).is_there() {
            return Ok(None);
        }
        if kind_of(word) == PAD {
            if cell == 0 {
                return Err(RingError::Pad(cell));
            }
            // Reported with the message that follows.
            self.tail += (self.cells - cell) as u64;
            self.lap = lap_of(self.tail, self.cells as u64);
            cell = 0;
            word = self.memory.cell(self.tail)[0].load(Ordering::Acquire);
            if !Seen(word ^ self.lap).is_there() {
                return Ok(None);
            }
        }
        let (kind, len) = (kind_of(word), word as usize & 0xFF_FFFF);
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
        // SAFETY: `peek` made sure that the message lies within the ring.
        unsafe { self.memory.copy_out(incoming.cell * CELL + HEADER + at, to, len) }
    }

    /// Gives the cells of the message back. True if that was reported to the sender.
    pub(crate) fn finish(&mut self, incoming: Incoming, report: Report<'_>) -> bool {
        self.advance(cells_for(incoming.len), report)
    }

    /// Gives so many cells back. True if that was reported to the sender.
    #[inline]
    pub(crate) fn advance(&mut self, cells: usize, report: Report<'_>) -> bool {
        self.tail += cells as u64;
        let due = self.tail >= self.due;
        if due {
            self.report(report);
        }
        due
    }

    /// At a quarter of the ring, or beyond.
    #[cold]
    fn report(&mut self, report: Report<'_>) {
        let quarter = self.cells as u64 / 4;
        self.due = (self.tail / quarter + 1) * quarter;
        self.lap = lap_of(self.tail, self.cells as u64);
        report.consumed.store(self.tail, Ordering::Release);
    }
}

fn kind_of(word: u64) -> u8 {
    (word >> 24) as u8
}
