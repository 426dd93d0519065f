//! The receiver's side. All in the buffer is the peer's to write, at any time: each number is read
//! once, and checked.

use super::{CELL, MIN_CELLS, PAD, cells_for, max_record};
use crate::{
    Garbage,
    head::{HEAD, Head, Kind},
};
use petasos_fabric::{Region, Slice};

/// The receiver's side of a FIFO: the buffer that the sender writes.
#[derive(Debug)]
pub struct ReceiveFifo {
    memory: Region,
    cells: u32,
    /// The cell that is looked at.
    head: u32,
    /// Cells of pads since the last record was taken.
    padded: u32,
}

/// The record at the head of the queue.
#[derive(Clone, Debug)]
pub struct Front {
    pub(crate) head: Head,
    /// Its body, in place.
    pub body: Slice,
    cells: u32,
}

impl ReceiveFifo {
    /// A FIFO of so many cells.
    ///
    /// # Panics
    /// If they are fewer than [`MIN_CELLS`] or more than [`super::MAX_CELLS`].
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

    /// Cells in all.
    #[must_use]
    pub fn cells(&self) -> u32 {
        self.cells
    }

    /// A put with event came: stores the mark. Gives the acknowledgement that rides in the record.
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
        let mut bytes = [0; HEAD];
        self.memory.read(at, &mut bytes);
        let head = Head::decode(bytes)?;
        Ok(Some(head.ack))
    }

    /// The record at the head, if it has come. Goes past a pad.
    pub fn front(&mut self) -> Result<Option<Front>, Garbage> {
        loop {
            let at = self.head as usize * CELL;
            let mut bytes = [0; HEAD];
            self.memory.read(at, &mut bytes);
            let [a, b, c, d, ..] = bytes;
            let len = u32::from_le_bytes([a, b, c, d]);
            if len == 0 {
                return Ok(None);
            }
            if len == PAD {
                // So it goes on at the first cell, which is no place for another pad.
                if self.head == 0 {
                    return Err(Garbage::new("a pad at the first cell", 0));
                }
                self.padded = self.cells - self.head;
                self.clear(self.head, self.padded);
                self.head = 0;
                continue;
            }
            let head = Head::decode(bytes)?;
            let longest = super::max_body(self.cells);
            if head.kind != Kind::Record || len as usize > longest {
                return Err(Garbage::new("a record of a bad length or kind", len.into()));
            }
            let cells = cells_for(len as usize);
            debug_assert!(cells <= max_record(self.cells));
            let body = self.memory.slice(at + HEAD, len as usize);
            return match body.filter(|_| self.head + cells <= self.cells) {
                Some(body) => Ok(Some(Front { head, body, cells })),
                None => Err(Garbage::new("a record that wraps", self.head.into())),
            };
        }
    }

    /// Takes the record at the head away. Gives the cells that this frees, those of a pad before it
    /// included.
    pub fn consume(&mut self, front: &Front) -> u32 {
        self.clear(self.head, front.cells);
        self.head = (self.head + front.cells) % self.cells;
        front.cells + std::mem::take(&mut self.padded)
    }

    /// No mark is left in these cells.
    fn clear(&self, first: u32, count: u32) {
        for cell in first..first + count {
            self.memory.write(cell as usize * CELL, &[0; 8]);
        }
    }
}

impl Front {
    /// The record's number.
    #[must_use]
    pub fn seq(&self) -> u32 {
        self.head.seq
    }
}
