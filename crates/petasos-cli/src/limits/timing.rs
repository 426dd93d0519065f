//! Clocks, batches and medians.
//!
//! A virtual core may lose the processor for milliseconds, which ruins a mean: figures are medians
//! of short batches. Percentiles need single events, and a clock read is not small against a
//! cache line's way: each single time has the cost of one clock read taken off, which is what lies
//! between two readings with nothing in between.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Plan;
use super::report::{BulkPoint, Percentiles, RoundTrip};

/// The longest single round trip that percentiles tell apart from longer ones.
const LONGEST: Duration = Duration::from_secs(60);

/// Round trips timed together, where they are fast enough for that.
const BATCH: u64 = 1_000;

/// A batch of slow round trips takes about this long, to fit between two losses of the processor.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// Transfers faster than this are timed in groups that take about as long, against which a reading
/// of the clock is nothing.
const GROUP_TIME: Duration = Duration::from_micros(20);

/// The most transfers in a group.
const LARGEST_GROUP: u128 = 1_000;

/// Transfers are made this often at least, however long they take.
const FEWEST_TRANSFERS: usize = 5;

/// The same for those of `LARGE` bytes or more.
const FEWEST_LARGE: usize = 3;
const LARGE: usize = 256 << 20;

/// Times `bounce`, singly for the first half of the plan's time, then in batches.
///
/// The singles come first because they tell how long a batch may be: on a crowded machine a round
/// trip of spinning threads takes a scheduler's quantum instead of a cache line's way.
pub(crate) fn round_trips<E>(
    plan: &Plan,
    name: &'static str,
    how: &str,
    mut bounce: impl FnMut() -> Result<(), E>,
) -> Result<RoundTrip, E> {
    let longest = LONGEST.as_nanos() as u64;
    let mut singles = single_times();
    let clock = clock_read();
    let (half, begin) = (plan.time / 2, Instant::now());
    let most_singles = u64::from(plan.batches).max(1) * BATCH;
    // The first round trips find caches and branch predictors cold; they are not counted.
    for _ in 0..BATCH {
        bounce()?;
        if begin.elapsed() > half / 4 {
            break;
        }
    }
    loop {
        let start = Instant::now();
        bounce()?;
        let end = Instant::now();
        let nanos = (end - start).as_nanos() as u64;
        singles.saturating_record(nanos.saturating_sub(clock).clamp(1, longest));
        if singles.len() >= most_singles || end - begin > half {
            break;
        }
    }

    let usual = singles.value_at_quantile(0.5).max(1);
    let batch = (BATCH_TIME.as_nanos() as u64 / usual).clamp(1, BATCH);
    let mut means = Vec::with_capacity(plan.batches.max(1) as usize);
    let begin = Instant::now();
    loop {
        let start = Instant::now();
        for _ in 0..batch {
            bounce()?;
        }
        let end = Instant::now();
        means.push((end - start).as_nanos() as f64 / batch as f64);
        if means.len() >= plan.batches as usize || end - begin > half {
            break;
        }
    }
    let Percentiles { p50, p99, p99_9 } = Percentiles::of(&singles);
    Ok(RoundTrip {
        name,
        unit: "ns",
        median: median(&mut means),
        p50,
        p99,
        p99_9,
        batches: means.len() as u64,
        batch,
        samples: singles.len(),
        how: format!(
            "{how}; median of {} batches of {batch}; percentiles of {} single round trips, each \
             less a clock read of {clock} ns",
            means.len(),
            singles.len(),
        ),
    })
}

/// For the times of single events, in nanoseconds.
pub(crate) fn single_times() -> Histogram<u64> {
    let longest = LONGEST.as_nanos() as u64;
    Histogram::new_with_bounds(1, longest, 3).expect("constant, valid bounds")
}

/// Times `transfer`, which moves `bytes`, until the plan's time is over; a sample has about
/// `least` bytes or more.
pub(crate) fn transfers<E>(
    plan: &Plan,
    bytes: usize,
    least: usize,
    mut transfer: impl FnMut() -> Result<(), E>,
) -> Result<BulkPoint, E> {
    // Once uncounted, for page tables, caches and congestion windows; once for the group's size.
    transfer()?;
    let begin = Instant::now();
    transfer()?;
    let group = (GROUP_TIME.as_nanos() / begin.elapsed().as_nanos().max(1))
        .max((least / bytes) as u128)
        .clamp(1, LARGEST_GROUP);
    let mut rates = Vec::new();
    let fewest = if bytes < LARGE { FEWEST_TRANSFERS } else { FEWEST_LARGE };
    while rates.len() < fewest || begin.elapsed() < plan.time {
        let start = Instant::now();
        for _ in 0..group {
            transfer()?;
        }
        let nanos = start.elapsed().as_nanos().max(1) as f64;
        // Bytes per nanosecond are GB per second.
        rates.push((bytes as f64) * group as f64 / nanos);
    }
    let median = median(&mut rates);
    let best = rates.last().copied().unwrap_or(median);
    Ok(BulkPoint { bytes, median, best, samples: rates.len() as u64 })
}

/// What one reading of the clock costs, in nanoseconds.
fn clock_read() -> u64 {
    let mut batches: Vec<f64> = (0..64)
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
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn slow_round_trips_keep_to_the_time() {
        let plan = Plan { time: Duration::from_millis(40), ..Plan::default() };
        let begin = Instant::now();
        let slow = || {
            std::thread::sleep(Duration::from_millis(5));
            Ok::<_, std::io::Error>(())
        };
        let result = round_trips(&plan, "slow", "asleep", slow).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(2));
        assert_eq!(result.batch, 1);
        assert!(result.median > 4e6, "{result:?}");
    }

    #[test]
    fn the_largest_transfers_are_repeated() {
        let plan = Plan { time: Duration::ZERO, ..Plan::default() };
        let mut calls = 0;
        let point = transfers(&plan, 1 << 30, 0, || {
            calls += 1;
            Ok::<_, std::io::Error>(())
        })
        .unwrap();
        assert_eq!(point.samples, 3);
        assert!(calls >= 5);
    }
}
