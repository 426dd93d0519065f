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
        let begin = Instant::now();
        thread::sleep(bench.plan.time);
        over.store(true, Ordering::Relaxed);
        let mut calls = 0;
        let seconds = begin.elapsed().as_secs_f64();
        for client in clients {
            let died = |_| Failure::new(Code::Failed, "a client thread panicked");
            calls += client.join().map_err(died)??;
        }
        Ok(calls as f64 / seconds)
    })
}

/// One client: how many calls it made until it was over.
fn one(address: &Address, secret: &Path, connected: &Barrier, over: &AtomicBool) -> Outcome<u64> {
    let begun = begin(address, secret);
    connected.wait();
    let (engine, bench) = begun?;
    let mut calls = 0;
    engine.block_on(async {
        while !over.load(Ordering::Relaxed) {
            bench.null().await?;
            calls += 1;
        }
        Ok(calls)
    })
}

fn begin(address: &Address, secret: &Path) -> Outcome<(petasos::Engine, BenchClient)> {
    let patience = Duration::from_secs(10);
    let engine = client::engine(address, Some(secret), Waiting::Adaptive, patience)?;
    let bench = BenchClient::new(&engine, address);
    engine.block_on(bench.null())?;
    Ok((engine, bench))
}
