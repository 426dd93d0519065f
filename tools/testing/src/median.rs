//! The median of measurements.

/// The middle of some values; of an even number, the upper one of the two in the middle.
///
/// # Panics
/// If there are none, or one cannot be compared (a NaN).
pub fn median<T: Copy + PartialOrd>(values: impl IntoIterator<Item = T>) -> T {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|one, other| one.partial_cmp(other).expect("values that can be compared"));
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4, 1, 3, 2]), 3);
    }
}
