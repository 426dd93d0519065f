//! A large buffer that the target pulls in blocks, several of them in flight: by size of block and
//! by depth, and with work on each block while the next ones come.

use super::Bench;
use crate::{
    beside::Beside,
    bulk::{self, Amount},
    exit::{Code, Failure, Outcome},
    figures::Row,
    limits::{self, Plan},
    output,
    pair::{Pair, Setting},
    plots::Plot,
    service::{Flow, sum},
    waiting::Waiting,
};
use petasos::{
    Bulk, Transport,
    fabric::{Access, Region},
};
use std::time::{Duration, Instant};

/// All that is pulled.
const WHOLE: usize = 128 << 20;
const QUICK_WHOLE: usize = 64 << 20;

/// The blocks in flight are at most such a part of it: their memory is new to each pull.
const PART: usize = 8;

const BLOCKS: [usize; 7] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const QUICK_BLOCKS: [usize; 3] = [64 << 10, 512 << 10, 2 << 20];

const DEPTHS: [u32; 4] = [1, 2, 4, 8];
const QUICK_DEPTHS: [u32; 2] = [1, 4];

/// Blocks on which there is work.
const WORKED: usize = 512 << 10;

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let plan = bench.plan_of(10);
    let setting = bench.setting(transport, Waiting::for_latency(&plan), &plan);
    let experiment = Experiment { bench, transport, setting, plan };
    limits::on_client_core(&bench.plan, || experiment.measure())
}

struct Experiment<'a> {
    bench: &'a Bench,
    transport: &'static Transport,
    setting: Setting<'a>,
    plan: Plan,
}

/// The memory that is pulled, and the sum of its words.
struct Buffer<'a> {
    pair: &'a Pair,
    lent: Bulk,
    sum: u64,
}

/// Total times with work, and the longer of moving and working.
struct Worked {
    depth: u32,
    total: Beside,
}

impl Experiment<'_> {
    fn measure(&self) -> Outcome<Vec<Row>> {
        let (whole, blocks, depths) = match self.bench.quick {
            true => (QUICK_WHOLE, &QUICK_BLOCKS[..], &QUICK_DEPTHS[..]),
            false => (WHOLE, &BLOCKS[..], &DEPTHS[..]),
        };
        let cells = blocks.iter().flat_map(|b| depths.iter().map(move |d| (*b, *d)));
        let few = |(block, depth): &(usize, u32)| block * *depth as usize <= whole / PART;
        let mut moved: Vec<((usize, u32), Vec<Beside>)> =
            cells.filter(few).map(|cell| (cell, Vec::new())).collect();
        let mut worked: Vec<(u32, Vec<Beside>)> =
            depths.iter().map(|depth| (*depth, Vec::new())).collect();
        for round in 0..self.bench.rounds {
            self.bench.round(self.transport, "pipelined pulls", round);
            let mut pair = self.setting.pair()?;
            let mut work = || {
                let amount = Amount { bytes: whole, of_transport: false, rounds: 1 };
                let [limit, _] = pair.frozen(|| bulk::limits_of(&self.setting, amount))?;
                let memory = pair.memory(whole, false)?;
                let buffer = Buffer::lend(&pair, &memory)?;
                for ((block, depth), found) in &mut moved {
                    let time = buffer.time(&self.plan, flow(*block, *depth, 0, true))?;
                    found.push(Beside::bandwidth(whole as f64 / time, &limit));
                }
                for (depth, found) in &mut worked {
                    found.push(self.with_work(&buffer, *depth)?.total);
                }
                Ok(())
            };
            work().map_err(|failure| pair.explain(failure))?;
        }
        let mut rows = self.moved(whole, moved);
        rows.extend(worked.into_iter().map(|(depth, found)| {
            self.worked(whole, Worked { depth, total: Beside::typical(found) })
        }));
        Ok(rows)
    }

    /// Work that takes about as long as the move: there overlapping both counts most.
    fn with_work(&self, buffer: &Buffer<'_>, depth: u32) -> Outcome<Worked> {
        let time = |passes, moves| buffer.time(&self.plan, flow(WORKED, depth, passes, moves));
        let moving = time(0, true)?;
        let once = time(1, false)?;
        let passes = ((moving / once).round() as u32).max(1);
        let working = time(passes, false)?;
        let limit = moving.max(working);
        let of = if moving > working { "moving alone" } else { "working alone" };
        Ok(Worked { depth, total: Beside { value: time(passes, true)?, limit, of } })
    }

    fn moved(&self, whole: usize, moved: Vec<((usize, u32), Vec<Beside>)>) -> Vec<Row> {
        let how = format!(
            "{} of any memory pulled by the server in blocks, so many in flight; the limit: all of \
             it at once; {}",
            output::size(whole as u64),
            self.plan.cores.describe("processes")
        );
        let row = |((block, depth), found): ((usize, u32), Vec<Beside>)| {
            let rate = Beside::typical(found);
            let what = format!("pull in blocks, {}, {depth} deep", output::size(block as u64));
            let limit = Some((rate.of, rate.limit));
            let scheme = self.transport.scheme;
            let row = Row::new(scheme, what, (rate.value, "GB/s"), limit, &how);
            row.at(Plot::Pipeline, scheme, &format!("{depth} deep"), block as f64).dense()
        };
        moved.into_iter().map(row).collect()
    }

    fn worked(&self, whole: usize, Worked { depth, total }: Worked) -> Row {
        let how = format!(
            "{} pulled by the server in blocks of {}, and each block read so often that \
             working takes about as long as moving; the limit: the longer of both, each alone",
            output::size(whole as u64),
            output::size(WORKED as u64)
        );
        let what = format!("pull and work, {depth} deep");
        let (scheme, limit) = (self.transport.scheme, Some(("the longer alone", total.limit)));
        let row = Row::new(scheme, what, (total.value, "ns"), limit, how);
        row.at(Plot::Overlap, scheme, "moving and working", f64::from(depth))
    }
}

fn flow(block: usize, depth: u32, passes: u32, moves: bool) -> Flow {
    Flow { block: block as u64, depth, passes, moves }
}

impl Buffer<'_> {
    fn lend<'a>(pair: &'a Pair, memory: &Region) -> Outcome<Buffer<'a>> {
        let bytes = memory.len();
        let mut buffer = vec![0; 1 << 20];
        let mut all = 0_u64;
        for at in (0..bytes).step_by(buffer.len()) {
            let part = &mut buffer[..(1 << 20).min(bytes - at)];
            memory.read(at, part);
            all = all.wrapping_add(sum(part));
        }
        let lent = pair.engine.bulk(memory.whole(), Access::READ)?;
        Ok(Buffer { pair, lent, sum: all })
    }

    /// The time of a pull, in nanoseconds: the median of a few.
    fn time(&self, plan: &Plan, flow: Flow) -> Outcome<f64> {
        let bench = self.pair.bench();
        let (mut times, begin) = (Vec::new(), Instant::now());
        while times.len() < 3 || begin.elapsed() < plan.time {
            let start = Instant::now();
            let call = bench.pipeline(self.lent.handle(), flow);
            let found = self.pair.engine.block_on(call)?;
            times.push(start.elapsed().max(Duration::from_nanos(1)).as_nanos() as f64);
            let found = found.map_err(|text| Failure::new(Code::Failed, text))?;
            let expected = self.sum.wrapping_mul(u64::from(flow.passes));
            if flow.moves && found != expected {
                let text = format!("{} bytes were pulled, and others arrived", self.lent.len());
                return Err(Failure::new(Code::Mismatch, text));
            }
        }
        Ok(limits::median(&mut times))
    }
}
