//! Clocks, batches and medians.
//!
//! A virtual core may lose the processor for milliseconds, which ruins a mean: figures are medians
//! of short batches, so short that most of them lie between two such losses also on a busy machine.
//! Percentiles need single events, and a clock read is not small against a cache line's way: each
//! single time, and each batch, has the cost of one clock read taken off, which is what lies
//! between two readings with nothing in between.
//!
//! Batches and singles are taken in turn, so that both see the same machine. A measurement that was
//! interrupted often, or whose median is above its own 99th percentile, is made again; if that does
//! not help, the result says so: see [`RoundTrip::doubt`].

use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Plan;
use super::report::{BulkPoint, Percentiles, RoundTrip, too_few};
use crate::accounting;

/// The longest single round trip that percentiles tell apart from longer ones.
const LONGEST: Duration = Duration::from_secs(60);

/// Round trips timed together, where they are fast enough for that.
const BATCH: u64 = 1_000;

/// A batch takes about this long: a thousand times a clock read, and a hundredth of what a
/// scheduler gives a thread before it looks at others.
const BATCH_TIME: Duration = Duration::from_micros(20);

/// Batches for each of those that the plan asks for, which are longer.
const BATCHES: u64 = 50;

/// How often singles and batches take turns.
const TURNS: u32 = 8;

/// Single round trips that a percentile is worth its name with.
const FEWEST_SINGLES: u64 = 100;

/// How much longer than planned these may take.
const LONGER: u32 = 4;

/// How often a measurement is made, where it was disturbed.
const ATTEMPTS: usize = 2;

/// One that loses its core more often than once in this time is disturbed.
const QUIET: Duration = Duration::from_millis(10);

/// Less often than this says nothing.
const FEW_LOSSES: u64 = 3;

/// Transfers faster than this are timed in groups that take about as long, against which a reading
/// of the clock is nothing.
const GROUP_TIME: Duration = Duration::from_micros(20);

/// The most transfers in a group.
const LARGEST_GROUP: u128 = 1_000;

/// Transfers are made this often at least, however long they take.
const FEWEST_TRANSFERS: usize = 5;

/// The same for those of `LARGE` bytes or more, and once in a trial.
const FEWEST_LARGE: usize = 3;
const LARGE: usize = 256 << 20;

/// Times `bounce`, singly and in batches in turn, half of the plan's time each.
///
/// The singles come first because they tell how long a batch may be: on a crowded machine a round
/// trip of spinning threads takes a scheduler's quantum instead of a cache line's way.
pub fn round_trips<E>(
    plan: &Plan,
    name: &'static str,
    how: &str,
    mut bounce: impl FnMut() -> Result<(), E>,
) -> Result<RoundTrip, E> {
    let (clock, begin) = (clock_read(), Instant::now());
    // The first round trips find caches and branch predictors cold; they are not counted.
    for _ in 0..BATCH {
        bounce()?;
        if begin.elapsed() > plan.time / 8 {
            break;
        }
    }
    let attempts = if plan.is_trial() { 1 } else { ATTEMPTS };
    let taken = least_disturbed(attempts, || Taken::take(plan, clock, &mut bounce))?;
    Ok(taken.result(name, how, clock))
}

/// The first that is not disturbed, or else the best of so many.
fn least_disturbed<E>(
    attempts: usize,
    mut take: impl FnMut() -> Result<Taken, E>,
) -> Result<Taken, E> {
    let mut taken = take()?;
    for _ in 1..attempts {
        if !taken.is_disturbed() {
            break;
        }
        let again = take()?;
        if again.rank() < taken.rank() {
            taken = again;
        }
    }
    Ok(taken)
}

/// What was measured in one go.
struct Taken {
    singles: Histogram<u64>,
    /// Means of batches, in nanoseconds, and their median.
    batches: u64,
    batch: u64,
    median: f64,
    /// How often the thread lost its core to others.
    losses: u64,
    took: Duration,
}

