//! Calls that do nothing: the time of one, and the rate.

use super::Bench;
use crate::{
    beside::{Beside, typical},
    exit::Outcome,
    figures::Row,
    latency::{self, Latency},
    limits,
    load::Load,
    plots::Plot,
    waiting::Waiting,
};
use petasos::{Transport, wire::Encoding};

/// Numbers of calls in flight.
pub(super) const IN_FLIGHT: [usize; 5] = [1, 4, 16, 64, 256];
pub(super) const QUICK_IN_FLIGHT: [usize; 3] = [1, 16, 64];

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for waiting in bench.waitings() {
        bench.step(transport, format_args!("null calls, {}", waiting.label()));
        let measure = || calls(bench, transport, waiting);
        rows.extend(limits::on_client_core(&bench.plan, measure)?);
    }
    Ok(rows)
}

fn calls(bench: &Bench, transport: &'static Transport, waiting: Waiting) -> Outcome<Vec<Row>> {
    let (scheme, plan) = (transport.scheme, &bench.plan);
    let word = waiting.label();
    let limit = latency::limit(transport, waiting);
    let setting = bench.setting(transport, waiting, plan);
    let in_flight = if bench.quick { &QUICK_IN_FLIGHT[..] } else { &IN_FLIGHT };
    let (mut native, mut xdr) = (Vec::new(), Vec::new());
    let mut rates = vec![Vec::new(); in_flight.len()];
    for _ in 0..bench.rounds {
        let mut pair = setting.pair()?;
        let mut work = || {
            let found = pair.latency(plan, limit, Encoding::Native)?;
            for (rates, in_flight) in rates.iter_mut().zip(in_flight) {
                let value = pair.rate(*in_flight, plan.time / 3)?;
                let limit = 1e9 / found.machine.median;
                rates.push(Beside { value, limit, of: found.machine.name });
            }
            native.push(found);
            xdr.push(pair.latency(&bench.plan_of(2), limit, Encoding::Xdr)?);
            Ok(())
        };
        work().map_err(|failure| pair.explain(failure))?;
    }
    let how = format!(
        "typed, asynchronous, with a deadline, one after the other; medians of short batches, p99 \
         and p99.9 of single calls; {}",
        plan.cores.describe(&format!("{word} processes"))
    );
    let row = |found: &[Latency], what: &str, by: Pick, of: Pick| {
        let found = typical(found.iter().collect(), |found| by(found).0 / by(found).1);
        let (value, limit) = of(found);
        let limit = Some((found.machine.name, limit));
        let row = Row::new(scheme, format!("{what}, {word}"), (value, "ns"), limit, &how);
        row.doubted(found.doubt())
    };
    let null: Pick = |found| (found.null.median, found.machine.median);
    let small: Pick = |found| (found.small.median, found.machine.median);
    // All of one round, that of the median, so that they are in order.
    let p99: Pick = |found| (found.null.p99, found.machine.p99);
    let p99_9: Pick = |found| (found.null.p99_9, found.machine.p99_9);
    let typical_null = typical(native.iter().collect(), |found| null(found).0 / null(found).1);
    let few = limits::too_few(typical_null.null.samples, limits::FOR_P99_9);
    let mut rows = vec![
        row(&native, "null call", null, null),
        row(&native, "null call p99", null, p99),
        row(&native, "null call p99.9", null, p99_9).doubted(few),
        row(&native, "64-byte call", small, small),
        row(&xdr, "null call in XDR", null, null),
        row(&xdr, "64-byte call in XDR", small, small),
    ];
    let panel = format!("{scheme}, {word}");
    for (in_flight, rates) in in_flight.iter().zip(rates) {
        let rate = Beside::typical(rates);
        let what = format!("call rate, {word}, {in_flight} in flight");
        let one_at_a_time = format!("{}, one at a time", rate.of);
        let limit = Some((one_at_a_time.as_str(), rate.limit));
        let how = "null calls by one client to one server, the oldest awaited before the next \
                   begins; median of runs of 1 ms or more";
        let row = Row::new(scheme, what, (rate.value, "calls/s"), limit, how);
        rows.push(row.at(Plot::Rate, &panel, "null call", *in_flight as f64));
    }
    Ok(rows)
}

/// A figure of Petasos, and the machine's.
type Pick = fn(&Latency) -> (f64, f64);
