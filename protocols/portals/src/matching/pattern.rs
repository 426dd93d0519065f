//! What an entry matches: match bits, some of which do not count, and a source, parts of which may
//! be any.

use crate::{ProcessId, message::Arrival};
use std::hash::{BuildHasher, Hasher, RandomState};

/// What of a request is matched: its match bits, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) bits: u64,
    /// See [`ProcessId::to_bits`].
    pub(crate) source: u64,
}

impl Envelope {
    #[inline]
    pub(crate) fn of(arrival: &Arrival) -> Envelope {
        Envelope { bits: arrival.bits, source: arrival.initiator.to_bits() }
    }
}

/// The envelopes that an entry matches. Bits that do not count are zero in `bits` and `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) bits: u64,
    pub(crate) ignore: u64,
    pub(crate) source: u64,
    /// The bits of the source that count.
    pub(crate) mask: u64,
}

impl Pattern {
    pub(crate) fn new(bits: u64, ignore: u64, source: ProcessId) -> Pattern {
        let (source, mask) = (source.to_bits(), source.mask());
        Pattern { bits: bits & !ignore, ignore, source: source & mask, mask }
    }

    #[inline]
    pub(crate) fn matches(&self, envelope: Envelope) -> bool {
        ((envelope.bits ^ self.bits) & !self.ignore) | ((envelope.source ^ self.source) & self.mask)
            == 0
    }

    /// The only envelope that matches it, if there are no wildcards.
    pub(crate) fn exact(&self) -> Option<Envelope> {
        let exact = self.ignore == 0 && self.mask == u64::MAX;
        exact.then_some(Envelope { bits: self.bits, source: self.source })
    }
}

/// Hashes a pair of words with a secret of this process. The keys of the hash tables come from
/// other processes, which must not be able to bring them all into one chain.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    seed: [u64; 2],
}

impl Default for Fold {
    fn default() -> Fold {
        let random = RandomState::new();
        Fold { seed: [random.hash_one(1_u64), random.hash_one(2_u64) | 1] }
    }
}

impl BuildHasher for Fold {
    type Hasher = Folded;
    #[inline]
    fn build_hasher(&self) -> Folded {
        Folded { state: self.seed[0], factor: self.seed[1] }
    }
}

/// The state of a [`Fold`]: multiplies by each word, and combines the halves of the product.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    state: u64,
    factor: u64,
}

impl Hasher for Folded {
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
