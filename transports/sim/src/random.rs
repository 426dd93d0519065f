//! Random numbers that repeat: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Tests that simulate
//! nothing have the same numbers of `petasos-testing`, on which a transport does not depend.

use petasos_fabric::Incarnation;
use std::time::Duration;

/// A source of numbers, all of which follow from the seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The source with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A life of an endpoint.
    pub(crate) fn incarnation(&mut self) -> Incarnation {
        loop {
            if let Some(incarnation) = Incarnation::new(self.number()) {
                return incarnation;
            }
        }
    }

    /// A time below `bound`.
    pub fn time(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)))
    }
}
