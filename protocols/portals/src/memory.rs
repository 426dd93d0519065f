//! Memory of entries and descriptors: one piece, or several that count as one.

use crate::{
    Failure,
    atomic::{self, Datatype, Operator},
};
use petasos_fabric::{
    Region, Slice,
    memory::{AddressSpace, Kind},
};
use smallvec::{SmallVec, smallvec};

/// Memory that other processes write and read, or that is sent from: owned and counted.
///
/// All memory of the process is memory for an entry, too ([`AddressSpace`]): offsets are addresses,
/// the kernel copies, and where nothing is the operation fails ([`Failure::Fault`]). It is none for
/// descriptors.
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
    /// Whether some of it is the address space of the process.
    faults: bool,
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
        let faults = pieces.iter().any(|piece| piece.kind() == Kind::AddressSpace);
        Memory { pieces, len, faults }
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

    /// Whether some of it is the address space of the process: then copies may fail, and the
    /// endpoint does not move data there.
    pub(crate) fn may_fault(&self) -> bool {
        self.faults
    }

    /// The address of its first byte, if it is one piece of the process's memory; addresses follow
    /// from offsets then.
    pub(crate) fn start(&self) -> Option<u64> {
        match &self.pieces[..] {
            [only] if only.kind() == Kind::AddressSpace => Some(only.offset() as u64),
            [only] => only.host_ptr().map(|at| at.addr().get() as u64),
            _ => None,
        }
    }

    /// A part, if it lies in one piece; `None` if not, or if it is not within, and for the address
    /// space.
    #[must_use]
    pub fn slice(&self, offset: u64, len: u64) -> Option<Slice> {
        if self.may_fault() {
            return None;
        }
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

    /// The pieces of a part of it; `None` if it is not within, and for the address space.
    pub(crate) fn slices(&self, offset: u64, len: u64) -> Option<SmallVec<[Slice; 1]>> {
        if self.may_fault() {
            return None;
        }
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

    /// Copies bytes out where there may be no memory.
    ///
    /// # Errors
    /// [`Failure::Fault`].
    ///
    /// # Panics
    /// As [`Memory::read`].
    #[inline]
    pub(crate) fn try_read(&self, offset: u64, into: &mut [u8]) -> Result<(), Failure> {
        if self.faults {
            return self.try_read_pieces(offset, into);
        }
        self.read(offset, into);
        Ok(())
    }

    #[inline(never)]
    fn try_read_pieces(&self, offset: u64, into: &mut [u8]) -> Result<(), Failure> {
        self.check(offset, into.len());
        let mut rest = into;
        for (piece, at, len) in self.parts(offset, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(len);
            piece.try_read(at, now).map_err(|_| Failure::Fault)?;
            rest = later;
        }
        Ok(())
    }

    /// Copies bytes in where there may be no memory, or none that may be written.
    ///
    /// # Errors
    /// [`Failure::Fault`]: some may have been copied.
    ///
    /// # Panics
    /// As [`Memory::write`].
    #[inline]
    pub(crate) fn try_write(&self, offset: u64, from: &[u8]) -> Result<(), Failure> {
        if self.faults {
            return self.try_write_pieces(offset, from);
        }
        self.write(offset, from);
        Ok(())
    }

    #[inline(never)]
    fn try_write_pieces(&self, offset: u64, from: &[u8]) -> Result<(), Failure> {
        self.check(offset, from.len());
        let mut rest = from;
        for (piece, at, len) in self.parts(offset, rest.len() as u64) {
            let (now, later) = rest.split_at(len);
            piece.try_write(at, now).map_err(|_| Failure::Fault)?;
            rest = later;
        }
        Ok(())
    }

    /// Applies an operation to the elements from `offset` on, and gives the old values.
    pub(crate) fn apply(
        &self,
        offset: u64,
        operator: Operator,
        kind: Datatype,
        data: &[u8],
        operand: &[u8],
    ) -> Result<SmallVec<[u8; 16]>, Failure> {
        let refused = |_| Failure::Operation;
        match self.slice(offset, data.len() as u64) {
            Some(slice) => atomic::apply(&slice, operator, kind, data, operand).map_err(refused),
            // Elements in several pieces: atomic among the operations of this interface.
            None if self.within(offset, data.len() as u64).is_some() => {
                let scratch = Region::zeroed(data.len()).whole();
                let mut bytes = vec![0; data.len()];
                self.try_read(offset, &mut bytes)?;
                scratch.write(0, &bytes);
                let old = atomic::apply(&scratch, operator, kind, data, operand);
                let old = old.map_err(refused)?;
                self.try_write(offset, &scratch.to_vec())?;
                Ok(old)
            }
            None => Err(Failure::Operation),
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
        let faults = slice.kind() == Kind::AddressSpace;
        Memory { pieces: smallvec![slice], len, faults }
    }
}

impl From<&AddressSpace> for Memory {
    fn from(space: &AddressSpace) -> Memory {
        space.slice().clone().into()
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
