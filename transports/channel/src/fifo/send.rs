//! The sender's side: where the next record goes, and which cells are free.

use super::{CELL, MIN_CELLS, cells_for, max_record};
use crate::header::distance;
use petasos_fabric::{Region, Slice};
use std::collections::VecDeque;

/// The sender's side of a FIFO: its image of the buffer, and the account of the cells.
#[derive(Debug)]
pub struct SendFifo {
    image: Region,
    cells: u32,
    /// The cell that comes next.
    tail: u32,
    used: u32,
    /// Records whose cells are not free, oldest first.
    flights: VecDeque<Flight>,
}

#[derive(Debug)]
struct Flight {
    seq: u32,
    cells: u32,
    acked: bool,
    done: bool,
}

/// The cells of the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Where a pad is to be put before it, in bytes from the start of the buffer.
    pub pad: Option<u64>,
    /// Where the record begins, in bytes.
    pub offset: u64,
    /// The number of its cells, without the pad's.
    pub cells: u32,
}

impl SendFifo {
    /// A FIFO with this many cells.
    ///
    /// # Panics
    /// If there are fewer than [`MIN_CELLS`] or more than [`super::MAX_CELLS`].
    #[must_use]
    pub fn new(cells: u32) -> SendFifo {
        assert!((MIN_CELLS..=super::MAX_CELLS).contains(&cells), "a FIFO of {cells} cells");
        let image = Region::zeroed(cells as usize * CELL);
        SendFifo { image, cells, tail: 0, used: 0, flights: VecDeque::new() }
    }

    /// Its image of the buffer.
    #[must_use]
    pub fn image(&self) -> &Region {
        &self.image
    }

    /// The number of cells.
    #[must_use]
    pub fn cells(&self) -> u32 {
        self.cells
    }

    /// The part of the image at a reservation, for a record with a body of `len` bytes: the
    /// header's bytes come first.
    #[must_use]
    pub fn slice(&self, at: &Reservation, len: usize) -> Slice {
        let slice = self.image.slice(at.offset as usize, crate::header::HEADER + len);
        slice.expect("a reservation is within the buffer")
    }

    /// Cells for a record with a body of `len` bytes; `None` while there is no credit for it.
    ///
    /// # Panics
    /// If the record is longer than [`max_body`](super::max_body).
    #[must_use]
    pub fn reserve(&self, len: usize) -> Option<Reservation> {
        let need = cells_for(len);
        assert!(need <= max_record(self.cells), "a record of {len} bytes");
        let left = self.cells - self.tail;
        let pad = if need > left { left } else { 0 };
        (self.used + pad + need <= self.cells).then(|| Reservation {
            pad: (pad > 0).then_some(u64::from(self.tail) * CELL as u64),
            offset: if pad > 0 { 0 } else { u64::from(self.tail) * CELL as u64 },
            cells: need,
        })
    }

    /// Accounts for a pad that was put before the record with this number: the rest of the buffer
    /// is skipped.
    pub fn pad(&mut self, seq: u32) {
        let cells = self.cells - self.tail;
        (self.used, self.tail) = (self.used + cells, 0);
        self.flights.push_back(Flight { seq, cells, acked: false, done: true });
    }

    /// Accounts for the record with this number, which was sent to the reserved cells after its
    /// pad, if it needs one. `done` says that no put of the image is under way for it.
    pub fn take(&mut self, at: &Reservation, seq: u32, done: bool) {
        self.used += at.cells;
        self.tail = (self.tail + at.cells) % self.cells;
        self.flights.push_back(Flight { seq, cells: at.cells, acked: false, done });
    }

    /// The device has completed the put of this record.
    pub fn completed(&mut self, seq: u32) {
        if let Some(flight) =
            self.flights.iter_mut().find(|flight| flight.seq == seq && !flight.done)
        {
            flight.done = true;
        }
        self.free();
    }

    /// The receiver has taken all records before this number. True if cells became free.
    pub fn acknowledged(&mut self, ack: u32) -> bool {
        for flight in self.flights.iter_mut().skip_while(|flight| flight.acked) {
            if distance(flight.seq, ack) <= 0 {
                break;
            }
            flight.acked = true;
        }
        self.free()
    }

    fn free(&mut self) -> bool {
        let before = self.used;
        while let Some(flight) = self.flights.front().filter(|flight| flight.acked && flight.done) {
            self.used -= flight.cells;
            self.flights.pop_front();
        }
        self.used < before
    }

    /// Whether the receiver has taken all records and the device has completed all puts.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.flights.is_empty()
    }

    /// Cells that are not free.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }
}
