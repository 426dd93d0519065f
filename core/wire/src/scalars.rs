//! Numbers, truth values, units of time.

use crate::{DecodeError, Decoder, Encoder, Format, Limits, Wire, hash_name};
use std::time::Duration;
use zerocopy::IntoBytes;

/// How many numbers are converted at a time, in a buffer that stays in the first-level cache.
const BLOCK: usize = 64;

/// Numbers of 4 and 8 bytes: the same size in both encodings.
macro_rules! word {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            const SHAPE: u64 = hash_name(stringify!($t));

            #[inline]
            fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
                out.raw(&if F::XDR { self.to_be_bytes() } else { self.to_le_bytes() });
            }

            #[inline]
            fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
                let bytes = from.array()?;
                Ok(if F::XDR { <$t>::from_be_bytes(bytes) } else { <$t>::from_le_bytes(bytes) })
            }

            #[inline]
            fn encoded<F: Format>(values: &[Self]) -> Option<&[u8]> {
                (!F::XDR && cfg!(target_endian = "little")).then(|| values.as_bytes())
            }

            fn encode_all<F: Format>(values: &[Self], out: &mut Encoder<'_, F>) {
                if !F::XDR && cfg!(target_endian = "little") {
                    return out.raw(values.as_bytes());
                }
                let mut bytes = [[0; size_of::<$t>()]; BLOCK];
                for block in values.chunks(BLOCK) {
                    for (to, value) in bytes.iter_mut().zip(block) {
                        *to = if F::XDR { value.to_be_bytes() } else { value.to_le_bytes() };
                    }
                    out.raw(bytes[..block.len()].as_flattened());
                }
            }

            fn decode_all<F: Format>(
                count: usize,
                from: &mut Decoder<'_, F>,
            ) -> Result<Vec<Self>, DecodeError> {
                let bytes = from.raw(count.saturating_mul(size_of::<Self>()))?;
                from.charge(count, size_of::<Self>())?;
                let value = |bytes: &[u8; size_of::<$t>()]| {
                    if F::XDR { <$t>::from_be_bytes(*bytes) } else { <$t>::from_le_bytes(*bytes) }
                };
                Ok(bytes.as_chunks().0.iter().map(value).collect())
            }

            #[inline]
            fn decode_array<const N: usize, F: Format>(
                from: &mut Decoder<'_, F>,
            ) -> Result<[Self; N], DecodeError> {
                let bytes = from.raw(N * size_of::<Self>())?;
                let bytes: &[[u8; size_of::<$t>()]; N] =
                    bytes.as_chunks().0.first_chunk().expect("as long as asked for");
                Ok(std::array::from_fn(|at| {
                    if F::XDR { <$t>::from_be_bytes(bytes[at]) } else { <$t>::from_le_bytes(bytes[at]) }
                }))
            }
        }
    )*};
}
word!(u32, i32, u64, i64, f32, f64);

/// Numbers of 1 and 2 bytes, which XDR carries in four.
macro_rules! small {
    ($($t:ty: $wide:ty),*) => {$(
        impl Wire for $t {
            const SHAPE: u64 = hash_name(stringify!($t));

            #[inline]
            fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
                if F::XDR {
                    <$wide>::from(*self).encode(out);
                } else {
                    out.raw(&self.to_le_bytes());
                }
            }

            #[inline]
            fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
                if !F::XDR {
                    return Ok(<$t>::from_le_bytes(from.array()?));
                }
                let wide = <$wide>::decode(from)?;
                let bad = DecodeError::BadValue { what: stringify!($t), value: wide as u64 };
                <$t>::try_from(wide).map_err(|_| bad)
            }

            #[inline]
            fn encoded<F: Format>(values: &[Self]) -> Option<&[u8]> {
                (!F::XDR && cfg!(target_endian = "little")).then(|| values.as_bytes())
            }

            fn encode_all<F: Format>(values: &[Self], out: &mut Encoder<'_, F>) {
                if !F::XDR && cfg!(target_endian = "little") {
                    out.raw(values.as_bytes());
                } else {
                    values.iter().for_each(|value| value.encode(out));
                }
            }

            fn decode_all<F: Format>(
                count: usize,
                from: &mut Decoder<'_, F>,
            ) -> Result<Vec<Self>, DecodeError> {
                let wire = if F::XDR { 4 } else { size_of::<Self>() };
                let bytes = from.raw(count.saturating_mul(wire))?;
                from.charge(count, size_of::<Self>())?;
                if F::XDR {
                    let mut wide = Decoder::<F>::new(bytes, Limits { memory: 0, depth: 0 });
                    let mut values = Vec::with_capacity(count);
                    for _ in 0..count {
                        values.push(<$t>::decode(&mut wide)?);
                    }
                    return Ok(values);
                }
                let values = bytes.as_chunks().0.iter();
                Ok(values.map(|bytes| <$t>::from_le_bytes(*bytes)).collect())
            }
        }
    )*};
}
small!(u16: u32, i8: i32, i16: i32);

