//! The rate of calls, and the bandwidth of bulk data, by number of clients.

use super::Bench;
use crate::{
    beside::Beside,
    client_process::{Clients, Order, TRANSFER, Workload},
    exit::Outcome,
    figures::{self, Row},
    limits,
    plots::Plot,
    waiting::Waiting,
};
use petasos::{Transport, fabric::Address};

const CLIENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK: [usize; 3] = [1, 4, 16];

fn counts(bench: &Bench) -> &'static [usize] {
    if bench.quick { &QUICK } else { &CLIENTS }
}

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let calls = of(bench, transport, Workload::Calls)?;
    Ok([calls, bulk(bench, transport)?].concat())
}

/// Bulk data only.
pub(super) fn bulk(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    of(bench, transport, Workload::Bulk)
}

fn of(bench: &Bench, transport: &'static Transport, workload: Workload) -> Outcome<Vec<Row>> {
    let counts = counts(bench);
    let setting = bench.setting(transport, Waiting::Adaptive, &bench.plan);
    let mut pair = setting.pair()?;
    let (mut rates, mut bare) = (vec![Vec::new(); counts.len()], vec![Vec::new(); counts.len()]);
    for round in 0..bench.rounds {
        let what =
            if workload == Workload::Calls { "clients that call" } else { "clients with data" };
        bench.round(transport, what, round);
        let of_round: Outcome<Vec<f64>> =
            counts.iter().map(|count| total(&pair.address, bench, *count, workload)).collect();
        let of_round = of_round.map_err(|failure| pair.explain(failure))?;
        let limit = match workload {
            Workload::Calls => best(&of_round),
            Workload::Bulk => of_round[0],
        };
        for (rates, value) in rates.iter_mut().zip(of_round) {
            rates.push(Beside { value, limit, of: workload.limit() });
        }
        // The same over bare cache lines, in the same round.
        if workload == Workload::Calls && transport.scheme == "shm" {
            let of_round: Outcome<Vec<f64>> =
                counts.iter().map(|count| over_bare_lines(bench, *count)).collect();
            let of_round = of_round?;
            let limit = best(&of_round);
            for (bare, value) in bare.iter_mut().zip(of_round) {
                bare.push(Beside { value, limit, of: workload.limit() });
            }
        }
    }
    let row = |(count, found): (&usize, Vec<Beside>)| {
        let found = Beside::typical(found);
        let limit = Some((found.of, found.limit));
        let what = format!("{}, {count}", workload.what());
        let value = (found.value, workload.unit());
        let row = Row::new(transport.scheme, what, value, limit, workload.how());
        row.at(workload.plot(), transport.scheme, "petasos", *count as f64)
    };
    let bare_row = |(count, found): (&usize, Vec<Beside>)| {
        let found = Beside::typical(found);
        let limit = Some((found.of, found.limit));
        let name = figures::spoken(limits::BARE_LINES);
        let what = format!("clients over {name}, {count}");
        let row = Row::new(transport.scheme, what, (found.value, workload.unit()), limit, BARE);
        row.at(workload.plot(), transport.scheme, &name, *count as f64)
    };
    let bare = bare.into_iter().filter(|found| !found.is_empty());
    let ours = counts.iter().zip(rates).map(row);
    Ok(ours.chain(counts.iter().zip(bare).map(bare_row)).collect())
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

/// How the machine's own rate was measured.
const BARE: &str = "no calls: a cache line in each direction for each client, which polls for 50 us and \
                    then sleeps on a futex; one thread answers and never sleeps; clients are threads \
                    on the other cores; against their own best number";

/// Requests a second of so many clients together, over bare memory.
fn over_bare_lines(bench: &Bench, count: usize) -> Outcome<f64> {
    Ok(limits::calls_of_many(&bench.plan_of(2), &bench.plan.cores.of_clients(), count)?)
}

impl Workload {
    fn what(self) -> &'static str {
        if self == Workload::Calls { "clients" } else { "clients with bulk data" }
    }

    fn unit(self) -> &'static str {
        if self == Workload::Calls { "calls/s" } else { "GB/s" }
    }

    fn limit(self) -> &'static str {
        if self == Workload::Calls { "the best number of clients" } else { "point to point" }
    }

    fn plot(self) -> Plot {
        if self == Workload::Calls { Plot::Clients } else { Plot::ClientsBulk }
    }

    fn how(self) -> &'static str {
        match self {
            Workload::Calls => {
                "null calls, one in flight for each client; clients are processes on the cores that \
                 the server does not use, all waiting adaptively; calls a second of all together"
            }
            Workload::Bulk => {
                "1 MiB of each client's memory pulled by the server, one transfer in flight for \
                 each; clients as before; bytes of all together, against one client in the same \
                 round"
            }
        }
    }
}

/// Calls a second of all clients together, or GB/s.
fn total(address: &Address, bench: &Bench, count: usize, workload: Workload) -> Outcome<f64> {
    let cores = bench.plan.cores.of_clients();
    let order = |at: usize| Order {
        url: address.to_string(),
        secret: bench.secret.clone(),
        // Not on the server's core: a client that wakes there would wait for the server.
        core: cores.get(at % cores.len().max(1)).copied(),
        workload,
    };
    let clients = Clients::start((0..count).map(order))?;
    let rate = clients.call_for(bench.plan_of(2).time)?.rate();
    Ok(if workload == Workload::Calls { rate } else { rate * TRANSFER as f64 / 1e9 })
}
