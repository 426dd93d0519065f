//! The sender's end of a ring.

use super::{
    CELL, HEADER, LINE, MAX_SHORT, Memory, PAD, Report, RingError, SHORT, cells_for, header,
    lap_of, max_packet,
};
use crate::sync::{AtomicU64, Ordering};

/// The only one who writes into the cells of a ring.
///
/// Most messages are sent by [`Producer::send_one`] and [`Producer::send_two`], which touch the
/// first fields only.
#[repr(C)]
pub(crate) struct Producer<M> {
    memory: M,
    /// Cells written since the beginning, and the lap that this is.
    head: u64,
    lap: u64,
    /// Up to this cell short messages can be written with no further question: there is room, the
    /// lap stays, and neither this one nor any on the way there begins with payload.
    plain: u64,

    cells: usize,
    max: usize,
    /// What the receiver last reported.
    consumed: u64,
    /// Cells that begin with payload, one bit each. Never the one that is written next.
    payload: Vec<u64>,
}

/// Room for one message that has been reserved: nobody sees it before `publish`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    cell: usize,
    len: usize,
}

impl<M: Memory> Producer<M> {
    /// The sender of a ring whose memory is zeroed.
    pub(crate) fn new(memory: M) -> Producer<M> {
        let cells = memory.cells();
        assert!(cells.is_power_of_two() && cells >= 8, "a ring of {cells} cells");
        let (payload, max) = (vec![0; cells.div_ceil(64)], max_packet(cells));
        let (head, consumed, lap) = (0, 0, lap_of(0, cells as u64));
        let mut producer = Producer { memory, head, lap, plain: 0, cells, max, consumed, payload };
        producer.plain = producer.plain_until();
        producer
    }

    /// Sends a short message of one cell if that needs no further question. If this is false, ask
    /// [`Producer::send_short`].
    #[inline]
    pub(crate) fn send_one(&mut self, bytes: &[u8]) -> bool {
        if self.head == self.plain || bytes.len() > LINE {
            return false;
        }
        let [first, words @ ..] = self.memory.cell(self.head);
        fill(words, bytes);
        first.store(header(self.lap, SHORT, bytes.len()), Ordering::Release);
        self.head += 1;
        true
    }

    /// The same for one of two cells.
    #[inline]
    pub(crate) fn send_two(&mut self, bytes: &[u8]) -> bool {
        if self.head + 2 > self.plain || bytes.len() <= LINE || bytes.len() > MAX_SHORT {
            return false;
        }
        self.fill_two(bytes);
        let [first, ..] = self.memory.cell(self.head);
        first.store(header(self.lap, SHORT, bytes.len()), Ordering::Release);
        self.head += 2;
        true
    }

    /// Writes all but the header of a short message of two cells.
    #[inline]
    fn fill_two(&self, bytes: &[u8]) {
        let (line, rest) = bytes.split_at(LINE);
        let [_, words @ ..] = self.memory.cell(self.head);
        fill(words, line);
        let [control, words @ ..] = self.memory.cell(self.head + 1);
        control.store(0, Ordering::Relaxed);
        fill(words, rest);
    }

    /// Sends a short message, whatever was in the way of sending it plainly; false if there is no
    /// room.
    pub(crate) fn send_short(
        &mut self,
        report: Report<'_>,
        bytes: &[u8],
    ) -> Result<bool, RingError> {
        assert!(bytes.len() <= MAX_SHORT, "{} bytes are not short", bytes.len());
        let Some(slot) = self.reserve(report, bytes.len())? else {
            return Ok(false);
        };
        let cells = cells_for(slot.len);
        if cells == 1 {
            let [_, words @ ..] = self.memory.cell(self.head);
            fill(words, bytes);
        } else {
            self.fill_two(bytes);
            // Whatever began there, it is a zero now.
            let second = slot.cell + 1;
            self.payload[second / 64] &= !bit(second);
        }
        self.finish(cells, SHORT, slot.len);
        Ok(true)
    }