/// Bytes: a vector of them is opaque data.
impl Wire for u8 {
    const SHAPE: u64 = hash_name("u8");

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        if F::XDR { out.u32(u32::from(*self)) } else { out.raw(&[*self]) }
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<u8, DecodeError> {
        if !F::XDR {
            return Ok(from.array::<1>()?[0]);
        }
        let wide = from.u32()?;
        let bad = DecodeError::BadValue { what: "u8", value: u64::from(wide) };
        u8::try_from(wide).map_err(|_| bad)
    }

    /// All there is but XDR's padding.
    #[inline]
    fn encoded<F: Format>(values: &[u8]) -> Option<&[u8]> {
        (!F::XDR || values.len().is_multiple_of(4)).then_some(values)
    }

    #[inline]
    fn encode_all<F: Format>(values: &[u8], out: &mut Encoder<'_, F>) {
        out.opaque_fixed(values);
    }

    #[inline]
    fn decode_all<F: Format>(
        count: usize,
        from: &mut Decoder<'_, F>,
    ) -> Result<Vec<u8>, DecodeError> {
        let bytes = from.opaque_fixed(count)?;
        from.charge(count, 1)?;
        Ok(bytes.to_vec())
    }

    #[inline]
    fn decode_array<const N: usize, F: Format>(
        from: &mut Decoder<'_, F>,
    ) -> Result<[u8; N], DecodeError> {
        let bytes = from.opaque_fixed(N)?;
        Ok(*bytes.first_chunk().expect("as long as asked for"))
    }
}

/// 16 bytes: fixed opaque data in XDR, which has no such number.
macro_rules! huge {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            const SHAPE: u64 = hash_name(stringify!($t));
            fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
                out.raw(&if F::XDR { self.to_be_bytes() } else { self.to_le_bytes() });
            }
            fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
                let bytes = from.array()?;
                Ok(if F::XDR { <$t>::from_be_bytes(bytes) } else { <$t>::from_le_bytes(bytes) })
            }
        }
    )*};
}
huge!(u128, i128);

/// Sizes travel as 64 bits.
macro_rules! size {
    ($($t:ty: $wide:ty),*) => {$(
        impl Wire for $t {
            const SHAPE: u64 = <$wide>::SHAPE;
            #[inline]
            fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
                (*self as $wide).encode(out);
            }
            #[inline]
            fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
                let wide = <$wide>::decode(from)?;
                let bad = DecodeError::BadValue { what: stringify!($t), value: wide as u64 };
                <$t>::try_from(wide).map_err(|_| bad)
            }
        }
    )*};
}
size!(usize: u64, isize: i64);

impl Wire for bool {
    const SHAPE: u64 = hash_name("bool");

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        u8::from(*self).encode(out);
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<bool, DecodeError> {
        match if F::XDR { from.u32()? } else { u32::from(u8::decode(from)?) } {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::BadValue { what: "bool", value: u64::from(value) }),
        }
    }
}

impl Wire for char {
    const SHAPE: u64 = hash_name("char");

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.u32(u32::from(*self));
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<char, DecodeError> {
        let value = from.u32()?;
        let bad = DecodeError::BadValue { what: "char", value: u64::from(value) };
        char::from_u32(value).ok_or(bad)
    }
}

impl Wire for () {
    const SHAPE: u64 = hash_name("()");
    #[inline]
    fn encode<F: Format>(&self, _: &mut Encoder<'_, F>) {}
    #[inline]
    fn decode<F: Format>(_: &mut Decoder<'_, F>) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// Seconds (64 bits) and nanoseconds (32 bits, less than a second).
impl Wire for Duration {
    const SHAPE: u64 = hash_name("Duration");

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.u64(self.as_secs());
        out.u32(self.subsec_nanos());
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Duration, DecodeError> {
        let (seconds, nanos) = (from.u64()?, from.u32()?);
        if nanos >= 1_000_000_000 {
            return Err(DecodeError::BadValue { what: "nanosecond", value: u64::from(nanos) });
        }
        Ok(Duration::new(seconds, nanos))
    }
}
