//! Clocks, batches and medians, as the bench takes them of its own figures.
//!
//! A virtual core may lose the processor for milliseconds, which ruins a mean: figures are medians
//! of short batches. Percentiles need single calls; each has the cost of one clock read taken off,
//! which is what lies between two readings with nothing in between.
//!
//! The loops belong to the peers, which may be asynchronous or not: here is only what they ask how
//! often to call, and tell how long it took.

use crate::Times;
use hdrhistogram::Histogram;
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// The longest single call that percentiles tell apart from longer ones.
const LONGEST: Duration = Duration::from_secs(60);

/// The most calls that are timed together, or that only warm up.
const BATCH: u64 = 1_000;

/// A batch, and a window of a rate, takes about this long, to fit between two losses of the
/// processor.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// Even the largest transfers are made this often.
const FEWEST_TRANSFERS: usize = 3;

/// Times calls that are made one after the other: first some that are not counted, then single
/// ones for half of the time, then batches.
pub(crate) struct Watch {
    time: Duration,
    begin: Instant,
    warm: u64,
    warmed: bool,
    singles: Histogram<u64>,
    clock: u64,
    batch: Option<u64>,
    means: Vec<f64>,
}

impl Watch {
    pub(crate) fn new(time: Duration) -> Watch {
        let longest = LONGEST.as_nanos() as u64;
        let singles = Histogram::new_with_bounds(1, longest, 3).expect("constant, valid bounds");
        let (clock, begin) = (clock_read(), Instant::now());
        Watch {
            time,
            begin,
            warm: 0,
            warmed: false,
            singles,
            clock,
            batch: None,
            means: Vec::new(),
        }
    }

    /// How many calls to make and to time together now; `None` when it is enough.
    pub(crate) fn next(&self) -> Option<u64> {
        match self.batch {
            None => Some(1),
            Some(_) if !self.means.is_empty() && self.begin.elapsed() >= self.time => None,
            Some(batch) => Some(batch),
        }
    }

    /// So long took what [`next`](Self::next) asked for.
    pub(crate) fn record(&mut self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        if !self.warmed {
            self.warm += 1;
            self.warmed = self.warm >= BATCH || self.begin.elapsed() > self.time / 8;
        } else if let Some(batch) = self.batch {
            self.means.push(nanos as f64 / batch as f64);
        } else {
            let longest = LONGEST.as_nanos() as u64;
            self.singles.saturating_record(nanos.saturating_sub(self.clock).clamp(1, longest));
            if self.begin.elapsed() > self.time / 2 {
                let usual = self.singles.value_at_quantile(0.5).max(1);
                self.batch = Some((BATCH_TIME.as_nanos() as u64 / usual).clamp(1, BATCH));
            }
        }
    }

    pub(crate) fn times(mut self) -> Times {
        Times {
            median: median(&mut self.means),
            p99: Some(self.singles.value_at_quantile(0.99) as f64),
            p99_9: Some(self.singles.value_at_quantile(0.999) as f64),
            samples: self.singles.len(),
        }
    }
}

/// Counts calls by the second, in windows of about a millisecond; the first window warms up.
pub(crate) struct Meter {
    time: Duration,
    begin: Instant,
    start: Instant,
    calls: u64,
    rates: Vec<f64>,
}

impl Meter {
    /// Clock readings are this many calls apart.
    const STEP: u64 = 16;

    pub(crate) fn new(time: Duration) -> Meter {
        let now = Instant::now();
        Meter { time, begin: now, start: now, calls: 0, rates: Vec::new() }
    }

    /// A call is done; false when it is enough.
    pub(crate) fn call(&mut self) -> bool {
        self.calls += 1;
        if !self.calls.is_multiple_of(Self::STEP) {
            return true;
        }
        let now = Instant::now();
        let took = now - self.start;
        if took < BATCH_TIME {
            return true;
        }
        self.rates.push(self.calls as f64 / took.as_secs_f64());
        (self.calls, self.start) = (0, now);
        self.rates.len() < 4 || now - self.begin < self.time
    }

    pub(crate) fn rate(mut self) -> f64 {
        self.rates.remove(0);
        median(&mut self.rates)
    }
}

/// Times transfers of one size; the first two warm up.
pub(crate) struct Transfers {
    time: Duration,
    begin: Instant,
    bytes: usize,
    warm: u32,
    rates: Vec<f64>,
}

impl Transfers {
    pub(crate) fn new(bytes: usize, time: Duration) -> Transfers {
        Transfers { time, begin: Instant::now(), bytes, warm: 0, rates: Vec::new() }
    }

    /// So long took a transfer; false when it is enough.
    pub(crate) fn record(&mut self, took: Duration) -> bool {
        if self.warm < 2 {
            self.warm += 1;
            return true;
        }
        // Bytes per nanosecond are GB per second.
        self.rates.push(self.bytes as f64 / took.as_nanos().max(1) as f64);
        self.rates.len() < FEWEST_TRANSFERS || self.begin.elapsed() < self.time
    }

    pub(crate) fn bandwidth(mut self) -> f64 {
        median(&mut self.rates)
    }
}

/// What one reading of the clock costs, in nanoseconds.
fn clock_read() -> u64 {
    let mut batches: Vec<f64> = (0..16)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..100 {
                black_box(Instant::now());
            }
            start.elapsed().as_nanos() as f64 / 100.0
        })
        .collect();
    median(&mut batches).round() as u64
}

/// The middle of `values`, which are sorted by it and must not be empty.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_calls_then_batches() {
        let begin = Instant::now();
        let mut watch = Watch::new(Duration::from_millis(40));
        let mut largest = 0;
        while let Some(calls) = watch.next() {
            largest = largest.max(calls);
            watch.record(Duration::from_micros(10) * calls as u32);
        }
        // Batches of a millisecond.
        assert!((90..=110).contains(&largest), "{largest}");
        let times = watch.times();
        assert_eq!(times.median, 10_000.0);
        let p99 = times.p99.unwrap();
        assert!((9_000.0..=10_010.0).contains(&p99) && times.samples > 100, "{times:?}");
        assert!(begin.elapsed() >= Duration::from_millis(40));
    }

    #[test]
    fn slow_calls_keep_to_the_time() {
        let begin = Instant::now();
        let mut watch = Watch::new(Duration::from_millis(20));
        while let Some(calls) = watch.next() {
            std::thread::sleep(Duration::from_millis(5) * calls as u32);
            watch.record(Duration::from_millis(5) * calls as u32);
        }
        assert_eq!(watch.times().median, 5e6);
        assert!(begin.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_rate_is_counted_after_a_first_window() {
        let mut meter = Meter::new(Duration::from_millis(20));
        let pause = Duration::from_micros(100);
        while meter.call() {
            std::thread::sleep(pause);
        }
        let rate = meter.rate();
        assert!(rate > 10.0 && rate <= 10_000.0, "{rate}");
    }

    #[test]
    fn the_first_transfers_are_not_counted() {
        let mut transfers = Transfers::new(1_000_000, Duration::ZERO);
        for _ in 0..2 {
            assert!(transfers.record(Duration::from_secs(1)));
        }
        assert!(transfers.record(Duration::from_millis(1)));
        assert!(transfers.record(Duration::from_millis(1)));
        assert!(!transfers.record(Duration::from_millis(1)));
        assert_eq!(transfers.bandwidth(), 1.0);
    }
}
