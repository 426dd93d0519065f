//! Echoes by size: their time, with percentiles, in both encodings; and their rate, by size and by
//! calls in flight.

use super::{
    Bench,
    null::{IN_FLIGHT, QUICK_IN_FLIGHT},
};
use crate::{
    beside::{Beside, typical},
    client,
    exit::Outcome,
    figures::{self, Row},
    latency,
    limits::{self, Percentiles, Plan, RoundTrip},
    load::Load,
    output,
    pair::Pair,
    plots::Plot,
    waiting::Waiting,
};
use petasos::{Transport, wire::Encoding};

/// Bytes there and back: powers of two, so that steps show.
const SIZES: [usize; 19] = [
    0,
    8,
    16,
    32,
    64,
    128,
    256,
    512,
    1024,
    2048,
    4096,
    8192,
    16_384,
    32_768,
    65_536,
    131_072,
    262_144,
    524_288,
    1 << 20,
];
const QUICK_SIZES: [usize; 5] = [0, 64, 1024, 16_384, 65_536];

/// Sizes whose rates are measured; those of null calls are measured in `null`.
const RATE_SIZES: [usize; 4] = [64, 1024, 16_384, 65_536];
const QUICK_RATE_SIZES: [usize; 2] = [64, 16_384];

/// The size whose percentiles are measured with many calls in flight.
const LOADED: usize = 64;

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for waiting in bench.waitings() {
        let group = Group::new(bench, transport, waiting);
        rows.extend(limits::on_client_core(&bench.plan, || group.measure())?);
    }
    Ok(rows)
}

/// One transport, and one manner of waiting.
struct Group<'a> {
    bench: &'a Bench,
    transport: &'static Transport,
    waiting: Waiting,
    /// A part of the time: there are many sizes.
    plan: Plan,
    panel: String,
}

/// A size in one round.
#[derive(Clone)]
struct Echo {
    machine: RoundTrip,
    native: RoundTrip,
    xdr: RoundTrip,
}

impl Echo {
    /// Why the figure is in doubt: the call's, or the limit's.
    fn doubt(&self) -> Option<&str> {
        [&self.native, &self.machine, &self.xdr]
            .into_iter()
            .find_map(|found| found.doubt.as_deref())
    }
}

/// A figure of Petasos, and the machine's.
type Pick = fn(&Echo) -> (f64, f64);

/// A size, or a size and a number of calls, and what was found of it round by round.
type Found<K, T> = Vec<(K, Vec<T>)>;

