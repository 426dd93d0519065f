//! The sender's end of a ring.

use super::{
    CELL, HEADER, LINE, MAX_SHORT, MORE, Memory, PAD, PARTED, Report, RingError, SHORT, cells_for,
    header, lap_of, longest, part, part_cells,
};
use crate::sync::{AtomicU64, Ordering};
use std::marker::PhantomData;

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
    /// The longest message, and the longest that is in one piece.
    max: usize,
    part: usize,
    /// What the receiver last reported.
    consumed: u64,
    /// Cells that begin with payload, one bit each. Never the one that is written next.
    payload: Vec<u64>,
}

/// Bytes of a message that is being sent, which others may write meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    from: *const u8,
    len: usize,
    lent: PhantomData<&'a ()>,
}

impl<'a> Piece<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Piece<'a> {
        Piece { from: bytes.as_ptr(), len: bytes.len(), lent: PhantomData }
    }

    /// # Safety
    /// `from` is readable for `len` bytes as long as `'a` lasts, and does not lie in a ring.
    pub(crate) unsafe fn raw(from: *const u8, len: usize) -> Piece<'a> {
        Piece { from, len, lent: PhantomData }
    }
}

impl<M: Memory> Producer<M> {
    /// The sender of a ring whose memory is zeroed, for messages of at most `max` bytes.
    pub(crate) fn new(memory: M, max: usize) -> Producer<M> {
        let cells = memory.cells();
        assert!(cells.is_power_of_two() && cells >= 8, "a ring of {cells} cells");
        assert!(max <= longest(cells), "messages of {max} bytes in a ring of {cells} cells");
        let mut producer = Producer {
            memory,
            head: 0,
            lap: lap_of(0, cells as u64),
            plain: 0,
            cells,
            max,
            part: part(cells),
            consumed: 0,
            payload: vec![0; cells.div_ceil(64)],
        };
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
        let cells = cells_for(bytes.len());
        if !self.has_room(report, self.pad(cells) + cells)? {
            return Ok(false);
        }
        self.skip_to(cells);
        if cells == 1 {
            let [_, words @ ..] = self.memory.cell(self.head);
            fill(words, bytes);
        } else {
            self.fill_two(bytes);
            // Whatever began there, it is a zero now.
            let second = self.cell() + 1;
            self.payload[second / 64] &= !bit(second);
        }
        self.finish(cells, SHORT, bytes.len());
        Ok(true)
    }

    /// Sends the concatenation of `pieces`, `len` bytes in all, contiguously, and in parts if it is
    /// long; false if there is no room.
    #[inline]
    pub(crate) fn send(
        &mut self,
        report: Report<'_>,
        kind: u8,
        pieces: &[Piece<'_>],
        len: usize,
    ) -> Result<bool, RingError> {
        debug_assert!(kind > SHORT && kind < PARTED);
        debug_assert_eq!(pieces.iter().map(|piece| piece.len).sum::<usize>(), len);
        if len > self.part {
            return self.send_parts(report, kind, pieces, len);
        }
        let cells = cells_for(len);
        if !self.has_room(report, self.pad(cells) + cells)? {
            return Ok(false);
        }
        self.put(kind, len, &mut Pieces { pieces, at: 0 }, len);
        Ok(true)
    }

    #[inline(never)]
    fn send_parts(
        &mut self,
        report: Report<'_>,
        kind: u8,
        pieces: &[Piece<'_>],
        len: usize,
    ) -> Result<bool, RingError> {
        assert!(len <= self.max, "a packet of {len} bytes in a ring for {}", self.max);
        if !self.has_room(report, self.cells_in_parts(len))? {
            return Ok(false);
        }
        let mut pieces = Pieces { pieces, at: 0 };
        self.put(kind | PARTED, len, &mut pieces, self.part);
        let mut left = len - self.part;
        while left > 0 {
            let now = left.min(self.part);
            self.put(MORE, now, &mut pieces, now);
            left -= now;
        }
        Ok(true)
    }

    /// Writes and publishes what is contiguous: a message, or a part of one. There is room for it.
    #[inline]
    fn put(&mut self, kind: u8, len: usize, pieces: &mut Pieces<'_>, here: usize) {
        let used = cells_for(here);
        self.skip_to(used);
        let cell = self.cell();
        pieces.take(here, |at, from, len| {
            // SAFETY: `skip_to` made sure that the cells lie within the ring, and `at + len` is at
            // most `here`, for which they have room; a piece is readable, and lies in no ring.
            unsafe { self.memory.copy_in(cell * CELL + HEADER + at, from, len) }
        });
        self.mark(cell + 1, cell + used);
        self.finish(used, kind, len);
    }

    /// Whether the longest message would find room.
    pub(crate) fn has_room_for_any(&mut self, report: Report<'_>) -> Result<bool, RingError> {
        self.has_room(report, self.cells_in_parts(self.max))
    }

    /// Cells for a message of any length, with the longest pad.
    fn cells_in_parts(&self, len: usize) -> usize {
        len / self.part * part_cells(self.cells)
            + cells_for(len % self.part)
            + part_cells(self.cells)
    }

    /// Cells between here and the first one from which so many lie within the ring.
    #[inline]
    fn pad(&self, cells: usize) -> usize {
        let cell = self.cell();
        if cell + cells > self.cells { self.cells - cell } else { 0 }
    }

    /// Goes there.
    #[inline]
    fn skip_to(&mut self, cells: usize) {
        let pad = self.pad(cells);
        if pad > 0 {
            self.finish(pad, PAD, 0);
        }
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

    /// Notes that cells begin with payload.
    #[inline]
    fn mark(&mut self, from: usize, until: usize) {
        let mut cell = from;
        while cell < until {
            let end = until.min((cell | 63) + 1);
            self.payload[cell / 64] |= !0 >> (64 - (end - cell)) << (cell % 64);
            cell = end;
        }
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

/// What is left of some pieces.
struct Pieces<'a> {
    pieces: &'a [Piece<'a>],
    /// How much of the first one was taken.
    at: usize,
}

impl Pieces<'_> {
    /// Takes so many bytes: gives where in them each stretch belongs, where it lies, and its length.
    #[inline]
    fn take(&mut self, count: usize, mut copy: impl FnMut(usize, *const u8, usize)) {
        let mut done = 0;
        while done < count
            && let [first, rest @ ..] = self.pieces
        {
            let len = (first.len - self.at).min(count - done);
            // Within the piece, or at its end.
            copy(done, first.from.wrapping_add(self.at), len);
            done += len;
            self.at += len;
            if self.at == first.len {
                (self.pieces, self.at) = (rest, 0);
            }
        }
        debug_assert_eq!(done, count, "as many bytes as were announced");
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
