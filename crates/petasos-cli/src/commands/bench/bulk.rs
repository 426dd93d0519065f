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

/// The limits that belong to the transport and the memory, for pull and push.
fn limits(
    bench: &Bench,
    transport: &Transport,
    memory: Memory,
    bytes: usize,
) -> Outcome<[(&'static str, f64); 2]> {
    let (plan, sizes) = (&bench.plan, &[bytes]);
    let both = match (transport.scheme, memory) {
        ("shm", Memory::Transport) => limits::memcpy(plan, sizes)?,
        ("shm", Memory::Ordinary) => return figures::between_processes(plan, bytes),
        // Whichever is faster here: without a pause, or one request at a time.
        _ => {
            let (stream, fetch) =
                (limits::tcp_stream(plan, sizes)?, limits::tcp_fetch(plan, sizes)?);
            if stream.first() > fetch.first() { stream } else { fetch }
        }
    };
    Ok([(both.name, both.first()); 2])
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
        let mut names = ["", ""];
        let medians = in_turn(bench.rounds, || {
            let found = limits(bench, transport, kind, bytes)?;
            names = found.map(|(name, _)| name);
            let [pull, push] = found.map(|(_, rate)| rate);
            let pulled = pair.bulk(plan, Way::Pull, &memory, bytes)?;
            let pushed = pair.bulk(plan, Way::Push, &memory, bytes)?;
            Ok([pull, push, pulled.median, pushed.median])
        })?;
        Ok((names, medians))
    };
    let (names, [pull, push, pulled, pushed]) = match work() {
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
    let row = |way: &str, rate, limit| {
        let what = format!("{way}{memory}, {}", output::size(bytes as u64));
        Row::new(scheme, what, (rate, "GB/s"), Some(limit), &how)
    };
    let [of_pull, of_push] = names;
    Ok(Some(vec![row("pull", pulled, (of_pull, pull)), row("push", pushed, (of_push, push))]))
}
