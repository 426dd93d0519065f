//! How values become bytes, and how bytes from outside become values: checked, and bounded.
//!
//! One trait, [`Wire`], serves two encodings:
//!
//! * **native**: little-endian, packed, no padding; on the usual machines plain copies.
//! * **XDR** (RFC 4506): big-endian, units of four bytes, for those who have to talk to it.
//!
//! `#[derive(Wire)]` (from `petasos-macros`, or the face crate) makes structures and enums travel.
//!
//! Bytes from outside are hostile. Decoding never panics, checks every length against what is
//! left before it allocates, checks padding, UTF-8 and ranges, refuses bytes left over, and keeps
//! what it allocates within a [`Limits`]: by default 32 bytes of memory for a byte of input, and
//! 64 levels of nesting.
//!
//! [`Wire::SHAPE`] is a hash of a type's structure, by which two programs notice that they mean
//! different things by one name.

#![forbid(unsafe_code)]

mod checksum;
mod collections;
mod decoder;
mod encoder;
mod error;
mod scalars;
mod shape;
mod text;

pub mod rpc;

pub use checksum::checksum;
pub use decoder::{Decoder, Limits};
pub use encoder::Encoder;
pub use error::DecodeError;
pub use shape::{hash_name, shape_join};

/// A value that can travel.
pub trait Wire: Sized {
    /// A hash of the type's structure: field names, variant names, types, in order.
    const SHAPE: u64;

    /// Appends the value.
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>);

    /// Takes a value off the front.
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError>;

    /// Appends many values, without their count. Types that are plain bytes do better than one by
    /// one.
    fn encode_all<F: Format>(values: &[Self], out: &mut Encoder<'_, F>) {
        for value in values {
            value.encode(out);
        }
    }

    /// Takes `count` values off the front, a count that nobody checked yet.
    fn decode_all<F: Format>(
        count: usize,
        from: &mut Decoder<'_, F>,
    ) -> Result<Vec<Self>, DecodeError> {
        from.charge(count, size_of::<Self>())?;
        let mut values = Vec::with_capacity(count.min(from.remaining().max(64)));
        for _ in 0..count {
            values.push(Self::decode(from)?);
        }
        Ok(values)
    }
}

/// One of the two encodings, as a type: [`Native`] or [`Xdr`].
pub trait Format: sealed::Sealed + 'static {
    /// Whether it is XDR.
    const XDR: bool;
}

/// The native encoding, as a type.
#[derive(Clone, Copy, Debug)]
pub struct Native;
/// XDR, as a type.
#[derive(Clone, Copy, Debug)]
pub struct Xdr;

impl Format for Native {
    const XDR: bool = false;
}
impl Format for Xdr {
    const XDR: bool = true;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Native {}
    impl Sealed for super::Xdr {}
}

/// One of the two encodings, as a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Little-endian, packed.
    #[default]
    Native,
    /// RFC 4506.
    Xdr,
}

/// The value as bytes.
#[must_use]
pub fn to_vec<T: Wire>(encoding: Encoding, value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(encoding, value, &mut out);
    out
}

/// Appends the value to `out`.
#[inline]
pub fn encode_into<T: Wire>(encoding: Encoding, value: &T, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Native => value.encode(&mut Encoder::<Native>::new(out)),
        Encoding::Xdr => value.encode(&mut Encoder::<Xdr>::new(out)),
    }
}

/// The value that these bytes, all of them, mean; within the default [`Limits`].
#[inline]
pub fn from_bytes<T: Wire>(encoding: Encoding, bytes: &[u8]) -> Result<T, DecodeError> {
    from_bytes_limited(encoding, bytes, Limits::for_input(bytes.len()))
}

/// The value that these bytes, all of them, mean; within `limits`.
#[inline]
pub fn from_bytes_limited<T: Wire>(
    encoding: Encoding,
    bytes: &[u8],
    limits: Limits,
) -> Result<T, DecodeError> {
    fn all<F: Format, T: Wire>(bytes: &[u8], limits: Limits) -> Result<T, DecodeError> {
        let mut decoder = Decoder::<F>::new(bytes, limits);
        let value = T::decode(&mut decoder)?;
        decoder.finish()?;
        Ok(value)
    }
    match encoding {
        Encoding::Native => all::<Native, T>(bytes, limits),
        Encoding::Xdr => all::<Xdr, T>(bytes, limits),
    }
}
