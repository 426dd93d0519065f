//! Null calls between two spinning threads, beside a cache line that goes there and back between
//! them, in turn: what the software adds to what the machine takes.
//!
//! ```text
//! cargo run --release -p petasos --example null_call [URL]        # shm://* unless told otherwise
//! ```
//!
//! `scripts/instructions` counts what both sides execute.

use petasos::{Engine, EngineConfig, Idle, OpenOptions, service};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

const ROUNDS: usize = 25;
const BATCH: u64 = 4000;

#[service]
trait Null {
    async fn null(&self, n: u64) -> u64;
}

struct Same;

impl Null for Same {
    async fn null(&self, n: u64) -> u64 {
        n
    }
}

fn engine(url: &str) -> Engine {
    let mut config = EngineConfig::default();
    config.idle = Idle::Spin;
    let endpoint = petasos::open(url, &OpenOptions::default()).expect("an endpoint");
    Engine::new(endpoint, config)
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    // With one core only, the two take turns, and the figures mean little.
    let _ = sched_setaffinity(None, &cores);
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let url = std::env::args().nth(1).unwrap_or("shm://*".to_owned());
    let (stop, bounce) = (AtomicBool::new(false), AtomicBool::new(false));
    let line = AtomicU64::new(0);
    std::thread::scope(|threads| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stop, bounce, line, url) = (&stop, &bounce, &line, &url);
        threads.spawn(move || {
            pin(1);
            let server = engine(url);
            Same.serve(&server, 0).expect("nothing served yet");
            sender.send(server.address().clone()).expect("somebody listens");
            while !stop.load(Ordering::Relaxed) {
                if !server.turn() {
                    std::hint::spin_loop();
                }
                while bounce.load(Ordering::Relaxed) {
                    let seen = line.load(Ordering::Acquire);
                    if seen % 2 == 1 {
                        line.store(seen + 1, Ordering::Release);
                    } else {
                        std::hint::spin_loop();
                    }
                }
            }
        });
        pin(0);
        let client = engine(url);
        let null = NullClient::new(&client, &receiver.recv().expect("an address"));
        client.block_on(null.null(0)).expect("an answer");
        let (mut bare, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bounce.store(true, Ordering::Relaxed);
            let start = Instant::now();
            for _ in 0..BATCH {
                let sent = line.load(Ordering::Relaxed) + 1;
                line.store(sent, Ordering::Release);
                while line.load(Ordering::Acquire) == sent {
                    std::hint::spin_loop();
                }
            }
            bare.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
            bounce.store(false, Ordering::Relaxed);
            let start = Instant::now();
            client.block_on(async {
                for n in 0..BATCH {
                    assert_eq!(null.null(n).await.expect("an answer"), n);
                }
            });
            calls.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
        }
        stop.store(true, Ordering::Relaxed);
        let (bare, calls) = (median(bare), median(calls));
        println!(
            "cache line there and back {bare:.0} ns, null call {calls:.0} ns, ratio {:.2}",
            calls / bare
        );
    });
}
