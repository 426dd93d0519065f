//! What huge pages do for memory of the transport, and what memory its peers take.
//!
//! ```text
//! cargo run --profile dist -p petasos-shm --example pages
//! ```
//!
//! Both ends are in one process, driven by one thread, so that neither waits. Huge pages are to be
//! had where `/sys/kernel/mm/transparent_hugepage/shmem_enabled` says `advise`, or more.

use petasos_fabric::{
    Access, Done, Endpoint, Event, Operation, Peer, Region, RemoteSpan, Time, Token,
};
use petasos_shm::{Config, Shm};
use petasos_testing::median;
use std::{
    collections::VecDeque,
    error::Error,
    hint::black_box,
    time::{Duration, Instant},
};

const SIZES: [usize; 3] = [2 << 20, 16 << 20, 128 << 20];
const PEERS: [usize; 3] = [10, 100, 1000];
const PATIENCE: Duration = Duration::from_secs(60);
/// Rounds in which both kinds of pages take turns.
const ROUNDS: usize = 3;

/// Two endpoints that know each other.
struct Two {
    a: Shm,
    b: Shm,
    events: Vec<Event>,
}

impl Two {
    fn open(config: &Config) -> Result<Two, Box<dyn Error>> {
        let open = || Shm::open_with(&"shm://*".parse().expect("a URL"), config.clone());
        let mut two = Two { a: open()?, b: open()?, events: Vec::new() };
        two.a.resolve(&two.b.address().clone(), PATIENCE)?;
        two.until(|event| matches!(event, Event::PeerUp { .. }).then_some(()))?;
        Ok(two)
    }

    /// Drives both until an event of `a` is what is wanted.
    fn until<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> Result<T, Box<dyn Error>> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            self.b.progress(Time::ZERO, 64, &mut self.events);
            self.events.clear();
            self.a.progress(Time::ZERO, 64, &mut self.events);
            for event in self.events.drain(..) {
                if let Event::Done { result: Err(error), .. } = event {
                    return Err(error.into());
                }
                if let Some(found) = wanted(&event) {
                    return Ok(found);
                }
            }
        }
        Err("nothing came".into())
    }
}

/// GB/s of the first write, of a pull, and of reading in place, of so many bytes.
fn moved(huge_pages: bool, bytes: usize) -> Result<[f64; 3], Box<dyn Error>> {
    let mut config = Config::default();
    config.huge_pages = huge_pages;
    let mut two = Two::open(&config)?;
    let memory = two.b.alloc(bytes)?;
    let filled = rate(bytes, 1, || {
        let piece = [7; 64 << 10];
        (0..bytes).step_by(piece.len()).for_each(|at| memory.write(at, &piece));
        Ok(())
    })?;
    let region = two.b.register(&memory.whole(), Access::READ)?;
    let remote = two.a.import(&two.b.export(region)?)?;
    let (own, token) = (Region::zeroed(bytes), Token(0));
    let pull = |two: &mut Two| {
        let span = RemoteSpan { offset: 0, len: bytes as u64 };
        let (local, spans) = ([own.whole()].into_iter().collect(), [span].into_iter().collect());
        two.a.submit(&mut VecDeque::from([Operation::Get { token, remote, local, spans }]));
        two.until(|event| matches!(event, Event::Done { .. }).then_some(()))
    };
    pull(&mut two)?;
    let pulled = rate(bytes, 9, || pull(&mut two))?;
    assert!(own.to_vec().iter().all(|byte| *byte == 7), "what was written is pulled");
    two.a.submit(&mut VecDeque::from([Operation::Map { token, remote }]));
    let mapped = two.until(|event| match event {
        Event::Done { result: Ok(Done::Mapped(memory)), .. } => Some(memory.clone()),
        _ => None,
    })?;
    let read = rate(bytes, 9, || {
        let mut piece = [0_u8; 8 << 10];
        for at in (0..bytes).step_by(piece.len()) {
            mapped.read(at, &mut piece);
            black_box(&piece);
        }
        Ok(())
    })?;
    Ok([filled, pulled, read])
}

/// The median.
fn rate(
    bytes: usize,
    times: usize,
    mut work: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let mut rates = Vec::new();
    for _ in 0..times {
        let begin = Instant::now();
        work()?;
        rates.push(bytes as f64 / begin.elapsed().as_nanos() as f64);
    }
    Ok(median(rates))
}

/// KiB of this process, what it maps twice counted once.
fn held() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// KiB for each of so many peers, with both ends: connected, and after a message of so many bytes
/// of each.
fn peers(count: usize) -> Result<[f64; 3], Box<dyn Error>> {
    let open = || Shm::open(&"shm://*".parse().expect("a URL"));
    let mut server = open()?;
    let to = server.address().clone();
    let before = held()?;
    let mut events = Vec::new();
    let mut clients: Vec<(Shm, Peer)> = Vec::new();
    for _ in 0..count {
        let mut client = open()?;
        let peer = client.resolve(&to, PATIENCE)?;
        let begin = Instant::now();
        while !events.iter().any(|event| matches!(event, Event::PeerUp { .. })) {
            server.progress(Time::ZERO, 64, &mut events);
            events.clear();
            client.progress(Time::ZERO, 64, &mut events);
            if begin.elapsed() > PATIENCE {
                return Err("no connection".into());
            }
        }
        events.clear();
        clients.push((client, peer));
    }
    let mut found = [(held()? - before) / count as f64, 0.0, 0.0];
    for (bytes, found) in [56, 256 << 10].into_iter().zip(&mut found[1..]) {
        let message = vec![7; bytes];
        for (client, peer) in &mut clients {
            client.inject(*peer, &[&message])?;
            let begin = Instant::now();
            let came = |event: &Event| matches!(event, Event::Message { .. });
            while !events.iter().any(came) {
                client.progress(Time::ZERO, 64, &mut events);
                server.progress(Time::ZERO, 64, &mut events);
                if begin.elapsed() > PATIENCE {
                    return Err("no message".into());
                }
            }
            events.clear();
        }
        *found = (held()? - before) / count as f64;
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("GB/s            filled, pulled, read in place     with huge pages");
    for bytes in SIZES {
        let mut found = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            for (huge, found) in [false, true].into_iter().zip(&mut found) {
                found.push(moved(huge, bytes)?);
            }
        }
        let typical = |found: &Vec<[f64; 3]>| {
            let of = |at: usize| median(found.iter().map(|rates| rates[at]));
            format!("{:6.2} {:6.2} {:6.2}", of(0), of(1), of(2))
        };
        let [usual, huge] = found.each_ref().map(typical);
        println!("{:7} MiB     {usual}             {huge}", bytes >> 20);
    }
    println!("KiB for each of    connected, after 56 B, after 256 KiB");
    for count in PEERS {
        let [connected, short, long] = peers(count)?;
        println!("{count:7} peers      {connected:9.1} {short:9.1} {long:9.1}");
    }
    Ok(())
}
