//! Numbers that a seed repeats. Not for secrets.

/// A source of numbers for tests: SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA 2014).
///
/// ```
/// use petasos_testing::Random;
///
/// let mut random = Random::new(7);
/// let of_ten = random.below(10);
/// assert!(of_ten < 10);
/// assert_eq!(Random::new(7).below(10), of_ten);
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.below(100) < chance as usize
    }

    /// So many random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 7);
        while out.len() < len {
            out.extend_from_slice(&self.draw().to_le_bytes());
        }
        out.truncate(len);
        out
    }
}

/// Numbers for large contents: xorshift (G. Marsaglia, 2003), three shifts for each. The low bits
/// are the weaker ones.
#[derive(Clone, Debug)]
pub struct Xorshift(u64);

impl Xorshift {
    /// The sequence of this seed. Seeds that differ by little have sequences that differ by much.
    #[must_use]
    pub fn new(seed: u64) -> Xorshift {
        Xorshift::from_state(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The sequence that goes on from this state, which is made odd: that of zeroes alone has no
    /// other number.
    #[must_use]
    pub fn from_state(state: u64) -> Xorshift {
        Xorshift(state | 1)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Fills memory, each eight bytes with a number.
    pub fn fill(&mut self, memory: &mut [u8]) {
        for chunk in memory.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_le_bytes()[..chunk.len()]);
        }
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds are named in tests and documents: what follows from them stays.
    #[test]
    fn sequences_are_for_ever() {
        let mut random = Random::new(1_234_567);
        let drawn = [(); 5].map(|()| random.draw());
        // Of the authors' own program.
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
        let mut shifted = Xorshift::from_state(1);
        assert_eq!([(); 2].map(|()| shifted.draw()), [0x4082_2041, 0x1000_4106_0c01_1441]);
        assert_eq!(Xorshift::new(3).bytes(11)[..8], Xorshift::new(3).draw().to_le_bytes());
    }

    #[test]
    fn within_bounds() {
        let mut random = Random::new(0);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert!(!random.percent(0) && random.percent(100));
        assert_eq!(random.bytes(13).len(), 13);
    }
}
