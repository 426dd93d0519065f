//! What calls and bulk data take between this process and a server process of its own, and how
//! that is shown beside a limit of the machine.

use crate::{
    client,
    exit::{Code, Failure, Outcome},
    limits::{self, Plan},
    output,
    server::{Order, Server, Waiting},
    service::BenchClient,
};
use comfy_table::Table;
use petasos::{Engine, fabric::Address};
use serde::Serialize;
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// A figure of ours, and the limit of the machine that belongs to it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) transport: &'static str,
    /// What was measured.
    pub(crate) what: String,
    pub(crate) value: f64,
    /// `ns`, `GB/s` (10^9 bytes per second) or `calls/s`.
    pub(crate) unit: &'static str,
    pub(crate) limit: Option<Limit>,
    /// The value as a multiple of the limit: small is good for times, large for rates.
    pub(crate) ratio: Option<f64>,
    /// How it was measured.
    pub(crate) how: String,
}

/// What the machine can do.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) value: f64,
}

impl Row {
    pub(crate) fn new(
        transport: &'static str,
        what: impl Into<String>,
        (value, unit): (f64, &'static str),
        limit: Option<(&str, f64)>,
        how: impl Into<String>,
    ) -> Row {
        let ratio = limit.map(|(_, limit)| value / limit);
        let limit = limit.map(|(name, value)| Limit { name: name.to_owned(), value });
        Row { transport, what: what.into(), value, unit, limit, ratio, how: how.into() }
    }
}

/// The rows as a table.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = output::table(&["transport", "what", ">petasos", ">machine", ">ratio", "of"]);
    for row in rows {
        let show = |value: f64| match row.unit {
            "ns" => output::time(value),
            "GB/s" => output::bandwidth(value),
            _ => output::rate(value),
        };
        let limit = row.limit.as_ref();
        table.add_row([
            row.transport.to_owned(),
            row.what.clone(),
            show(row.value),
            limit.map_or("–".to_owned(), |limit| show(limit.value)),
            row.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
            limit.map_or(String::new(), |limit| spoken(&limit.name)),
        ]);
    }
    table
}

/// A limit's name in words; system calls keep theirs.
fn spoken(name: &str) -> String {
    if name.starts_with("process_") { name.to_owned() } else { name.replace('_', " ") }
}

/// The distinct ways in which the rows were measured, a line each.
pub(crate) fn notes(rows: &[Row]) -> String {
    let mut ways: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let what = row.what.split(',').next().unwrap_or_default();
        match ways.iter_mut().find(|(how, _)| *how == row.how) {
            Some((_, whats)) if whats.contains(&what) => {}
            Some((_, whats)) => whats.push(what),
            None => ways.push((&row.how, vec![what])),
        }
    }
    let lines: Vec<_> =
        ways.iter().map(|(how, whats)| format!("  {}: {how}", whats.join(", "))).collect();
    lines.join("\n")
}

/// Runs work on a thread of its own on the client's core.
pub(crate) fn on_client_core<T: Send>(plan: &Plan, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        limits::pin(plan.cores.client);
        work()
    };
    thread::scope(|scope| {
        scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// How both sides wait when the lowest latency is wanted: they spin, where they have a core each.
pub(crate) fn spinning(plan: &Plan) -> Waiting {
    if plan.cores.alone() { Waiting::Sleeping } else { Waiting::Spinning }
}

/// A server process, and an engine here that calls it.
pub(crate) struct Pair {
    // Dropped in this order: the engine says good-bye before the server goes.
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) address: Address,
}

/// What a pair is made of.
pub(crate) struct Setting<'a> {
    pub(crate) transport: &'static petasos::Transport,
    pub(crate) waiting: Waiting,
    pub(crate) plan: &'a Plan,
    pub(crate) secret: &'a Path,
    pub(crate) store: Option<PathBuf>,
    pub(crate) scratch: &'a Path,
}

impl Pair {
    /// Starts the server on its core.
    pub(crate) fn start(setting: &Setting<'_>) -> Outcome<Pair> {
        let order = Order {
            url: setting.transport.any.to_owned(),
            secret: Some(setting.secret.to_owned()),
            waiting: setting.waiting,
            core: setting.plan.cores.server,
            store: setting.store.clone(),
        };
        let server = Server::start(&order, setting.scratch)?;
        let address = Address::parse(server.url())
            .map_err(Failure::system("the URL that the server process gave"))?;
        let patience = Duration::from_secs(10);
        let engine = client::engine(&address, Some(setting.secret), setting.waiting, patience)?;
        Ok(Pair { engine, server, address })
    }

    pub(crate) fn bench(&self) -> BenchClient {
        BenchClient::new(&self.engine, &self.address)
    }

    /// A failure, with what became of the server.
    pub(crate) fn explain(&mut self, failure: Failure) -> Failure {
        match self.server.ended() {
            Some(status) => {
                let pid = self.server.pid();
                let said = format!("{failure}").lines().next().unwrap_or_default().to_owned();
                let text = format!("the server process {pid} ended ({status}): {said}");
                Failure::new(Code::Unreachable, text)
                    .advise("run it again; if it ends again, look for its own message above")
            }
            None => failure,
        }
    }

    /// Calls a second, so many at a time: the median of runs of about a millisecond.
    pub(crate) fn rate(&self, in_flight: usize, time: Duration) -> Outcome<f64> {
        let bench = self.bench();
        self.engine.block_on(async {
            let mut calls: VecDeque<_> = (0..in_flight).map(|_| bench.null()).collect();
            let (mut rates, begin) = (Vec::new(), Instant::now());
            while rates.len() < 8 || begin.elapsed() < time {
                let (start, mut done) = (Instant::now(), 0u32);
                while done == 0 || start.elapsed() < Duration::from_millis(1) {
                    for _ in 0..16 {
                        if let Some(call) = calls.pop_front() {
                            call.await?;
                        }
                        calls.push_back(bench.null());
                    }
                    done += 16;
                }
                rates.push(f64::from(done) / start.elapsed().as_secs_f64());
            }
            for call in calls {
                call.await?;
            }
            Ok(limits::median(&mut rates))
        })
    }
}
