//! Which size is to take which channel, by how long each takes.

use petasos::{channel::Thresholds, fabric::two_sided::header};
use serde::Serialize;

/// A bare echo of one size by each channel: medians, in nanoseconds.
#[derive(Clone, Serialize)]
pub(super) struct Through {
    pub(super) bytes: usize,
    pub(super) mp: f64,
    pub(super) exclusive: f64,
    pub(super) shared: f64,
}

/// What is best, in bytes of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Choice {
    /// The longest that goes by short packets; 0 if none does.
    pub(super) mp: usize,
    /// The shortest and the longest for an exclusive channel; `None`: never by one.
    pub(super) exclusive: Option<(usize, usize)>,
}

/// So much less time each size has to take by an exclusive channel, on average, that the channel
/// is worth its memory, and the difference is more than noise.
const WORTH: f64 = 0.05;

impl Choice {
    /// By the times of all sizes, the smallest first.
    pub(super) fn of(times: &[Through]) -> Choice {
        let shared: Vec<[f64; 2]> = times.iter().map(|at| [at.mp, at.shared]).collect();
        let packets = border(&shared);
        let mp = packets.checked_sub(1).map_or(0, |last| times[last].bytes);
        let gains: Vec<f64> = times
            .iter()
            .enumerate()
            .map(|(at, time)| {
                let otherwise = if at < packets { time.mp } else { time.shared };
                (otherwise / time.exclusive).ln() - (1.0 + WORTH).ln()
            })
            .collect();
        let exclusive = best_run(&gains).map(|(first, last)| {
            let from = first.checked_sub(1).map_or(0, |before| times[before].bytes + 1);
            (from, times[last].bytes)
        });
        Choice { mp, exclusive }
    }

    /// What the settings of channels say: of packets, which have headers.
    pub(super) fn thresholds(&self) -> Option<Thresholds> {
        let packet = |bytes: usize| if bytes == 0 { 0 } else { bytes + header::MAX };
        let immediate = Thresholds::default().immediate();
        let thresholds = Thresholds::new(packet(self.mp), 0, immediate).ok()?;
        match self.exclusive {
            None => Some(thresholds),
            Some((from, to)) => thresholds.with_exclusive(packet(from), packet(to)).ok(),
        }
    }
}

/// How many of the sizes, the smallest first, are better off with the first of two times, and all
/// others with the second: so that the product of all times is least, whatever one of them is off.
fn border(times: &[[f64; 2]]) -> usize {
    let mut gained = 0.0;
    let (mut best, mut border) = (0.0, 0);
    for (at, [first, second]) in times.iter().enumerate() {
        gained += (second / first).ln();
        if gained > best {
            (best, border) = (gained, at + 1);
        }
    }
    border
}

/// The first and the last of the run of numbers with the largest sum; `None` if no sum is above 0.
fn best_run(numbers: &[f64]) -> Option<(usize, usize)> {
    let (mut sum, mut first) = (0.0, 0);
    let (mut best, mut run) = (0.0, None);
    for (at, number) in numbers.iter().enumerate() {
        if sum <= 0.0 {
            (sum, first) = (0.0, at);
        }
        sum += number;
        if sum > best {
            (best, run) = (sum, Some((first, at)));
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_border_costs_least() {
        assert_eq!(border(&[[1.0, 4.0], [2.0, 4.0], [9.0, 4.0], [20.0, 4.0]]), 2);
        // One that is off does not move it.
        assert_eq!(border(&[[1.0, 4.0], [5.0, 4.0], [2.0, 4.0], [20.0, 4.0]]), 3);
        assert_eq!(border(&[[1.0, 4.0], [9.0, 4.0], [3.9, 4.0]]), 1);
        assert_eq!((border(&[[5.0, 4.0]]), border(&[])), (0, 0));
    }

    #[test]
    fn the_run_gains_most() {
        assert_eq!(best_run(&[]), None);
        assert_eq!(best_run(&[-1.0, 0.0]), None);
        assert_eq!(best_run(&[-1.0, 2.0, -0.5, 3.0, -9.0, 4.0]), Some((1, 3)));
        assert_eq!(best_run(&[-1.0, 2.0, -5.0, 3.0]), Some((3, 3)));
    }

    fn times(of: &[[f64; 3]]) -> Vec<Through> {
        let through = |(at, [mp, exclusive, shared]): (usize, &[f64; 3])| Through {
            bytes: 64 << at,
            mp: *mp,
            exclusive: *exclusive,
            shared: *shared,
        };
        of.iter().enumerate().map(through).collect()
    }

    fn chosen(of: &[[f64; 3]]) -> (usize, Option<(usize, usize)>) {
        let Choice { mp, exclusive } = Choice::of(&times(of));
        (mp, exclusive)
    }

    #[test]
    fn each_channel_may_be_the_best_of_some_sizes() {
        // The shortest, the middle and the longest.
        let all = [[1.0, 2.0, 9.0], [2.0, 1.0, 9.0], [3.0, 2.0, 9.0], [9.0, 8.0, 4.0]];
        assert_eq!(chosen(&all), (256, Some((65, 256))));
        // From the shortest on, and beyond what goes by short packets.
        let all = [[2.0, 1.0, 9.0], [9.0, 2.0, 4.0], [9.0, 9.0, 4.0]];
        assert_eq!(chosen(&all), (64, Some((0, 128))));
    }

    #[test]
    fn never() {
        // Slower, as fast, and faster by less than it is worth.
        for exclusive in [2.0, 1.0, 0.97] {
            assert_eq!(chosen(&[[1.0, exclusive, 2.0], [1.0, exclusive, 2.0]]), (128, None));
        }
        assert_eq!(chosen(&[]), (0, None));
        let thresholds = Choice { mp: 0, exclusive: None }.thresholds().unwrap();
        assert_eq!((thresholds.mp(), thresholds.exclusive()), (0, None));
    }

    #[test]
    fn packets_have_headers() {
        let some = Choice { mp: 64, exclusive: Some((65, 256)) }.thresholds().unwrap();
        let bounds = some.exclusive().map(|(from, to)| (from - header::MAX, to - header::MAX));
        assert_eq!((some.mp() - header::MAX, bounds), (64, Some((65, 256))));
        let some = Choice { mp: 64, exclusive: Some((0, 256)) }.thresholds().unwrap();
        assert_eq!(some.exclusive().map(|(from, _)| from), Some(0));
    }
}
