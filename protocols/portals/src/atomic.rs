//! Atomic operations: the operators and types of Portals, in terms of those of the fabric.
//!
//! An element of up to eight bytes that is aligned to its size is changed by the processor's own
//! atomic instructions. Other elements (a complex number of doubles, or memory that is not aligned)
//! are changed by copies: atomically as far as operations of the same interface go, which come one
//! after the other.

use petasos_fabric::{AtomicOp, AtomicType, Region, Slice};
use smallvec::SmallVec;

/// What the target's element becomes in an atomic operation or a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operator {
    /// The smaller.
    Min = 0,
    /// The larger.
    Max = 1,
    /// Their sum, wrapping.
    Sum = 2,
    /// Their product, wrapping.
    Product = 3,
    /// 1 if one is not zero.
    LogicalOr = 4,
    /// 1 if both are not zero.
    LogicalAnd = 5,
    /// Bitwise or; integers only, like all bitwise ones.
    BitOr = 6,
    /// Bitwise and.
    BitAnd = 7,
    /// 1 if exactly one is not zero.
    LogicalXor = 8,
    /// Bitwise exclusive or.
    BitXor = 9,
    /// The initiator's.
    Swap = 10,
    /// The initiator's, if the operand equals the target's; one element, like those below.
    CompareSwap = 11,
    /// The same if they differ.
    SwapIfNotEqual = 12,
    /// The same if the operand is less than the target's, or equal.
    SwapIfLessEqual = 13,
    /// The same if the operand is less.
    SwapIfLess = 14,
    /// The same if the operand is greater or equal.
    SwapIfGreaterEqual = 15,
    /// The same if the operand is greater.
    SwapIfGreater = 16,
    /// The bits that are set in the operand come from the initiator's; integers only.
    MaskedSwap = 17,
}

/// The type of elements. Long double differs between machines, and is refused:
/// [`Datatype::from_u8`] does not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "named by what they are")]
pub enum Datatype {
    I8 = 0,
    U8 = 1,
    I16 = 2,
    U16 = 3,
    I32 = 4,
    U32 = 5,
    I64 = 6,
    U64 = 7,
    F32 = 8,
    F64 = 9,
    /// A complex number: two singles.
    C32 = 10,
    /// A complex number: two doubles.
    C64 = 11,
}

impl Operator {
    /// The operator with this number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Operator> {
        use Operator::*;
        const ALL: [Operator; 18] = [
            Min,
            Max,
            Sum,
            Product,
            LogicalOr,
            LogicalAnd,
            BitOr,
            BitAnd,
            LogicalXor,
            BitXor,
            Swap,
            CompareSwap,
            SwapIfNotEqual,
            SwapIfLessEqual,
            SwapIfLess,
            SwapIfGreaterEqual,
            SwapIfGreater,
            MaskedSwap,
        ];
        ALL.get(usize::from(number)).copied()
    }

    /// Whether it is one of the eight swaps.
    #[must_use]
    pub fn is_swap(self) -> bool {
        self as u8 >= Operator::Swap as u8
    }

    /// Whether it takes an operand beside the data.
    #[must_use]
    pub fn has_operand(self) -> bool {
        self as u8 > Operator::Swap as u8
    }

    /// Whether it is defined for elements of a type.
    #[must_use]
    pub fn is_for(self, kind: Datatype) -> bool {
        use Operator::*;
        let complex = matches!(kind, Datatype::C32 | Datatype::C64);
        let integer = (kind as u8) < Datatype::F32 as u8;
        match self {
            Sum | Product | Swap | CompareSwap | SwapIfNotEqual => true,
            LogicalOr | LogicalAnd | LogicalXor | Min | Max => !complex,
            SwapIfLessEqual | SwapIfLess | SwapIfGreaterEqual | SwapIfGreater => !complex,
            BitOr | BitAnd | BitXor | MaskedSwap => integer,
        }
    }
}

