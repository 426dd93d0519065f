//! A rank of the measuring program, on the native client. The same steps as in `peer.c`.

use crate::{
    exit::{Code, Failure, Outcome},
    limits::median,
    output,
};
use petasos_pmix::{
    FenceOptions, Group, Job, JobError, Reply, Scope, Value, chain::Registration, event::Range,
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

/// The argument that makes a process a rank of the measuring program.
pub(crate) const RANK: &str = "bench-launch-rank";
const EVENT: i32 = 7001;
/// Events one at a time.
const ALONE: usize = 20;
/// Events there and back.
const TRIPS: usize = 20;
/// Bytes of a card.
const CARD: usize = 64;
const COMMITS: usize = 50;

/// How a rank learns the addresses of its neighbours (modex: module exchange, MPI's word for it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Modex {
    /// They were assigned before the start.
    InstantOn,
    /// Each rank puts its own on its card, and asks for those of its neighbours.
    Direct,
    /// Each rank puts its own on its card, and a fence spreads all cards.
    Full,
}

impl Modex {
    pub(super) const ALL: [Modex; 3] = [Modex::InstantOn, Modex::Direct, Modex::Full];

    /// In tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Modex::InstantOn => "instant on",
            Modex::Direct => "direct exchange",
            Modex::Full => "full exchange",
        }
    }

    /// On a command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Modex::InstantOn => "instant",
            Modex::Direct => "direct",
            Modex::Full => "full",
        }
    }
}

/// What one rank prints when it has its addresses.
#[derive(Serialize)]
struct Wired {
    /// Nanoseconds since its init.
    wired: f64,
    /// When it was done, on the clock of the machine.
    at: f64,
}

/// Nanoseconds on a clock.
pub(super) fn nanoseconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// What a rank does; rank 0 prints the figures, or each rank does.
pub(crate) fn run_rank(words: impl Iterator<Item = OsString>) -> Outcome {
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let failed = |error| Failure::new(Code::Failed, error);
    let modex =
        Modex::ALL.into_iter().find(|modex| words.first().is_some_and(|word| word == modex.word()));
    match modex {
        Some(modex) => wire_up(modex).map_err(failed),
        None => {
            let with_events = words.get(1).is_some_and(|word| word == "1");
            let measured = measure(with_events).map_err(failed)?;
            measured.map_or(Ok(()), |measured| output::print_json_line(&measured))
        }
    }
}

fn timed<T>(work: impl FnOnce() -> Result<T, JobError>) -> Result<f64, JobError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// The median of so many times.
fn times(many: usize, work: impl Fn(usize) -> Result<(), JobError>) -> Result<f64, JobError> {
    let mut all = (0..many).map(|n| timed(|| work(n))).collect::<Result<Vec<_>, _>>()?;
    Ok(median(&mut all))
}

/// Bytes of memory that this process does not share with a file or another process.
fn private_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() * 1024.0
}

fn measure(with_events: bool) -> Result<Option<BTreeMap<&'static str, f64>>, JobError> {
    let before = private_bytes();
    let (cpu, start) = (nanoseconds(ClockId::ProcessCPUTime), Instant::now());
    let job = Job::init()?;
    let init = start.elapsed().as_nanos() as f64;
    let init_cpu = nanoseconds(ClockId::ProcessCPUTime) - cpu;
    let (rank, size) = (job.rank(), job.size());
    let many = if size <= 16 { 200 } else { 50 };
    let bare = || job.fence_with(FenceOptions { without_cards: true, ..FenceOptions::default() });
    job.put(Scope::Global, "direct", vec![rank as u8; CARD]);
    job.commit()?;
    bare()?;
    let private = private_bytes() - before;
    let mut found = BTreeMap::from([("init", init), ("init_cpu", init_cpu), ("private", private)]);
    // Only rank 0 asks: the others are idle.
    if rank == 0 && size > 1 {
        let mut gets = Vec::new();
        for peer in 1..size {
            gets.push(timed(|| card(&job, peer))?);
        }
        found.insert("first_get", median(&mut gets));
        found.insert("again_get", times(many, |_| card(&job, 1))?);
    }
    found.insert("job_get", times(many, |_| job.get(rank, "pmix.hname").map(drop))?);
    bare()?;
    found.insert("fence", times(many, |_| bare())?);
    found.insert("full_fence", times(many, |_| job.fence())?);
    let mut commits = Vec::new();
    let put = times(COMMITS, |n| {
        job.put(Scope::Global, &format!("key{n}"), vec![rank as u8; CARD]);
        Ok(())
    });
    found.insert("put", put?);
    for n in 0..COMMITS {
        job.put(Scope::Global, &format!("key{n}"), vec![rank as u8; CARD]);
        commits.push(timed(|| job.commit())?);
    }
    found.insert("commit", median(&mut commits));
    bare()?;
    if with_events && size > 1 && rank < 2 {
        let hop = events(&job)?;
        if rank == 0 {
            found.insert("hop", hop);
            let age = job.get(1, "age")?;
            found.insert("event", age.as_u64().unwrap_or_default() as f64);
        }
    }
    bare()?;
    job.finalize()?;
    Ok((rank == 0).then_some(found))
}