impl<'a> Group<'a> {
    fn new(bench: &'a Bench, transport: &'static Transport, waiting: Waiting) -> Group<'a> {
        // Blocking calls are slow, and their percentiles need as many of them.
        let plan = bench.plan_of(if waiting == Waiting::Sleeping { 3 } else { 6 });
        let panel = format!("{}, {}", transport.scheme, waiting.label());
        Group { bench, transport, waiting, plan, panel }
    }

    fn measure(&self) -> Outcome<Vec<Row>> {
        let (sizes, rates, in_flight) = match self.bench.quick {
            true => (&QUICK_SIZES[..], &QUICK_RATE_SIZES[..], &QUICK_IN_FLIGHT[..]),
            false => (&SIZES[..], &RATE_SIZES[..], &IN_FLIGHT[..]),
        };
        let depths = |bytes: usize| in_flight.iter().map(move |depth| (bytes, *depth));
        let mut echoes: Found<usize, Echo> = sizes.iter().map(|s| (*s, Vec::new())).collect();
        let mut rates: Found<(usize, usize), Beside> =
            rates.iter().flat_map(|bytes| depths(*bytes)).map(|key| (key, Vec::new())).collect();
        let mut loaded: Found<usize, Percentiles> =
            in_flight.iter().map(|depth| (*depth, Vec::new())).collect();
        for round in 0..self.bench.rounds {
            let what = format!("echoes, {}", self.waiting.label());
            self.bench.round(self.transport, what, round);
            let mut pair = self.bench.setting(self.transport, self.waiting, &self.plan).pair()?;
            let mut work = || {
                // The first calls find the caches cold.
                pair.echo(&self.plan, LOADED, Encoding::Native)?;
                for (bytes, found) in &mut echoes {
                    found.push(self.echo(&pair, *bytes)?);
                }
                for ((bytes, depth), found) in &mut rates {
                    let one = echoes.iter().find(|(size, _)| size == bytes);
                    let machine = one.and_then(|(_, found)| found.last()).map(|e| &e.machine);
                    let machine = machine.expect("rates are of sizes that are measured");
                    let value = pair.echo_rate(*bytes, *depth, self.plan.time)?;
                    let limit = 1e9 / machine.median;
                    found.push(Beside { value, limit, of: self.limit_name(machine) });
                }
                for (depth, found) in &mut loaded {
                    found.push(pair.under_load(LOADED, *depth, self.plan.time)?);
                }
                Ok(())
            };
            work().map_err(|failure| pair.explain(failure))?;
        }
        let mut rows = self.latencies(&echoes);
        rows.extend(self.rates(rates));
        rows.extend(self.loaded(&loaded));
        Ok(rows)
    }

    fn echo(&self, pair: &Pair, bytes: usize) -> Outcome<Echo> {
        let plan = &self.plan;
        let limit = || latency::limit_of(self.transport, self.waiting, plan, bytes);
        let machine = pair.frozen(limit)?;
        let native = pair.echo(plan, bytes, Encoding::Native)?;
        let xdr = pair.echo(plan, bytes, Encoding::Xdr)?;
        Ok(Echo { machine, native, xdr })
    }

    /// One name for the limits of all sizes, which are measured in different manners.
    fn limit_name(&self, machine: &RoundTrip) -> &'static str {
        match (client::is_within_node(self.transport.scheme), self.waiting) {
            (true, waiting) if waiting != Waiting::Sleeping => "bare message",
            _ => machine.name,
        }
    }

    fn latencies(&self, echoes: &Found<usize, Echo>) -> Vec<Row> {
        let how = format!(
            "typed, asynchronous, with a deadline, one after the other, bytes in a vector; the \
             limit: a message of that size there and back, copied in and out on both sides where both \
             spin over shared memory, a wake-up without bytes where they sleep; {}",
            self.plan.cores.describe(&format!("{} processes", self.waiting.label()))
        );
        let mut rows = Vec::new();
        for (at, (bytes, found)) in echoes.iter().enumerate() {
            let mut row = |plot, series: &str, what: &str, by: Pick, of: Pick| {
                let echo = typical(found.iter().collect(), |echo: &&Echo| by(echo).0 / by(echo).1);
                let (value, limit) = of(echo);
                let limit = Some((self.limit_name(&echo.machine), limit));
                let word = self.waiting.label();
                let what = format!("echo{what}, {}, {word}", output::size(*bytes as u64));
                let row = Row::new(self.transport.scheme, what, (value, "ns"), limit, &how);
                let row = row.doubted(echo.doubt());
                rows.push(row.at(plot, &self.panel, series, *bytes as f64).dense());
                rows.len() - 1
            };
            let (native, xdr): (Pick, Pick) =
                (|e| (e.native.median, e.machine.median), |e| (e.xdr.median, e.machine.median));
            let first = row(Plot::Latency, "petasos", "", native, native);
            row(Plot::Latency, "petasos, XDR", " in XDR", xdr, xdr);
            // All of one round, that of the median, so that they are in order.
            let p99_9: Pick = |e| (e.native.p99_9, e.machine.p99_9);
            row(Plot::Percentiles, "p50", " p50", native, |e| (e.native.p50, e.machine.p50));
            row(Plot::Percentiles, "p99", " p99", native, |e| (e.native.p99, e.machine.p99));
            let last = row(Plot::Percentiles, "p99.9", " p99.9", native, p99_9);
            let fewest = found.iter().map(|echo| echo.native.samples).min().unwrap_or(0);
            let few = limits::too_few(fewest, limits::FOR_P99_9);
            rows[last].doubt = rows[last].doubt.take().or(few);
            let smaller = at.checked_sub(1).map(|before| &echoes[before].1);
            rows[first].step = smaller.and_then(|smaller| step(smaller, found));
        }
        rows
    }

    fn rates(&self, rates: Found<(usize, usize), Beside>) -> Vec<Row> {
        let how = "echoes by one client to one server, the oldest awaited before the next begins; \
                   median of runs of 1 ms or more; the limit: bare messages of that size, one at a time";
        let row = |((bytes, depth), found): ((usize, usize), Vec<Beside>)| {
            let rate = Beside::typical(found);
            let (size, word) = (output::size(bytes as u64), self.waiting.label());
            let what = format!("echo rate, {size}, {word}, {depth} in flight");
            let name = format!("{}, one at a time", figures::spoken(rate.of));
            let limit = Some((name.as_str(), rate.limit));
            let row = Row::new(self.transport.scheme, what, (rate.value, "calls/s"), limit, how);
            row.at(Plot::Rate, &self.panel, &size, depth as f64).dense()
        };
        rates.into_iter().map(row).collect()
    }

    fn loaded(&self, loaded: &Found<usize, Percentiles>) -> Vec<Row> {
        let how = "64-byte echoes, the oldest awaited before the next begins; each timed from its \
                   begin to its result; medians of rounds";
        let mut rows = Vec::new();
        for (depth, found) in loaded {
            for (at, name) in ["p50", "p99", "p99.9"].into_iter().enumerate() {
                let of = |found: &Percentiles| [found.p50, found.p99, found.p99_9][at];
                let value = limits::median(&mut found.iter().map(of).collect::<Vec<_>>());
                let word = self.waiting.label();
                let what = format!("echo under load {name}, 64 B, {word}, {depth} in flight");
                let fewest = found.iter().map(|found| found.samples).min().unwrap_or(0);
                let least = [1, limits::FOR_P99, limits::FOR_P99_9][at];
                let row = Row::new(self.transport.scheme, what, (value, "ns"), None, how);
                let row = row.doubted(limits::too_few(fewest, least));
                rows.push(row.at(Plot::UnderLoad, &self.panel, name, *depth as f64).dense());
            }
        }
        rows
    }
}

