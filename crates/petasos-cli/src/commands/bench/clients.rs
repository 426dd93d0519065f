//! How the rate of calls, and the bandwidth of bulk data, go on as clients grow in number.

use super::Bench;
use crate::{
    beside::Beside,
    client,
    exit::{Code, Failure, Outcome},
    figures::Row,
    limits,
    plots::Plot,
    server::Waiting,
    service::{BenchClient, Way},
};
use petasos::{
    Bulk, Engine, Transport,
    fabric::{Access, Address, Region},
};
use std::{
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

const CLIENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK: [usize; 3] = [1, 4, 16];

/// Bytes of a transfer.
const TRANSFER: usize = 1 << 20;

/// What each client does, again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Calls that do nothing.
    Calls,
    /// Calls in which its memory is pulled.
    Bulk,
}

fn counts(bench: &Bench) -> &'static [usize] {
    if bench.quick { &QUICK } else { &CLIENTS }
}

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let calls = of(bench, transport, Doing::Calls)?;
    Ok([calls, bulk(bench, transport)?].concat())
}

/// Bulk data only.
pub(super) fn bulk(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    of(bench, transport, Doing::Bulk)
}

fn of(bench: &Bench, transport: &'static Transport, doing: Doing) -> Outcome<Vec<Row>> {
    let counts = counts(bench);
    let setting = bench.setting(transport, Waiting::Adaptive, &bench.plan);
    let mut pair = setting.pair()?;
    let mut rates = vec![Vec::new(); counts.len()];
    for round in 0..bench.rounds {
        let what = if doing == Doing::Calls { "clients that call" } else { "clients with data" };
        bench.round(transport, what, round);
        let of_round: Outcome<Vec<f64>> =
            counts.iter().map(|count| total(&pair.address, bench, *count, doing)).collect();
        let of_round = of_round.map_err(|failure| pair.explain(failure))?;
        let limit = match doing {
            Doing::Calls => of_round.iter().copied().fold(0.0, f64::max),
            Doing::Bulk => of_round[0],
        };
        for (rates, value) in rates.iter_mut().zip(of_round) {
            rates.push(Beside { value, limit, of: doing.limit() });
        }
    }
    let row = |(count, found): (&usize, Vec<Beside>)| {
        let found = Beside::typical(found);
        let limit = Some((found.of, found.limit));
        let what = format!("{}, {count}", doing.what());
        let value = (found.value, doing.unit());
        let row = Row::new(transport.scheme, what, value, limit, doing.how());
        row.at(doing.plot(), transport.scheme, "petasos", *count as f64)
    };
    Ok(counts.iter().zip(rates).map(row).collect())
}

impl Doing {
    fn what(self) -> &'static str {
        if self == Doing::Calls { "clients" } else { "clients with bulk data" }
    }

    fn unit(self) -> &'static str {
        if self == Doing::Calls { "calls/s" } else { "GB/s" }
    }

    fn limit(self) -> &'static str {
        if self == Doing::Calls { "the best number of clients" } else { "point to point" }
    }

    fn plot(self) -> Plot {
        if self == Doing::Calls { Plot::Clients } else { Plot::ClientsBulk }
    }

    fn how(self) -> &'static str {
        match self {
            Doing::Calls => {
                "null calls, one in flight for each client; clients are threads with an engine of \
                 their own, on the cores that the server does not have, all waiting adaptively; \
                 calls a second of all together"
            }
            Doing::Bulk => {
                "1 MiB of each client's memory pulled by the server, one transfer in flight for \
                 each; clients as before; bytes of all together, against one client in the same \
                 round"
            }
        }
    }
}

/// Calls a second of all clients together, or GB/s.
fn total(address: &Address, bench: &Bench, count: usize, doing: Doing) -> Outcome<f64> {
    let secret = bench.secret.as_path();
    let cores = bench.plan.cores.of_clients();
    let (connected, over) = (&Barrier::new(count + 1), &AtomicBool::new(false));
    let made = thread::scope(|scope| {
        let clients: Vec<_> = (0..count)
            .map(|at| {
                // Beside the server, not in its way: a client that wakes there would wait for it.
                let core = cores.get(at % cores.len().max(1)).copied();
                scope.spawn(move || {
                    limits::pin(core);
                    one(address, secret, doing, connected, over)
                })
            })
            .collect();
        connected.wait();
        thread::sleep(bench.plan_of(2).time);
        over.store(true, Ordering::Relaxed);
        let mut all: Option<Made> = None;
        for client in clients {
            let died = |_| Failure::new(Code::Failed, "a client thread panicked");
            let made = client.join().map_err(died)??;
            all = Some(all.map_or(made, |all| all.and(made)));
        }
        Ok::<_, Failure>(all.expect("at least one client"))
    })?;
    let rate = made.calls as f64 / (made.end - made.begin).as_secs_f64();
    Ok(if doing == Doing::Calls { rate } else { rate * TRANSFER as f64 / 1e9 })
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
fn one(
    address: &Address,
    secret: &Path,
    doing: Doing,
    connected: &Barrier,
    over: &AtomicBool,
) -> Outcome<Made> {
    let begun = Client::begin(address, secret, doing);
    connected.wait();
    let client = begun?;
    let (mut calls, begin) = (0, Instant::now());
    client.engine.block_on(async {
        // Once at least, on however crowded a core.
        while calls == 0 || !over.load(Ordering::Relaxed) {
            client.once().await?;
            calls += 1;
        }
        Ok(Made { calls, begin, end: Instant::now() })
    })
}

struct Client {
    // Closed before the engine ends.
    lent: Option<Bulk>,
    bench: BenchClient,
    engine: Engine,
}

impl Client {
    /// Connects, and tries once.
    fn begin(address: &Address, secret: &Path, doing: Doing) -> Outcome<Client> {
        let patience = std::time::Duration::from_secs(10);
        let engine = client::engine(address, Some(secret), Waiting::Adaptive, patience)?;
        let bench = BenchClient::new(&engine, address);
        let lent = match doing {
            Doing::Calls => None,
            Doing::Bulk => Some(engine.bulk(Region::zeroed(TRANSFER).whole(), Access::READ)?),
        };
        let client = Client { lent, bench, engine };
        client.engine.block_on(client.once())?;
        Ok(client)
    }

    async fn once(&self) -> Outcome {
        match &self.lent {
            None => Ok(self.bench.null().await?),
            Some(lent) => {
                let moved = self.bench.transfer(lent.handle(), Way::Pull, 1).await?;
                moved.map_err(|text| Failure::new(Code::Failed, text))
            }
        }
    }
}
