//! Atomic operations on a region's memory: what the owner, or a peer that mapped it, executes.

use super::Slice;
use crate::{AtomicOp, AtomicType, OpErrorKind};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

impl Slice {
    /// Applies `op` atomically to each element from `offset` on, and gives the old values.
    ///
    /// `operand` (and `compare`, for `CompareSwap`) hold whole elements, little-endian. Checks
    /// bounds, alignment, lengths and that bitwise operations are on integers; on an error nothing
    /// has changed. Elements are atomic one by one, not together.
    ///
    /// # Errors
    /// [`OpErrorKind::OutOfBounds`], [`OpErrorKind::Misaligned`], [`OpErrorKind::LengthMismatch`],
    /// or [`OpErrorKind::Unsupported`] for a bitwise operation on floating-point numbers and for
    /// memory that is read-only.
    pub fn atomic(
        &self,
        offset: usize,
        op: AtomicOp,
        kind: AtomicType,
        operand: &[u8],
        compare: &[u8],
    ) -> Result<SmallVec<[u8; 16]>, OpErrorKind> {
        let size = kind.size();
        let compares = op == AtomicOp::CompareSwap;
        if operand.is_empty()
            || !operand.len().is_multiple_of(size)
            || (compares && compare.len() != operand.len())
        {
            return Err(OpErrorKind::LengthMismatch {
                local: operand.len() as u64,
                remote: if compares { compare.len() } else { size } as u64,
            });
        }
        let bitwise = matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor);
        if bitwise && matches!(kind, AtomicType::F32 | AtomicType::F64) {
            return Err(OpErrorKind::Unsupported("bitwise atomics on floating point"));
        }
        let Some(target) = self.part(offset, operand.len()) else {
            let (offset, len) = (offset as u64, operand.len() as u64);
            return Err(OpErrorKind::OutOfBounds { offset, len, bound: self.len() as u64 });
        };
        if target.pieces().is_some() {
            return target.atomic_by_pieces(offset, op, kind, operand, compare);
        }
        let Some(base) = target.host_ptr() else {
            return Err(OpErrorKind::Unsupported("atomics on memory of a device"));
        };
        let base = base.as_ptr();
        if !(base as usize).is_multiple_of(size) {
            return Err(OpErrorKind::Misaligned { offset: offset as u64, align: size });
        }
        if !target.is_writable() {
            return Err(OpErrorKind::Unsupported("atomics on read-only memory"));
        }
        let mut old = SmallVec::with_capacity(operand.len());
        for at in (0..operand.len()).step_by(size) {
            let with = load(&operand[at..at + size]);
            let expected = if compares { load(&compare[at..at + size]) } else { 0 };
            // SAFETY: `at + size <= operand.len()`, the length of `target`, whose memory is mapped
            // and writable while `target` lives; its base is aligned to `size`, and `at` is a
            // multiple of it. There are no references to it.
            let was = unsafe { apply(base.add(at), op, kind, with, expected) };
            old.extend_from_slice(&was.to_le_bytes()[..size]);
        }
        Ok(old)
    }

    /// The same on several pieces, each of which has whole elements. What is refused because of one
    /// changes none.
    #[cold]
    fn atomic_by_pieces(
        &self,
        offset: usize,
        op: AtomicOp,
        kind: AtomicType,
        operand: &[u8],
        compare: &[u8],
    ) -> Result<SmallVec<[u8; 16]>, OpErrorKind> {
        let size = kind.size();
        let pieces: SmallVec<[Slice; 4]> = self.pieces().into_iter().flatten().collect();
        for piece in &pieces {
            let Some(base) = piece.host_ptr() else {
                return Err(OpErrorKind::Unsupported("atomics on memory of a device"));
            };
            if !base.addr().get().is_multiple_of(size) || !piece.len().is_multiple_of(size) {
                return Err(OpErrorKind::Misaligned { offset: offset as u64, align: size });
            }
        }
        if !self.is_writable() {
            return Err(OpErrorKind::Unsupported("atomics on read-only memory"));
        }
        let (mut old, mut at) = (SmallVec::with_capacity(operand.len()), 0);
        for piece in pieces {
            let end = at + piece.len();
            let compare = if compare.is_empty() { compare } else { &compare[at..end] };
            old.extend_from_slice(&piece.atomic(0, op, kind, &operand[at..end], compare)?);
            at = end;
        }
        Ok(old)
    }
}

fn load(element: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    u64::from_le_bytes(bytes)
}

/// Applies `op` at `at` and gives the old value, zero-extended.
///
/// # Safety
/// `at` must be valid for atomic reads and writes of `kind.size()` bytes, and aligned to them.
unsafe fn apply(at: *mut u8, op: AtomicOp, kind: AtomicType, with: u64, expected: u64) -> u64 {
    macro_rules! exchange {
        ($atomic:ty, $int:ty) => {{
            // SAFETY: the caller's promise; accesses of other sizes by other processes are outside
            // of the language.
            let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
            let mut old = cell.load(SeqCst);
            loop {
                let Some(new) = combine(op, kind, u64::from(old), with, expected) else {
                    break u64::from(old);
                };
                match cell.compare_exchange_weak(old, new as $int, SeqCst, SeqCst) {
                    Ok(_) => break u64::from(old),
                    Err(now) => old = now,
                }
            }
        }};
    }
    match kind.size() {
        1 => exchange!(AtomicU8, u8),
        2 => exchange!(AtomicU16, u16),
        4 => exchange!(AtomicU32, u32),
        _ => exchange!(AtomicU64, u64),
    }
}

