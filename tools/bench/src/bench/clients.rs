//! The rate of calls, and the bandwidth of bulk data, by number of clients.

use super::Bench;
use crate::{
    beside::Beside,
    bulk::{self, Amount},
    client,
    client_process::{Clients, Order, TRANSFER, Workload},
    exit::Outcome,
    figures::Row,
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
    Ok([calls, with_data(bench, transport)?].concat())
}

/// Bulk data only.
pub(super) fn with_data(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    of(bench, transport, Workload::Bulk)
}

fn of(bench: &Bench, transport: &'static Transport, workload: Workload) -> Outcome<Vec<Row>> {
    let counts = counts(bench);
    let setting = bench.setting(transport, Waiting::Adaptive, &bench.plan);
    let mut pair = setting.pair()?;
    let mut found = vec![Vec::new(); counts.len()];
    for round in 0..bench.rounds {
        let what =
            if workload == Workload::Calls { "clients that call" } else { "clients with data" };
        bench.round(transport, what, round);
        for (found, count) in found.iter_mut().zip(counts) {
            let value = total(&pair.address, bench, *count, workload);
            let value = value.map_err(|failure| pair.explain(failure))?;
            let (of, limit) = limit(bench, transport, *count, workload)?;
            found.push(Beside { value, limit, of });
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
    Ok(counts.iter().zip(found).map(row).collect())
}

/// What the machine does from point to point, without calls: messages of as many clients, or one
/// transfer after the other between two processes.
fn limit(
    bench: &Bench,
    transport: &'static Transport,
    count: usize,
    workload: Workload,
) -> Outcome<(&'static str, f64)> {
    let (plan, cores) = (bench.plan_of(2), bench.plan.cores.of_clients());
    Ok(match workload {
        Workload::Calls if client::is_within_node(transport.scheme) => {
            (limits::BARE_LINES, limits::calls_of_many(&plan, &cores, count)?)
        }
        Workload::Calls => (limits::BARE_SOCKETS, limits::tcp_calls_of_many(&plan, &cores, count)?),
        Workload::Bulk => {
            let setting = bench.setting(transport, Waiting::Adaptive, &plan);
            let amount = Amount { bytes: TRANSFER, of_transport: false, rounds: 1 };
            let [pull, _] = bulk::limits_of(&setting, amount)?;
            (pull.name, pull.first())
        }
    })
}

impl Workload {
    fn what(self) -> &'static str {
        if self == Workload::Calls { "clients" } else { "clients with bulk data" }
    }

    fn unit(self) -> &'static str {
        if self == Workload::Calls { "calls/s" } else { "GB/s" }
    }

    fn plot(self) -> Plot {
        if self == Workload::Calls { Plot::Clients } else { Plot::ClientsBulk }
    }

    fn how(self) -> &'static str {
        match self {
            Workload::Calls => {
                "null calls, one in flight for each client; clients are processes on the cores that \
                 the server does not use, all waiting adaptively; calls a second of all together; \
                 the limit: messages of as many clients and no calls, a cache line or a TCP \
                 connection for each, which polls for 50 us and then sleeps; one thread answers, \
                 and never sleeps; clients are threads"
            }
            Workload::Bulk => {
                "1 MiB of each client's memory pulled by the server, one transfer in flight for \
                 each; clients as before; bytes of all together; the limit: one such transfer after \
                 the other between two processes, and no calls"
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
