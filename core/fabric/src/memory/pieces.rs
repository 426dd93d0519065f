//! Several pieces of memory as one region.

use super::{DeviceMemory, Slice};
use std::ptr::NonNull;

/// Pieces that follow each other in one space of offsets. As memory of a device it has no pointer:
/// its copies are those of the pieces.
#[derive(Debug)]
pub(super) struct Pieces {
    /// None is empty, or made of pieces.
    pieces: Vec<Slice>,
    /// Where each ends in the space of offsets.
    ends: Vec<usize>,
}

impl Pieces {
    /// # Panics
    /// If they are longer than `isize::MAX` together.
    pub(super) fn new(pieces: impl IntoIterator<Item = Slice>) -> Pieces {
        let mut all = Vec::new();
        for piece in pieces {
            if let Some(parts) = piece.pieces() {
                all.extend(parts);
                continue;
            }
            if !piece.is_empty() {
                all.push(piece);
            }
        }
        let mut end = 0usize;
        let mut sum = |piece: &Slice| {
            end = end.checked_add(piece.len()).filter(|end| *end <= isize::MAX as usize)?;
            Some(end)
        };
        let ends: Option<Vec<usize>> = all.iter().map(&mut sum).collect();
        Pieces { ends: ends.expect("pieces that fit in an address space"), pieces: all }
    }

    pub(super) fn are_writable(&self) -> bool {
        self.pieces.iter().all(Slice::is_writable)
    }

    /// The parts of pieces that these bytes are, in order.
    ///
    /// # Panics
    /// If they are beyond the end.
    pub(super) fn parts(&self, offset: usize, len: usize) -> impl Iterator<Item = Slice> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len()), "beyond the end");
        let first = self.ends.partition_point(|end| *end <= offset);
        let begin = first.checked_sub(1).map_or(0, |before| self.ends[before]);
        let (mut skip, mut left) = (offset - begin, len);
        self.pieces[first..].iter().map_while(move |piece| {
            let take = left.min(piece.len() - skip);
            let part = (take > 0).then(|| piece.part(skip, take))?;
            (skip, left) = (0, left - take);
            part
        })
    }
}

impl DeviceMemory for Pieces {
    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn address(&self) -> NonNull<u8> {
        NonNull::dangling()
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let mut rest = into;
        for part in self.parts(offset, rest.len()) {
            let (now, later) = rest.split_at_mut(part.len());
            part.read(0, now);
            rest = later;
        }
    }

    fn write(&self, offset: usize, from: &[u8]) {
        let mut rest = from;
        for part in self.parts(offset, rest.len()) {
            let (now, later) = rest.split_at(part.len());
            part.write(0, now);
            rest = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Region};
    use crate::{AtomicOp, AtomicType, OpErrorKind, Slice};

    /// Pieces of these lengths, each from the middle of memory of its own.
    fn pieces(lens: &[usize]) -> (Vec<Region>, Region) {
        let memory: Vec<_> = lens.iter().map(|len| Region::zeroed(len + 16)).collect();
        let middle = |region: &Region, len: &usize| region.slice(8, *len).unwrap();
        let pieces = memory.iter().zip(lens).map(|(region, len)| middle(region, len));
        let region = Region::of_pieces(pieces);
        (memory, region)
    }

    #[test]
    fn pieces_overlap_where_they_lie() {
        let (memory, region) = pieces(&[5, 1, 64]);
        let of = |piece: usize, offset, len| memory[piece].slice(offset, len).unwrap();
        for (part, whole, there) in [((0, 70), (0, 13), true), ((5, 1), (1, 9), true)] {
            let part = region.slice(part.0, part.1).unwrap();
            let beside = of(whole.0, 0, 8);
            assert_eq!(part.overlaps(&of(whole.0, 0, whole.1)), there);
            assert!(memory[whole.0].whole().overlaps(&part) && !beside.overlaps(&part));
        }
        let second = region.slice(5, 1).unwrap();
        assert!(!second.overlaps(&memory[0].whole()) && !memory[2].whole().overlaps(&second));
        assert!(
            second.overlaps(&region.whole()) && !second.overlaps(&region.slice(6, 64).unwrap())
        );
    }

    #[test]
    fn one_space_of_offsets() {
        let lens = [5, 0, 1, 70_000, 3, 64];
        let (memory, region) = pieces(&lens);
        let total = lens.iter().sum();
        assert_eq!((region.len(), region.kind()), (total, Kind::Pieces));
        assert!(region.is_writable() && region.host_ptr().is_none());
        let bytes: Vec<u8> = (0..total).map(|at| (at / 5 + 1) as u8).collect();
        region.write(0, &bytes);
        assert!(region.to_vec() == bytes);
        let mut at = 0;
        for (memory, len) in memory.iter().zip(lens) {
            let all = memory.to_vec();
            assert!(all[8..8 + len] == bytes[at..at + len], "{len} bytes at {at}");
            assert!(all[..8].iter().chain(&all[8 + len..]).all(|byte| *byte == 0));
            at += len;
        }
        for (offset, len) in [(0, 0), (4, 3), (5, 1), (3, 70_010), (total - 1, 1), (total, 0)] {
            let part = region.slice(offset, len).unwrap();
            assert!(part.to_vec() == bytes[offset..offset + len], "{len} bytes from {offset}");
            let parts: Vec<u8> = part.pieces().unwrap().flat_map(|part| part.to_vec()).collect();
            assert!(parts == bytes[offset..offset + len]);
        }
        assert!(region.slice(total, 1).is_none());
        let host = Region::zeroed(total).whole();
        assert_eq!(region.whole().stream_to(&host), total);
        assert!(host.to_vec() == bytes);
        // Pieces of pieces are those pieces.
        let again = Region::of_pieces([region.slice(4, 8).unwrap(), host.part(0, 2).unwrap()]);
        assert_eq!(again.whole().pieces().unwrap().count(), 4);
        assert_eq!(again.to_vec(), [&bytes[4..12], &bytes[..2]].concat());
        assert!(Region::of_pieces([]).is_empty() && again.into_exclusive().is_err());
    }

    #[test]
    fn atomics_on_what_lies_in_one_piece() {
        let (memory, region) = pieces(&[16, 12, 8, 4]);
        let add = |slice: &Slice, at: usize, count: usize| {
            let ones: Vec<u8> = (0..count).flat_map(|_| 1u64.to_le_bytes()).collect();
            slice.atomic(at, AtomicOp::Sum, AtomicType::U64, &ones, &[])
        };
        let whole = region.whole();
        assert_eq!(add(&whole, 8, 2).unwrap().len(), 16, "on both sides of a boundary");
        assert_eq!(memory[0].to_vec()[16..24], 1u64.to_le_bytes());
        assert_eq!(memory[1].to_vec()[8..16], 1u64.to_le_bytes());
        let before = region.to_vec();
        // Across a boundary, and where the piece is not aligned.
        for at in [24, 32] {
            assert!(matches!(add(&whole, at, 1), Err(OpErrorKind::Misaligned { .. })), "at {at}");
        }
        assert!(matches!(add(&whole, 16, 2), Err(OpErrorKind::Misaligned { .. })));
        assert_eq!(region.to_vec(), before, "nothing was changed by what was refused");
        let fixed = Region::view(&Region::zeroed(8).whole()).unwrap().whole();
        let mixed = Region::of_pieces([memory[0].slice(8, 8).unwrap(), fixed]);
        assert!(!mixed.is_writable());
        assert!(matches!(add(&mixed.whole(), 0, 1), Err(OpErrorKind::Unsupported(_))));
    }
}
