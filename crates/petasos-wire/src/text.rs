//! Text and opaque bytes.

use crate::{DecodeError, Decoder, Encoder, Format, Wire, hash_name};
use bytes::Bytes;
use std::sync::Arc;

fn text<'a, F: Format>(from: &mut Decoder<'a, F>) -> Result<&'a str, DecodeError> {
    let bytes = from.opaque()?;
    from.charge(bytes.len(), 1)?;
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
        text(from).map(str::to_owned)
    }
}

/// As a `String`.
impl Wire for Arc<str> {
    const SHAPE: u64 = String::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.opaque(self.as_bytes());
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Arc<str>, DecodeError> {
        text(from).map(Arc::from)
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
        u8::decode_all(count, from).map(Bytes::from)
    }
}
