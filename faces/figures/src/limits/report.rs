//! What a measurement returns: values with their unit, their number, and how they came about.

use hdrhistogram::Histogram;
use serde::Serialize;

/// There and back of something small, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RoundTrip {
    /// Which limit; the same words in every run, for scripts.
    pub name: &'static str,
    /// Always `ns`.
    pub unit: &'static str,
    /// Median over short batches of a batch's mean: the figure to compare with.
    pub median: f64,
    /// Median of single round trips.
    pub p50: f64,
    /// 99th percentile of single round trips.
    pub p99: f64,
    /// 99.9th percentile of single round trips.
    pub p99_9: f64,
    /// Batches behind `median`.
    pub batches: u64,
    /// Round trips in each batch.
    pub batch: u64,
    /// Single round trips behind the percentiles.
    pub samples: u64,
    /// Why it means less than it should: too few of them, or a machine that was busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// How it was measured, in a line.
    pub how: String,
}

/// Percentiles of single events, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
    /// How many events there were.
    pub samples: u64,
}

impl Percentiles {
    pub fn of(times: &Histogram<u64>) -> Percentiles {
        let [p50, p99, p99_9] = [0.5, 0.99, 0.999].map(|q| times.value_at_quantile(q) as f64);
        Percentiles { p50, p99, p99_9, samples: times.len() }
    }
}

/// Single events that a 99th percentile needs, and a 99.9th.
pub const FOR_P99: u64 = 100;
pub const FOR_P99_9: u64 = 1_000;

/// What is to be said of a percentile of so many single events, where `least` are needed.
pub fn too_few(samples: u64, least: u64) -> Option<String> {
    let say =
        || format!("of {samples} single ones, where {least} are needed: measure longer (--time)");
    (samples < least).then(say)
}

/// Percentiles of single events of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Once {
    /// Which limit; the same words in every run, for scripts.
    pub name: &'static str,
    pub times: Percentiles,
    /// How many there were.
    pub samples: u64,
}

impl Once {
    pub fn of(name: &'static str, times: &Histogram<u64>) -> Once {
        Once { name, times: Percentiles::of(times), samples: times.len() }
    }
}

/// Bandwidth by size of transfer, in GB/s (10^9 bytes per second).
#[derive(Clone, Debug, Serialize)]
pub struct Bulk {
    /// Which limit; the same words in every run, for scripts.
    pub name: &'static str,
    /// Always `GB/s`.
    pub unit: &'static str,
    /// One for each size asked for, in that order.
    pub points: Vec<BulkPoint>,
    /// How it was measured, in a line.
    pub how: String,
}

impl Bulk {
    /// The figure for the first size asked for.
    pub fn first(&self) -> f64 {
        self.points.first().map_or(0.0, |point| point.median)
    }
}

/// Bandwidth of transfers of one size.
#[derive(Clone, Debug, Serialize)]
pub struct BulkPoint {
    /// Size of a transfer in bytes.
    pub bytes: usize,
    /// Median over all samples: the figure to compare with.
    pub median: f64,
    /// The fastest sample.
    pub best: f64,
    /// Samples; small transfers are timed in groups, one sample a group.
    pub samples: u64,
}
