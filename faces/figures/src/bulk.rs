//! Bulk data between memories, beside what the machine can do.
//!
//! Figures differ by a third from one allocation to the next. So each round has a server process
//! and memory of its own, as the limit has.

use crate::{
    beside::Beside,
    client,
    exit::{Code, Failure, Outcome},
    limits::{self, BulkPoint, Plan},
    noise::Noise,
    pair::{Pair, ServerConnection, Setting},
    service::Direction,
};
use petasos::{
    Bulk,
    fabric::{Access, Region, Support},
};
use std::time::{Duration, Instant};

/// Bulk data of one size, beside its limits.
pub struct Moved {
    pub pull: Beside,
    pub push: Beside,
}

/// What is moved.
#[derive(Clone, Copy)]
pub struct Amount {
    pub bytes: usize,
    /// The caller's memory is the transport's: others can map it.
    pub of_transport: bool,
    pub rounds: usize,
}

/// Measures transfers in both directions beside what the machine can do. `None` if the transport
/// has no memory of its own. What comes back is checked, once.
pub fn measure(setting: &Setting<'_>, amount: Amount) -> Outcome<Option<Moved>> {
    let (mut pulls, mut pushes) = (Vec::new(), Vec::new());
    for round in 0..amount.rounds {
        let mut pair = Pair::start(setting)?;
        if amount.of_transport && pair.engine.capabilities().map == Support::None {
            return Ok(None);
        }
        let work = || {
            let limits = {
                // It would take a core of the limit's.
                let _frozen = pair.server.freeze()?;
                limits_of(setting, amount)?
            };
            let (plan, bytes) = (setting.plan, amount.bytes);
            let memory = pair.memory(bytes, amount.of_transport)?;
            if round == 0 {
                pair.check(&memory, bytes)?;
            }
            let pulled = pair.transfers(plan, Direction::Pull, &memory, bytes)?;
            let pushed = pair.transfers(plan, Direction::Push, &memory, bytes)?;
            Ok((limits, pulled.median, pushed.median))
        };
        let ([of_pull, of_push], pulled, pushed) = match work() {
            Ok(figures) => figures,
            Err(failure) => return Err(pair.explain(failure)),
        };
        pulls.push(Beside::bandwidth(pulled, &of_pull));
        pushes.push(Beside::bandwidth(pushed, &of_push));
    }
    Ok(Some(Moved { pull: Beside::typical(pulls), push: Beside::typical(pushes) }))
}

/// The limits of pull and of push that belong to the transport and the memory.
pub fn limits_of(setting: &Setting<'_>, amount: Amount) -> Outcome<[limits::Bulk; 2]> {
    let (plan, sizes) = (setting.plan, &[amount.bytes]);
    let both = match (client::is_within_node(setting.transport.scheme), amount.of_transport) {
        (true, true) => limits::memcpy(plan, sizes)?,
        (true, false) => {
            // Where one may not reach into the other, both map what they share.
            let limit = |between: limits::BulkFn| {
                between(plan, sizes).or_else(|_| limits::memcpy(plan, sizes))
            };
            return Ok([limit(limits::vm_readv)?, limit(limits::vm_writev)?]);
        }
        // Whichever is faster here: without a pause, or one request at a time.
        _ => {
            let (stream, fetch) =
                (limits::tcp_stream(plan, sizes)?, limits::tcp_fetch(plan, sizes)?);
            if stream.first() > fetch.first() { stream } else { fetch }
        }
    };
    Ok([both.clone(), both])
}

impl ServerConnection {
    /// Memory that the server reaches, with a pattern in it.
    pub fn memory(&self, bytes: usize, of_transport: bool) -> Outcome<Region> {
        let region = if of_transport {
            self.engine.alloc(bytes).map_err(Failure::system("memory of the transport"))?
        } else {
            Region::zeroed(bytes)
        };
        let pattern = pattern();
        for at in (0..bytes).step_by(PATTERN) {
            region.write(at, &pattern[..PATTERN.min(bytes - at)]);
        }
        Ok(region)
    }

    /// Bulk data between the first `bytes` of `memory` and memory that the server keeps.
    pub fn transfers(
        &self,
        plan: &Plan,
        way: Direction,
        memory: &Region,
        bytes: usize,
    ) -> Outcome<BulkPoint> {
        let lent = self.lend(way, memory, bytes)?;
        // The first one gets the server its memory.
        self.transfer(&lent, way, 1)?;
        let begin = Instant::now();
        self.transfer(&lent, way, 1)?;
        let times = at_a_call(begin.elapsed(), bytes);
        let move_all = || self.transfer(&lent, way, times);
        let mut point = limits::transfers(plan, bytes * times, 0, move_all)?;
        self.engine.block_on(lent.close())?;
        point.bytes = bytes;
        Ok(point)
    }

