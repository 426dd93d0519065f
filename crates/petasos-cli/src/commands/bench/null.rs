//! Calls that do nothing: how long one takes, and how many there are in a second.

use super::{Bench, in_turn};
use crate::{
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
    let mut name = "";
    let setting = Setting {
        transport,
        waiting,
        plan,
        secret: &bench.secret,
        store: None,
        scratch: &bench.scratch,
    };
    let [machine, machine_p99, null, null_p99, small, one, many, most] =
        in_turn(bench.rounds, || {
            let mut pair = Pair::start(&setting)?;
            let work = || {
                let found = pair.latency(plan, limit)?;
                let mut rates = [0.0; IN_FLIGHT.len()];
                for (rate, in_flight) in rates.iter_mut().zip(IN_FLIGHT) {
                    *rate = pair.rate(in_flight, plan.time)?;
                }
                Ok((found, rates))
            };
            let (Latency { machine, null, small }, [one, many, most]) = match work() {
                Ok(figures) => figures,
                Err(failure) => return Err(pair.explain(failure)),
            };
            name = machine.name;
            let latencies = [machine.median, machine.p99, null.median, null.p99, small.median];
            let [a, b, c, d, e] = latencies;
            Ok([a, b, c, d, e, one, many, most])
        })?;
    let how = format!(
        "typed, asynchronous, with a deadline, one after the other; medians of short batches, p99 \
         of single calls; in slices beside the limit; {}",
        plan.cores.describe(&format!("{word} processes"))
    );
    let time = |what: &str, value, limit| {
        Row::new(scheme, format!("{what}, {word}"), (value, "ns"), Some((name, limit)), &how)
    };
    let mut rows = vec![
        time("null call", null, machine),
        time("null call p99", null_p99, machine_p99),
        time("64-byte call", small, machine),
    ];
    let one_at_a_time = format!("{name}, one at a time");
    for (in_flight, rate) in IN_FLIGHT.into_iter().zip([one, many, most]) {
        let what = format!("call rate, {word}, {in_flight} in flight");
        let limit = Some((one_at_a_time.as_str(), 1e9 / machine));
        let how = "null calls by one client to one server, the oldest awaited before the next \
                   begins; median of runs of 1 ms";
        rows.push(Row::new(scheme, what, (rate, "calls/s"), limit, how));
    }
    Ok(rows)
}
