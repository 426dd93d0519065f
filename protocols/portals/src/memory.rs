//! Memory of entries and descriptors: one piece, or several that count as one.

use crate::atomic::{self, AtomicFailure, Datatype, Operator};
use petasos_fabric::{Region, Slice};
use smallvec::{SmallVec, smallvec};

/// Memory that other processes write and read, or that is sent from: owned and counted.
///
/// While an interface holds it, its bytes are accessed only by copies; they belong to the program
/// alone again when it is the last holder ([`Region::into_exclusive`]).
///
/// ```
/// use petasos_fabric::Region;
/// use petasos_portals::Memory;
///
/// let (header, body) = (Region::zeroed(8), Region::zeroed(4096));
/// let memory = Memory::pieces([header.whole(), body.whole()]);
/// assert_eq!(memory.len(), 4104);
/// memory.write(4, &[1; 8]);
/// assert_eq!(header.to_vec(), [0, 0, 0, 0, 1, 1, 1, 1]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pieces: SmallVec<[Slice; 1]>,
    len: u64,
}

impl Memory {
    /// No bytes: for entries that only count messages, or refuse them.
    #[must_use]
    pub fn empty() -> Memory {
        Memory::default()
    }

    /// Pieces that count as one, in their order.
    #[must_use]
    pub fn pieces(pieces: impl IntoIterator<Item = Slice>) -> Memory {
        let pieces: SmallVec<[Slice; 1]> = pieces.into_iter().filter(|p| !p.is_empty()).collect();
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        Memory { pieces, len }
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether all of it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.pieces.iter().all(|piece| piece.is_writable())
    }

    /// A part, if it lies in one piece; `None` if not, or if it is not within.
    #[must_use]
    pub fn slice(&self, offset: u64, len: u64) -> Option<Slice> {
        if let [only] = &self.pieces[..] {
            return only.part(usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        }
        self.within(offset, len)?;
        let mut pieces = self.parts(offset, len);
        let (first, more) = (pieces.next(), pieces.next());
        match (first, more) {
            (Some((piece, at, len)), None) => piece.part(at, len),
            (None, None) => Some(Region::zeroed(0).whole()),
            _ => None,
        }
    }

    /// The pieces of a part of it; `None` if it is not within.
    pub(crate) fn slices(&self, offset: u64, len: u64) -> Option<SmallVec<[Slice; 1]>> {
        Some(self.part(offset, len)?.pieces)
    }

    /// A part of it.
    #[must_use]
    pub fn part(&self, offset: u64, len: u64) -> Option<Memory> {
        self.within(offset, len)?;
        Some(Memory::pieces(self.parts(offset, len).filter_map(|(p, at, len)| p.part(at, len))))
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    /// If `offset + into.len()` is beyond the end.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        match &self.pieces[..] {
            [only] => only.read(offset as usize, into),
            _ => self.read_pieces(offset, into),
        }
    }

    #[inline(never)]
    fn read_pieces(&self, offset: u64, into: &mut [u8]) {
        self.check(offset, into.len());
        let mut rest = into;
        for (piece, at, len) in self.parts(offset, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(len);
            piece.read(at, now);
            rest = later;
        }
    }

    /// Copies bytes in, at `offset`.
    ///
    /// # Panics
    /// If `offset + from.len()` is beyond the end, or memory is read-only.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) {
        match &self.pieces[..] {
            [only] => only.write(offset as usize, from),
            _ => self.write_pieces(offset, from),
        }
    }

    #[inline(never)]
    fn write_pieces(&self, offset: u64, from: &[u8]) {
        self.check(offset, from.len());
        let mut rest = from;
        for (piece, at, len) in self.parts(offset, rest.len() as u64) {
            let (now, later) = rest.split_at(len);
            piece.write(at, now);
            rest = later;
        }
    }

    /// Applies an operation to the elements from `offset` on, and gives the old values.
    pub(crate) fn apply(
        &self,
        offset: u64,
        operator: Operator,
        kind: Datatype,
        data: &[u8],
        operand: &[u8],
    ) -> Result<SmallVec<[u8; 16]>, AtomicFailure> {
        match self.slice(offset, data.len() as u64) {
            Some(slice) => atomic::apply(&slice, operator, kind, data, operand),
            // Elements in several pieces: atomic among the operations of this interface.
            None if self.within(offset, data.len() as u64).is_some() => {
                let scratch = Region::zeroed(data.len()).whole();
                let mut bytes = vec![0; data.len()];
                self.read(offset, &mut bytes);
                scratch.write(0, &bytes);
                let old = atomic::apply(&scratch, operator, kind, data, operand)?;
                self.write(offset, &scratch.to_vec());
                Ok(old)
            }
            None => Err(AtomicFailure),
        }
    }

    fn within(&self, offset: u64, len: u64) -> Option<()> {
        (offset.checked_add(len)? <= self.len).then_some(())
    }

    fn check(&self, offset: u64, len: usize) {
        let within = self.within(offset, len as u64).is_some();
        assert!(within, "{offset}+{len} is beyond the {} bytes of memory", self.len);
    }

    /// The parts of pieces in a range: piece, offset in it, length.
    fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = (&Slice, usize, usize)> {
        let end = offset + len;
        let mut begin = 0;
        self.pieces.iter().filter_map(move |piece| {
            let (from, to) = (begin.max(offset), (begin + piece.len() as u64).min(end));
            let at = from.saturating_sub(begin);
            begin += piece.len() as u64;
            (from < to).then(|| (piece, at as usize, (to - from) as usize))
        })
    }
}

impl From<Slice> for Memory {
    fn from(slice: Slice) -> Memory {
        let len = slice.len() as u64;
        Memory { pieces: smallvec![slice], len }
    }
}

impl From<Region> for Memory {
    fn from(region: Region) -> Memory {
        region.whole().into()
    }
}

impl From<Vec<u8>> for Memory {
    fn from(vec: Vec<u8>) -> Memory {
        Region::from_vec(vec).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_count_as_one() {
        let (a, b) = (Region::from_vec(vec![1, 2, 3]), Region::from_vec(vec![4, 5, 6, 7]));
        let part = b.slice(1, 2).unwrap();
        let memory = Memory::pieces([a.whole(), Region::zeroed(0).whole(), part]);
        assert_eq!(memory.len(), 5);
        let mut all = [0; 5];
        memory.read(0, &mut all);
        assert_eq!(all, [1, 2, 3, 5, 6]);
        memory.write(2, &[8, 9]);
        assert_eq!((a.to_vec(), b.to_vec()), (vec![1, 2, 8], vec![4, 9, 6, 7]));
        assert_eq!(memory.slice(3, 2).unwrap().to_vec(), [9, 6]);
        assert_eq!(memory.part(1, 3).unwrap().len(), 3);
        assert!(memory.slice(2, 2).is_none(), "in two pieces");
        assert!(memory.slice(4, 2).is_none() && memory.part(u64::MAX, 2).is_none());
        assert_eq!(memory.slice(5, 0).unwrap().len(), 0);
        assert!(Memory::empty().slice(0, 0).is_some() && Memory::empty().slice(0, 1).is_none());
    }
}
