//! Text and opaque bytes.

use crate::{DecodeError, Decoder, Encoder, Format, Wire, hash_name};
use bytes::Bytes;
use std::sync::Arc;

/// Text that the caller is about to copy, into an allocation with `overhead` bytes beside it.
#[inline]
fn text<'a, F: Format>(from: &mut Decoder<'a, F>, overhead: usize) -> Result<&'a str, DecodeError> {
    let bytes = from.opaque()?;
    from.charge(bytes.len() + overhead, 1)?;
    std::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)
}

/// UTF-8, with the count of its bytes.
impl Wire for String {
    const SHAPE: u64 = hash_name("string");

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.opaque(self.as_bytes());
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<String, DecodeError> {
        text(from, 0).map(str::to_owned)
    }

    #[inline]
    fn encoded_len_hint(&self) -> usize {
        8 + self.len()
    }
}

/// As a `String`.
impl Wire for Arc<str> {
    const SHAPE: u64 = String::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.opaque(self.as_bytes());
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Arc<str>, DecodeError> {
        // The two counters, and what the length is rounded up by.
        text(from, 3 * size_of::<usize>()).map(Arc::from)
    }

    #[inline]
    fn encoded_len_hint(&self) -> usize {
        8 + self.len()
    }
}

/// As a `Vec<u8>`.
impl Wire for Bytes {
    const SHAPE: u64 = <Vec<u8>>::SHAPE;

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.opaque(self);
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Bytes, DecodeError> {
        let count = from.count()?;
        <u8 as Wire>::decode_all(count, from).map(Bytes::from)
    }

    #[inline]
    fn encoded_len_hint(&self) -> usize {
        8 + self.len()
    }
}
