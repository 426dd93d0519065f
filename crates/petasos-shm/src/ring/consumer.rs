//! The receiver's end of a ring.

use super::{
    CELL, HEADER, LINE, MAX_SHORT, MORE, Memory, PAD, PARTED, Report, RingError, SHORT, cells_for,
    header, lap_of, part,
};
use crate::sync::Ordering;

/// The only one who reads the cells of a ring, and reports what it has consumed.
///
/// Most messages are short: [`Consumer::look`] finds them, and touches the first fields only.
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
    part: usize,
    /// Bytes of a message of which the first parts have been taken that are still to come.
    missing: usize,
}

/// A message that is there, or a part of one: its cells are the receiver's until
/// [`Consumer::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    /// What the sender called it: [`SHORT`], or a kind of contiguous ones. None for parts that
    /// follow.
    pub(crate) kind: Option<u8>,
    /// Its length in bytes, checked: no longer than the longest of its format.
    pub(crate) len: usize,
    /// Bytes that lie here, which is less if there are more parts.
    pub(crate) here: usize,
    cell: usize,
}

impl<M: Memory> Consumer<M> {
    /// The receiver of a ring, for messages of at most `max` bytes: no less than a short one has.
    pub(crate) fn new(memory: M, max: usize) -> Consumer<M> {
        let cells = memory.cells();
        assert!(cells >= 8 && max >= MAX_SHORT);
        let (due, lap) = (cells as u64 / 4, lap_of(0, cells as u64));
        Consumer { memory, tail: 0, lap, due, cells, max, part: part(cells), missing: 0 }
    }

    /// Whether nothing has been published where the next message is expected.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // What follows from it is looked at again, with acquire.
        !self.is_of_this_lap(self.memory.cell(self.tail)[0].load(Ordering::Relaxed))
    }

    /// The length of the next message if it is there, short, and within the ring: take
    /// [`Consumer::line`] of its one cell or two, and then [`Consumer::advance`]. If not,
    /// [`Consumer::peek`] says what there is.
    #[inline]
    pub(crate) fn look(&self) -> Option<usize> {
        let word = self.memory.cell(self.tail)[0].load(Ordering::Acquire);
        // Nothing but the length is left if lap and kind are the expected ones.
        let len = word ^ header(self.lap, SHORT, 0);
        let fits = len <= LINE as u64
            || len <= MAX_SHORT as u64 && (self.tail + 1) & (self.cells as u64 - 1) != 0;
        fits.then_some(len as usize)
    }

    /// The payload of this cell of the next message, which is short, and what lay there before.
    #[inline]
    pub(crate) fn line(&self, cell: usize) -> [u64; LINE / 8] {
        let [_, words @ ..] = self.memory.cell(self.tail + cell as u64);
        words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// The next message, if it is there. The same one until `finish`.
    pub(crate) fn peek(&mut self) -> Result<Option<Incoming>, RingError> {
        let mut word = self.memory.cell(self.tail)[0].load(Ordering::Acquire);
        let mut cell = self.tail as usize & (self.cells - 1);
        if !self.is_of_this_lap(word) {
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
            if !self.is_of_this_lap(word) {
                return Ok(None);
            }
        }
        let (kind, len) = (kind_of(word), word as usize & 0xFF_FFFF);
        let (kind, here, max) = match kind {
            // All parts but the last one are full.
            MORE if len > 0 && len == self.missing.min(self.part) => (None, len, len),
            MORE => return Err(RingError::Part(cell)),
            PAD => return Err(RingError::Pad(cell)),
            _ if self.missing > 0 => return Err(RingError::Part(cell)),
            SHORT => (Some(SHORT), len, MAX_SHORT),
            2..PARTED => (Some(kind), len, self.part.min(self.max)),
            // What is cut is longer than a part.
            _ if (2..PARTED).contains(&(kind ^ PARTED)) && len > self.part => {
                (Some(kind ^ PARTED), self.part, self.max)
            }
            _ => return Err(RingError::Kind { kind, cell }),
        };
        if len > max || cell + cells_for(here) > self.cells {
            return Err(RingError::Length { len, cell, cells: self.cells, max });
        }
        Ok(Some(Incoming { kind, len, here, cell }))
    }

    /// Whether no part follows this one.
    pub(crate) fn is_last(&self, part: &Incoming) -> bool {
        part.here == self.missing
    }

    /// Copies bytes of a contiguous message, or of a part, out, from `at` in it on.
    #[inline]
    pub(crate) fn read(&self, incoming: &Incoming, at: usize, into: &mut [u8]) {
        // SAFETY: a slice of ours is writable, and lies in no ring.
        unsafe { self.read_raw(incoming, at, into.as_mut_ptr(), into.len()) }
    }

    /// The same, to memory that others may write.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, and does not lie in the ring.
    #[inline]
    pub(crate) unsafe fn read_raw(&self, incoming: &Incoming, at: usize, to: *mut u8, len: usize) {
        assert!(at + len <= incoming.here, "beyond the end of a packet");
        debug_assert!(incoming.kind != Some(SHORT), "its bytes lie in lines");
        // SAFETY: `peek` made sure that the message lies within the ring.
        unsafe { self.memory.copy_out(incoming.cell * CELL + HEADER + at, to, len) }
    }

    /// Gives the cells of the message, or of the part, back. True if that was reported to the sender.
    pub(crate) fn finish(&mut self, incoming: Incoming, report: Report<'_>) -> bool {
        let whole = if incoming.kind.is_some() { incoming.len } else { self.missing };
        self.missing = whole - incoming.here;
        self.advance(cells_for(incoming.here), report)
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

    #[inline]
    fn is_of_this_lap(&self, word: u64) -> bool {
        word >> 32 == self.lap >> 32
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
