//! A hash for numbers that this process gives out: of peers and of calls. A peer that could choose
//! them cannot make tables of them slow, as it adds no entries.

use std::hash::{BuildHasherDefault, Hasher};

/// What tables of such numbers are built with.
pub(crate) type Quick = BuildHasherDefault<QuickHasher>;

/// One multiplication for each number.
#[derive(Default)]
pub(crate) struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // Tables look at the highest and the lowest bits; a product is good in the highest.
        self.0.rotate_left(26)
    }
}