    /// Arguments of so many bytes, each copied into an array that the server borrows, and looks at
    /// where it lies, in GB/s; `None` where it cannot.
    pub fn loans(&self, plan: &Plan, bytes: usize) -> Outcome<Option<f64>> {
        let (engine, bench) = (&self.engine, self.bench());
        if engine.capabilities().map == Support::None {
            return Ok(None);
        }
        let mut argument = vec![7_u64; bytes / size_of::<u64>()];
        let Some(last) = argument.len().checked_sub(1) else { return Ok(None) };
        let mut array = engine.array::<u64>(argument.len())?;
        let lend = || -> Outcome {
            // Another one each time.
            argument[0] = argument[0].wrapping_add(1);
            array.write(0, &argument);
            let ends = engine.block_on(bench.ends(array.loan()))?;
            let ends = ends.map_err(|text| Failure::new(Code::Failed, text))?;
            match ends == Some(argument[0].wrapping_add(argument[last])) {
                true => Ok(()),
                false => Err(Failure::new(Code::Mismatch, "the server saw another argument")),
            }
        };
        let point = limits::transfers(plan, bytes, 0, lend)?;
        engine.block_on(array.close())?;
        Ok(Some(point.median))
    }

    fn lend(&self, way: Direction, memory: &Region, bytes: usize) -> Outcome<Bulk> {
        let slice = memory.slice(0, bytes).ok_or_else(|| {
            Failure::new(Code::Failed, format!("{bytes} bytes of {} in memory", memory.len()))
        })?;
        let access = if way == Direction::Pull { Access::READ } else { Access::WRITE };
        Ok(self.engine.bulk(slice, access)?)
    }

    /// A call in which the server moves all that is lent, so many times.
    fn transfer(&self, lent: &Bulk, way: Direction, times: usize) -> Outcome {
        let call = self.bench().transfer(lent.handle(), way, times as u32);
        self.engine.block_on(call)?.map_err(|text| Failure::new(Code::Failed, text))
    }

    fn transfer_once(&self, way: Direction, memory: &Region, bytes: usize) -> Outcome {
        let lent = self.lend(way, memory, bytes)?;
        self.transfer(&lent, way, 1)?;
        Ok(self.engine.block_on(lent.close())?)
    }

    /// Makes sure that what was pulled last comes back whole: for memory with the pattern.
    pub fn check(&self, memory: &Region, bytes: usize) -> Outcome {
        self.transfer_once(Direction::Pull, memory, bytes)?;
        let blank = vec![0xff; PATTERN];
        for at in (0..bytes).step_by(PATTERN) {
            memory.write(at, &blank[..PATTERN.min(bytes - at)]);
        }
        self.transfer_once(Direction::Push, memory, bytes)?;
        let (pattern, mut found) = (pattern(), blank);
        for at in (0..bytes).step_by(PATTERN) {
            let len = PATTERN.min(bytes - at);
            memory.read(at, &mut found[..len]);
            if let Some(wrong) = (0..len).find(|&i| found[i] != pattern[i]) {
                let text = format!("byte {} of {bytes} came back wrong", at + wrong);
                return Err(Failure::new(Code::Mismatch, text));
            }
        }
        Ok(())
    }
}

/// How many transfers of so many bytes, one of which takes about `one`, make up a call: so many
/// that its own time counts for nothing, but no more than are over soon on a slow network.
fn at_a_call(one: Duration, bytes: usize) -> usize {
    let soon = CALL_TIME.as_nanos() / one.as_nanos().max(1);
    ((128 << 20) / bytes).clamp(1, 1000).min(soon.max(1) as usize)
}

/// A call of several transfers takes no longer than about this.
const CALL_TIME: Duration = Duration::from_millis(100);

/// Bytes after which the pattern begins again: prime, so that no block begins like another.
const PATTERN: usize = 1_048_573;

fn pattern() -> Vec<u8> {
    let mut pattern = vec![0; PATTERN];
    Noise::from_seed(0x9e37_79b9_7f4a_7c15).fill(&mut pattern);
    pattern
}
