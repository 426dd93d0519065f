//! One server process with two engines against one: what the second engine adds.
//!
//! Engines share nothing, so two should serve twice as much, where there are cores. There are two
//! measurements. *A server process and two clients*, not pinned: with fewer than four cores the
//! cores limit the rate, and contention shows as the server's time on a core for a call, which must
//! not grow. *Both sides on one thread*, on one core after the other and then on both at a time: no
//! side waits, and two cores are enough.

use super::Bench;
use crate::{
    accounting::Account,
    beside::Beside,
    client,
    exit::{Code, Failure, Outcome},
    figures::Row,
    limits::{self, Cores, Plan},
    pair::Setting,
    server::{self, Server},
    service::BenchClient,
    waiting::Waiting,
};
use petasos::{Engine, Transport, fabric::Address};
use std::{
    collections::VecDeque,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

/// Clients, and engines where there are several.
const SEVERAL: usize = 2;

/// Calls that each client has under way.
const IN_FLIGHT: usize = 16;

/// Calls between two checks whether the measurement is over.
const STEP: u64 = 64;

/// The reference.
const ONE: &str = "one engine";

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for waiting in [Waiting::Adaptive, Waiting::Sleeping] {
        rows.extend(of_a_server(bench, transport, waiting)?);
    }
    match bench.plan.cores.alone() {
        true => bench.skip("two engines on a core each: there is one core".to_owned()),
        false => rows.push(on_their_cores(bench, transport)?),
    }
    Ok(rows)
}

/// What a server did in a measurement.
#[derive(Clone, Copy)]
struct Served {
    calls: f64,
    seconds: f64,
    account: Account,
}

impl Served {
    fn rate(&self) -> f64 {
        self.calls / self.seconds
    }
}

fn of_a_server(
    bench: &Bench,
    transport: &'static Transport,
    waiting: Waiting,
) -> Outcome<Vec<Row>> {
    // Not pinned: more threads than cores are best left to the system.
    let anywhere = Cores { client: None, server: None };
    let plan = Plan { cores: anywhere, ..bench.plan };
    let word = if waiting == Waiting::Sleeping { "blocking" } else { "adaptive" };
    let mut rounds = Vec::new();
    for round in 0..bench.rounds {
        bench.round(transport, format_args!("engines of one server, {word}"), round);
        let with = |engines| {
            let setting = Setting { engines, ..bench.setting(transport, waiting, &plan) };
            let (server, _) = setting.server(false)?;
            serve_clients(bench, &server, waiting)
        };
        rounds.push((with(1)?, with(SEVERAL)?));
    }
    let how = format!(
        "null calls of two client threads, {IN_FLIGHT} in flight each, to one server process with \
         two engines, a thread and an address each, against one engine for both clients; the \
         server's time on a core, its time of waiting for one, and its switches as the system counts \
         them; not pinned, {} cores for the four threads: with fewer than four cores the cores \
         limit the rates; contention between engines would show as time on a core for a call",
        thread::available_parallelism().map_or(1, usize::from)
    );
    let row = |what: &str, unit: &'static str, pick: fn(&Served) -> f64| {
        let beside = |(one, several): &(Served, Served)| Beside {
            value: pick(several),
            limit: pick(one),
            of: ONE,
        };
        let found = Beside::typical(rounds.iter().map(beside).collect());
        let limit = Some((found.of, found.limit)).filter(|(_, limit)| *limit > 0.0);
        Row::new(transport.scheme, format!("{what}, {word}"), (found.value, unit), limit, &how)
    };
    let mut rows = vec![row("two engines", "calls/s", Served::rate)];
    if waiting == Waiting::Sleeping {
        rows.extend([
            row("two engines: on a core", "ns", |s| s.account.on_core / s.calls),
            row("two engines: waiting for a core", "ns", |s| s.account.waiting / s.calls),
            row("two engines: sleeps", "a call", |s| s.account.slept / s.calls),
            row("two engines: losses of the core", "a call", |s| s.account.taken / s.calls),
        ]);
    }
    Ok(rows)
}

/// Two clients call a server for the time of a measurement, each its own engine where there are
/// two.
fn serve_clients(bench: &Bench, server: &Server, waiting: Waiting) -> Outcome<Served> {
    let parse = |url: &String| {
        Address::parse(url).map_err(Failure::system("the URL that the server process gave"))
    };
    let addresses: Vec<Address> = server.urls().iter().map(parse).collect::<Outcome<_>>()?;
    let (ready, over) = (&Barrier::new(SEVERAL + 1), &AtomicBool::new(false));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..SEVERAL)
            .map(|nth| {
                let address = &addresses[nth % addresses.len()];
                scope.spawn(move || {
                    let begun = connect(bench, address, waiting);
                    ready.wait();
                    call(begun?, over)
                })
            })
            .collect();
        ready.wait();
        let (begin, before) = (Instant::now(), Account::of(server.pid())?);
        thread::sleep(bench.plan.time);
        over.store(true, Ordering::Relaxed);
        let mut calls = 0.0;
        for client in clients {
            calls += client.join().map_err(died)?? as f64;
        }
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Served { calls, seconds, account: Account::of(server.pid())? - before })
    })
}

