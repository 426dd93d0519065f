//! Bulk data between memories, beside what the machine can do.
//!
//! Where the pages of a buffer lie makes a difference of a third. So each round has a server process
//! and memory of its own, as the limit has.

use crate::{
    beside::Beside,
    exit::{Code, Failure, Outcome},
    figures::{Pair, Setting},
    limits::{self, BulkPoint, Plan},
    service::Way,
};
use petasos::fabric::{Access, Region, Support};
use std::time::Duration;

/// The limits of pull and of push: their names, and GB/s.
pub(crate) type Limits = [(&'static str, f64); 2];

/// Bulk data of one size, beside its limits.
pub(crate) struct Bulk {
    /// Of pull and of push.
    pub(crate) names: [&'static str; 2],
    pub(crate) pull: Beside,
    pub(crate) push: Beside,
}

/// What is moved.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) bytes: usize,
    /// The caller's memory is the transport's: others can map it.
    pub(crate) of_transport: bool,
    pub(crate) rounds: usize,
}

/// Measures transfers in both directions beside `limits`. `None` if the transport has no memory of
/// its own. What comes back is checked, once.
pub(crate) fn measure(
    setting: &Setting<'_>,
    amount: Amount,
    limits: impl Fn() -> Outcome<Limits>,
) -> Outcome<Option<Bulk>> {
    let (mut names, mut pulls, mut pushes) = (["", ""], Vec::new(), Vec::new());
    for round in 0..amount.rounds {
        let mut pair = Pair::start(setting)?;
        if amount.of_transport && pair.engine.capabilities().map == Support::None {
            return Ok(None);
        }
        let work = || {
            let found = {
                // It would take a core of the limit's.
                let _frozen = pair.server.freeze()?;
                limits()?
            };
            let (plan, bytes) = (setting.plan, amount.bytes);
            let memory = pair.memory(bytes, amount.of_transport)?;
            if round == 0 {
                pair.check(&memory, bytes)?;
            }
            let pulled = pair.transfers(plan, Way::Pull, &memory, bytes)?;
            let pushed = pair.transfers(plan, Way::Push, &memory, bytes)?;
            Ok((found, pulled.median, pushed.median))
        };
        let ([of_pull, of_push], pulled, pushed) = match work() {
            Ok(figures) => figures,
            Err(failure) => return Err(pair.explain(failure)),
        };
        names = [of_pull.0, of_push.0];
        pulls.push(Beside { value: pulled, limit: of_pull.1 });
        pushes.push(Beside { value: pushed, limit: of_push.1 });
    }
    Ok(Some(Bulk { names, pull: Beside::typical(pulls), push: Beside::typical(pushes) }))
}

/// The limits of pull and push between memories of any kind in two processes. Where one may not
/// reach into the other, both map what they share.
pub(crate) fn between_processes(plan: &Plan, bytes: usize) -> Outcome<Limits> {
    let sizes = &[bytes];
    let limit = |between: limits::BulkFn| {
        let found = between(plan, sizes).or_else(|_| limits::memcpy(plan, sizes))?;
        Ok::<_, Failure>((found.name, found.first()))
    };
    Ok([limit(limits::vm_readv)?, limit(limits::vm_writev)?])
}

impl Pair {
    /// Memory that the server reaches, with a pattern in it.
    fn memory(&self, bytes: usize, of_transport: bool) -> Outcome<Region> {
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
    fn transfers(
        &self,
        plan: &Plan,
        way: Way,
        memory: &Region,
        bytes: usize,
    ) -> Outcome<BulkPoint> {
        // So many at a call that its own time counts for nothing.
        let times = ((128 << 20) / bytes).clamp(1, 1000);
        let slice = memory.slice(0, bytes).ok_or_else(|| {
            Failure::new(Code::Failed, format!("{bytes} bytes of {} in memory", memory.len()))
        })?;
        let access = if way == Way::Pull { Access::READ } else { Access::WRITE };
        let lent = self.engine.bulk(slice, access)?;
        let (bench, handle) = (self.bench(), lent.handle());
        let mut point = limits::transfers(plan, bytes * times, 0, || {
            let call = bench.transfer(handle.clone(), way, times as u32);
            self.engine.block_on(call)?.map_err(|text| Failure::new(Code::Failed, text))
        })?;
        self.engine.block_on(lent.close())?;
        point.bytes = bytes;
        Ok(point)
    }

    /// Makes sure that what was pulled last comes back whole: for memory with the pattern.
    fn check(&self, memory: &Region, bytes: usize) -> Outcome {
        let brief = Plan { time: Duration::ZERO, ..Plan::default() };
        self.transfers(&brief, Way::Pull, memory, bytes)?;
        let blank = vec![0xff; PATTERN];
        for at in (0..bytes).step_by(PATTERN) {
            memory.write(at, &blank[..PATTERN.min(bytes - at)]);
        }
        self.transfers(&brief, Way::Push, memory, bytes)?;
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

/// Bytes after which the pattern begins again: prime, so that no block begins like another.
const PATTERN: usize = 1_048_573;

fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(PATTERN)
    .collect()
}