impl Datatype {
    /// The type with this number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Datatype> {
        use Datatype::*;
        const ALL: [Datatype; 12] = [I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, C32, C64];
        ALL.get(usize::from(number)).copied()
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Datatype::C32 => 8,
            Datatype::C64 => 16,
            real => real.real().size(),
        }
    }

    /// The fabric's name for it, or for its parts.
    fn real(self) -> AtomicType {
        match self {
            Datatype::C32 => AtomicType::F32,
            Datatype::C64 => AtomicType::F64,
            real => AtomicType::from_u8(real as u8).expect("the same numbers"),
        }
    }
}

/// The operation makes no sense: elements are cut short, or the operator is not defined for the
/// type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicFailure;

/// Applies an operator to each element of `memory`, and gives the old values.
pub(crate) fn apply(
    memory: &Slice,
    operator: Operator,
    kind: Datatype,
    data: &[u8],
    operand: &[u8],
) -> Result<SmallVec<[u8; 16]>, AtomicFailure> {
    let size = kind.size();
    let fits = data.len() == memory.len() && data.len().is_multiple_of(size);
    if !fits || !operator.is_for(kind) || (operator.has_operand() && operand.len() < size) {
        return Err(AtomicFailure);
    }
    if data.is_empty() {
        return Ok(SmallVec::new());
    }
    let aligned = memory.host_ptr().is_some_and(|at| at.addr().get().is_multiple_of(size));
    if size > 8 || !aligned {
        return by_copy(memory, operator, kind, data, operand);
    }
    if let Some(native) = native(operator, kind) {
        return memory
            .atomic(0, native, kind.real(), data, &operand[..compared(native, size)])
            .map_err(|_| AtomicFailure);
    }
    // The fabric does not have this operation: it is computed here, and swapped in if the element
    // has not changed meanwhile.
    let word = match size {
        1 => AtomicType::U8,
        2 => AtomicType::U16,
        4 => AtomicType::U32,
        _ => AtomicType::U64,
    };
    let mut old = SmallVec::new();
    for at in (0..data.len()).step_by(size) {
        let with = &data[at..at + size];
        let refused = |_| AtomicFailure;
        let mut before = memory.atomic(at, AtomicOp::Read, word, with, &[]).map_err(refused)?;
        loop {
            let Some(after) = combine(operator, kind, &before, with, operand) else { break };
            let found = memory.atomic(at, AtomicOp::CompareSwap, word, &after, &before);
            let found = found.map_err(refused)?;
            if found == before {
                break;
            }
            before = found;
        }
        old.extend_from_slice(&before);
    }
    Ok(old)
}

fn compared(op: AtomicOp, size: usize) -> usize {
    if op == AtomicOp::CompareSwap { size } else { 0 }
}

/// The fabric's own operation, if it is the same.
fn native(operator: Operator, kind: Datatype) -> Option<AtomicOp> {
    if matches!(kind, Datatype::C32 | Datatype::C64) {
        return None;
    }
    let real = matches!(kind, Datatype::F32 | Datatype::F64);
    Some(match operator {
        Operator::Min => AtomicOp::Min,
        Operator::Max => AtomicOp::Max,
        Operator::Sum => AtomicOp::Sum,
        Operator::Product => AtomicOp::Product,
        Operator::LogicalOr => AtomicOp::LogicalOr,
        Operator::LogicalAnd => AtomicOp::LogicalAnd,
        Operator::LogicalXor => AtomicOp::LogicalXor,
        Operator::BitOr => AtomicOp::Or,
        Operator::BitAnd => AtomicOp::And,
        Operator::BitXor => AtomicOp::Xor,
        Operator::Swap => AtomicOp::Swap,
        // Numbers that are equal may have different bits.
        Operator::CompareSwap if !real => AtomicOp::CompareSwap,
        _ => return None,
    })
}

