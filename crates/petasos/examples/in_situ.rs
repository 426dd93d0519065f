//! In-situ analysis: a computation runs, and an observer in another thread of control pulls its
//! data out while it runs; the computation never calls in. Shows what the observer saw, and by
//! how much it slowed the computation.
//!
//! The computation is heat that spreads on a square; it publishes the key to its field once. The
//! observer reads the field by remote access: over shared memory the computation takes no part in
//! that at all.
//!
//! ```text
//! cargo run --release -p petasos --example in_situ [SIDE] [STEPS]
//! ```

use petasos::{
    Engine, EngineConfig, OpenOptions,
    fabric::{Access, Key, Region},
    open, service,
};
use std::{
    error::Error,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

#[service]
trait Simulation {
    /// Where the field is.
    async fn field(&self) -> Vec<u8>;
}

struct Field {
    key: Vec<u8>,
}

impl Simulation for Field {
    async fn field(&self) -> Vec<u8> {
        self.key.clone()
    }
}

/// One step of the heat equation, from one buffer to the other.
fn step(side: usize, from: &[f64], to: &mut [f64]) {
    for y in 1..side - 1 {
        for x in 1..side - 1 {
            let at = y * side + x;
            let around = from[at - 1] + from[at + 1] + from[at - side] + from[at + side];
            to[at] = from[at] + 0.2 * (around - 4.0 * from[at]);
        }
    }
}

/// Computes, and publishes each result in memory that others may read. Gives the time it took.
fn compute(side: usize, steps: usize, published: Option<&Region>) -> Duration {
    let mut heat = vec![0.0; side * side];
    heat[side * side / 2 + side / 2] = 1e6;
    let mut next = heat.clone();
    let mut bytes = vec![0; side * side * 8];
    let start = Instant::now();
    for _ in 0..steps {
        step(side, &heat, &mut next);
        std::mem::swap(&mut heat, &mut next);
        for (cell, value) in bytes.chunks_exact_mut(8).zip(&heat) {
            cell.copy_from_slice(&value.to_le_bytes());
        }
        if let Some(published) = published {
            published.write(0, &bytes);
        }
    }
    start.elapsed()
}

/// Publishes the field, serves its key, and computes when told so.
fn simulation(
    side: usize,
    steps: usize,
    address: &Sender<String>,
    begin: &Receiver<()>,
    done: &AtomicBool,
) -> Result<Duration, Box<dyn Error>> {
    let engine = Engine::new(open("shm://*", &OpenOptions::default())?, EngineConfig::default());
    // Memory of the transport's own: others map it, and read it in place.
    let memory = engine.alloc(side * side * 8)?;
    let exported = engine.export(memory.clone(), Access::READ)?;
    Field { key: exported.key().as_bytes().to_vec() }.serve(&engine, 0)?;
    address.send(engine.address().to_string())?;
    // Until the observer has the key; from then on this thread only computes.
    while begin.try_recv().is_err() {
        engine.turn();
    }
    let took = compute(side, steps, Some(&memory));
    done.store(true, Ordering::Release);
    Ok(took)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let side: usize = arguments.next().map_or(Ok(512), |text| text.parse())?;
    let steps: usize = arguments.next().map_or(Ok(400), |text| text.parse())?;
    if side < 3 || steps == 0 {
        return Err("the square has a side of at least 3, and there is at least one step".into());
    }
    compute(side, steps / 4 + 1, None);
    let (address, addresses) = channel();
    let (go, begin) = channel();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| -> Result<(), Box<dyn Error>> {
        let done = &done;
        let computing = threads.spawn(move || {
            simulation(side, steps, &address, &begin, done).map_err(|error| error.to_string())
        });
        let engine =
            Engine::new(open("shm://*", &OpenOptions::default())?, EngineConfig::default());
        let simulation = SimulationClient::new(&engine, &addresses.recv()?.parse()?);
        let key = engine.block_on(simulation.field())?;
        let field = engine.import(&Key::from_bytes(key)?)?;
        let into = engine.block_on(field.get(0, Region::zeroed(side * side * 8).into()))?;
        go.send(())?;

        let (mut looks, mut pulled) = (0u32, 0u64);
        let mut largest = 0.0f64;
        while !done.load(Ordering::Acquire) {
            let seen = engine.block_on(field.get(0, into.clone()))?.to_vec();
            let values = seen.as_chunks().0.iter().map(|cell| f64::from_le_bytes(*cell));
            largest = values.fold(0.0, f64::max);
            (looks, pulled) = (looks + 1, pulled + seen.len() as u64);
            std::thread::sleep(Duration::from_millis(5));
        }
        let watched = computing.join().map_err(|_| "the simulation panicked")??;
        let alone = compute(side, steps, Some(&Region::zeroed(side * side * 8)));
        let slower = (watched.as_secs_f64() / alone.as_secs_f64() - 1.0) * 100.0;
        println!("{steps} steps on {side} x {side}: alone {alone:.2?}, observed {watched:.2?}");
        println!("{looks} looks, {:.1} MB pulled, peak now {largest:.0}", pulled as f64 / 1e6);
        println!("slow-down of the computation: {slower:.1} %");
        Ok(())
    })
}
