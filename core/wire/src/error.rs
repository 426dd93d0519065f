//! What can be wrong with bytes from outside.

/// Why bytes are not the value that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// More bytes were wanted than there are. For a count of elements: at least so many.
    #[error("{wanted} bytes were wanted, {left} are left")]
    Short {
        /// Bytes wanted.
        wanted: u64,
        /// Bytes left.
        left: u64,
    },
    /// The value ended before the bytes did.
    #[error("{0} bytes are left over")]
    Trailing(usize),
    /// It would take more memory than allowed.
    #[error("decoding needs {wanted} bytes of memory, {left} are allowed")]
    Memory {
        /// Bytes of memory wanted.
        wanted: u64,
        /// Bytes of memory still allowed.
        left: u64,
    },
    /// Vectors, boxes and maps in each other, deeper than [`Limits::depth`](crate::Limits::depth).
    #[error("nested deeper than allowed")]
    TooDeep,
    /// A number that the type does not have.
    #[error("{value} is no {what}")]
    BadValue {
        /// What it should have been.
        what: &'static str,
        /// What it was.
        value: u64,
    },
    /// A map or a set that has a key twice.
    #[error("a key comes twice")]
    DuplicateKey,
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// Padding that is not zero.
    #[error("padding is not zero")]
    BadPadding,
}
