//! Memory that shows whether something was written where it must not be.

use petasos_fabric::{Region, Slice};

const MARGIN: usize = 64;
const CANARY: u8 = 0xC5;

/// A piece of a region, between two margins that must not be written.
#[derive(Debug)]
pub struct Guarded {
    region: Region,
    len: usize,
    /// What it must hold from now on, if it must not be written any more.
    settled: Option<Vec<u8>>,
}

impl Guarded {
    /// So many bytes.
    #[must_use]
    pub fn new(len: usize) -> Guarded {
        let mut bytes = vec![CANARY; len + 2 * MARGIN];
        for (i, byte) in bytes[MARGIN..MARGIN + len].iter_mut().enumerate() {
            *byte = i as u8;
        }
        Guarded { region: Region::from_vec(bytes), len, settled: None }
    }

    /// The memory to be lent.
    #[must_use]
    pub fn slice(&self) -> Slice {
        self.region.slice(MARGIN, self.len).expect("within the margins")
    }

    /// From now on it must not be written.
    pub fn settle(&mut self) {
        self.settled.get_or_insert_with(|| self.region.to_vec());
    }

    /// Checks that nothing was written where it must not be.
    ///
    /// # Panics
    /// If the margins, or memory that was settled, have changed.
    pub fn check(&self) {
        let now = self.region.to_vec();
        let (before, rest) = now.split_at(MARGIN);
        let (_, after) = rest.split_at(self.len);
        assert!(before.iter().chain(after).all(|byte| *byte == CANARY), "beyond the memory");
        if let Some(settled) = &self.settled {
            assert_eq!(*settled, now, "memory was written after it was given back");
        }
    }

    /// Checks it for the last time.
    ///
    /// # Panics
    /// As [`Guarded::check`], or if something still holds it.
    pub fn finish(self) {
        self.check();
        assert!(self.region.is_unique(), "memory is held though all is over");
    }
}
