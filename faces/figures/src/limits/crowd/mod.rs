//! Many clients of one server, over nothing but what the machine has: the clients, the server,
//! and what is counted.
//!
//! The server is one thread, which never sleeps; clients are threads on the other cores. A client
//! looks for its answer for as long as engines do, and then sleeps: there is no simpler way that
//! lets so many share a core.

mod lines;
mod sockets;

pub use lines::{BARE_LINES, calls_of_many};
pub use sockets::{BARE_SOCKETS, tcp_calls_of_many};

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::{LimitError, Plan, pin};

/// How long a client looks for its answer.
const LOOKING: Duration = Duration::from_micros(50);

/// What a client made, and when.
struct Made {
    calls: u64,
    begin: Instant,
    end: Instant,
}

/// Questions answered in a second, of these clients together, which share these cores. `serve`
/// answers until it is told that all have left; `ask` asks one question, of this number.
fn rate_of<C: Send>(
    plan: &Plan,
    cores: &[usize],
    clients: Vec<C>,
    serve: impl FnOnce(&AtomicBool) -> Result<(), LimitError> + Send,
    ask: impl Fn(&mut C, u32) -> Result<(), LimitError> + Sync,
) -> Result<f64, LimitError> {
    let (over, left) = (AtomicBool::new(false), AtomicBool::new(false));
    let ready = Barrier::new(clients.len() + 1);
    let made = thread::scope(|scope| {
        let server = scope.spawn(|| {
            pin(plan.cores.server);
            serve(&left)
        });
        let (over, ready, ask) = (&over, &ready, &ask);
        let begin = |(at, mut client): (usize, C)| {
            let core = cores.get(at % cores.len().max(1)).copied();
            scope.spawn(move || {
                pin(core);
                ready.wait();
                ask_on(over, |number| ask(&mut client, number))
            })
        };
        let clients: Vec<_> = clients.into_iter().enumerate().map(begin).collect();
        ready.wait();
        thread::sleep(plan.time);
        over.store(true, Ordering::Relaxed);
        let ended: Vec<_> = clients.into_iter().map(ScopedJoinHandle::join).collect();
        left.store(true, Ordering::Relaxed);
        // Why the server ended early is why the clients did.
        or_panic(server.join())?;
        ended.into_iter().map(or_panic).collect::<Result<Vec<Made>, LimitError>>()
    })?;
    let calls: u64 = made.iter().map(|made| made.calls).sum();
    let begin = made.iter().map(|made| made.begin).min();
    let end = made.iter().map(|made| made.end).max();
    let time = begin.zip(end).map_or(plan.time, |(begin, end)| end.duration_since(begin));
    Ok(calls as f64 / time.as_secs_f64())
}

/// What a thread came to; its panic goes on here.
fn or_panic<T>(ended: thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Asks again and again until it is over, once at least.
fn ask_on(
    over: &AtomicBool,
    mut ask: impl FnMut(u32) -> Result<(), LimitError>,
) -> Result<Made, LimitError> {
    let (begin, mut calls) = (Instant::now(), 0);
    while calls == 0 || !over.load(Ordering::Relaxed) {
        calls += 1;
        ask(calls as u32)?;
    }
    Ok(Made { calls, begin, end: Instant::now() })
}
