//! The sender's end of a ring.

use super::{
    ANNOUNCED, CELL, HEADER, LINE, MAX_SHORT, Memory, PAD, Report, RingError, SHORT, cells_for,
    header, lap_of, part, part_cells,
};
use crate::sync::{AtomicU64, Ordering};
use std::marker::PhantomData;

/// The only writer of the cells of a ring.
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
    /// The longest message that is in one piece.
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
    /// The sender of a ring whose memory is zeroed.
    pub(crate) fn new(memory: M) -> Producer<M> {
        let cells = memory.cells();
        assert!(cells.is_power_of_two() && cells >= 8, "a ring of {cells} cells");
        let mut producer = Producer {
            memory,
            head: 0,
            lap: lap_of(0, cells as u64),
            plain: 0,
            cells,
            part: part(cells),
            consumed: 0,
            payload: vec![0; cells.div_ceil(64)],
        };
        producer.plain = producer.plain_until();
        producer
    }

    /// Sends a short message of one cell if that needs no further question. If this is false, ask
    /// [`Producer::send_short`].
    #[inline(always)]
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

    /// Sends what begins with these words and goes on with these bytes, contiguously, if one cell
    /// has room for it and that needs no further question. If this is false, ask
    /// [`Producer::send`].
    #[inline]
    pub(crate) fn send_line(&mut self, kind: u8, begin: [u64; 2], bytes: &[u8]) -> bool {
        debug_assert!(kind > SHORT && kind < ANNOUNCED);
        if self.head == self.plain || bytes.len() > LINE - 16 {
            return false;
        }
        let [first, a, b, words @ ..] = self.memory.cell(self.head);
        a.store(begin[0], Ordering::Relaxed);
        b.store(begin[1], Ordering::Relaxed);
        fill(words, bytes);
        first.store(header(self.lap, kind, 16 + bytes.len()), Ordering::Release);
        self.head += 1;
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

    /// Sends the concatenation of `pieces`, `len` bytes in all and no more than a part,
    /// contiguously; false if there is no room.
    #[inline]
    pub(crate) fn send(
        &mut self,
        report: Report<'_>,
        kind: u8,
        pieces: &[Piece<'_>],
        len: usize,
    ) -> Result<bool, RingError> {
        assert!(len <= self.part, "{len} bytes are more than a part");
        debug_assert!(kind > SHORT && kind < ANNOUNCED);
        debug_assert_eq!(pieces.iter().map(|piece| piece.len).sum::<usize>(), len);
        let cells = cells_for(len);
        if !self.has_room(report, self.pad(cells) + cells)? {
            return Ok(false);
        }
        self.put(kind, &mut Pieces { pieces, at: 0 }, len);
        Ok(true)
    }

    /// Says that a message of so many bytes comes in parts, elsewhere. There is room for that.
    pub(crate) fn announce(&mut self, kind: u8, len: usize) {
        debug_assert!(kind > SHORT && kind < ANNOUNCED);
        self.finish(1, kind | ANNOUNCED, len);
    }

    /// Sends a message that was announced, in parts of this kind. There is room for them.
    pub(crate) fn send_parts(&mut self, kind: u8, pieces: &[Piece<'_>], len: usize) {
        let (mut pieces, mut left) = (Pieces { pieces, at: 0 }, len);
        while left > 0 {
            let now = left.min(self.part);
            self.put(kind, &mut pieces, now);
            left -= now;
        }
    }

    /// Writes and publishes what is contiguous. There is room for it.
    #[inline]
    fn put(&mut self, kind: u8, pieces: &mut Pieces<'_>, len: usize) {
        let used = cells_for(len);
        self.skip_to(used);
        let cell = self.cell();
        pieces.take(len, |at, from, len| {
            // SAFETY: `skip_to` made sure that the cells lie within the ring, and `at + len` is at
            // most what they have room for; a piece is readable, and lies in no ring.
            unsafe { self.memory.copy_in(cell * CELL + HEADER + at, from, len) }
        });
        self.mark(cell + 1, cell + used);
        self.finish(used, kind, len);
    }

    /// Whether a message of `len` bytes would find room, in parts if it is longer than one.
    pub(crate) fn has_room_for(
        &mut self,
        report: Report<'_>,
        len: usize,
    ) -> Result<bool, RingError> {
        self.has_room(report, self.cells_in_parts(len))
    }

    /// Cells for a message in parts.
    fn cells_in_parts(&self, len: usize) -> usize {
        let whole = len / self.part * part_cells(self.cells) + cells_for(len % self.part);
        // Somewhere there may be a pad, of less than a part.
        whole + part_cells(self.cells)
    }

    /// Goes back to the first cell if the ring is empty, and a message of `len` bytes fits into
    /// what was used last: those cells are still in the caches, the rest of the ring is not.
    pub(crate) fn rewind(&mut self, report: Report<'_>, len: usize) {
        let cell = self.cell();
        if cell >= self.cells_in_parts(len) && self.is_drained(report) {
            self.finish(self.cells - cell, PAD, 0);
        }
    }

    /// Whether nothing is in the ring, as far as the receiver has reported.
    pub(crate) fn is_drained(&mut self, report: Report<'_>) -> bool {
        self.has_room(report, self.cells) == Ok(true)
    }

    /// All cells were made zeroes, while nothing was in the ring.
    pub(crate) fn cleared(&mut self) {
        self.payload.fill(0);
        self.plain = self.plain_until();
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

    /// Cells written since the beginning.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    fn has_room(&mut self, report: Report<'_>, need: usize) -> Result<bool, RingError> {
        let last = self.head + need as u64;
        if last - self.consumed <= self.cells as u64 {
            return Ok(true);
        }
        self.consumed(report)?;
        Ok(last - self.consumed <= self.cells as u64)
    }

    /// Cells that the receiver has consumed, as it has reported.
    pub(crate) fn consumed(&mut self, report: Report<'_>) -> Result<u64, RingError> {
        let reported = report.consumed.load(Ordering::Acquire);
        if reported < self.consumed || reported > self.head {
            return Err(RingError::Consumed { reported, sent: self.head });
        }
        self.consumed = reported;
        Ok(reported)
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
    /// Takes so many bytes: gives where in them each stretch belongs, where it lies, and its
    /// length.
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
#[inline(always)]
fn fill<const WORDS: usize>(words: &[AtomicU64; WORDS], bytes: &[u8]) {
    let (mut words, mut rest) = (&words[..], bytes);
    fill_some::<4>(&mut words, &mut rest);
    fill_some::<2>(&mut words, &mut rest);
    fill_some::<1>(&mut words, &mut rest);
    if let Some(word) = words.first()
        && !rest.is_empty()
    {
        let last = match bytes.last_chunk() {
            Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
            None => few_bytes(bytes),
        };
        word.store(last.to_le(), Ordering::Relaxed);
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

/// A message of one to seven bytes, by loads of fixed lengths. Apart, as few are so short.
#[inline(never)]
fn few_bytes(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_le_bytes(*half)));
        first | last << (8 * bytes.len() - 32)
    } else {
        let byte = |at: usize| u64::from(bytes[at]) << (8 * at);
        byte(0) | byte(bytes.len() / 2) | byte(bytes.len() - 1)
    }
}
