//! What atomic operations do, and on which types.

/// What an atomic operation does with the old value and the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum AtomicOp {
    /// The smaller.
    Min = 0,
    /// The larger.
    Max = 1,
    /// Their sum, wrapping.
    Sum = 2,
    /// Their product, wrapping.
    Product = 3,
    /// Bitwise and; integers only, like all bitwise ones.
    And = 4,
    /// Bitwise or.
    Or = 5,
    /// Bitwise exclusive or.
    Xor = 6,
    /// 1 if both are not zero.
    LogicalAnd = 7,
    /// 1 if one is not zero.
    LogicalOr = 8,
    /// 1 if exactly one is not zero.
    LogicalXor = 9,
    /// The operand.
    Swap = 10,
    /// The operand, if the old value equals `compare`.
    CompareSwap = 11,
    /// Nothing: reads atomically.
    Read = 12,
}

/// The type of the elements of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum AtomicType {
    /// 8 bits, signed.
    I8 = 0,
    /// 8 bits.
    U8 = 1,
    /// 16 bits, signed.
    I16 = 2,
    /// 16 bits.
    U16 = 3,
    /// 32 bits, signed.
    I32 = 4,
    /// 32 bits.
    U32 = 5,
    /// 64 bits, signed.
    I64 = 6,
    /// 64 bits.
    U64 = 7,
    /// IEEE 754 single.
    F32 = 8,
    /// IEEE 754 double.
    F64 = 9,
}

impl AtomicOp {
    /// The operation with this number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<AtomicOp> {
        use AtomicOp::*;
        const ALL: [AtomicOp; 13] = [
            Min,
            Max,
            Sum,
            Product,
            And,
            Or,
            Xor,
            LogicalAnd,
            LogicalOr,
            LogicalXor,
            Swap,
            CompareSwap,
            Read,
        ];
        ALL.get(usize::from(number)).copied()
    }
}

impl AtomicType {
    /// The type with this number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<AtomicType> {
        use AtomicType::*;
        const ALL: [AtomicType; 10] = [I8, U8, I16, U16, I32, U32, I64, U64, F32, F64];
        ALL.get(usize::from(number)).copied()
    }

    /// Its size and alignment in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        use AtomicType::*;
        match self {
            I8 | U8 => 1,
            I16 | U16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 => 8,
        }
    }
}
