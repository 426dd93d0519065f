//! The sender's end of a ring.

use super::{
    CELL, FIRST, HEADER, Memory, PAD, Report, RingError, WORDS, cells_for, header, lap_of,
    max_packet,
};
use crate::sync::Ordering;

/// The only one who writes into the cells of a ring.
pub(crate) struct Producer<M> {
    memory: M,
    cells: usize,
    /// Cells written since the beginning, and the lap that this is.
    head: u64,
    lap: u32,
    /// What the receiver last reported.
    consumed: u64,
    /// Cells that begin with payload, one bit each, and how many.
    payload: Vec<u64>,
    marked: usize,
    max: usize,
}

/// Room for one message that has been reserved: nobody sees it before `publish`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    cell: usize,
    len: usize,
}

impl<M: Memory> Producer<M> {
    /// The sender of a ring whose memory is zeroed, a power of two of cells.
    pub(crate) fn new(memory: M) -> Producer<M> {
        let cells = memory.words() / WORDS;
        assert!(cells.is_power_of_two() && cells >= 8, "a ring of {cells} cells");
        let payload = vec![0; cells.div_ceil(64)];
        let max = max_packet(cells);
        Producer { memory, cells, head: 0, lap: 1, consumed: 0, payload, marked: 0, max }
    }

    /// Sends the concatenation of `parts`, `len` bytes in all; false if there is no room.
    #[inline]
    pub(crate) fn send(
        &mut self,
        report: Report<'_>,
        kind: u8,
        parts: &[&[u8]],
        len: usize,
    ) -> Result<bool, RingError> {
        let Some(slot) = self.reserve(report, len)? else {
            return Ok(false);
        };
        if len <= FIRST {
            let mut bytes = [0; FIRST];
            let mut at = 0;
            for part in parts {
                bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            debug_assert_eq!(at, len);
            // All words of the cell, whatever the length: a fixed number of stores.
            let (words, _) = bytes.as_chunks::<8>();
            for (to, word) in self.memory.cell(slot.cell)[1..].iter().zip(words) {
                to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
        } else {
            let mut at = 0;
            for part in parts {
                self.write(slot, at, part);
                at += part.len();
            }
            debug_assert_eq!(at, len);
        }
        self.publish(slot, kind);
        Ok(true)
    }

    /// Room for a message of `len` bytes, if there is any.
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        report: Report<'_>,
        len: usize,
    ) -> Result<Option<Slot>, RingError> {
        assert!(len <= self.max, "a packet of {len} bytes in a ring for {}", self.max);
        let need = cells_for(len);
        let cell = self.head as usize & (self.cells - 1);
        let pad = if cell + need > self.cells { self.cells - cell } else { 0 };
        if !self.has_room(report, pad + need)? {
            return Ok(None);
        }
        if pad > 0 {
            self.finish(cell, pad, PAD, 0);
        }
        let cell = self.head as usize & (self.cells - 1);
        Ok(Some(Slot { cell, len }))
    }

    /// Whether the longest message would find room.
    pub(crate) fn has_room_for_any(&mut self, report: Report<'_>) -> Result<bool, RingError> {
        self.has_room(report, 2 * cells_for(self.max))
    }

    /// Whether all that was sent is known to have been consumed.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    fn has_room(&mut self, report: Report<'_>, need: usize) -> Result<bool, RingError> {
        let last = self.head + need as u64;
        if last - self.consumed <= self.cells as u64 {
            return Ok(true);
        }
        let reported = report.consumed.load(Ordering::Acquire);
        if reported < self.consumed || reported > self.head {
            return Err(RingError::Consumed { reported, sent: self.head });
        }
        self.consumed = reported;
        Ok(last - self.consumed <= self.cells as u64)
    }

    /// Copies bytes of the message, from `at` in it on.
    #[inline]
    pub(crate) fn write(&mut self, slot: Slot, at: usize, bytes: &[u8]) {
        // SAFETY: a slice is readable, and nobody's slice lies in the ring.
        unsafe { self.write_raw(slot, at, bytes.as_ptr(), bytes.len()) }
    }

    /// Copies bytes of the message from memory that others may write.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, and does not lie in the ring.
    #[inline]
    pub(crate) unsafe fn write_raw(&mut self, slot: Slot, at: usize, from: *const u8, len: usize) {
        assert!(at + len <= slot.len, "beyond the end of a packet");
        // SAFETY: `reserve` made sure that the cells of the slot lie within the ring.
        unsafe { self.memory.copy_in(slot.cell * CELL + HEADER + at, from, len) }
    }

    /// Shows the message to the receiver. All of it must have been written.
    #[inline]
    pub(crate) fn publish(&mut self, slot: Slot, kind: u8) {
        debug_assert!(kind != 0 && kind != PAD);
        self.finish(slot.cell, cells_for(slot.len), kind, slot.len);
    }

    /// Publishes `used` cells from `cell` on.
    #[inline]
    fn finish(&mut self, cell: usize, used: usize, kind: u8, len: usize) {
        let next = (cell + used) & (self.cells - 1);
        if used > 1 || self.marked > 0 {
            self.mark(cell, false);
            if kind != PAD {
                for cell in cell + 1..cell + used {
                    self.mark(cell, true);
                }
            }
            if self.mark(next, false) {
                self.memory.word(next * WORDS).store(0, Ordering::Relaxed);
            }
        }
        let word = header(self.lap, kind, len);
        self.memory.word(cell * WORDS).store(word, Ordering::Release);
        self.head += used as u64;
        if next == 0 {
            self.lap = lap_of(self.head, self.cells as u64);
        }
    }

    /// Notes whether a cell begins with payload; gives what it did before.
    fn mark(&mut self, cell: usize, payload: bool) -> bool {
        let (word, bit) = (&mut self.payload[cell / 64], 1 << (cell % 64));
        let before = *word & bit != 0;
        match (before, payload) {
            (false, true) => self.marked += 1,
            (true, false) => self.marked -= 1,
            _ => return before,
        }
        *word ^= bit;
        before
    }
}
