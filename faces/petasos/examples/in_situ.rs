//! In-situ analysis: a computation runs, and an observer in another thread of control pulls its
//! data out while it runs; over shared memory the computation never calls in. Shows what the
//! observer saw, and by how much it slowed the computation: rounds with and without it, in turn.
//!
//! The computation is heat that spreads on a square; it publishes the key to its field once. The
//! observer reads the field by remote access: over shared memory the computation takes no part in
//! that at all. Where a transport cannot reach memory without its owner, the computation lets it in
//! after each step.
//!
//! ```text
//! cargo run --release -p petasos --example in_situ [SIDE] [STEPS] [URL]   # shm://* unless told otherwise
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
        mpsc::{Receiver, Sender, TryRecvError, channel},
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

/// Heat that spreads on a square.
struct Heat {
    side: usize,
    now: Vec<f64>,
    next: Vec<f64>,
    bytes: Vec<u8>,
}

impl Heat {
    fn new(side: usize) -> Heat {
        let mut now = vec![0.0; side * side];
        now[side * side / 2 + side / 2] = 1e6;
        Heat { side, next: now.clone(), now, bytes: vec![0; side * side * 8] }
    }

    fn step(&mut self) {
        let (side, from) = (self.side, &self.now);
        for y in 1..side - 1 {
            for x in 1..side - 1 {
                let at = y * side + x;
                let around = from[at - 1] + from[at + 1] + from[at - side] + from[at + side];
                self.next[at] = from[at] + 0.2 * (around - 4.0 * from[at]);
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    /// Computes, and writes each result where others may read it, and lets them in then. Gives the
    /// time it took.
    fn compute(&mut self, steps: usize, published: &Region, let_in: impl Fn()) -> Duration {
        let start = Instant::now();
        for _ in 0..steps {
            self.step();
            for (cell, value) in self.bytes.chunks_exact_mut(8).zip(&self.now) {
                cell.copy_from_slice(&value.to_le_bytes());
            }
            published.write(0, &self.bytes);
            let_in();
        }
        start.elapsed()
    }
}

/// What the simulation says while it computes.
#[derive(Default)]
struct State {
    /// Whether this is a round to look at.
    watched: AtomicBool,
    done: AtomicBool,
}

/// Rounds alone, and as many observed, in turn: what else the machine does hits both.
const ROUNDS: usize = 9;

/// The median times of a round, alone and observed.
struct Times {
    alone: Duration,
    observed: Duration,
}

/// Serves until there is word from the observer. False if it is lost.
fn serve_until_told(engine: &Engine, begin: &Receiver<()>) -> bool {
    loop {
        match begin.try_recv() {
            Ok(()) => return true,
            Err(TryRecvError::Disconnected) => return false,
            Err(TryRecvError::Empty) => engine.progress(),
        };
    }
}

/// Publishes the field, serves its key, and computes when told so.
fn simulation(
    url: &str,
    (side, steps): (usize, usize),
    address: &Sender<String>,
    begin: &Receiver<()>,
    state: &State,
) -> Result<Times, Box<dyn Error>> {
    let engine = Engine::new(open(url, &OpenOptions::default())?, EngineConfig::default());
    // Memory of the transport's own: others map it, and read it in place.
    let memory = engine.alloc(side * side * 8)?;
    let exported = engine.export(memory.clone(), Access::READ)?;
    Field { key: exported.key().as_bytes().to_vec() }.serve(&engine, 0)?;
    address.send(engine.address().to_string())?;
    // Until the observer has the key; from then on this thread only computes.
    if !serve_until_told(&engine, begin) {
        return Err("the observer is gone".into());
    }
    let passive = engine.capabilities().passive_target;
    let let_in = || {
        if !passive {
            engine.progress();
        }
    };
    let mut heat = Heat::new(side);
    heat.compute(steps / 4 + 1, &memory, let_in);
    let (mut alone, mut observed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (watched, times) in [(false, &mut alone), (true, &mut observed)] {
            state.watched.store(watched, Ordering::Release);
            times.push(heat.compute(steps, &memory, let_in));
        }
    }
    state.done.store(true, Ordering::Release);
    // The field stays until the last look at it is over.
    serve_until_told(&engine, begin);
    let [alone, observed] = [alone, observed].map(|mut times| {
        times.sort();
        times[ROUNDS / 2]
    });
    Ok(Times { alone, observed })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let side: usize = arguments.next().map_or(Ok(512), |text| text.parse())?;
    let steps: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let url = arguments.next().unwrap_or_else(|| "shm://*".to_owned());
    if side < 3 || steps == 0 {
        return Err("the square has a side of at least 3, and there is at least one step".into());
    }
    let (address, addresses) = channel();
    let (go, begin) = channel();
    let state = State::default();
    std::thread::scope(|threads| -> Result<(), Box<dyn Error>> {
        let (url, state) = (&url, &state);
        let computing = threads.spawn(move || {
            // Also where it fails: the observer must not wait for ever.
            let times = simulation(url, (side, steps), &address, &begin, state);
            state.done.store(true, Ordering::Release);
            times.map_err(|error| error.to_string())
        });
        let engine = Engine::new(open(url, &OpenOptions::default())?, EngineConfig::default());
        let simulation = SimulationClient::new(&engine, &addresses.recv()?.parse()?);
        let key = engine.block_on(simulation.field())?;
        let field = engine.import(&Key::from_bytes(key)?)?;
        let into = engine.block_on(field.get(0, Region::zeroed(side * side * 8).into()))?;
        go.send(())?;

        let (mut looks, mut pulled) = (0u32, 0u64);
        let mut peak = 0.0f64;
        let mut look = |looks: &mut u32| -> Result<(), Box<dyn Error>> {
            let seen = engine.block_on(field.get(0, into.clone()))?.to_vec();
            let values = seen.as_chunks().0.iter().map(|cell| f64::from_le_bytes(*cell));
            peak = values.fold(0.0, f64::max);
            (*looks, pulled) = (*looks + 1, pulled + seen.len() as u64);
            Ok(())
        };
        while !state.done.load(Ordering::Acquire) {
            if state.watched.load(Ordering::Acquire) {
                look(&mut looks)?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Of a computation that was over before its first look it sees the result.
        let last = if looks == 0 { look(&mut looks) } else { Ok(()) };
        drop(go);
        let Times { alone, observed } =
            computing.join().map_err(|_| "the simulation panicked")??;
        last?;
        let slower = (observed.as_secs_f64() / alone.as_secs_f64() - 1.0) * 100.0;
        println!("{steps} steps on {side} x {side}: alone {alone:.2?}, observed {observed:.2?}");
        println!("{looks} observations, {:.1} MB pulled, peak now {peak:.0}", pulled as f64 / 1e6);
        println!("slow-down of the computation: {slower:.1} %");
        Ok(())
    })
}
