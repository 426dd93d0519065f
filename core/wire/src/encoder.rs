//! Writing.

use crate::Format;
use std::marker::PhantomData;

/// Appends values to a vector, in the format `F`.
#[derive(Debug)]
pub struct Encoder<'a, F> {
    out: &'a mut Vec<u8>,
    format: PhantomData<F>,
}

impl<'a, F: Format> Encoder<'a, F> {
    /// Appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>) -> Encoder<'a, F> {
        Encoder { out, format: PhantomData }
    }

    /// Bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A 32-bit number.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.raw(&if F::XDR { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    /// A 64-bit number.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.raw(&if F::XDR { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    /// A count of elements or bytes.
    ///
    /// # Panics
    /// If it does not fit 32 bits: such a thing is no argument, it is bulk data.
    #[inline]
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("more than 2^32 elements in one value"));
    }

    /// Bytes of a length that both sides know; XDR pads them to four.
    #[inline]
    pub fn opaque_fixed(&mut self, bytes: &[u8]) {
        self.raw(bytes);
        if F::XDR {
            let padding = bytes.len().wrapping_neg() & 3;
            self.raw(&[0; 3][..padding]);
        }
    }

    /// Bytes, with their count.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.opaque_fixed(bytes);
    }
}
