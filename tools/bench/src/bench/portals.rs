//! Matching one-sided messages: a put with its acknowledgement beside a message there and back
//! through the channel, matching among many entries, and long puts beside one copy between
//! processes.
//!
//! Both sides are threads of this process, on a core each, and spin, for a put as for a bare
//! message.

use super::Bench;
use crate::{
    bare::{self, Answering, End},
    beside::{Beside, typical},
    client,
    exit::{Code, Failure, Outcome},
    figures::Row,
    limits::{self, Plan},
    output,
};
use petasos::{
    Transport,
    fabric::{Address, Endpoint, Region},
    portals::{
        Ack, Config, Descriptor, Event, EventQueue, Handle, Idle, Interface, List, MatchEntry,
        Memory, Operation, Part, PortalOptions, ProcessId, ProcessMap, Quiet, Target,
        matcher::Matcher,
    },
};
use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Entries that a put is matched among.
const ENTRIES: [u64; 3] = [1, 1_000, 100_000];

/// Bits that only the entry with wildcards, the last one, matches; and those it ignores.
const WILD: (u64, u64) = (1 << 40, 255);

/// Bytes of long puts.
const LONG: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 16 << 20];

/// Bytes of a put, and of a bare message that does the same: both fit a line of the channel.
const PUT: usize = 8;
const MESSAGE: usize = 32;

/// Bytes that are read before each cold match: more than the caches of most machines hold.
const CACHES: usize = 64 << 20;
const COLD: usize = 25;

/// Matches between two readings of the clock.
const BATCH: u32 = 1_000;

/// How often the target checks whether the measurement is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    if bench.plan.cores.alone() {
        bench.skip("puts beside bare messages: there is one core for both sides".to_owned());
        return Ok(matches(bench, transport));
    }
    let mut rows = limits::on_client_core(&bench.plan, || puts(bench, transport))?;
    rows.extend(limits::on_client_core(&bench.plan, || long_puts(bench, transport))?);
    rows.extend(limits::on_client_core(&bench.plan, || {
        Ok::<_, Failure>(matches(bench, transport))
    })?);
    Ok(rows)
}

/// Which of the entries a put matches.
#[derive(Clone, Copy)]
struct Case {
    entries: u64,
    name: &'static str,
    bits: u64,
}

fn cases() -> Vec<Case> {
    let of = |entries: u64| {
        let cases = [("first", 0), ("last", entries - 1), ("with wildcards", WILD.0)];
        cases.map(|(name, bits)| Case { entries, name, bits })
    };
    let one_entry = |case: &Case| case.entries > 1 || case.name != "last";
    ENTRIES.into_iter().flat_map(of).filter(one_entry).collect()
}

fn puts(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let plan = bench.plan_of(10);
    let cases = cases();
    let mut found: Vec<Vec<Beside>> = cases.iter().map(|_| Vec::new()).collect();
    let mut among: Vec<Vec<Beside>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..bench.rounds {
        bench.round(transport, "puts with acknowledgement", round);
        let (mut one, mut pair) = (0.0, None);
        for (at, case) in cases.iter().enumerate() {
            let limit = bare_echo(bench, transport, &plan)?;
            if pair.as_ref().is_none_or(|pair: &Pair| pair.entries != case.entries) {
                drop(pair.take());
                pair = Some(Pair::begin(bench, transport, case.entries, PUT)?);
            }
            let Some(pair) = &mut pair else { continue };
            let value = pair.put(&plan, case.bits)?;
            found[at].push(Beside { value, limit, of: "bare message" });
            if at == 0 {
                one = value;
            }
            among[at].push(Beside { value, limit: one, of: "put to one entry" });
        }
    }
    let how = format!(
        "{PUT} bytes put to another process's memory, matched there, and acknowledged, one after the \
         other; bare: {MESSAGE} bytes there and back through the fabric contract; {}",
        plan.cores.describe("both sides threads that spin")
    );
    let mut rows = Vec::new();
    for ((case, found), among) in cases.iter().zip(found).zip(among) {
        let what = format!("put, {} of {} entries", case.name, case.entries);
        for beside in [found, among] {
            let Beside { value, limit, of } = Beside::typical(beside);
            let unit = (value, "ns");
            if case.entries > 1 || of == "bare message" {
                rows.push(Row::new(transport.scheme, what.clone(), unit, Some((of, limit)), &how));
            }
        }
    }
    Ok(rows)
}

