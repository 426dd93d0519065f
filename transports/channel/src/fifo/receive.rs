//! The receiver's side. The peer may write anything into the buffer at any time: each number is
//! read once, and checked.

use super::{CELL, MIN_CELLS, PAD, cells_for, max_record};
use crate::{
    Garbage,
    header::{HEADER, Header, Kind},
};
use petasos_fabric::{Region, Slice};

/// The receiver's side of a FIFO: the buffer that the sender writes.
#[derive(Debug)]
pub struct ReceiveFifo {
    memory: Region,
    cells: u32,
    /// The cell at which the next record begins.
    head: u32,
    /// Cells of pads since the last record was taken.
    padded: u32,
}

/// The record at the head of the queue.
#[derive(Clone, Debug)]
pub struct Record {
    pub(crate) header: Header,
    /// Its body, in place.
    pub body: Slice,
    cells: u32,
}

impl ReceiveFifo {
    /// A FIFO with this many cells.
    ///
    /// # Panics
    /// If there are fewer than [`MIN_CELLS`] or more than [`super::MAX_CELLS`].
    #[must_use]
    pub fn new(cells: u32) -> ReceiveFifo {
        assert!((MIN_CELLS..=super::MAX_CELLS).contains(&cells), "a FIFO of {cells} cells");
        let memory = Region::zeroed(cells as usize * CELL);
        ReceiveFifo { memory, cells, head: 0, padded: 0 }
    }

    /// The buffer, to be registered.
    #[must_use]
    pub fn memory(&self) -> &Region {
        &self.memory
    }

    /// The number of cells.
    #[must_use]
    pub fn cells(&self) -> u32 {
        self.cells
    }

    /// Stores the mark of a put with event that has arrived. Returns the acknowledgement in the
    /// record, `None` for a pad.
    ///
    /// # Errors
    /// The put is not at a cell of this buffer, or its mark or header is invalid.
    pub fn arrived(&mut self, offset: u64, mark: u64) -> Result<Option<u32>, Garbage> {
        let cell = offset / CELL as u64;
        if !offset.is_multiple_of(CELL as u64) || cell >= u64::from(self.cells) {
            return Err(Garbage::new("a put beside the cells", offset));
        }
        if mark as u32 == 0 {
            return Err(Garbage::new("a record of nothing", mark));
        }
        let at = offset as usize;
        self.memory.write(at, &mark.to_le_bytes());
        if mark as u32 == PAD {
            return Ok(None);
        }
        let mut bytes = [0; HEADER];
        self.memory.read(at, &mut bytes);
        let header = Header::decode(bytes)?;
        Ok(Some(header.ack))
    }

    /// The record at the head of the queue, if it has arrived. Skips a pad.
    ///
    /// # Errors
    /// The cells hold an invalid record or pad.
    pub fn front(&mut self) -> Result<Option<Record>, Garbage> {
        loop {
            let at = self.head as usize * CELL;
            let mut bytes = [0; HEADER];
            self.memory.read(at, &mut bytes);
            let [a, b, c, d, ..] = bytes;
            let len = u32::from_le_bytes([a, b, c, d]);
            if len == 0 {
                return Ok(None);
            }
            if len == PAD {
                // The queue continues at the first cell, where another pad is invalid.
                if self.head == 0 {
                    return Err(Garbage::new("a pad at the first cell", 0));
                }
                self.padded = self.cells - self.head;
                self.clear(self.head, self.padded);
                self.head = 0;
                continue;
            }
            let header = Header::decode(bytes)?;
            let longest = super::max_body(self.cells);
            if header.kind != Kind::Record || len as usize > longest {
                return Err(Garbage::new("a record of a bad length or kind", len.into()));
            }
            let cells = cells_for(len as usize);
            debug_assert!(cells <= max_record(self.cells));
            let body = self.memory.slice(at + HEADER, len as usize);
            return match body.filter(|_| self.head + cells <= self.cells) {
                Some(body) => Ok(Some(Record { header, body, cells })),
                None => Err(Garbage::new("a record that wraps", self.head.into())),
            };
        }
    }

    /// Removes the record at the head of the queue. Returns the cells that this frees, including
    /// those of a pad before it.
    pub fn consume(&mut self, front: &Record) -> u32 {
        self.clear(self.head, front.cells);
        self.head = (self.head + front.cells) % self.cells;
        front.cells + std::mem::take(&mut self.padded)
    }

    /// Clears the marks of these cells.
    fn clear(&self, first: u32, count: u32) {
        for cell in first..first + count {
            self.memory.write(cell as usize * CELL, &[0; 8]);
        }
    }
}

impl Record {
    /// The record's number.
    #[must_use]
    pub fn seq(&self) -> u32 {
        self.header.seq
    }
}
