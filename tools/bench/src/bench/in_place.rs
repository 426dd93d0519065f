//! Memory of the transport that is read in place, beside a pull by copy, and the process's own
//! memory.
//!
//! To read is to add up all words once: a program does at least that with data that it asks for.

use super::Bench;
use crate::{
    bare::PAGE,
    beside::Beside,
    exit::{Code, Failure, Outcome},
    figures::Row,
    limits, output,
    service::sum,
    waiting::Waiting,
};
use petasos::{Transport, fabric::Region};

const SIZES: [usize; 3] = [1 << 20, 16 << 20, 256 << 20];
const QUICK: [usize; 2] = [1 << 20, 16 << 20];

/// Bytes that are read at a time, into the nearest cache.
const PIECE: usize = 8 << 10;

const OWN: &str = "own memory, read";

fn sizes(bench: &Bench) -> &'static [usize] {
    if bench.quick { &QUICK } else { &SIZES }
}

pub(super) fn steps(bench: &Bench) -> usize {
    sizes(bench).len()
}

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for &bytes in sizes(bench) {
        bench.step(transport, format_args!("read in place, {}", output::size(bytes as u64)));
        let found = limits::on_client_core(&bench.plan, || of_size(bench, transport, bytes))?;
        rows.extend(found.into_iter().flatten());
    }
    Ok(rows)
}

/// Read in place, and pulled and read; none where the transport does not map.
fn of_size(
    bench: &Bench,
    transport: &'static Transport,
    bytes: usize,
) -> Outcome<Option<[Row; 2]>> {
    let plan = &bench.plan_of(4);
    let setting = bench.setting(transport, Waiting::for_latency(plan), plan);
    let (mut in_place, mut pulled) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let (mut client, server) = setting.bare()?;
        if !client.can_map() {
            return Ok(None);
        }
        let target = client.memory(bytes, true)?;
        let mapped = client.map(&target)?;
        let own = Region::zeroed(bytes);
        client.get(&target, &[own.whole()])?;
        let (of_own, of_mapped) = {
            // The server takes no part in it.
            let _frozen = server.freeze()?;
            let of_own = limits::transfers(plan, bytes, 0, || read(&own, bytes))?;
            (of_own.median, limits::transfers(plan, bytes, 0, || read(&mapped, bytes))?.median)
        };
        let of_pulled = limits::transfers(plan, bytes, 0, || {
            client.get(&target, &[own.whole()])?;
            read(&own, bytes)
        })?;
        in_place.push(Beside { value: of_mapped, limit: of_own, of: OWN });
        pulled.push(Beside { value: of_pulled.median, limit: of_own, of: OWN });
        // The client ends before its server.
        drop(client);
    }
    let row = |what: &str, found: Vec<Beside>, how: &str| {
        let Beside { value, limit, of } = Beside::typical(found);
        let what = format!("{what}, {}", output::size(bytes as u64));
        Row::new(transport.scheme, what, (value, "GB/s"), Some((of, limit)), how)
    };
    Ok(Some([
        row(
            "read in place",
            in_place,
            "the words of the peer's memory, which its transport allocated, added up where they lie, \
             8 KiB at a time, against those of the process's own memory",
        ),
        row(
            "pulled and read",
            pulled,
            "the same memory copied by a get into its own, and its words added up there",
        ),
    ]))
}

/// Adds up the words of memory that was filled by the server.
fn read(memory: &Region, bytes: usize) -> Outcome {
    let mut piece = [0; PIECE];
    let mut all = 0_u64;
    for at in (0..bytes).step_by(PIECE) {
        let part = &mut piece[..PIECE.min(bytes - at)];
        memory.read(at, part);
        all = all.wrapping_add(sum(part));
    }
    match all == bytes.div_ceil(PAGE) as u64 {
        true => Ok(()),
        false => Err(Failure::new(Code::Mismatch, "other bytes were read than were written")),
    }
}
