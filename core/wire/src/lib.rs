//! Encoding of values, and decoding of bytes from outside, checked and bounded.
//!
//! One trait, [`Wire`], serves two encodings:
//!
//! * **native**: little-endian, packed, no padding; on the usual machines plain copies.
//! * **XDR** (RFC 4506): big-endian, units of four bytes, for programs that speak XDR.
//!
//! `#[derive(Wire)]` (from `petasos-macros`, or the crate `petasos`) implements it for structures
//! and enums.
//!
//! ```
//! use petasos_macros::Wire;
//! use petasos_wire::{Encoding, from_bytes, to_vec};
//!
//! #[derive(Wire, Debug, PartialEq)]
//! struct Particle { id: u64, at: [f64; 3], name: Option<String> }
//!
//! let particle = Particle { id: 7, at: [0.0, 1.0, 2.0], name: Some("muon".into()) };
//! let bytes = to_vec(Encoding::Xdr, &particle);
//! assert_eq!(from_bytes::<Particle>(Encoding::Xdr, &bytes)?, particle);
//! # Ok::<(), petasos_wire::DecodeError>(())
//! ```
//!
//! Bytes from outside are hostile. Decoding never panics, checks padding, UTF-8, ranges and
//! duplicate keys, and refuses bytes left over. A count of elements is checked before anything is
//! allocated for them: there must be a byte left for each (elements of no size excepted), and
//! their memory is taken off an allowance, the [`Limits`] of the whole decode. By default that is
//! 64 bytes for a byte of input and 64 KiB, and 64 levels of vectors, boxes and maps in each other.
//!
//! [`Wire::SHAPE`] is a hash of a type's structure, by which two programs notice that they mean
//! different things by one name.

#![forbid(unsafe_code)]

mod checksum;
mod collections;
mod decoder;
mod encoder;
mod error;
mod maps;
mod scalars;
mod shape;
mod text;

pub mod portals;
pub mod rpc;

pub use checksum::checksum;
pub use decoder::{Decoder, Limits};
pub use encoder::Encoder;
pub use error::DecodeError;
pub use shape::{hash_name, shape_join};

/// A value that can be encoded and decoded.
///
/// A type that is not zero-sized takes at least one byte: counts are checked by that.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel: it is not `Wire`",
    label = "not a type that travels",
    note = "put `#[derive(Wire)]` on a structure or an enum of your own (`use petasos::Wire`)",
    note = "of other types those travel that `petasos::wire` lists: numbers, `bool`, `char`, `String`, \
            `Vec<T>`, `[T; N]`, `Option<T>`, `Result<T, E>`, maps, tuples, `Box<T>`; what does not (a \
            `PathBuf`, an `Instant`, a reference) goes as one of these",
    note = "large data is better lent than sent: `#[bulk(pull)]`, `#[bulk(push)]`, or a `BulkHandle`"
)]
pub trait Wire: Sized {
    /// A hash of the type's structure: field names, variant names, types, in order.
    const SHAPE: u64;

    /// Appends the value.
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>);

    /// As [`Wire::encode`], but for long bytes at the end, which it gives instead: what was
    /// appended, followed by them, is the value. So tens of kilobytes need not be copied before
    /// they are sent.
    #[inline]
    fn encode_head<'v, F: Format>(&'v self, out: &mut Encoder<'_, F>) -> &'v [u8] {
        self.encode(out);
        &[]
    }

    /// Takes a value off the front.
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError>;

    /// About how many bytes [`Wire::encode`] will append: only to reserve room for them.
    #[inline]
    fn encoded_len_hint(&self) -> usize {
        size_of::<Self>()
    }

    /// Appends many values, without their count. Plain numbers do it as one copy.
    #[doc(hidden)]
    #[inline]
    fn encode_all<F: Format>(values: &[Self], out: &mut Encoder<'_, F>) {
        for value in values {
            value.encode(out);
        }
    }

    /// What [`Wire::encode_all`] would append, if that lies in memory as it is.
    #[doc(hidden)]
    #[inline]
    fn encoded<F: Format>(values: &[Self]) -> Option<&[u8]> {
        let _ = values;
        None
    }

    /// Takes `count` values off the front, a count that is not checked yet.
    #[doc(hidden)]
    #[inline]
    fn decode_all<F: Format>(
        count: usize,
        from: &mut Decoder<'_, F>,
    ) -> Result<Vec<Self>, DecodeError> {
        from.expect_elements::<Self>(count)?;
        from.charge(count, size_of::<Self>())?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(Self::decode(from)?);
        }
        Ok(values)
    }

    /// Takes `N` values off the front, without a detour over the heap.
    #[doc(hidden)]
    #[inline]
    fn decode_array<const N: usize, F: Format>(
        from: &mut Decoder<'_, F>,
    ) -> Result<[Self; N], DecodeError> {
        from.expect_elements::<Self>(N)?;
        let mut failed = None;
        let values: [Option<Self>; N] = std::array::from_fn(|_| match failed {
            None => Self::decode(from).map_err(|error| failed = Some(error)).ok(),
            Some(_) => None,
        });
        match failed {
            None => Ok(values.map(|value| value.expect("nothing failed"))),
            Some(error) => Err(error),
        }
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
///
/// # Panics
/// If a sequence or text in it has more than 2^32 - 1 elements or bytes: see [`Encoder::count`].
#[must_use]
pub fn to_vec<T: Wire>(encoding: Encoding, value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(encoding, value, &mut out);
    out
}

/// Appends the value to `out`, after what is there already, such as a header.
///
/// # Panics
/// As [`to_vec`].
#[inline]
pub fn encode_into<T: Wire>(encoding: Encoding, value: &T, out: &mut Vec<u8>) {
    out.reserve(value.encoded_len_hint());
    match encoding {
        Encoding::Native => value.encode(&mut Encoder::<Native>::new(out)),
        Encoding::Xdr => value.encode(&mut Encoder::<Xdr>::new(out)),
    }
}

/// As [`encode_into`], but for long bytes at the end of the value, which it gives instead: see
/// [`Wire::encode_head`].
///
/// # Panics
/// As [`to_vec`].
#[inline]
pub fn encode_header_into<'v, T: Wire>(
    encoding: Encoding,
    value: &'v T,
    out: &mut Vec<u8>,
) -> &'v [u8] {
    out.reserve(value.encoded_len_hint().min(LONG));
    match encoding {
        Encoding::Native => value.encode_head(&mut Encoder::<Native>::new(out)),
        Encoding::Xdr => value.encode_head(&mut Encoder::<Xdr>::new(out)),
    }
}

/// Bytes at the end of a value that are worth a piece of their own: to copy fewer takes less than
/// 200 ns.
pub const LONG: usize = 16 << 10;

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