    /// Sends the concatenation of `parts`, `len` bytes in all, contiguously; false if there is no
    /// room.
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
        let mut at = 0;
        for part in parts {
            self.write(slot, at, part);
            at += part.len();
        }
        debug_assert_eq!(at, len);
        self.publish(slot, kind);
        Ok(true)
    }

    /// Room for a message of `len` bytes, if there is any.
    pub(crate) fn reserve(
        &mut self,
        report: Report<'_>,
        len: usize,
    ) -> Result<Option<Slot>, RingError> {
        assert!(len <= self.max, "a packet of {len} bytes in a ring for {}", self.max);
        let need = cells_for(len);
        let cell = self.cell();
        let pad = if cell + need > self.cells { self.cells - cell } else { 0 };
        if !self.has_room(report, pad + need)? {
            return Ok(None);
        }
        if pad > 0 {
            self.finish(pad, PAD, 0);
        }
        Ok(Some(Slot { cell: self.cell(), len }))
    }

    /// Whether the longest message would find room.
    pub(crate) fn has_room_for_any(&mut self, report: Report<'_>) -> Result<bool, RingError> {
        self.has_room(report, 2 * cells_for(self.max))
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

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
    pub(crate) fn write(&mut self, slot: Slot, at: usize, bytes: &[u8]) {
        // SAFETY: a slice is readable, and nobody's slice lies in the ring.
        unsafe { self.write_raw(slot, at, bytes.as_ptr(), bytes.len()) }
    }

    /// Copies bytes of the message from memory that others may write.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, and does not lie in the ring.
    pub(crate) unsafe fn write_raw(&mut self, slot: Slot, at: usize, from: *const u8, len: usize) {
        assert!(at + len <= slot.len, "beyond the end of a packet");
        // SAFETY: `reserve` made sure that the cells of the slot lie within the ring.
        unsafe { self.memory.copy_in(slot.cell * CELL + HEADER + at, from, len) }
    }

    /// Shows a contiguous message to the receiver. All of it must have been written.
    pub(crate) fn publish(&mut self, slot: Slot, kind: u8) {
        debug_assert!(!matches!(kind, 0 | SHORT | PAD) && slot.cell == self.cell());
        for cell in slot.cell + 1..slot.cell + cells_for(slot.len) {
            self.payload[cell / 64] |= bit(cell);
        }
        self.finish(cells_for(slot.len), kind, slot.len);
    }

    /// The cell that is written next.
    fn cell(&self) -> usize {
        self.head as usize & (self.cells - 1)
    }

    /// Publishes so many cells.
    fn finish(&mut self, used: usize, kind: u8, len: usize) {
        let next = (self.cell() + used) & (self.cells - 1);
        if self.payload[next / 64] & bit(next) != 0 {
            self.payload[next / 64] ^= bit(next);
            self.memory.cell(next as u64)[0].store(0, Ordering::Relaxed);
        }
        let word = header(self.lap, kind, len);
        self.memory.cell(self.head)[0].store(word, Ordering::Release);
        self.head += used as u64;
        if next == 0 {
            self.lap = lap_of(self.head, self.cells as u64);
        }
        self.plain = self.plain_until();
    }

    /// The end of the cells that can be written plainly from here on. Of the payload in front one
    /// word is looked at, so they end now and then for no other reason.
    fn plain_until(&self) -> u64 {
        let cell = self.cell();
        let known = 64.min(self.cells) - cell % 64;
        let clear = (self.payload[cell / 64] >> (cell % 64)).trailing_zeros() as usize;
        debug_assert!(clear > 0, "the next cell was cleared");
        let plain = self.head + clear.min(known) as u64 - 1;
        plain.min(self.consumed + self.cells as u64)
    }
}

fn bit(cell: usize) -> u64 {
    1 << (cell % 64)
}

/// Writes a cell's payload into as many words as it needs: without a call, and with few branches.
#[inline]
fn fill(words: &[AtomicU64; LINE / 8], bytes: &[u8]) {
    let (mut words, mut rest) = (&words[..], bytes);
    fill_some::<4>(&mut words, &mut rest);
    fill_some::<2>(&mut words, &mut rest);
    fill_some::<1>(&mut words, &mut rest);
    if let Some(word) = words.first()
        && !rest.is_empty()
    {
        word.store(last_word(bytes, rest.len()), Ordering::Relaxed);
    }
}

/// Writes so many words, if there are so many in the rest.
#[inline]
fn fill_some<const WORDS: usize>(words: &mut &[AtomicU64], rest: &mut &[u8]) {
    if let Some((to, further)) = words.split_first_chunk::<WORDS>()
        && let Some((from, _)) = rest.as_chunks::<8>().0.split_first_chunk::<WORDS>()
    {
        for (word, chunk) in to.iter().zip(from) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
        (*words, *rest) = (further, &rest[8 * WORDS..]);
    }
}

/// The one to seven bytes at the end that fill no word, by loads of fixed lengths.
#[inline]
fn last_word(bytes: &[u8], rest: usize) -> u64 {
    let word = if let Some(last) = bytes.last_chunk() {
        u64::from_le_bytes(*last) >> (64 - 8 * rest)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_le_bytes(*half)));
        first | last << (8 * rest - 32)
    } else {
        let byte = |at: usize| u64::from(bytes[at]) << (8 * at);
        byte(0) | byte(bytes.len() / 2) | byte(bytes.len() - 1)
    };
    word.to_le()
}
