//! Bytes without a pattern, faster than memory. Not for secrets.

/// Xorshift (G. Marsaglia, 2003), three shifts for eight bytes.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// The bytes of this seed, which is made odd: of zeroes alone nothing else follows.
    pub fn from_seed(seed: u64) -> Noise {
        Noise(seed | 1)
    }

    /// Fills memory with the next bytes.
    pub fn fill(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
        }
    }
}