/// Long puts, one in flight, beside one copy between processes where the transport can do one.
fn long_puts(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let plan = bench.plan_of(10);
    let how = format!(
        "a put with acknowledgement into memory that is reused, one in flight; of huge pages on both \
         sides where there are any, as in the limit; {}",
        plan.cores.describe("both sides threads that spin")
    );
    let mut rows = Vec::new();
    for bytes in LONG {
        bench.step(transport, format_args!("puts of {}", output::size(bytes as u64)));
        let mut found = Vec::new();
        let mut alone = Vec::new();
        for _ in 0..bench.rounds {
            let limit = match client::is_within_node(transport.scheme) {
                true => Some(limits::vm_readv(&plan, &[bytes])?),
                false => None,
            };
            let value = bytes as f64 / Pair::begin(bench, transport, 1, bytes)?.put(&plan, 0)?;
            match limit {
                Some(limit) => found.push(Beside::bandwidth(value, &limit)),
                None => alone.push(value),
            }
        }
        let (value, limit) = match found.is_empty() {
            true => (typical(alone, |rate| *rate), None),
            false => {
                let Beside { value, limit, of } = Beside::typical(found);
                (value, Some((of, limit)))
            }
        };
        let what = format!("put of {}", output::size(bytes as u64));
        rows.push(Row::new(transport.scheme, what, (value, "GB/s"), limit, &how));
    }
    Ok(rows)
}

/// A message there and back, with no layer above the channel.
fn bare_echo(bench: &Bench, transport: &Transport, plan: &Plan) -> Outcome<f64> {
    let [client, server] = [(); 2].map(|()| open(bench, transport));
    let answering = Answering::start(End::new(server?, false), plan.cores.server)
        .map_err(Failure::system("a thread that answers"))?;
    let mut client = bare::Client::connect(End::new(client?, false), answering.address())?;
    client.echo(plan, MESSAGE)
}

fn open(bench: &Bench, transport: &Transport) -> Outcome<Box<dyn Endpoint>> {
    let url = Address::parse(transport.any).map_err(Failure::system("the transport's URL"))?;
    client::endpoint(petasos::open, &url, Some(&bench.secret))
}

/// Resident memory that begins at a page, and of huge pages where there are any, as in the limits.
fn memory(bytes: usize) -> Region {
    let memory = Region::zeroed(bytes);
    // Pages of zeroes may stay one shared page until they are written.
    memory.write(0, &vec![7; bytes]);
    memory
}

/// A target on its core, and the initiator here.
struct Pair {
    entries: u64,
    initiator: Interface,
    part: Part,
    queue: Handle<EventQueue>,
    stop: Arc<AtomicBool>,
    target: Option<JoinHandle<()>>,
}

