//! What counters count.

use crate::{Counts, Failure};
use std::ops::AddAssign;

/// What a counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations that succeeded, or their bytes.
    pub success: u64,
    /// Operations that failed.
    pub failure: u64,
}

impl Count {
    /// So many successes, and no failure.
    #[must_use]
    pub const fn of(success: u64) -> Count {
        Count { success, failure: 0 }
    }

    /// What an operation of so many bytes counts.
    pub(crate) fn of_operation(counts: Counts, len: u64, result: Result<(), Failure>) -> Count {
        match result {
            Ok(()) => Count::of(if counts.has(Counts::BYTES) { len } else { 1 }),
            Err(_) => Count { success: 0, failure: 1 },
        }
    }

    pub(crate) fn total(self) -> u64 {
        self.success.saturating_add(self.failure)
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.success = self.success.wrapping_add(other.success);
        self.failure = self.failure.wrapping_add(other.failure);
    }
}
