//! A fast hash of words that other processes choose.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes words with a secret of this process. The keys of the tables come from other processes,
/// which must not be able to bring them all into one chain.
///
/// ```
/// use petasos_match::SeededState;
/// use std::{collections::HashMap, hash::BuildHasher};
///
/// let mut ranks: HashMap<u64, &str, SeededState> = HashMap::default();
/// ranks.insert(3, "three");
/// assert_eq!(ranks.get(&3), Some(&"three"));
///
/// // Each state has a seed of its own; a clone has the same.
/// let (state, other) = (SeededState::default(), SeededState::default());
/// assert_eq!(state.hash_one(3_u64), state.clone().hash_one(3_u64));
/// assert_ne!(state.hash_one(3_u64), other.hash_one(3_u64));
/// ```
#[derive(Clone, Debug)]
pub struct SeededState {
    seed: [u64; 2],
}

impl Default for SeededState {
    fn default() -> SeededState {
        let random = RandomState::new();
        SeededState { seed: [random.hash_one(1_u64), random.hash_one(2_u64) | 1] }
    }
}

impl BuildHasher for SeededState {
    type Hasher = SeededHasher;
    #[inline]
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher { state: self.seed[0], factor: self.seed[1] }
    }
}

/// The hasher of a [`SeededState`]: multiplies by each word, and combines the halves of the
/// product.
#[derive(Clone, Debug)]
pub struct SeededHasher {
    state: u64,
    factor: u64,
}

impl Hasher for SeededHasher {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product =
            u128::from(self.state ^ word) * u128::from(self.factor ^ word.rotate_left(32));
        self.state = self.state.rotate_left(23) ^ (product as u64) ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        let product = u128::from(self.state) * 0x9e37_79b9_7f4a_7c15;
        (product as u64) ^ (product >> 64) as u64
    }
}
