//! A queue of packets in shared memory, with one sender and one receiver that do not trust each
//! other: the short-packet channel of a pair of endpoints.
//!
//! The ring is cut into cells of one cache line. A message takes consecutive cells and never
//! wraps: a pad skips to the first cell. The first eight bytes of its first cell are the header
//! word, `lap << 32 | kind << 24 | length`, which is written last, with release, and publishes the
//! message; the receiver polls this word of the next cell. So a sender that dies in the middle of
//! writing has never published.
//!
//! The payload follows the header in one of two formats, which the kind tells apart:
//!
//! - *Short* ([`SHORT`], up to 112 bytes, one cell or two): each cell begins with a word of
//!   control, behind which lie 56 bytes of payload. The first cell's is the header, the second's is
//!   zero, and is not read before there is a header in its place.
//! - *Contiguous* (all other kinds): the payload runs on through the cells, over their beginnings.
//!
//! A message longer than a *part* (8 KiB, or a quarter of a small ring) is only *announced* here,
//! by a header with its length and [`ANNOUNCED`] added to its kind. Its bytes go in parts through a
//! second ring of this kind: see [`pair`](crate::pair).
//!
//! The lap in the header (from 1 on, new each time around) tells a new message from an old one,
//! unless payload of the lap before lies where a header is expected. The sender therefore knows
//! which cells hold payload at their beginning, and clears such a cell before it publishes the
//! message in front of it. Short messages leave nothing that would have to be cleared: zero is the
//! header of no lap. So among themselves they are whole words written one by one, and a message of
//! up to 56 bytes is one cache line that moves from one processor to the other.
//!
//! The receiver reports how many cells it has consumed every quarter of the ring, in a word that
//! the sender reads only when its last knowledge says that there is no room, or when it wants to
//! know what has arrived: behind a message of which it does, the receiver reports at once. The
//! longest message, all its parts and a pad are at most three quarters of the ring, so a sender that
//! waits is always told.
//!
//! Whatever either side reads is read once and checked, and memory is reached only through
//! [`Memory`], by atomics and opaque copies. A word of the wrong lap is no message; a wrong length
//! or kind in one of the right lap is a [`RingError`].

mod consumer;
mod flag;
mod memory;
mod producer;
#[cfg(test)]
mod tests;

pub(crate) use consumer::{Consumer, Incoming};
pub(crate) use flag::Flag;
#[cfg(test)]
pub(crate) use memory::Heap;
pub(crate) use memory::{Memory, Shared};
pub(crate) use producer::{Piece, Producer};

use crate::sync::AtomicU64;

/// Bytes of a cell: a cache line.
pub(crate) const CELL: usize = 64;
/// Bytes of the header word.
pub(crate) const HEADER: usize = 8;
/// Payload bytes behind the header, or behind the word of control in its place.
pub(crate) const LINE: usize = CELL - HEADER;
/// The longest short message.
pub(crate) const MAX_SHORT: usize = 2 * LINE;
const WORDS: usize = CELL / 8;

/// The kind of short messages.
pub(crate) const SHORT: u8 = 1;
/// Added to the kind of a message whose bytes lie elsewhere.
const ANNOUNCED: u8 = 0x40;
/// The kind of a pad. The kinds from 2 to 63 are for the users of the ring.
const PAD: u8 = 255;

/// How the other side broke the rules of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RingError {
    #[error("a packet of {len} bytes at cell {cell} of a ring of {cells} cells, {max} at most")]
    Length { len: usize, cell: usize, cells: usize, max: usize },
    #[error("a packet of the kind {kind}, which is none, at cell {cell}")]
    Kind { kind: u8, cell: usize },
    #[error("a pad where none belongs, at cell {0}")]
    Pad(usize),
    #[error("{len} bytes of kind {kind} where a part of a message was expected")]
    NoPart { kind: u8, len: usize },
    #[error("{reported} cells reported as consumed, of {sent} sent")]
    Consumed { reported: u64, sent: u64 },
}

/// The words beside the cells, written by the receiver.
#[derive(Clone, Copy)]
pub(crate) struct Report<'a> {
    /// Cells consumed since the beginning.
    pub(crate) consumed: &'a AtomicU64,
}

/// Cells that a message of this length takes, in either format.
fn cells_for(len: usize) -> usize {
    (HEADER + len).div_ceil(CELL)
}

/// The number of a lap where it stands in headers: never zero.
fn lap_of(position: u64, cells: u64) -> u64 {
    (position / cells % u64::from(u32::MAX) + 1) << 32
}

fn header(lap: u64, kind: u8, len: usize) -> u64 {
    lap | u64::from(kind) << 24 | len as u64
}

/// Cells of a part of a long message.
const fn part_cells(cells: usize) -> usize {
    let quarter = cells / 4;
    if quarter < 128 { quarter } else { 128 }
}

/// Bytes of a part: the longest message that is in one piece.
pub(crate) const fn part(cells: usize) -> usize {
    part_cells(cells) * CELL - HEADER
}

/// The longest message whose parts a ring of this size can take: three quarters of the ring hold
/// them with a pad somewhere.
pub(crate) const fn longest(cells: usize) -> usize {
    let parts = (cells / 4 * 3 - part_cells(cells)) / part_cells(cells);
    parts * part(cells)
}
