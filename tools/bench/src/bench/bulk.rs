//! Bulk data in both directions, by size.

use super::{Bench, in_place};
use crate::{
    beside::Beside,
    bulk::{self, Amount, Moved},
    exit::Outcome,
    figures::Row,
    limits,
    machine::memory,
    output,
    plots::Plot,
    waiting::Waiting,
};
use petasos::Transport;

const SIZES: [usize; 10] = [
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
    1 << 30,
];
const QUICK: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// Buffers of the largest size at a time: of the limit and of Petasos, on both sides, and some
/// room.
const BUFFERS: u64 = 6;

fn sizes(bench: &Bench) -> &'static [usize] {
    if bench.quick { &QUICK } else { &SIZES }
}

pub(super) fn steps(bench: &Bench) -> usize {
    2 * sizes(bench).len() + in_place::steps(bench)
}

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for of_transport in [false, true] {
        let word = if of_transport { "its own memory" } else { "any memory" };
        for &bytes in sizes(bench) {
            let size = output::size(bytes as u64);
            bench.step(transport, format_args!("bulk data of {word}, {size}"));
            let available = memory("MemAvailable").unwrap_or(u64::MAX);
            if available < BUFFERS * bytes as u64 {
                let available = output::size(available >> 20 << 20);
                bench.skip(format!(
                    "transfers of {size}, which need {BUFFERS} times as much memory: {available} \
                     are free"
                ));
                continue;
            }
            let amount = Amount { bytes, of_transport, rounds: bench.rounds };
            let measure = || of_size(bench, transport, amount);
            rows.extend(limits::on_client_core(&bench.plan, measure)?.into_iter().flatten());
        }
    }
    rows.extend(in_place::measure(bench, transport)?);
    Ok(rows)
}

fn of_size(
    bench: &Bench,
    transport: &'static Transport,
    amount: Amount,
) -> Outcome<Option<[Row; 2]>> {
    let plan = &bench.plan_of(4);
    let setting = bench.setting(transport, Waiting::for_latency(plan), plan);
    let found = bulk::measure(&setting, amount)?;
    let Some(Moved { pull, push }) = found else { return Ok(None) };
    let memory = if amount.of_transport { " of the transport's memory" } else { "" };
    let how = format!(
        "one transfer in flight by the server, {}; memory of both sides reused, checked once",
        plan.cores.describe("processes")
    );
    let row = |direction: &str, rate: Beside| {
        let what = format!("{direction}{memory}, {}", output::size(amount.bytes as u64));
        let limit = Some((rate.of, rate.limit));
        let row = Row::new(transport.scheme, what, (rate.value, "GB/s"), limit, &how);
        let series = format!("{direction}{memory}");
        row.at(Plot::Bandwidth, transport.scheme, &series, amount.bytes as f64)
    };
    Ok(Some([row("pull", pull), row("push", push)]))
}