/// The same on copies.
fn by_copy(
    memory: &Slice,
    operator: Operator,
    kind: Datatype,
    data: &[u8],
    operand: &[u8],
) -> Result<SmallVec<[u8; 16]>, AtomicFailure> {
    let size = kind.size();
    let mut old = SmallVec::<[u8; 16]>::from_elem(0, data.len());
    memory.read(0, &mut old);
    if size <= 8 {
        let aligned = Region::zeroed(data.len()).whole();
        aligned.write(0, &old);
        apply(&aligned, operator, kind, data, operand)?;
        memory.write(0, &aligned.to_vec());
        return Ok(old);
    }
    for at in (0..data.len()).step_by(size) {
        let part = at..at + size;
        if let Some(new) = combine(operator, kind, &old[part.clone()], &data[part], operand) {
            memory.write(at, &new);
        }
    }
    Ok(old)
}

/// The new value of an element; `None` if the old one stays. For operations that the fabric does
/// not have.
fn combine(
    operator: Operator,
    kind: Datatype,
    old: &[u8],
    with: &[u8],
    operand: &[u8],
) -> Option<SmallVec<[u8; 16]>> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = || compare(kind, operand, old);
    let swaps = match operator {
        Operator::Swap => true,
        Operator::CompareSwap => order() == Some(Equal),
        Operator::SwapIfNotEqual => order() != Some(Equal),
        Operator::SwapIfLessEqual => matches!(order(), Some(Less | Equal)),
        Operator::SwapIfLess => order() == Some(Less),
        Operator::SwapIfGreaterEqual => matches!(order(), Some(Greater | Equal)),
        Operator::SwapIfGreater => order() == Some(Greater),
        Operator::MaskedSwap => {
            let masked = old.iter().zip(with).zip(operand);
            return Some(masked.map(|((old, new), mask)| (new & mask) | (old & !mask)).collect());
        }
        _ => return Some(complex(operator, kind, old, with)),
    };
    swaps.then(|| with.into())
}

/// Compares the operand with the target's element.
fn compare(kind: Datatype, operand: &[u8], old: &[u8]) -> Option<std::cmp::Ordering> {
    macro_rules! numbers {
        ($t:ty) => {{
            let number =
                |bytes: &[u8]| bytes.first_chunk().map(|chunk| <$t>::from_le_bytes(*chunk));
            number(operand)?.partial_cmp(&number(old)?)
        }};
    }
    match kind {
        Datatype::I8 => numbers!(i8),
        Datatype::U8 => numbers!(u8),
        Datatype::I16 => numbers!(i16),
        Datatype::U16 => numbers!(u16),
        Datatype::I32 => numbers!(i32),
        Datatype::U32 => numbers!(u32),
        Datatype::I64 => numbers!(i64),
        Datatype::U64 => numbers!(u64),
        Datatype::F32 => numbers!(f32),
        Datatype::F64 => numbers!(f64),
        Datatype::C32 | Datatype::C64 => {
            let half = kind.size() / 2;
            let part = if kind == Datatype::C32 { Datatype::F32 } else { Datatype::F64 };
            let real = compare(part, &operand[..half], &old[..half])?;
            let imaginary = compare(part, &operand[half..], &old[half..])?;
            Some(real.then(imaginary))
        }
    }
}

