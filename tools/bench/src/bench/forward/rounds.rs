//! The rounds: each row for each contender, right after each other, the limit first.

mod mounts;

use super::{
    arena::Arena,
    board::{Board, Line},
    candidates::{self, Candidate},
    cells::{Cell, Task},
    contender::{Access, Contender, Kind, Label, Payload},
    mounted::{self, Mounted},
    process, sample,
};
use crate::{
    bench::Bench,
    bulk::{self, Amount},
    exit::{Code, Failure, Outcome},
    limits, scratch,
    waiting::Waiting,
};
use petasos::Transport;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Bytes of a transfer that measures a transport's bandwidth.
const TRANSFER: usize = 16 << 20;

/// A contender in the rounds.
struct Entrant {
    /// Its directory.
    key: String,
    // Dropped before the server.
    mounted: Option<Mounted>,
    /// Nothing once it has been given up.
    contender: Option<Box<dyn Contender>>,
    /// Whether it has a mount as long as there are any.
    mounts: bool,
    /// The rows in which it has failed, which are not tried again.
    failed: Vec<Cell>,
    /// Where its empty files are.
    empty: Option<PathBuf>,
}

/// The bandwidth of a transport in this round, in GB/s.
#[derive(Clone, Copy)]
struct Bandwidth {
    over: &'static str,
    pull: f64,
    push: f64,
}

pub(super) struct Rounds<'a> {
    bench: &'a Bench,
    arena: &'a Arena,
    transports: Vec<&'static Transport>,
    entrants: Vec<Entrant>,
    board: Board,
    bandwidths: Vec<Bandwidth>,
    /// Failures of Petasos itself.
    broken: Vec<String>,
    first: bool,
}

/// The results.
pub(super) struct Found {
    pub(super) lines: Vec<Line>,
    /// Failures of Petasos itself.
    pub(super) broken: Vec<String>,
    /// How the contenders were set up.
    pub(super) how: Vec<String>,
}

/// Measures one row for one contender: a value per second.
type Measure<'f> = &'f dyn Fn(&Arena, &Entrant, &dyn Contender, &Path, bool) -> Outcome<f64>;