impl Pair {
    fn begin(bench: &Bench, transport: &Transport, entries: u64, bytes: usize) -> Outcome<Pair> {
        let ends = [open(bench, transport)?, open(bench, transport)?];
        let map = Arc::new(ProcessMap::ranks(ends.each_ref().map(|end| end.address().clone())));
        let config = Config { idle: Idle::Spin, ..Config::default() };
        let mut interfaces = Vec::new();
        for end in ends {
            let interface = Interface::open(end, map.clone(), config.clone());
            interfaces.push(interface.map_err(failed)?);
        }
        let [initiator, target] = interfaces.try_into().map_err(|_| failed("two interfaces"))?;
        target.portal(PortalOptions { index: Some(0), ..Default::default() }).map_err(failed)?;
        let exact = (0..entries).map(|bits| (bits, 0));
        let into = Memory::from(memory(bytes));
        for (bits, ignore) in exact.chain([WILD]) {
            let entry = MatchEntry { bits, ignore, ..MatchEntry::new(into.clone()) };
            target.append(0, List::Priority, entry).map_err(failed)?;
        }
        let idle = target.queue(1).map_err(failed)?;
        let queue = initiator.queue(16).map_err(failed)?;
        let bound =
            Descriptor { queue: Some(queue), quiet: Quiet::SEND, ..Descriptor::new(memory(bytes)) };
        let part = Part::of(initiator.bind(bound).map_err(failed)?, bytes as u64);
        let stop = Arc::new(AtomicBool::new(false));
        let (core, stopped) = (bench.plan.cores.server, Arc::clone(&stop));
        let drive = move || {
            limits::pin(core);
            while !stopped.load(Ordering::Relaxed) {
                // No event comes into this queue: the wait drives the interface.
                let _ = target.wait_event(idle, CHECK_INTERVAL);
            }
        };
        let target = thread::Builder::new().name("target".to_owned()).spawn(drive);
        let target = Some(target.map_err(Failure::system("a thread for the target"))?);
        Ok(Pair { entries, initiator, part, queue, stop, target })
    }

    /// The median time of a put with acknowledgement, in nanoseconds.
    fn put(&mut self, plan: &Plan, bits: u64) -> Outcome<f64> {
        let target = Target { bits, ..Target::new(ProcessId::rank(1), 0) };
        let put = Operation { ack: Ack::Full, ..Operation::put(self.part, target) };
        let found = limits::round_trips(plan, "put", "", || {
            self.initiator.start(put).map_err(failed)?;
            match self.initiator.wait_event(self.queue, PATIENCE).map_err(failed)?.event {
                Event::Ack(ack) => ack.result.map_err(failed),
                other => Err(failed(format!("another event: {other:?}"))),
            }
        })?;
        Ok(found.median)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(target) = self.target.take() {
            // A panic has been reported where it happened.
            let _ = target.join();
        }
    }
}

fn failed(error: impl ToString) -> Failure {
    Failure::new(Code::Failed, error.to_string())
}

/// The match by itself: no message, no event.
fn matches(bench: &Bench, transport: &'static Transport) -> Vec<Row> {
    // Once: it does not depend on the transport.
    if transport.scheme != "shm" {
        return Vec::new();
    }
    bench.step(transport, "matching by itself");
    let caches = vec![1_u8; CACHES];
    let how = "an 8-byte put is matched and ended, without message and event; warm: one after the \
               other, the median of batches; cold: after reading 64 MiB of other memory, the median of \
               25";
    let mut rows = Vec::new();
    for case in cases() {
        let exact = (0..case.entries).map(|bits| (bits, 0));
        let mut matcher = Matcher::new(exact.chain([WILD]));
        let warm = warm(bench, &mut matcher, case.bits);
        let cold = cold(&caches, &mut matcher, case.bits);
        for (state, value) in [("warm", warm), ("cold", cold)] {
            let what = format!("match, {} of {} entries, {state}", case.name, case.entries);
            rows.push(Row::new("match", what, (value, "ns"), None, how));
        }
    }
    rows
}

fn warm(bench: &Bench, matcher: &mut Matcher, bits: u64) -> f64 {
    let begin = Instant::now();
    let mut batches = Vec::new();
    while batches.is_empty() || begin.elapsed() < bench.plan.time / 10 {
        let begin = Instant::now();
        for _ in 0..BATCH {
            black_box(matcher.put(black_box(bits)));
        }
        batches.push(begin.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    typical(batches, |time| *time)
}

fn cold(caches: &[u8], matcher: &mut Matcher, bits: u64) -> f64 {
    let times = (0..COLD).map(|_| {
        black_box(caches.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
        let begin = Instant::now();
        black_box(matcher.put(black_box(bits)));
        begin.elapsed().as_nanos() as f64
    });
    typical(times.collect(), |time| *time)
}
