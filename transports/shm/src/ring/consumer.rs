//! The receiver's end of a ring.

use super::{
    ANNOUNCED, CELL, HEADER, LINE, MAX_SHORT, Memory, PAD, Report, RingError, SHORT, cells_for,
    header, lap_of, part,
};
use crate::sync::{Ordering, fence};

/// The only reader of the cells of a ring, which reports what it has consumed.
///
/// Most messages are short: [`Consumer::peek_short`] finds them, and touches the first fields only.
#[repr(C)]
pub(crate) struct Consumer<M> {
    memory: M,
    /// Cells consumed since the beginning, and the lap that this is, with [`PAUSED`] or without.
    tail: u64,
    lap: u64,
    /// Where to report next: at each quarter of the ring, so at each change of the lap as well.
    due: u64,

    cells: usize,
    max: usize,
    part: usize,
}

/// What lies where the next message is expected, as one look has shown: how its first word differs
/// from the header of an empty short message of this lap.
#[derive(Clone, Copy)]
pub(crate) struct Next(u64);

impl Next {
    /// Whether it is plainly no message. If it is one, but not of one cell,
    /// [`Consumer::peek_short`] and [`Consumer::peek`] say what.
    #[inline(always)]
    pub(crate) fn is_nothing(self) -> bool {
        self.0 >> 32 != 0
    }

    /// The length, if it is a short message of one cell, as most are.
    #[inline(always)]
    pub(crate) fn one(self) -> Option<usize> {
        // Nothing but the length is left if lap and kind are the expected ones.
        (self.0 <= LINE as u64).then_some(self.0 as usize)
    }
}

/// A message that is there: its cells are the receiver's until [`Consumer::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    /// What the sender called it: [`SHORT`], or a kind of contiguous ones.
    pub(crate) kind: u8,
    /// Its length in bytes, checked: no longer than the longest of its format.
    pub(crate) len: usize,
    /// It is only announced: its bytes lie elsewhere.
    pub(crate) announced: bool,
    cell: usize,
}

/// Set in the lap while no message may be taken: then no header of an honest sender's is like that
/// of a short message.
const PAUSED: u64 = 1 << 23;

impl<M: Memory> Consumer<M> {
    /// The receiver of a ring, for messages of at most `max` bytes: no less than a short one has.
    pub(crate) fn new(memory: M, max: usize) -> Consumer<M> {
        let cells = memory.cells();
        assert!(cells >= 8 && max >= MAX_SHORT);
        let (due, lap) = (cells as u64 / 4, lap_of(0, cells as u64));
        Consumer { memory, tail: 0, lap, due, cells, max, part: part(cells) }
    }