impl<'a> Rounds<'a> {
    /// Starts all candidates.
    pub(super) fn new(
        bench: &'a Bench,
        arena: &'a Arena,
        transports: Vec<&'static Transport>,
    ) -> Outcome<Rounds<'a>> {
        let candidates = candidates::all(&transports);
        let mut rounds = Rounds {
            bench,
            arena,
            transports,
            entrants: Vec::new(),
            board: Board::default(),
            bandwidths: Vec::new(),
            broken: Vec::new(),
            first: true,
        };
        for Candidate { key, start, ours } in candidates {
            bench.progress.step(format!("starting {key}"));
            match start(arena.site(&key)?) {
                Ok(contender) => {
                    let mounts = contender.label(Access::Mount).is_some();
                    let (mounted, failed, empty) = (None, Vec::new(), None);
                    let contender = Some(contender);
                    rounds.entrants.push(Entrant {
                        key,
                        contender,
                        mounted,
                        mounts,
                        failed,
                        empty,
                    });
                }
                Err(failure) if failure.code == Code::Interrupted => return Err(failure),
                Err(failure) if ours => {
                    rounds.broken.push(format!("{key}: {failure}"));
                }
                Err(failure) => bench.skip(format!("{key}: {failure}")),
            }
        }
        Ok(rounds)
    }

    pub(super) fn end(mut self) -> Found {
        let all = self.entrants.iter().filter_map(|entrant| entrant.contender.as_ref());
        let mut how: Vec<String> = Vec::new();
        for contender in all {
            let text = contender.how();
            if !how.contains(&text) {
                how.push(text);
            }
        }
        // Mounts before their servers.
        self.entrants.iter_mut().for_each(|entrant| entrant.mounted = None);
        Found { lines: self.board.lines(), broken: self.broken, how }
    }

    /// One round of all rows of some tables.
    pub(super) fn round(&mut self, parts: &[super::Part]) -> Outcome {
        self.bandwidths()?;
        if parts.contains(&super::Part::Commands) {
            self.commands()?;
        }
        if parts.contains(&super::Part::Clients) {
            self.clients()?;
        }
        if parts.contains(&super::Part::Mounts) || parts.contains(&super::Part::Clients) {
            match mounted::unavailable() {
                Some(why) => self.bench.skip(format!("mounts: {why}")),
                None => self.mounts(parts)?,
            }
        }
        self.first = false;
        Ok(())
    }

    /// The bandwidths of the transports between memories, in this round.
    fn bandwidths(&mut self) -> Outcome {
        self.bandwidths.clear();
        for transport in &self.transports {
            self.bench.step(transport, "bandwidth");
            let plan = self.bench.plan_of(2);
            let setting = self.bench.setting(transport, Waiting::for_latency(&plan), &plan);
            let amount = Amount { bytes: TRANSFER, of_transport: false, rounds: 1 };
            let moved = limits::on_client_core(&plan, || bulk::measure(&setting, amount))?;
            if let Some(moved) = moved {
                let (pull, push) = (moved.pull.value, moved.push.value);
                self.bandwidths.push(Bandwidth { over: transport.scheme, pull, push });
            }
            process::pause(Duration::ZERO)?;
        }
        Ok(())
    }

    fn commands(&mut self) -> Outcome {
        for (cell, payload) in [(Cell::Put, Payload::File), (Cell::PutTree, Payload::Tree)] {
            self.row(cell, &|arena, entrant, contender, _, check| {
                let (from, count) = source(arena, payload);
                let to = arena.target(&entrant.key);
                let seconds = arena.run(vec![contender.put(payload, &from, &to)])?;
                if check {
                    arena.compare(&from, &to)?;
                }
                scratch::remove(&to);
                Ok(count / seconds)
            })?;
        }
        for (cell, payload) in [(Cell::Get, Payload::File), (Cell::GetTree, Payload::Tree)] {
            self.row(cell, &|arena, entrant, contender, _, check| {
                let (from, count) = source(arena, payload);
                let to = arena.fetched(&entrant.key);
                let seconds = arena.run(vec![contender.get(payload, &from, &to)])?;
                if check {
                    arena.compare(&from, &to)?;
                }
                scratch::remove(&to);
                Ok(count / seconds)
            })?;
        }
        self.row(Cell::List, &|arena, _, contender, _, _| {
            let Some(command) = contender.list(&arena.tree()) else {
                return Err(no_such_command());
            };
            let files = arena.sizes.files;
            Ok((files + sample::directories(files)) as f64 / arena.run(vec![command])?)
        })
    }

    fn clients(&mut self) -> Outcome {
        for clients in self.arena.sizes.clients.clone() {
            for task in [Task::Write, Task::Read, Task::Small] {
                let cell = Cell::Clients { access: Access::Commands, task, clients };
                self.row(cell, &|arena, entrant, contender, _, check| {
                    let (from, count) = match task {
                        Task::Small => (arena.trees(clients), arena.sizes.files as f64),
                        _ => (arena.parts(clients), arena.sizes.large as f64 / 1e9),
                    };
                    let name = |_: &PathBuf| match task {
                        Task::Read => arena.fetched(&entrant.key),
                        _ => arena.target(&entrant.key),
                    };
                    let to: Vec<PathBuf> = from.iter().map(name).collect();
                    let pairs = || from.iter().zip(&to);
                    let command = |(from, to): (&PathBuf, &PathBuf)| match task {
                        Task::Read => contender.get(Payload::Tree, from, to),
                        _ => contender.put(Payload::Tree, from, to),
                    };
                    let seconds = arena.run(pairs().map(command).collect())?;
                    if check {
                        pairs().try_for_each(|(from, to)| arena.compare(from, to))?;
                    }
                    to.iter().for_each(|path| scratch::remove(path));
                    Ok(count / seconds)
                })?;
            }
        }
        Ok(())
    }

    /// One row: all contenders that take part, one after the other.
    fn row(&mut self, cell: Cell, measure: Measure<'_>) -> Outcome {
        let mut local = None;
        for at in 0..self.entrants.len() {
            let entrant = &self.entrants[at];
            let Some((label, root)) = entrant.takes_part(cell, self.arena) else { continue };
            let Some(contender) = &entrant.contender else { continue };
            self.bench.progress.step(format!("{}: {}", label.name, cell.what()));
            match measure(self.arena, entrant, &**contender, &root, self.first) {
                Ok(value) => {
                    let limit = *local.get_or_insert((label.name, value));
                    let limit = if label.kind == Kind::Limit {
                        limit
                    } else {
                        self.limit(cell, label, limit)
                    };
                    self.board.record(cell, label, value, limit);
                }
                Err(failure) if failure.code == Code::Interrupted => return Err(failure),
                Err(failure) if label.kind == Kind::Limit => {
                    return Err(failure.within("the limit of the local disk"));
                }
                Err(failure) => self.failed(at, label, cell, &failure),
            }
        }
        Ok(())
    }

    /// The slower of the disk and the transport.
    fn limit(&self, cell: Cell, label: Label, local: (&'static str, f64)) -> (&'static str, f64) {
        let Some(pulls) = cell.pulls() else { return local };
        let of = self.bandwidths.iter().find(|bandwidth| bandwidth.over == label.over);
        let transport = of.map(|of| match pulls {
            true => ("pull over the transport", of.pull),
            false => ("push over the transport", of.push),
        });
        transport.filter(|transport| transport.1 < local.1).unwrap_or(local)
    }

    /// Notes a failure, which is not tried again; a contender that hangs is given up for good.
    fn failed(&mut self, at: usize, label: Label, cell: Cell, failure: &Failure) {
        let word = if failure.code == Code::Mismatch { "WRONG DATA: " } else { "" };
        self.note(label, format!("{word}{}: {}: {failure}", label.name, cell.what()));
        let entrant = &mut self.entrants[at];
        entrant.failed.push(cell);
        if process::was_too_slow(failure) {
            entrant.mounted = None;
            entrant.contender = None;
        }
    }

    fn note(&mut self, label: Label, text: String) {
        match label.kind {
            Kind::Ours if !self.broken.contains(&text) => self.broken.push(text),
            Kind::Ours => {}
            _ => self.bench.skip(text),
        }
    }
}

impl Entrant {
    /// Its label in a row, and the path of the export, if it takes part.
    fn takes_part(&self, cell: Cell, arena: &Arena) -> Option<(Label, PathBuf)> {
        let contender = self.contender.as_ref().filter(|_| !self.failed.contains(&cell))?;
        let label = contender.label(cell.access())?;
        let there = match cell {
            Cell::List => contender.list(&arena.tree()).is_some(),
            Cell::Clients { access: Access::Commands, .. } => contender.by_clients(),
            _ => true,
        };
        let root = match (cell.access(), label.kind, &self.mounted) {
            (Access::Mount, Kind::Ours | Kind::Peer, mounted) => mounted.as_ref()?.at().to_owned(),
            _ => arena.export().to_owned(),
        };
        there.then_some((label, root))
    }
}

/// The source of a copy, and how much it counts.
fn source(arena: &Arena, payload: Payload) -> (PathBuf, f64) {
    match payload {
        Payload::File => (arena.large(), arena.sizes.large as f64 / 1e9),
        Payload::Tree => (arena.tree(), arena.sizes.files as f64),
    }
}

/// A contender that takes part has the command.
fn no_such_command() -> Failure {
    Failure::new(Code::Failed, "there is no such command")
}
