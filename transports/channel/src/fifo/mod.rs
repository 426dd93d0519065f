//! The remote FIFO of an exclusive channel: both sides have a buffer of the same length, and the
//! sender decides where each record lies.
//!
//! The buffer is cut into cells of a cache line. A record takes consecutive cells, of which only
//! the last may be partly unused, and begins with a header of sixteen bytes. It never wraps: what
//! is left before the end is skipped by a *pad*, a mark without a header, which costs credit like
//! any cell.
//!
//! The sender copies a record into its image of the buffer and puts it to the same offset in the
//! receiver's, or sends it as an immediate put if it is very short. The remote event of that put
//! carries the mark, which the receiver stores in the first cell ([`ReceiveFifo::arrived`]); a
//! device whose remote event is a store into memory would do this itself. As puts may overtake each
//! other, a mark may be there before an earlier one; the receiver reads only the head of the queue,
//! and takes records in their order.
//!
//! The cells are the sender's credit. A record's cells are free again when the receiver has
//! acknowledged the record *and* the device has completed the put.

mod receive;
mod send;

pub use receive::{ReceiveFifo, Record};
pub use send::{Reservation, SendFifo};

/// Bytes of a cell: a cache line.
pub const CELL: usize = 64;
/// The fewest cells of a FIFO.
pub const MIN_CELLS: u32 = 8;
/// The most.
pub const MAX_CELLS: u32 = 1 << 20;

/// The length in the mark of a pad.
const PAD: u32 = u32::MAX;
/// The mark of a pad.
pub(crate) const PAD_MARK: u64 = PAD as u64;

/// The most cells of one record: with a pad before it, it always fits into an empty FIFO, and a
/// few records fit into any.
pub(crate) fn max_record(cells: u32) -> u32 {
    cells / 4
}

/// The longest body of a record in a FIFO with this many cells, in bytes.
#[must_use]
pub fn max_body(cells: u32) -> usize {
    max_record(cells) as usize * CELL - crate::header::HEADER
}

/// The number of cells of a record with a body of this many bytes.
fn cells_for(body: usize) -> u32 {
    (crate::header::HEADER + body).div_ceil(CELL) as u32
}

#[cfg(test)]
mod tests;