fn died(_: Box<dyn std::any::Any + Send>) -> Failure {
    Failure::new(Code::Failed, "a thread that calls panicked")
}

/// An engine that has called once.
fn connect(bench: &Bench, address: &Address, waiting: Waiting) -> Outcome<(Engine, BenchClient)> {
    let engine = client::engine(address, Some(&bench.secret), waiting, PATIENCE)?;
    let client = BenchClient::new(&engine, address);
    engine.block_on(client.null())?;
    Ok((engine, client))
}

/// Calls until the measurement is over: how many.
fn call((engine, client): (Engine, BenchClient), over: &AtomicBool) -> Outcome<u64> {
    engine.block_on(async {
        let mut calls: VecDeque<_> = (0..IN_FLIGHT).map(|_| client.null()).collect();
        let mut made = 0;
        while let Some(oldest) = calls.pop_front() {
            oldest.await?;
            made += 1;
            if made % STEP != 0 || !over.load(Ordering::Relaxed) {
                calls.push_back(client.null());
            }
        }
        Ok(made)
    })
}

/// Both sides on one thread: a pair of engines on each of two cores, against one of them alone.
fn on_their_cores(bench: &Bench, transport: &'static Transport) -> Outcome<Row> {
    let Cores { client, server } = bench.plan.cores;
    let mut rounds = Vec::new();
    for round in 0..bench.rounds {
        bench.round(transport, "engines on a core each", round);
        let alone = together(bench, transport, &[client])? + together(bench, transport, &[server])?;
        let value = together(bench, transport, &[client, server])?;
        rounds.push(Beside { value, limit: alone / 2.0, of: "one thread" });
    }
    let found = Beside::typical(rounds);
    let how = "null calls, one after the other, client and server engine on one thread, which drives \
               them in turn; one such thread on each of two cores at a time, in one process, against \
               one thread alone, the mean of both cores: no side waits, and a ratio below 2 is \
               the cost of what they share";
    let what = "two engines, both sides on each thread";
    let limit = Some((found.of, found.limit));
    Ok(Row::new(transport.scheme, what, (found.value, "calls/s"), limit, how))
}

/// Calls a second of all, with a thread on each of these cores.
fn together(bench: &Bench, transport: &Transport, cores: &[Option<usize>]) -> Outcome<f64> {
    let (ready, over) = (&Barrier::new(cores.len() + 1), &AtomicBool::new(false));
    thread::scope(|scope| {
        let both = |core: &Option<usize>| {
            let core = *core;
            scope.spawn(move || {
                limits::pin(core);
                let begun = Both::begin(bench, transport);
                ready.wait();
                begun?.call(over)
            })
        };
        let threads: Vec<_> = cores.iter().map(both).collect();
        ready.wait();
        thread::sleep(bench.plan_of(2).time);
        over.store(true, Ordering::Relaxed);
        let mut rate = 0.0;
        for thread in threads {
            rate += thread.join().map_err(died)??;
        }
        Ok(rate)
    })
}

/// Both sides of calls, for one thread.
struct Both {
    client: Engine,
    server: Engine,
    bench: BenchClient,
}

impl Both {
    fn begin(bench: &Bench, transport: &Transport) -> Outcome<Both> {
        let url = Address::parse(transport.any).map_err(Failure::system("the transport's URL"))?;
        let engine = || client::engine(&url, Some(&bench.secret), Waiting::Spinning, PATIENCE);
        let (client, server) = (engine()?, engine()?);
        server::serve(&server);
        let bench = BenchClient::new(&client, server.address());
        let both = Both { client, server, bench };
        both.once()?;
        Ok(both)
    }

    fn once(&self) -> Outcome {
        let mut call = std::pin::pin!(self.bench.null());
        let mut context = Context::from_waker(Waker::noop());
        loop {
            self.server.progress();
            self.client.progress();
            if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
                return Ok(answer?);
            }
        }
    }

    /// Calls a second until the measurement is over, by this thread's own clock.
    fn call(&self, over: &AtomicBool) -> Outcome<f64> {
        let (mut calls, begin) = (0_u64, Instant::now());
        while calls == 0 || !over.load(Ordering::Relaxed) {
            for _ in 0..STEP {
                self.once()?;
            }
            calls += STEP;
        }
        Ok(calls as f64 / begin.elapsed().as_secs_f64())
    }
}
