//! Bulk data, both ways, by size.

use super::Bench;
use crate::{
    beside::Beside,
    bulk::{self, Amount, Moved},
    exit::Outcome,
    figures::{self, Row, Setting},
    limits::Plan,
    output,
};
use petasos::Transport;

const SIZES: [usize; 5] = [64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
const QUICK: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let sizes = if bench.quick { &QUICK[..] } else { &SIZES };
    let mut rows = Vec::new();
    for of_transport in [false, true] {
        let word = if of_transport { "its own memory" } else { "any memory" };
        bench.progress.step(format!("{}: bulk data, {word}", transport.scheme));
        for &bytes in sizes {
            let amount = Amount { bytes, of_transport, rounds: bench.rounds };
            let measure = || of_size(bench, transport, amount);
            rows.extend(figures::on_client_core(&bench.plan, measure)?.into_iter().flatten());
        }
    }
    Ok(rows)
}

fn of_size(
    bench: &Bench,
    transport: &'static Transport,
    amount: Amount,
) -> Outcome<Option<[Row; 2]>> {
    let plan = &Plan { time: bench.plan.time / 2, ..bench.plan };
    let setting = Setting {
        transport,
        waiting: figures::spinning(plan),
        plan,
        secret: &bench.secret,
        store: None,
        scratch: &bench.scratch,
    };
    let found = bulk::measure(&setting, amount)?;
    let Some(Moved { pull, push }) = found else { return Ok(None) };
    let memory = if amount.of_transport { " of the transport's memory" } else { "" };
    let how = format!(
        "one transfer in flight by the server, {}; both sides' memory used again, checked once",
        plan.cores.describe("processes")
    );
    let row = |way: &str, rate: Beside| {
        let what = format!("{way}{memory}, {}", output::size(amount.bytes as u64));
        let limit = Some((rate.of, rate.limit));
        Row::new(transport.scheme, what, (rate.value, "GB/s"), limit, &how)
    };
    Ok(Some([row("pull", pull), row("push", push)]))
}
