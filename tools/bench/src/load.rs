//! Many calls under way at a time: how many there are in a second, and how long each takes.

use crate::{
    exit::Outcome,
    limits::{self, Percentiles},
    message::{message, same},
    pair::Pair,
};
use petasos::{TypedCall, wire::Wire};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Calls between two readings of the clock.
const STEP: u32 = 16;

/// Calls of a pair that are under way together.
pub(crate) trait Load {
    /// Null calls a second, with so many in flight: the median of runs of a millisecond or more.
    fn rate(&self, in_flight: usize, time: Duration) -> Outcome<f64>;
    /// The same for calls with so many bytes there and back.
    fn echo_rate(&self, bytes: usize, in_flight: usize, time: Duration) -> Outcome<f64>;
    /// How long each call takes, from its begin to its result, with so many in flight.
    fn under_load(&self, bytes: usize, in_flight: usize, time: Duration) -> Outcome<Percentiles>;
}

impl Load for Pair {
    fn rate(&self, in_flight: usize, time: Duration) -> Outcome<f64> {
        let bench = self.bench();
        rate_of(self, in_flight, time, || (), |()| bench.null())
    }

    fn echo_rate(&self, bytes: usize, in_flight: usize, time: Duration) -> Outcome<f64> {
        let bench = self.bench();
        rate_of(self, in_flight, time, || message(bytes), |sent| bench.echo(sent))
    }

    fn under_load(&self, bytes: usize, in_flight: usize, time: Duration) -> Outcome<Percentiles> {
        let bench = self.bench();
        let mut times = limits::single_times();
        let begin = |sent| (Instant::now(), bench.echo(sent));
        self.engine.block_on(async {
            let mut calls: VecDeque<_> = (0..in_flight).map(|_| begin(message(bytes))).collect();
            let started = Instant::now();
            // The first calls find the caches cold.
            let mut cold = in_flight;
            while let Some((start, call)) = calls.pop_front() {
                let sent = call.await?;
                let end = Instant::now();
                same(&sent, bytes)?;
                match cold.checked_sub(1) {
                    Some(less) => cold = less,
                    None => times.saturating_record(((end - start).as_nanos() as u64).max(1)),
                }
                if end - started < time || times.len() < 100 {
                    calls.push_back(begin(sent));
                }
            }
            Ok(Percentiles::of(&times))
        })
    }
}

/// `first` makes the arguments of the first calls; the others send the results of earlier ones.
fn rate_of<R: Wire>(
    pair: &Pair,
    in_flight: usize,
    time: Duration,
    first: impl Fn() -> R,
    begin: impl Fn(R) -> TypedCall<R>,
) -> Outcome<f64> {
    pair.engine.block_on(async {
        let mut calls: VecDeque<_> = (0..in_flight).map(|_| begin(first())).collect();
        let (mut rates, started) = (Vec::new(), Instant::now());
        // Answers come in bursts: a run is longer than one burst.
        let least = 2 * in_flight as u32;
        while rates.len() < 5 || started.elapsed() < time {
            let (start, mut done) = (Instant::now(), 0u32);
            while done < least || start.elapsed() < Duration::from_millis(1) {
                for _ in 0..STEP {
                    if let Some(call) = calls.pop_front() {
                        calls.push_back(begin(call.await?));
                    }
                }
                done += STEP;
            }
            rates.push(f64::from(done) / start.elapsed().as_secs_f64());
        }
        for call in calls {
            call.await?;
        }
        Ok(limits::median(&mut rates))
    })
}