/// Sums and products of complex numbers.
fn complex(operator: Operator, kind: Datatype, old: &[u8], with: &[u8]) -> SmallVec<[u8; 16]> {
    macro_rules! numbers {
        ($t:ty, $half:literal) => {{
            let number = |bytes: &[u8]| {
                let part = |at: usize| {
                    bytes[at..].first_chunk().map_or(0.0, |chunk| <$t>::from_le_bytes(*chunk))
                };
                (part(0), part($half))
            };
            let ((a, b), (c, d)) = (number(old), number(with));
            let (real, imaginary) = match operator {
                Operator::Sum => (a + c, b + d),
                _ => (a * c - b * d, a * d + b * c),
            };
            real.to_le_bytes().into_iter().chain(imaginary.to_le_bytes()).collect()
        }};
    }
    match kind {
        Datatype::C32 => numbers!(f32, 4),
        _ => numbers!(f64, 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(
        memory: &Slice,
        op: Operator,
        kind: Datatype,
        data: &[u8],
        operand: &[u8],
    ) -> Vec<u8> {
        let part = memory.part(0, data.len()).unwrap();
        apply(&part, op, kind, data, operand).unwrap().to_vec()
    }

    #[test]
    fn the_swaps_compare_the_operand_with_the_target() {
        use Operator::*;
        for (op, takes) in [
            (CompareSwap, [false, true, false]),
            (SwapIfNotEqual, [true, false, true]),
            (SwapIfLessEqual, [true, true, false]),
            (SwapIfLess, [true, false, false]),
            (SwapIfGreaterEqual, [false, true, true]),
            (SwapIfGreater, [false, false, true]),
        ] {
            for offset in [0, 1] {
                for (operand, takes) in [-3_i32, 5, 8].into_iter().zip(takes) {
                    let memory = Region::zeroed(8);
                    memory.write(offset, &5_i32.to_le_bytes());
                    let at = memory.slice(offset, 4).unwrap();
                    let (new, kind) = (9_i32.to_le_bytes(), Datatype::I32);
                    let old = change(&at, op, kind, &new, &operand.to_le_bytes());
                    assert_eq!(old, 5_i32.to_le_bytes());
                    let now = if takes { 9_i32 } else { 5 };
                    assert_eq!(at.to_vec(), now.to_le_bytes(), "{op:?} {operand} at {offset}");
                }
            }
        }
        let memory = Region::from_vec(vec![0b1010, 0, 0, 0]).whole();
        change(&memory, MaskedSwap, Datatype::U32, &0b0101_u32.to_le_bytes(), &3_u32.to_le_bytes());
        assert_eq!(memory.to_vec()[0], 0b1001);
    }

    #[test]
    fn complex_numbers() {
        let pair = |a: f64, b: f64| [a.to_le_bytes(), b.to_le_bytes()].concat();
        let memory = Region::from_vec(pair(1.0, 2.0)).whole();
        assert_eq!(
            change(&memory, Operator::Product, Datatype::C64, &pair(3.0, -1.0), &[]),
            pair(1.0, 2.0)
        );
        assert_eq!(memory.to_vec(), pair(5.0, 5.0));
        change(&memory, Operator::Sum, Datatype::C64, &pair(-5.0, 1.0), &[]);
        assert_eq!(memory.to_vec(), pair(0.0, 6.0));
        change(&memory, Operator::CompareSwap, Datatype::C64, &pair(7.0, 7.0), &pair(-0.0, 6.0));
        assert_eq!(memory.to_vec(), pair(7.0, 7.0));
        let single = |a: f32, b: f32| [a.to_le_bytes(), b.to_le_bytes()].concat();
        let memory = Region::from_vec([single(1.0, 1.0), single(0.0, 1.0)].concat()).whole();
        change(
            &memory,
            Operator::Product,
            Datatype::C32,
            &[single(0.0, 1.0), single(0.0, 1.0)].concat(),
            &[],
        );
        assert_eq!(memory.to_vec(), [single(-1.0, 1.0), single(-1.0, 0.0)].concat());
    }

    #[test]
    fn every_operator_on_every_type_it_has_and_no_other() {
        for op in (0..18).map(|n| Operator::from_u8(n).unwrap()) {
            for kind in (0..12).map(|n| Datatype::from_u8(n).unwrap()) {
                for shift in [0, 1] {
                    let size = kind.size();
                    let memory = Region::zeroed(2 * size + 1).slice(shift, size).unwrap();
                    let result = apply(&memory, op, kind, &vec![1; size], &vec![0; size]);
                    assert_eq!(result.is_ok(), op.is_for(kind), "{op:?} on {kind:?}");
                    let short = memory.part(0, size - 1).unwrap();
                    assert!(apply(&short, op, kind, &vec![1; size - 1], &[]).is_err() || size == 1);
                }
            }
        }
        assert!(Operator::from_u8(18).is_none() && Datatype::from_u8(12).is_none());
    }
}