impl Taken {
    fn take<E>(
        plan: &Plan,
        clock: u64,
        bounce: &mut impl FnMut() -> Result<(), E>,
    ) -> Result<Taken, E> {
        let most_singles = u64::from(plan.batches).max(1) * BATCH / u64::from(TURNS);
        let most_batches = u64::from(plan.batches).max(1) * BATCHES / u64::from(TURNS) + 1;
        let turn = plan.time / (2 * TURNS);
        let (losses, begin) = (accounting::losses(), Instant::now());
        let (mut singles, mut means) = (single_times(), Vec::new());
        let mut batch = 1;
        for _ in 0..TURNS {
            let (start, had) = (Instant::now(), singles.len());
            loop {
                let end = single(&mut singles, clock, bounce)?;
                if singles.len() - had >= most_singles || end - start > turn {
                    break;
                }
            }
            let usual = singles.value_at_quantile(0.5).max(1);
            batch = (BATCH_TIME.as_nanos() as u64 / usual).clamp(1, BATCH);
            let (start, had) = (Instant::now(), means.len() as u64);
            loop {
                let first = Instant::now();
                for _ in 0..batch {
                    bounce()?;
                }
                let end = Instant::now();
                let nanos = ((end - first).as_nanos() as u64).saturating_sub(clock).max(1);
                means.push(nanos as f64 / batch as f64);
                if means.len() as u64 - had >= most_batches || end - start > turn {
                    break;
                }
            }
            // One that is too slow for its time takes a few samples.
            if begin.elapsed() > plan.time {
                break;
            }
        }
        while singles.len() < FEWEST_SINGLES && begin.elapsed() < plan.time * LONGER {
            single(&mut singles, clock, bounce)?;
        }
        let (took, batches) = (begin.elapsed(), means.len() as u64);
        let losses = accounting::losses().saturating_sub(losses);
        Ok(Taken { singles, batches, batch, median: median(&mut means), losses, took })
    }

    /// Whether the median of batches is where the single ones are.
    fn is_in_order(&self) -> bool {
        self.median <= self.singles.value_at_quantile(0.99) as f64
    }

    fn is_interrupted(&self) -> bool {
        self.losses >= FEW_LOSSES && QUIET * u32::try_from(self.losses).unwrap_or(1000) > self.took
    }

    fn is_disturbed(&self) -> bool {
        !self.is_in_order() || self.is_interrupted()
    }

    /// The smaller, the better.
    fn rank(&self) -> (bool, u64) {
        (!self.is_in_order(), self.losses * 1_000_000 / (self.took.as_micros() as u64).max(1))
    }

    fn result(self, name: &'static str, how: &str, clock: u64) -> RoundTrip {
        let percentiles = Percentiles::of(&self.singles);
        let Percentiles { p50, p99, p99_9, samples } = percentiles;
        let mut doubts = Vec::new();
        // Batches that were interrupted throughout say nothing of a round trip.
        let median = if self.is_in_order() {
            self.median
        } else {
            doubts.push("batches were interrupted, the median is of single ones".to_owned());
            p50
        };
        if self.is_interrupted() {
            let took = self.took.as_millis();
            doubts.push(format!(
                "the machine was busy: the core was taken away {} times within {took} ms, also when \
                 measured again",
                self.losses
            ));
        }
        doubts.extend(too_few(samples, FEWEST_SINGLES));
        RoundTrip {
            name,
            unit: "ns",
            median,
            p50,
            p99,
            p99_9,
            batches: self.batches,
            batch: self.batch,
            samples,
            doubt: (!doubts.is_empty()).then(|| doubts.join("; ")),
            how: format!(
                "{how}; median of {} batches of {}; percentiles of {samples} single round trips, each \
                 less a clock read of {clock} ns",
                self.batches, self.batch,
            ),
        }
    }
}

/// Times one round trip; gives when it ended.
#[inline]
fn single<E>(
    singles: &mut Histogram<u64>,
    clock: u64,
    bounce: &mut impl FnMut() -> Result<(), E>,
) -> Result<Instant, E> {
    let start = Instant::now();
    bounce()?;
    let end = Instant::now();
    let nanos = (end - start).as_nanos() as u64;
    singles.saturating_record(nanos.saturating_sub(clock).clamp(1, LONGEST.as_nanos() as u64));
    Ok(end)
}

/// For the times of single events, in nanoseconds.
pub fn single_times() -> Histogram<u64> {
    let longest = LONGEST.as_nanos() as u64;
    Histogram::new_with_bounds(1, longest, 3).expect("constant, valid bounds")
}

