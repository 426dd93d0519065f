//! Axes: the positions of values, and their labels.

use crate::{figures, plots::Along};

/// A larger ratio of the largest value to the smallest needs a logarithmic axis.
const DECADES: f64 = 12.0;

/// Labels that fit along the x axis.
const LABELS: usize = 8;

/// A horizontal axis of powers of two.
pub(super) struct Across {
    along: Along,
    /// Whether there is a value of zero: it lies one step left of all others.
    zero: bool,
    low: f64,
    high: f64,
}

impl Across {
    pub(super) fn new(along: Along, values: impl Iterator<Item = f64>) -> Across {
        let (mut low, mut high, mut zero) = (f64::MAX, f64::MIN, false);
        for x in values {
            if x > 0.0 {
                (low, high) = (low.min(x.log2()), high.max(x.log2()));
            } else {
                zero = true;
            }
        }
        if low > high {
            (low, high) = (0.0, 0.0);
        }
        Across { along, zero, low, high }
    }

    fn raw(&self, x: f64) -> f64 {
        if x > 0.0 { x.log2() } else { self.low - 1.5 }
    }

    /// From 0 to 1.
    pub(super) fn position(&self, x: f64) -> f64 {
        let low = if self.zero { self.low - 1.5 } else { self.low };
        let span = self.high - low;
        if span > 0.0 { (self.raw(x) - low) / span } else { 0.5 }
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let steps = (self.high - self.low).round() as usize;
        let every = (steps / LABELS + 1).max(1);
        let powers = (0..=steps).step_by(every).map(|at| (self.low + at as f64).exp2());
        let zero = self.zero.then_some(0.0);
        zero.into_iter().chain(powers).map(|x| (self.position(x), self.along.show(x))).collect()
    }
}

/// A vertical axis: logarithmic where values span decades, else from zero.
pub(super) struct Up {
    unit: &'static str,
    log: bool,
    low: f64,
    high: f64,
}

impl Up {
    pub(super) fn new(unit: &'static str, values: impl Iterator<Item = f64>) -> Up {
        let (mut low, mut high) = (f64::MAX, f64::MIN);
        for y in values.filter(|y| *y > 0.0) {
            (low, high) = (low.min(y), high.max(y));
        }
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        let log = high / low > DECADES;
        if log {
            return Up { unit, log, low: nice_below(low), high: nice_above(high) };
        }
        Up { unit, log, low: 0.0, high: high * 1.08 }
    }

    /// From 0 to 1, upwards.
    pub(super) fn position(&self, y: f64) -> f64 {
        let at = |value: f64| if self.log { value.max(1e-12).log10() } else { value };
        ((at(y) - at(self.low)) / (at(self.high) - at(self.low))).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let values: Vec<f64> = if self.log {
            let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let steps: &[f64] = if to - from <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let of = |decade: i32| steps.iter().map(move |step| step * 10f64.powi(decade));
            (from..=to).flat_map(of).collect()
        } else {
            let step = nice_above(self.high / 6.0);
            (0..=6).map(|at| f64::from(at) * step).collect()
        };
        let within = |y: &f64| (self.low * 0.999..=self.high * 1.001).contains(y);
        values.into_iter().filter(within).map(|y| (self.position(y), self.label(y))).collect()
    }

    fn label(&self, y: f64) -> String {
        if y == 0.0 {
            return "0".to_owned();
        }
        let text = figures::show(self.unit, y);
        // Without trailing zeroes.
        match text.split_once(' ') {
            Some((number, unit)) if number.contains('.') => {
                format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => text,
        }
    }
}

/// 1, 2 or 5 times a power of ten, not above.
fn nice_below(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [5.0, 2.0].into_iter().map(|n| n * decade).find(|nice| *nice <= value).unwrap_or(decade)
}

/// The same, not below.
fn nice_above(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let nice = [1.0, 2.0, 5.0].into_iter().map(|n| n * decade);
    nice.into_iter().find(|nice| *nice >= value * 0.999_999).unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_lies_left_of_the_smallest() {
        let axis = Across::new(Along::Bytes, [0.0, 64.0, 1024.0].into_iter());
        assert_eq!((axis.position(0.0), axis.position(1024.0)), (0.0, 1.0));
        assert!(axis.position(64.0) > 0.1 && axis.position(64.0) < 0.4);
        let labels: Vec<_> = axis.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0 B", "64 B", "128 B", "256 B", "512 B", "1 KiB"]);
        assert_eq!(Across::new(Along::Count, [4.0].into_iter()).position(4.0), 0.5);
    }

    #[test]
    fn decades_are_logarithmic() {
        let axis = Up::new("ns", [120.0, 9_000.0].into_iter());
        let labels: Vec<_> = axis.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels.first().unwrap(), "100 ns");
        assert_eq!(labels.last().unwrap(), "10 µs");
        assert!(axis.position(120.0) < 0.1 && axis.position(9_000.0) > 0.9);
    }

    #[test]
    fn linear_axes_begin_at_zero() {
        let axis = Up::new("GB/s", [4.0, 11.0].into_iter());
        let labels: Vec<_> = axis.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0", "2 GB/s", "4 GB/s", "6 GB/s", "8 GB/s", "10 GB/s"]);
        assert_eq!((nice_below(7.0), nice_above(7.0), nice_above(2.0)), (5.0, 10.0, 2.0));
    }
}
