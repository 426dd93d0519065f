//! Bulk data, both ways, by size.

use super::{Bench, in_turn};
use crate::{
    exit::Outcome,
    figures::{self, Pair, Row, Setting},
    limits, output,
    service::Way,
};
use petasos::{Transport, fabric::Support};

const SIZES: [usize; 5] = [64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
const QUICK: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

/// Where the caller's memory is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// Anywhere.
    Ordinary,
    /// The transport: others can map it.
    Transport,
}

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let sizes = if bench.quick { &QUICK[..] } else { &SIZES };
    let mut rows = Vec::new();
    for memory in [Memory::Ordinary, Memory::Transport] {
        let word = if memory == Memory::Ordinary { "any memory" } else { "its own memory" };
        bench.progress.step(format!("{}: bulk data, {word}", transport.scheme));
        for &bytes in sizes {
            let found =
                figures::on_client_core(&bench.plan, || of_size(bench, transport, memory, bytes))?;
            rows.extend(found.into_iter().flatten());
        }
    }
    Ok(rows)
}

/// The limit that belongs to the transport and the memory.
fn limit(
    bench: &Bench,
    transport: &Transport,
    memory: Memory,
    bytes: usize,
) -> Outcome<(&'static str, f64)> {
    let (plan, sizes) = (&bench.plan, &[bytes]);
    let found = match (transport.scheme, memory) {
        ("shm", Memory::Transport) => limits::memcpy(plan, sizes)?,
        // Where that is refused, memory mapped by both takes its place.
        ("shm", Memory::Ordinary) => {
            limits::vm_readv(plan, sizes).or_else(|_| limits::memcpy(plan, sizes))?
        }
        // Whichever is faster here: without a pause, or one request at a time.
        _ => {
            let (stream, fetch) =
                (limits::tcp_stream(plan, sizes)?, limits::tcp_fetch(plan, sizes)?);
            if rate(&stream) > rate(&fetch) { stream } else { fetch }
        }
    };
    Ok((found.name, rate(&found)))
}

fn rate(limit: &limits::Bulk) -> f64 {
    limit.points.first().map_or(0.0, |point| point.median)
}

fn of_size(
    bench: &Bench,
    transport: &'static Transport,
    kind: Memory,
    bytes: usize,
) -> Outcome<Option<Vec<Row>>> {
    let (scheme, plan) = (transport.scheme, &bench.plan);
    let setting = Setting {
        transport,
        waiting: figures::spinning(plan),
        plan,
        secret: &bench.secret,
        store: None,
        scratch: &bench.scratch,
    };
    // The limit is measured while the server sleeps for want of a client: one server serves all
    // rounds, so that its memory is there.
    let mut pair = Pair::start(&Setting { waiting: crate::server::Waiting::Adaptive, ..setting })?;
    if kind == Memory::Transport && pair.engine.capabilities().map == Support::None {
        return Ok(None);
    }
    let work = || {
        let memory = pair.memory(bytes, kind == Memory::Transport)?;
        pair.check_bulk(&memory, bytes)?;
        let mut name = "";
        let medians = in_turn(bench.rounds, || {
            let (found, machine) = limit(bench, transport, kind, bytes)?;
            name = found;
            let pulled = pair.bulk(plan, Way::Pull, &memory, bytes)?;
            let pushed = pair.bulk(plan, Way::Push, &memory, bytes)?;
            Ok([machine, pulled.median, pushed.median])
        })?;
        Ok((name, medians))
    };
    let (name, [machine, pulled, pushed]) = match work() {
        Ok(figures) => figures,
        Err(failure) => return Err(pair.explain(failure)),
    };
    let memory = match kind {
        Memory::Ordinary => "",
        Memory::Transport => " of the transport's memory",
    };
    let how = format!(
        "one transfer in flight by the server, {}; both sides' memory used again, checked once",
        plan.cores.describe("processes")
    );
    let row = |way: &str, rate| {
        let what = format!("{way}{memory}, {}", output::size(bytes as u64));
        Row::new(scheme, what, (rate, "GB/s"), Some((name, machine)), &how)
    };
    Ok(Some(vec![row("pull", pulled), row("push", pushed)]))
}
