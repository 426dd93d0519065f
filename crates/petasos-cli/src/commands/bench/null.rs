//! Calls that do nothing: how long one takes, and how many there are in a second.

use super::Bench;
use crate::{
    beside::{Beside, typical},
    exit::Outcome,
    figures::{self, Pair, Row, Setting},
    latency::{self, Latency},
    server::Waiting,
};
use petasos::Transport;

/// Calls under way at a time.
const IN_FLIGHT: [usize; 3] = [1, 16, 64];

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    let mut ways = vec![figures::spinning(&bench.plan), Waiting::Sleeping];
    ways.dedup();
    for waiting in ways {
        bench.progress.step(format!("{}: calls, {}", transport.scheme, word(waiting)));
        let measure = || calls(bench, transport, waiting);
        rows.extend(figures::on_client_core(&bench.plan, measure)?);
    }
    Ok(rows)
}

fn word(waiting: Waiting) -> &'static str {
    if waiting == Waiting::Sleeping { "blocking" } else { "spinning" }
}

fn calls(bench: &Bench, transport: &'static Transport, waiting: Waiting) -> Outcome<Vec<Row>> {
    let (scheme, plan) = (transport.scheme, &bench.plan);
    let word = word(waiting);
    let limit = latency::limit(transport, waiting);
    let setting = Setting {
        transport,
        waiting,
        plan,
        secret: &bench.secret,
        store: None,
        scratch: &bench.scratch,
    };
    let mut latencies = Vec::new();
    let mut rates = [const { Vec::new() }; IN_FLIGHT.len()];
    for _ in 0..bench.rounds {
        let mut pair = Pair::start(&setting)?;
        let mut work = || {
            let found = pair.latency(plan, limit)?;
            for (rates, in_flight) in rates.iter_mut().zip(IN_FLIGHT) {
                let value = pair.rate(in_flight, plan.time)?;
                let limit = 1e9 / found.machine.median;
                rates.push(Beside { value, limit, of: found.machine.name });
            }
            Ok(found)
        };
        match work() {
            Ok(found) => latencies.push(found),
            Err(failure) => return Err(pair.explain(failure)),
        }
    }
    let Latency { machine, null, small } = typical(latencies, Latency::ratio);
    let how = format!(
        "typed, asynchronous, with a deadline, one after the other; medians of short batches, p99 \
         of single calls; {}",
        plan.cores.describe(&format!("{word} processes"))
    );
    let time = |what: &str, value, limit| {
        let limit = Some((machine.name, limit));
        Row::new(scheme, format!("{what}, {word}"), (value, "ns"), limit, &how)
    };
    let mut rows = vec![
        time("null call", null.median, machine.median),
        time("null call p99", null.p99, machine.p99),
        time("64-byte call", small.median, machine.median),
    ];
    for (in_flight, rates) in IN_FLIGHT.into_iter().zip(rates) {
        let rate = Beside::typical(rates);
        let what = format!("call rate, {word}, {in_flight} in flight");
        let one_at_a_time = format!("{}, one at a time", rate.of);
        let limit = Some((one_at_a_time.as_str(), rate.limit));
        let how = "null calls by one client to one server, the oldest awaited before the next \
                   begins; median of runs of 1 ms";
        rows.push(Row::new(scheme, what, (rate.value, "calls/s"), limit, how));
    }
    Ok(rows)
}