/// Gets the card of a rank, and checks it.
fn card(job: &Job, rank: u32) -> Result<(), JobError> {
    let value = job.get(rank, "direct")?;
    let right = value.as_bytes().is_some_and(|bytes| bytes == [rank as u8; CARD]);
    if right { Ok(()) } else { Err(JobError::Lost("a business card has other bytes".to_owned())) }
}

/// Ranks 0 and 1: events one at a time from 0 to 1, whose age rank 1 puts on its card, then there
/// and back. Returns the time of one hop.
fn events(job: &Job) -> Result<f64, JobError> {
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![EVENT], ..Registration::default() };
    let (me, rank) = (job.proc(), job.rank());
    job.on_event(with, move |event, _| {
        let came = nanoseconds(ClockId::Monotonic);
        if event.source != me {
            let sent = event.info.first().and_then(|(_, value)| value.as_u64());
            let _ = sender.send(came - sent.unwrap_or_default() as f64);
        }
        Reply::seen()
    })?;
    let both = Group::of([job.proc_of(0), job.proc_of(1)]);
    let together = || {
        let group = Some(both.clone());
        job.fence_with(FenceOptions { group, without_cards: true, timeout: None })
    };
    let notify = || {
        let sent = Value::Uint(nanoseconds(ClockId::Monotonic) as u64);
        job.notify(EVENT, Range::Local, vec![("bench.sent".to_owned(), sent)])
    };
    let receive = || {
        let received = receiver.recv_timeout(Duration::from_secs(20));
        received.map_err(|error| JobError::Lost(error.to_string()))
    };
    let mut ages = Vec::new();
    together()?;
    for _ in 0..ALONE {
        if rank == 0 {
            thread::sleep(Duration::from_millis(2));
            notify()?;
        } else {
            ages.push(receive()?);
        }
    }
    together()?;
    let start = Instant::now();
    for _ in 0..TRIPS {
        if rank == 0 {
            notify()?;
        }
        receive()?;
        if rank == 1 {
            notify()?;
        }
    }
    let hop = start.elapsed().as_nanos() as f64 / (2 * TRIPS) as f64;
    if rank == 1 {
        job.put(Scope::Global, "age", Value::Uint(median(&mut ages) as u64));
        job.commit()?;
    }
    together()?;
    Ok(hop)
}

/// Learns the addresses of both neighbours, and prints how long that took.
fn wire_up(modex: Modex) -> Result<(), JobError> {
    let job = Job::init()?;
    let (rank, size) = (job.rank(), job.size());
    let start = nanoseconds(ClockId::Monotonic);
    if modex != Modex::InstantOn {
        let own = format!("shm://somewhere-{}-{rank}", std::process::id());
        job.put(Scope::Global, "address", own);
        job.commit()?;
    }
    if modex == Modex::Full {
        job.fence()?;
    }
    for peer in [(rank + 1) % size, (rank + size - 1) % size] {
        match modex {
            Modex::InstantOn => drop(job.peer(peer)?),
            Modex::Direct | Modex::Full => drop(job.get(peer, "address")?),
        }
    }
    let at = nanoseconds(ClockId::Monotonic);
    let printed = output::print_json_line(&Wired { wired: at - start, at });
    printed.map_err(|error| JobError::Lost(error.to_string()))?;
    // No rank leaves while others may still ask for its card.
    job.fence_with(FenceOptions { without_cards: true, ..FenceOptions::default() })?;
    job.finalize()
}
