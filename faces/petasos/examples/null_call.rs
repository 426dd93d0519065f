//! Null calls between two spinning threads, beside a cache line that goes there and back between
//! them, in turn: what the software adds to what the machine takes.
//!
//! ```text
//! cargo run --profile dist -p petasos --example null_call [URL]        # shm://* unless told otherwise
//! ```
//!
//! `scripts/instructions` counts what both sides execute.

use petasos::{Engine, EngineConfig, EngineThread, Idle, OpenOptions, fabric::Endpoint, service};
use petasos_testing::median;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

const ROUNDS: usize = 25;
const BATCH: u64 = 4000;

#[service]
trait Null {
    async fn null(&self, n: u64) -> u64;
    /// Sends the line back whenever it comes, until it is to stop.
    async fn bounce(&self);
}

/// The bare line: odd when it is there, even when it is here.
#[derive(Default)]
struct Line {
    line: AtomicU64,
    stop: AtomicBool,
}

impl Null for Arc<Line> {
    async fn null(&self, n: u64) -> u64 {
        n
    }

    async fn bounce(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let seen = self.line.load(Ordering::Acquire);
            if seen % 2 == 1 {
                self.line.store(seen + 1, Ordering::Release);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

fn config() -> EngineConfig {
    let mut config = EngineConfig::default();
    config.idle = Idle::Spin;
    config
}

fn open(url: &str) -> Box<dyn Endpoint> {
    petasos::open(url, &OpenOptions::default()).expect("an endpoint")
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    // With one core only, the two take turns, and the figures mean little.
    let _ = sched_setaffinity(None, &cores);
}

fn main() {
    let url = std::env::args().nth(1).unwrap_or("shm://*".to_owned());
    let bounce = Arc::<Line>::default();
    let (there, line) = (Arc::clone(&bounce), &bounce.line);
    let server = EngineThread::start(open(&url), config(), |engine| {
        pin(1);
        there.serve(engine, 0).expect("nothing served yet");
    });
    let server = server.expect("a thread");
    pin(0);
    let client = Engine::new(open(&url), config());
    let null = NullClient::new(&client, server.handle().address());
    client.block_on(null.null(0)).expect("an answer");
    let (mut bare, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bounce.stop.store(false, Ordering::Relaxed);
        let bounced = null.bounce();
        let start = Instant::now();
        for _ in 0..BATCH {
            let sent = line.load(Ordering::Relaxed) + 1;
            line.store(sent, Ordering::Release);
            while line.load(Ordering::Acquire) == sent {
                std::hint::spin_loop();
            }
        }
        bare.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
        bounce.stop.store(true, Ordering::Relaxed);
        client.block_on(bounced).expect("an answer");
        let start = Instant::now();
        client.block_on(async {
            for n in 0..BATCH {
                assert_eq!(null.null(n).await.expect("an answer"), n);
            }
        });
        calls.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    let (bare, calls) = (median(bare), median(calls));
    println!(
        "cache line there and back {bare:.0} ns, null call {calls:.0} ns, ratio {:.2}",
        calls / bare
    );
}
