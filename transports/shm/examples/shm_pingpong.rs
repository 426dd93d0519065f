//! Round trips and bulk over shared memory, against the machine's limits in the same run.
//!
//! `cargo run --profile dist -p petasos-shm --example shm_pingpong`

use petasos_fabric::{
    Access, Address, Clock, Done, Endpoint, Event, Key, Operation, Peer, Region, Remote,
    RemoteSpan, Sleep, Slice, Time, Token,
};
use petasos_shm::{Config, Shm};
use rustix::{
    event::{PollFd, PollFlags, poll},
    thread::{CpuSet, sched_setaffinity},
};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const BATCHES: usize = 200;
const BATCH: u32 = 1000;
const PATIENCE: Duration = Duration::from_secs(10);

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// The median time of one round trip, in nanoseconds, and the 99th percentile of the batches.
fn measure(mut once: impl FnMut()) -> (f64, f64) {
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let begin = Instant::now();
            (0..BATCH).for_each(|_| once());
            begin.elapsed().as_nanos() as f64 / f64::from(BATCH)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[BATCHES / 2], times[BATCHES * 99 / 100])
}

/// A cache line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

fn cache_line() -> (f64, f64) {
    let line = Arc::new(Line(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let (theirs, stopped) = (line.clone(), stop.clone());
    let other = thread::spawn(move || {
        pin(1);
        let mut turn = 1;
        while !stopped.load(Ordering::Relaxed) {
            for _ in 0..1000 {
                if theirs.0.load(Ordering::Acquire) == turn {
                    theirs.0.store(turn + 1, Ordering::Release);
                    turn += 2;
                }
            }
        }
    });
    pin(0);
    let mut turn = 0;
    let times = measure(|| {
        line.0.store(turn + 1, Ordering::Release);
        while line.0.load(Ordering::Acquire) != turn + 2 {}
        turn += 2;
    });
    stop.store(true, Ordering::Relaxed);
    other.join().expect("the other thread");
    times
}

struct End {
    shm: Shm,
    clock: Clock,
    now: Time,
    passes: u32,
    events: Vec<Event>,
}

impl End {
    fn open(address: &str, config: Config) -> End {
        let address: Address = address.parse().expect("an address");
        let shm = Shm::open_with(&address, config).expect("an endpoint");
        let clock = Clock::start();
        End { shm, clock, now: clock.now(), passes: 0, events: Vec::new() }
    }

    /// One pass. The clock is read every 256 of them.
    fn pass(&mut self) {
        self.passes = self.passes.wrapping_add(1);
        if self.passes.is_multiple_of(256) {
            self.now = self.clock.now();
        }
        self.shm.progress(self.now, 64, &mut self.events);
    }

    fn sleep(&mut self) {
        self.now = self.clock.now();
        if let Sleep::Until(_) = self.shm.arm(self.now) {
            let fd = self.shm.fd().expect("a descriptor");
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
        }
    }

    fn connect(&mut self, to: &str) -> Peer {
        let peer = self.shm.resolve(&to.parse().expect("an address"), PATIENCE).expect("a peer");
        while !self.events.iter().any(|e| matches!(e, Event::PeerUp { .. })) {
            self.pass();
        }
        self.events.clear();
        peer
    }

    fn inject(&mut self, peer: Peer, message: &[u8]) {
        while self.shm.inject(peer, &[message]).is_err() {
            self.pass();
        }
    }

    fn operation(&mut self, operation: Operation) -> Done {
        let mut queue = VecDeque::from([operation]);
        self.shm.submit(&mut queue);
        loop {
            self.pass();
            for event in self.events.drain(..) {
                if let Event::Done { result, .. } = event {
                    return result.expect("success");
                }
            }
        }
    }
}

/// Answers every message until it is told the end; sleeps where `sleeping` says so.
fn echo(mut end: End, sleeping: bool) {
    loop {
        end.pass();
        let events = std::mem::take(&mut end.events);
        let idle = events.is_empty();
        for event in &events {
            match event {
                Event::Message { peer, message } => end.inject(*peer, message),
                Event::PeerLost { .. } => return,
                _ => {}
            }
        }
        end.events = events;
        end.events.clear();
        if idle && sleeping {
            end.sleep();
        }
    }
}

fn round_trips(to: &str, len: usize, sleeping: bool) -> (f64, f64) {
    let mut end = End::open("shm://*", Config::default());
    let peer = end.connect(to);
    let message = vec![7; len];
    let mut once = || {
        end.inject(peer, &message);
        loop {
            end.pass();
            if end.events.iter().any(|e| matches!(e, Event::Message { .. })) {
                end.events.clear();
                return;
            }
            if sleeping {
                end.sleep();
            }
        }
    };
    if !sleeping {
        return measure(once);
    }
    let mut times: Vec<f64> = (0..5000)
        .map(|_| {
            let begin = Instant::now();
            once();
            begin.elapsed().as_nanos() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[2500], times[4950])
}

/// Messages per second with so many under way.
fn rate(to: &str, depth: usize) -> f64 {
    let mut end = End::open("shm://*", Config::default());
    let peer = end.connect(to);
    let count = 2_000_000;
    for _ in 0..depth {
        end.inject(peer, &[7; 64]);
    }
    let begin = Instant::now();
    let mut got = 0;
    while got < count {
        end.pass();
        let answers = end.events.drain(..).filter(|e| matches!(e, Event::Message { .. })).count();
        got += answers;
        for _ in 0..answers {
            end.inject(peer, &[7; 64]);
        }
    }
    count as f64 / begin.elapsed().as_secs_f64() / 1e6
}

fn server(role: &str, name: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args([role, name]).stdin(Stdio::piped());
    let child = command.spawn().expect("a process");
    thread::sleep(Duration::from_millis(50));
    child
}

fn stop(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Exposes memory of both kinds, and hands out the keys.
fn memory(name: &str, len: usize) {
    pin(1);
    let mut config = Config::default();
    config.huge_pages = true;
    let mut end = End::open(&format!("shm://{name}"), config);
    let own = Region::zeroed(len);
    let ours = end.shm.alloc(len).expect("memory");
    let mut keys = Vec::new();
    for region in [&own, &ours] {
        let mut at = 0;
        while at < len {
            region.write(at, &vec![1; (1 << 20).min(len - at)]);
            at += 1 << 20;
        }
        let id = end.shm.register(&region.whole(), Access::ALL).expect("a region");
        keys.push(end.shm.export(id).expect("a key"));
    }
    loop {
        end.pass();
        for event in std::mem::take(&mut end.events) {
            match event {
                Event::PeerUp { peer, .. } => {
                    keys.iter().for_each(|key| end.inject(peer, key.as_bytes()));
                }
                Event::PeerLost { .. } => return,
                _ => {}
            }
        }
        if end.passes > 100_000 {
            end.sleep();
        }
    }
}

/// GB/s of the best of several, in turns with those of the limits.
fn bulk(name: &str, len: usize) {
    let child = server("memory", name);
    pin(0);
    let mut end = End::open("shm://*", Config::default());
    end.connect(&format!("shm://{name}"));
    let mut keys = Vec::new();
    while keys.len() < 2 {
        end.pass();
        for event in end.events.drain(..) {
            if let Event::Message { message, .. } = event {
                keys.push(Key::from_bytes(message.to_vec()).expect("a key"));
            }
        }
    }
    let [ordinary, segment]: [Remote; 2] =
        [0, 1].map(|i| end.shm.import(&keys[i]).expect("an imported key"));
    let into = Region::zeroed(len).whole();
    let spare = Region::zeroed(len);
    into.write(0, &vec![1; len]);
    spare.write(0, &vec![2; len]);
    let get = |end: &mut End, remote| {
        let span = RemoteSpan { offset: 0, len: len as u64 };
        let (local, spans) = (smallvec![into.clone()], smallvec![span]);
        end.operation(Operation::Get { token: Token(1), remote, local, spans });
    };
    let view = match end.operation(Operation::Map { token: Token(2), remote: segment }) {
        Done::Mapped(view) => view.whole(),
        other => panic!("{other:?}"),
    };
    let base = remote_base(&keys[0], &end, &child);
    let rounds = ((256 << 20) / len).clamp(5, 200);
    let mut best = [f64::MAX; 4];
    for _ in 0..rounds {
        let mut time = |nth: usize, what: &mut dyn FnMut()| {
            let begin = Instant::now();
            what();
            best[nth] = best[nth].min(begin.elapsed().as_secs_f64());
        };
        time(0, &mut || raw_read(child.id(), base, &into));
        time(1, &mut || get(&mut end, ordinary));
        time(2, &mut || _ = view.copy_to(&into));
        time(3, &mut || get(&mut end, segment));
    }
    let rate = best.map(|seconds| len as f64 / seconds / 1e9);
    println!(
        "{:>8} KiB | process_vm_readv {:6.2}  get {:6.2} ({:.2}) | memcpy {:6.2}  get {:6.2} ({:.2})",
        len >> 10,
        rate[0],
        rate[1],
        rate[1] / rate[0],
        rate[2],
        rate[3],
        rate[3] / rate[2],
    );
    stop(child);
}

/// Where the ordinary memory lies there: its owner tells by the first 8 bytes of a file of its.
fn remote_base(_key: &Key, _end: &End, child: &Child) -> u64 {
    // The largest private mapping of the other process.
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).expect("its maps");
    let private = maps.lines().filter(|line| line.contains("rw-p") && !line.contains('['));
    let range = |line: &str| {
        let (begin, end) = line.split(' ').next()?.split_once('-')?;
        let parse = |text| u64::from_str_radix(text, 16).ok();
        Some((parse(begin)?, parse(end)?))
    };
    let largest = private.filter_map(range).max_by_key(|(begin, end)| end - begin);
    largest.expect("a mapping").0 + 4096
}

fn raw_read(pid: u32, base: u64, into: &Slice) {
    let mut done = 0;
    // The largest mapping may have a little less than a round length behind its first page.
    let len = into.len() - 4096;
    while done < len {
        let ours =
            libc::iovec { iov_base: into.as_ptr().wrapping_add(done).cast(), iov_len: len - done };
        let at = (base as usize + done) as *mut libc::c_void;
        let theirs = libc::iovec { iov_base: at, iov_len: len - done };
        // SAFETY: `ours` is a part of a slice that lives, without references into it.
        let moved = unsafe { libc::process_vm_readv(pid as i32, &ours, 1, &theirs, 1, 0) };
        assert!(moved > 0, "process_vm_readv: {}", std::io::Error::last_os_error());
        done += moved as usize;
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(role @ ("echo" | "sleepy")) => {
            pin(1);
            let end = End::open(&format!("shm://{}", arguments[2]), Config::default());
            return echo(end, role == "sleepy");
        }
        Some("memory") => {
            let (name, len) = arguments[2].split_once(':').expect("NAME:LENGTH");
            return memory(&format!("{name}:{len}"), len.parse().expect("a length"));
        }
        _ => {}
    }
    let name = format!("pingpong-{}", std::process::id());
    let row = |what: &str, (median, slow): (f64, f64), limit: f64| {
        println!("{what:<34} {median:8.0} ns {slow:8.0} ns   {:.2}", median / limit);
    };
    println!("{:<34} {:>11} {:>11}   to limit", "round trip", "median", "p99");
    let limit = cache_line();
    row("a bare cache line", limit, limit.0);
    let to = format!("shm://{name}-threads");
    let end = End::open(&to, Config::default());
    let other = thread::spawn(move || {
        pin(1);
        echo(end, false);
    });
    pin(0);
    row("64-byte message, threads", round_trips(&to, 64, false), limit.0);
    other.join().expect("the other thread");
    for len in [0, 8, 56, 64, 256, 1024, 4096, 16_000] {
        let child = server("echo", &name);
        let what = format!("{len}-byte message, processes");
        row(&what, round_trips(&format!("shm://{name}"), len, false), limit.0);
        stop(child);
    }
    row("a bare cache line, again", cache_line(), limit.0);
    let child = server("sleepy", &name);
    row("64-byte message, both asleep", round_trips(&format!("shm://{name}"), 64, true), limit.0);
    stop(child);
    for depth in [1, 16, 64] {
        let child = server("echo", &name);
        let rate = rate(&format!("shm://{name}"), depth);
        println!("64-byte echo, {depth} under way: {rate:.2} million a second");
        stop(child);
    }
    println!("bulk, GB/s (ratio to the limit), best of several");
    for len in [64 << 10, 1 << 20, 16 << 20, 256 << 20] {
        bulk(&format!("{name}-memory:{len}"), len);
    }
}
