//! A figure beside its limit, measured in turn.
//!
//! What a cache line or a copy takes changes from one moment to the next, on a virtual machine by a
//! factor of eight. So a limit and what belongs to it are measured right after each other, several
//! times over, and what is shown is one of these pairs: that with the median ratio.

use crate::limits::Bulk;

/// A figure, and the limit that was measured with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    pub value: f64,
    pub limit: f64,
    /// Which limit.
    pub of: &'static str,
}

impl Beside {
    /// A bandwidth, and the limit of transfers of one size.
    pub fn bandwidth(value: f64, limit: &Bulk) -> Beside {
        Beside { value, limit: limit.first(), of: limit.name }
    }

    /// The value as a multiple of the limit.
    pub fn ratio(&self) -> f64 {
        self.value / self.limit
    }

    /// What is shown of several.
    pub fn typical(found: Vec<Beside>) -> Beside {
        typical(found, Beside::ratio)
    }
}

/// Of several, which must not be none, that with the median value: of a ratio, say.
pub fn typical<T>(mut found: Vec<T>, value: impl Fn(&T) -> f64) -> T {
    found.sort_by(|a, b| value(a).total_cmp(&value(b)));
    found.swap_remove(found.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ratio_and_not_the_median_values() {
        let pair = |value, limit| Beside { value, limit, of: "test" };
        let found = vec![pair(1000.0, 50.0), pair(350.0, 50.0), pair(750.0, 400.0)];
        assert_eq!(Beside::typical(found), pair(350.0, 50.0));
    }
}