/// Times `transfer`, which moves `bytes`, until the plan's time is over; a sample has about
/// `least` bytes or more.
pub fn transfers<E>(
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
    let fewest = match plan.is_trial() {
        true => 1,
        false if bytes < LARGE => FEWEST_TRANSFERS,
        false => FEWEST_LARGE,
    };
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
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::{super::TRIAL, *};

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
        // So few that percentiles mean little, which is said.
        assert!(result.samples < FEWEST_SINGLES, "{result:?}");
        assert!(result.doubt.as_ref().unwrap().contains("single"), "{result:?}");
    }

    /// A measurement of 200 round trips in a second, with this median of its batches, in which the
    /// core was taken away so often.
    fn taken(single: u64, median: f64, losses: u64) -> Taken {
        let mut singles = single_times();
        singles.record_n(single, 200).unwrap();
        Taken { singles, batches: 9, batch: 7, median, losses, took: Duration::from_secs(1) }
    }

    #[test]
    fn what_is_disturbed_is_measured_again() {
        // In order or not, quiet or not: which of two, and after how many.
        let (quiet, busy, busier) =
            (|| taken(5, 5.0, 3), || taken(6, 6.0, 200), || taken(7, 7.0, 900));
        let wrong = || taken(8, 9000.0, 0);
        for (given, kept, count) in [
            ([quiet(), busy()], 5, 1),
            ([busy(), quiet()], 5, 2),
            ([wrong(), quiet()], 5, 2),
            ([busier(), busy()], 6, 2),
            ([busy(), busier()], 6, 2),
            // An order that cannot be is worse than a machine that is busy.
            ([wrong(), busier()], 7, 2),
            ([busier(), wrong()], 7, 2),
        ] {
            let (mut given, mut takes) = (given.into_iter(), 0);
            let take = || {
                takes += 1;
                Ok::<_, ()>(given.next().expect("two at most"))
            };
            let best = least_disturbed(ATTEMPTS, take).unwrap();
            assert_eq!((best.singles.min(), takes), (kept, count));
        }
        assert_eq!(least_disturbed(ATTEMPTS, || Err(7)).err(), Some(7));
    }

    #[test]
    fn losses_of_the_core_are_said() {
        let said = |taken: Taken| taken.result("n", "", 1);
        // Few, or few in that time, say nothing.
        for losses in [0, 2, 99, 100] {
            assert!(!taken(5, 5.0, losses).is_interrupted(), "{losses}");
            assert_eq!(said(taken(5, 5.0, losses)).doubt, None, "{losses}");
        }
        let short = |losses| Taken { took: Duration::from_micros(1), ..taken(5, 5.0, losses) };
        assert!(!short(2).is_interrupted() && short(3).is_interrupted());
        let busy = said(taken(5, 5.0, 101));
        let doubt = busy.doubt.unwrap();
        assert!(doubt.contains("taken away 101 times within 1000 ms"), "{doubt}");
        assert!(doubt.contains("measured again") && busy.median == 5.0, "{doubt}");
        // A median that cannot be is not given.
        let wrong = said(taken(8, 9000.0, 500));
        let doubt = wrong.doubt.unwrap();
        assert!(doubt.contains("; ") && doubt.contains("taken away 500 times"), "{doubt}");
        assert!(doubt.contains("batches were interrupted") && wrong.median == 8.0, "{doubt}");
    }

    fn spin(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    /// A core that is taken away for 3 ms now and then, as a busy machine does it: the mean of all
    /// is far above what 99 of 100 round trips take.
    #[test]
    fn a_median_is_not_above_the_tail() {
        let plan = Plan { time: Duration::from_millis(200), ..Plan::default() };
        let mut count = 0_u32;
        let stalls = || {
            count += 1;
            match count.is_multiple_of(400) {
                true => std::thread::sleep(Duration::from_millis(3)),
                false => spin(Duration::from_micros(2)),
            }
            Ok::<_, std::io::Error>(())
        };
        let result = round_trips(&plan, "stalls", "", stalls).unwrap();
        assert!(result.median <= result.p99 && result.p50 <= result.p99, "{result:?}");
        assert!(result.p99 <= result.p99_9, "{result:?}");
    }

    /// A machine that becomes busy half-way.
    #[test]
    fn both_see_the_same_machine() {
        let plan = Plan { time: Duration::from_millis(100), ..Plan::default() };
        let begin = Instant::now();
        let slower = || {
            let early = begin.elapsed() < plan.time / 2;
            spin(Duration::from_micros(if early { 2 } else { 200 }));
            Ok::<_, std::io::Error>(())
        };
        let result = round_trips(&plan, "slower", "", slower).unwrap();
        assert!(result.median <= result.p99, "{result:?}");
    }

    #[test]
    fn short_plans_have_samples_enough_or_say_so() {
        let plan = Plan { time: Duration::from_micros(50), ..Plan::default() };
        let bounce = || {
            spin(Duration::from_micros(20));
            Ok::<_, std::io::Error>(())
        };
        let result = round_trips(&plan, "short", "", bounce).unwrap();
        // Or that there are not is said.
        assert!(result.samples >= FEWEST_SINGLES || result.doubt.is_some(), "{result:?}");
    }

    #[test]
    fn the_largest_transfers_are_repeated() {
        let mut calls = 0;
        let mut samples = |time| {
            let plan = Plan { time, ..Plan::default() };
            let slow = || {
                calls += 1;
                std::thread::sleep(TRIAL);
                Ok::<_, std::io::Error>(())
            };
            transfers(&plan, 1 << 30, 0, slow).unwrap().samples
        };
        assert_eq!(samples(TRIAL), 3);
        assert_eq!(samples(Duration::ZERO), 1, "a trial");
        assert_eq!(calls, 5 + 3);
    }
}
