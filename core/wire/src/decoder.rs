//! Reading, with suspicion.

use crate::{DecodeError, Format};
use std::marker::PhantomData;

/// How much decoding may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory that decoding may allocate, in total.
    pub memory: usize,
    /// Levels of vectors, boxes and maps in each other.
    pub depth: u32,
}

impl Limits {
    /// The default for an input of `len` bytes: 64 KiB and 64 times the input, 64 levels.
    #[inline]
    #[must_use]
    pub fn for_input(len: usize) -> Limits {
        Limits { memory: len.saturating_mul(64).saturating_add(64 << 10), depth: 64 }
    }
}

/// Takes values off the front of bytes, in the format `F`.
#[derive(Debug)]
pub struct Decoder<'a, F> {
    rest: &'a [u8],
    limits: Limits,
    format: PhantomData<F>,
}

impl<'a, F: Format> Decoder<'a, F> {
    /// Reads `bytes` within `limits`.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8], limits: Limits) -> Decoder<'a, F> {
        Decoder { rest: bytes, limits, format: PhantomData }
    }

    /// Bytes not yet taken.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Bytes as they are.
    #[inline]
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.short(len))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes as they are, so many as the array holds.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.short(N))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A 32-bit number.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        let bytes = self.array()?;
        Ok(if F::XDR { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// A 64-bit number.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.array()?;
        Ok(if F::XDR { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// A count of elements or bytes, not yet checked against anything.
    #[inline]
    pub fn count(&mut self) -> Result<usize, DecodeError> {
        Ok(self.u32()? as usize)
    }

    /// Bytes of a known length, and the padding that XDR has after them.
    #[inline]
    pub fn opaque_fixed(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let bytes = self.raw(len)?;
        if F::XDR && self.raw(len.wrapping_neg() & 3)?.iter().any(|b| *b != 0) {
            return Err(DecodeError::BadPadding);
        }
        Ok(bytes)
    }

    /// Bytes, after their count.
    #[inline]
    pub fn opaque(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.count()?;
        self.opaque_fixed(len)
    }

    /// Makes sure that `count` elements can be in what is left: each takes a byte at least, but
    /// those that have no size.
    #[inline]
    pub fn expect_elements<T>(&self, count: usize) -> Result<(), DecodeError> {
        if size_of::<T>() > 0 && count > self.rest.len() {
            return Err(self.short(count));
        }
        Ok(())
    }

    #[cold]
    fn short(&self, wanted: usize) -> DecodeError {
        DecodeError::Short { wanted: wanted as u64, left: self.rest.len() as u64 }
    }

    /// Takes the memory of `count` things of `size` bytes (at least one each) off the limit.
    /// To be called before it is allocated.
    #[inline]
    pub fn charge(&mut self, count: usize, size: usize) -> Result<(), DecodeError> {
        let wanted = count.saturating_mul(size.max(1));
        match self.limits.memory.checked_sub(wanted) {
            Some(left) => {
                self.limits.memory = left;
                Ok(())
            }
            None => {
                Err(DecodeError::Memory { wanted: wanted as u64, left: self.limits.memory as u64 })
            }
        }
    }

    /// Decodes what a pointer in a value refers to: one level deeper. Every type that can contain
    /// its own type has to come through here, or the bytes decide how deep the stack gets.
    #[inline]
    pub fn nested<T>(
        &mut self,
        decode: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        self.limits.depth = self.limits.depth.checked_sub(1).ok_or(DecodeError::TooDeep)?;
        let value = decode(self)?;
        self.limits.depth += 1;
        Ok(value)
    }

    /// Makes sure that nothing is left.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }
}
