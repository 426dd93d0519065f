//! How the rate of calls goes on as clients grow in number.

use super::Bench;
use crate::{
    client,
    exit::{Code, Failure, Outcome},
    figures::{Pair, Row, Setting},
    limits,
    server::Waiting,
    service::BenchClient,
};
use petasos::{Transport, fabric::Address};
use std::{
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const CLIENTS: [usize; 4] = [1, 4, 16, 64];
const QUICK: [usize; 3] = [1, 4, 16];

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let counts = if bench.quick { &QUICK[..] } else { &CLIENTS };
    bench.progress.step(format!("{}: numbers of clients", transport.scheme));
    let setting = Setting {
        transport,
        waiting: Waiting::Adaptive,
        plan: &bench.plan,
        secret: &bench.secret,
        store: None,
        scratch: &bench.scratch,
    };
    let mut pair = Pair::start(&setting)?;
    let mut rates = Vec::new();
    for &count in counts {
        bench.progress.step(format!("{}: {count} clients", transport.scheme));
        let measured: Outcome<Vec<f64>> =
            (0..bench.rounds).map(|_| total(&pair.address, bench, count)).collect();
        match measured {
            Ok(mut found) => rates.push(limits::median(&mut found)),
            Err(failure) => return Err(pair.explain(failure)),
        }
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    let how = "null calls, one in flight for each client; clients are threads with an engine of \
               their own, on the cores that the server does not have, all waiting adaptively; \
               calls a second of all together";
    let row = |(count, rate): (&usize, f64)| {
        let what = format!("clients, {count}");
        let limit = Some(("the best number of clients", best));
        Row::new(transport.scheme, what, (rate, "calls/s"), limit, how)
    };
    Ok(counts.iter().zip(rates).map(row).collect())
}

/// Calls a second of all clients together.
fn total(address: &Address, bench: &Bench, count: usize) -> Outcome<f64> {
    let secret = bench.secret.as_path();
    let cores = bench.plan.cores.of_clients();
    let (connected, over) = (&Barrier::new(count + 1), &AtomicBool::new(false));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..count)
            .map(|at| {
                // Beside the server, not in its way: a client that wakes there would wait for it.
                let core = cores.get(at % cores.len().max(1)).copied();
                scope.spawn(move || {
                    limits::pin(core);
                    one(address, secret, connected, over)
                })
            })
            .collect();
        connected.wait();
        thread::sleep(bench.plan.time);
        over.store(true, Ordering::Relaxed);
        let mut all: Option<Made> = None;
        for client in clients {
            let died = |_| Failure::new(Code::Failed, "a client thread panicked");
            let made = client.join().map_err(died)??;
            all = Some(all.map_or(made, |all| all.and(made)));
        }
        let all = all.expect("at least one client");
        Ok(all.calls as f64 / (all.end - all.begin).as_secs_f64())
    })
}

/// Calls made, and when. Each client reads the clock for itself: on a crowded core nobody else can
/// say when it began.
#[derive(Clone, Copy)]
struct Made {
    calls: u64,
    begin: Instant,
    end: Instant,
}

impl Made {
    /// Those of both.
    fn and(self, other: Made) -> Made {
        Made {
            calls: self.calls + other.calls,
            begin: self.begin.min(other.begin),
            end: self.end.max(other.end),
        }
    }
}

/// One client: what it made until it was over.
fn one(address: &Address, secret: &Path, connected: &Barrier, over: &AtomicBool) -> Outcome<Made> {
    let begun = begin(address, secret);
    connected.wait();
    let (engine, bench) = begun?;
    let (mut calls, begin) = (0, Instant::now());
    engine.block_on(async {
        while !over.load(Ordering::Relaxed) {
            bench.null().await?;
            calls += 1;
        }
        Ok(Made { calls, begin, end: Instant::now() })
    })
}

fn begin(address: &Address, secret: &Path) -> Outcome<(petasos::Engine, BenchClient)> {
    let patience = Duration::from_secs(10);
    let engine = client::engine(address, Some(secret), Waiting::Adaptive, patience)?;
    let bench = BenchClient::new(&engine, address);
    engine.block_on(bench.null())?;
    Ok((engine, bench))
}