    /// Whether nothing has been published where the next message is expected.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // What follows from it is looked at again, with acquire.
        !self.is_of_this_lap(self.memory.cell(self.tail)[0].load(Ordering::Relaxed))
    }

    /// What comes next. If it is a message of one cell, take [`Consumer::words`], and then
    /// [`Consumer::advance`].
    #[inline(always)]
    pub(crate) fn next(&self) -> Next {
        let word = self.memory.cell(self.tail)[0].load(Ordering::Relaxed);
        Next(word ^ header(self.lap, SHORT, 0))
    }

    /// Gives the words of the payload of the next message, which [`Consumer::next`] has found to
    /// have one cell, and of what lay there before.
    #[inline(always)]
    pub(crate) fn words(&self) -> impl Fn(usize) -> u64 {
        let [_, words @ ..] = self.memory.cell(self.tail);
        // The payload was written before the header, and is read after it.
        fence(Ordering::Acquire);
        |at: usize| words[at].load(Ordering::Relaxed)
    }

    /// The length of the next message and its cells, one or two, if it is there, short, and within
    /// the ring: take [`Consumer::line`] of each, and then [`Consumer::advance`]. If not,
    /// [`Consumer::peek`] says what there is.
    ///
    /// One of one cell may have come since [`Consumer::next`] saw none.
    #[inline]
    pub(crate) fn peek_short(&self) -> Option<(usize, usize)> {
        let word = self.memory.cell(self.tail)[0].load(Ordering::Acquire);
        // Nothing but the length is left if lap and kind are the expected ones.
        let len = word ^ header(self.lap, SHORT, 0);
        if len <= LINE as u64 {
            return Some((len as usize, 1));
        }
        let fits = len <= MAX_SHORT as u64 && (self.tail + 1) & (self.cells as u64 - 1) != 0;
        fits.then_some((len as usize, 2))
    }

    /// The payload of this cell of the next message, which is short, and what lay there before.
    #[inline]
    pub(crate) fn line(&self, cell: usize) -> [u64; LINE / 8] {
        let [_, words @ ..] = self.memory.cell(self.tail + cell as u64);
        words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// The bytes behind the header of the next message, which is there and contiguous: the first of
    /// its payload, and what lay there before if that is shorter.
    #[inline]
    pub(crate) fn first_bytes(&self) -> [u8; 16] {
        let [_, first, second, ..] = self.memory.cell(self.tail);
        let [first, second] = [first, second].map(|word| word.load(Ordering::Relaxed));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first.to_ne_bytes());
        bytes[8..].copy_from_slice(&second.to_ne_bytes());
        bytes
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
        let (kind, max, announced) = match kind {
            PAD => return Err(RingError::Pad(cell)),
            SHORT => (SHORT, MAX_SHORT, false),
            2..ANNOUNCED => (kind, self.part.min(self.max), false),
            _ if (2..ANNOUNCED).contains(&(kind ^ ANNOUNCED)) && len > 0 => {
                (kind ^ ANNOUNCED, self.max, true)
            }
            _ => return Err(RingError::Kind { kind, cell }),
        };
        let used = if announced { 1 } else { cells_for(len) };
        if len > max || cell + used > self.cells {
            return Err(RingError::Length { len, cell, cells: self.cells, max });
        }
        Ok(Some(Incoming { kind, len, announced, cell }))
    }

    /// Copies bytes of a contiguous message out, from `at` in it on.
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
        assert!(!incoming.announced && at + len <= incoming.len, "beyond the end of a packet");
        debug_assert!(incoming.kind != SHORT, "its bytes lie in lines");
        // One of another ring, and a larger one, would not.
        let end = incoming.cell + cells_for(incoming.len);
        assert!(end <= self.cells, "a packet that lies within this ring");
        // SAFETY: the message lies within the ring, as was checked just now.
        unsafe { self.memory.copy_out(incoming.cell * CELL + HEADER + at, to, len) }
    }

    /// Gives the cells of the message back. True if that was reported to the sender.
    pub(crate) fn finish(&mut self, incoming: Incoming, report: Report<'_>) -> bool {
        let used = if incoming.announced { 1 } else { cells_for(incoming.len) };
        self.advance(used, report)
    }

    /// Reports what has been consumed now, and not only at the next quarter of the ring.
    pub(crate) fn report_all(&mut self, report: Report<'_>) {
        report.consumed.store(self.tail, Ordering::Release);
    }

    /// Takes no short message until [`Consumer::resume`]: [`Consumer::peek_short`] sees none.
    pub(crate) fn pause(&mut self) {
        self.lap |= PAUSED;
    }

    pub(crate) fn resume(&mut self) {
        self.lap &= !PAUSED;
    }

    /// Gives so many cells back. True if that was reported to the sender.
    #[inline]
    pub(crate) fn advance(&mut self, cells: usize, report: Report<'_>) -> bool {
        let due = self.is_due(cells);
        self.pass(cells);
        if due {
            self.report(report);
        }
        due
    }

    /// Whether giving back so many cells has to be reported: [`Consumer::advance`] does.
    #[inline]
    pub(crate) fn is_due(&self, cells: usize) -> bool {
        self.tail + cells as u64 >= self.due
    }

    /// Gives back so many cells, which need not be reported.
    #[inline]
    pub(crate) fn pass(&mut self, cells: usize) {
        self.tail += cells as u64;
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