/// The new value; `None` if the old one stays.
fn combine(op: AtomicOp, kind: AtomicType, old: u64, with: u64, expected: u64) -> Option<u64> {
    match op {
        AtomicOp::Read => return None,
        AtomicOp::Swap => return Some(with),
        AtomicOp::CompareSwap => return (old == expected).then_some(with),
        AtomicOp::And => return Some(old & with),
        AtomicOp::Or => return Some(old | with),
        AtomicOp::Xor => return Some(old ^ with),
        _ => {}
    }
    macro_rules! number {
        ($t:ty, $from:expr, $to:expr, $add:expr, $mul:expr) => {{
            let (a, b): ($t, $t) = ($from(old), $from(with));
            let zero = <$t>::default();
            let truth = |t: bool| if t { 1u8 as $t } else { zero };
            $to(match op {
                AtomicOp::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                AtomicOp::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
                AtomicOp::Sum => $add(a, b),
                AtomicOp::Product => $mul(a, b),
                AtomicOp::LogicalAnd => truth(a != zero && b != zero),
                AtomicOp::LogicalOr => truth(a != zero || b != zero),
                _ => truth((a != zero) != (b != zero)),
            })
        }};
    }
    macro_rules! integer {
        ($t:ty) => {
            number!($t, |x| x as $t, |x: $t| x as u64, <$t>::wrapping_add, <$t>::wrapping_mul)
        };
    }
    use std::ops::{Add, Mul};
    Some(match kind {
        AtomicType::I8 => integer!(i8),
        AtomicType::U8 => integer!(u8),
        AtomicType::I16 => integer!(i16),
        AtomicType::U16 => integer!(u16),
        AtomicType::I32 => integer!(i32),
        AtomicType::U32 => integer!(u32),
        AtomicType::I64 => integer!(i64),
        AtomicType::U64 => integer!(u64),
        AtomicType::F32 => number!(
            f32,
            |x| f32::from_bits(x as u32),
            |x: f32| u64::from(x.to_bits()),
            f32::add,
            f32::mul
        ),
        AtomicType::F64 => number!(f64, f64::from_bits, f64::to_bits, f64::add, f64::mul),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn sums_and_swaps() {
        let memory = Region::zeroed(64).whole();
        let add = |v: i32| {
            memory.atomic(4, AtomicOp::Sum, AtomicType::I32, &v.to_le_bytes(), &[]).unwrap()
        };
        assert_eq!(&add(-5)[..], 0i32.to_le_bytes());
        assert_eq!(&add(2)[..], (-5i32).to_le_bytes());
        let swap = |expected: i32, new: i32| {
            let (kind, op) = (AtomicType::I32, AtomicOp::CompareSwap);
            memory.atomic(4, op, kind, &new.to_le_bytes(), &expected.to_le_bytes()).unwrap()
        };
        assert_eq!(&swap(7, 1)[..], (-3i32).to_le_bytes());
        assert_eq!(&swap(-3, 1)[..], (-3i32).to_le_bytes());
        assert_eq!(&add(0)[..], 1i32.to_le_bytes());
    }

    #[test]
    fn floats_and_minima() {
        let memory = Region::zeroed(64).whole();
        let apply = |op, v: f64| {
            let old = memory.atomic(8, op, AtomicType::F64, &v.to_le_bytes(), &[]).unwrap();
            f64::from_le_bytes(old[..].try_into().unwrap())
        };
        apply(AtomicOp::Sum, 1.5);
        apply(AtomicOp::Product, 4.0);
        assert_eq!(apply(AtomicOp::Min, 2.5), 6.0);
        assert_eq!(apply(AtomicOp::LogicalXor, 1.0), 2.5);
        assert_eq!(apply(AtomicOp::Read, 0.0), 0.0);
    }

    #[test]
    fn what_is_refused() {
        let memory = Region::zeroed(16).whole();
        let op = |offset, kind, bytes: &[u8]| {
            memory.atomic(offset, AtomicOp::And, kind, bytes, &[]).is_err()
        };
        assert!(op(4, AtomicType::U64, &[0; 8]), "misaligned");
        assert!(op(16, AtomicType::U64, &[0; 8]), "beyond the end");
        assert!(op(usize::MAX, AtomicType::U64, &[0; 8]), "overflow");
        assert!(op(0, AtomicType::U64, &[0; 7]), "not whole elements");
        assert!(op(0, AtomicType::F64, &[0; 8]), "bitwise on floats");
        assert!(!op(0, AtomicType::U32, &[0; 16]), "four elements are fine");
    }
}