/// The time of a size as a multiple of that of the next smaller one, without the machine's own time
/// for the additional bytes: the median of the rounds.
fn step(smaller: &[Echo], larger: &[Echo]) -> Option<f64> {
    let step = |(smaller, larger): (&Echo, &Echo)| {
        let bytes = (larger.machine.median - smaller.machine.median).max(0.0);
        (larger.native.median - bytes).max(0.0) / smaller.native.median
    };
    let mut steps: Vec<f64> = smaller.iter().zip(larger).map(step).collect();
    (!steps.is_empty()).then(|| limits::median(&mut steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_without_the_bytes() {
        let time = |median: f64| RoundTrip {
            name: "test",
            unit: "ns",
            median,
            p50: median,
            p99: median,
            p99_9: median,
            batches: 1,
            batch: 1,
            samples: 1,
            doubt: None,
            how: String::new(),
        };
        let echo =
            |machine, ours| Echo { machine: time(machine), native: time(ours), xdr: time(ours) };
        // The machine takes 100 longer, Petasos 300.
        let step_of = |larger| step(&[echo(100.0, 200.0)], &[larger]).unwrap();
        assert_eq!(step_of(echo(200.0, 500.0)), 2.0);
        // A machine that is faster with more bytes is noise.
        assert_eq!(step_of(echo(50.0, 200.0)), 1.0);
        assert!(step(&[], &[]).is_none());
    }
}
