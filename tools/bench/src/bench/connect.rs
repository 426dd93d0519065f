//! The time of a new peer to its first answer, beside that of a bare connection.
//!
//! Each time with a fresh endpoint and a fresh engine, which the server does not know; the client's
//! process stays the same.

use super::Bench;
use crate::{
    beside::typical,
    client,
    exit::Outcome,
    figures::Row,
    limits::{self, Family, Once},
    server::Server,
    service::BenchClient,
    waiting::Waiting,
};
use petasos::{Transport, fabric::Address};
use std::time::{Duration, Instant};

/// A round: the machine's time, and a new peer's.
struct Found {
    machine: Once,
    /// From the call to its answer, with the connection.
    called: Once,
    /// The same with the opening of the endpoint and the engine.
    opened: Once,
}

/// A percentile.
type Pick = fn(&Once) -> f64;

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for waiting in bench.waitings() {
        let measured = || new_peers(bench, transport, waiting);
        rows.extend(limits::on_client_core(&bench.plan, measured)?);
    }
    Ok(rows)
}

fn new_peers(bench: &Bench, transport: &'static Transport, waiting: Waiting) -> Outcome<Vec<Row>> {
    let word = waiting.label();
    let plan = bench.plan_of(2);
    let setting = bench.setting(transport, waiting, &plan);
    let (family, against) = match client::is_within_node(transport.scheme) {
        true => (Family::Unix, "a Unix socket connected, and a byte back when it was accepted"),
        false => (Family::Tcp, "a connection, and three times 64 bytes there and back"),
    };
    let limit_waits = match waiting {
        Waiting::Sleeping => limits::Waiting::Sleeping,
        _ => limits::Waiting::Spinning,
    };
    let mut rounds = Vec::new();
    for round in 0..bench.rounds {
        bench.round(transport, format_args!("new peers, {word}"), round);
        let machine = limits::new_connections(&plan, family, limit_waits)?;
        let (server, address) = setting.server(false)?;
        let measured = |name, with_endpoint| {
            limits::once(&plan, name, || first_call(bench, &address, waiting, with_endpoint))
                .map_err(|failure| explain(&server, failure))
        };
        let called = measured("first_call", false)?;
        rounds.push(Found { machine, called, opened: measured("endpoint_and_first_call", true)? });
    }
    let how = format!(
        "each time a fresh endpoint and engine in the same process, and a null call to a server that \
         does not know them; against {against}, the median of that; medians and p99 of single \
         events, the first ones not counted; {}",
        plan.cores.describe(&format!("{word} processes"))
    );
    let row = |what: &str, of: fn(&Found) -> &Once, pick: Pick| {
        // All of one round, that of the median, so that they are in order.
        let ratio = |found: &&Found| of(found).times.p50 / found.machine.times.p50;
        let found = typical(rounds.iter().collect(), ratio);
        let samples = rounds.iter().map(|found| of(found).samples).sum();
        let limit = Some((found.machine.name, found.machine.times.p50));
        let value = (pick(of(found)), "ns");
        let row = Row::new(transport.scheme, format!("{what}, {word}"), value, limit, &how);
        row.of_samples(samples)
    };
    let fewest = rounds.iter().map(|found| found.called.samples).min().unwrap_or(0);
    // Both against the machine's median, whose own tail is longer.
    let (median, p99): (Pick, Pick) = (|once| once.times.p50, |once| once.times.p99);
    Ok(vec![
        row("first call of a new peer", |found| &found.called, median),
        row("first call of a new peer p99", |found| &found.called, p99)
            .doubted(limits::too_few(fewest, limits::FOR_P99)),
        row("endpoint opened, and its first call", |found| &found.opened, median),
    ])
}

/// A new peer's first call: how long it took to its answer.
fn first_call(
    bench: &Bench,
    address: &Address,
    waiting: Waiting,
    with_endpoint: bool,
) -> Outcome<Duration> {
    let patience = Duration::from_secs(10);
    let begin = Instant::now();
    let engine = client::engine(address, Some(&bench.secret), waiting, patience)?;
    let called = Instant::now();
    engine.block_on(BenchClient::new(&engine, address).null())?;
    let end = Instant::now();
    Ok(end - if with_endpoint { begin } else { called })
}

/// A failure, with the server process that it is about.
fn explain(server: &Server, failure: crate::exit::Failure) -> crate::exit::Failure {
    failure.within(format!("a new peer of the server process {}", server.pid()))
}
