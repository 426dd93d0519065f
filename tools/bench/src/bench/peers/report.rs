//! The figures of each stack.

mod show;

use crate::{beside::typical, limits::RoundTrip, output};
use petasos_peers::{Peer, Transport};
use serde::Serialize;
use std::fmt::Display;

/// The name of Petasos in the tables.
const PETASOS: &str = "petasos";
/// Messages of Petasos, without calls.
const MESSAGE: &str = "petasos, message";
/// Arguments of Petasos that are read where they lie.
const LOAN: &str = "petasos, loan";
const MACHINE: &str = "machine: ";

/// What is measured for each stack in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// One call after the other, with so many bytes there and back.
    Echo { bytes: usize },
    /// Calls of the smallest size by the second.
    Rate { in_flight: usize },
    /// Bandwidth of calls with so many bytes of arguments, and a small result.
    Large { bytes: usize },
}

impl Cell {
    fn what(self) -> String {
        match self {
            Cell::Echo { bytes } => format!("echo, {}", output::size(bytes as u64)),
            Cell::Rate { in_flight } => format!("rate, {in_flight} in flight"),
            Cell::Large { bytes } => format!("large argument, {}", output::size(bytes as u64)),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Cell::Echo { .. } => "ns",
            Cell::Rate { .. } => "calls/s",
            Cell::Large { .. } => "GB/s",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Cell::Echo { .. } => output::time(value),
            Cell::Rate { .. } => output::rate(value),
            Cell::Large { .. } => output::bandwidth(value),
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) value: f64,
    pub(super) p99: Option<f64>,
    /// The name of the limit, if it is one.
    pub(super) name: &'static str,
}

impl Found {
    pub(super) fn value(value: f64) -> Found {
        Found { value, p99: None, name: "" }
    }

    pub(super) fn of(found: &RoundTrip) -> Found {
        Found { value: found.median, p99: Some(found.p99), name: found.name }
    }

    pub(super) fn named(self, name: &'static str) -> Found {
        Found { name, ..self }
    }
}

/// The figures of a cell, round by round.
pub(super) struct Tally {
    cell: Cell,
    machine: Vec<Found>,
    ours: Vec<Found>,
    /// Petasos in another way, which the cell has one of.
    another: Vec<Against>,
    peers: Vec<(Peer, Vec<Against>)>,
}

/// A measurement, and its references in the same round.
#[derive(Clone, Copy)]
struct Against {
    found: Found,
    machine: Found,
    ours: Found,
}

type Ratio = fn(&Against) -> f64;

impl Against {
    fn of_machine(&self) -> f64 {
        self.found.value / self.machine.value
    }

    fn of_petasos(&self) -> f64 {
        self.found.value / self.ours.value
    }
}

impl Tally {
    pub(super) fn new(cell: Cell) -> Tally {
        Tally {
            cell,
            machine: Vec::new(),
            ours: Vec::new(),
            another: Vec::new(),
            peers: Vec::new(),
        }
    }

    pub(super) fn cell(&self) -> Cell {
        self.cell
    }

    /// A round begins.
    pub(super) fn machine_and_petasos(&mut self, machine: Found, ours: Found) {
        self.machine.push(machine);
        self.ours.push(ours);
    }

    /// A measurement of this round with its references.
    fn against(&self, found: Found) -> Option<Against> {
        Some(Against { found, machine: *self.machine.last()?, ours: *self.ours.last()? })
    }

    /// The round of Petasos in another way: without calls, or with a loan.
    pub(super) fn another(&mut self, found: Found) {
        self.another.extend(self.against(found));
    }

    /// The round of a peer.
    pub(super) fn peer(&mut self, peer: &Peer, found: Found) {
        let Some(against) = self.against(found) else { return };
        let same = |known: &Peer| (known.name, known.transport) == (peer.name, peer.transport);
        match self.peers.iter_mut().find(|(known, _)| same(known)) {
            Some((_, rounds)) => rounds.push(against),
            None => self.peers.push((*peer, vec![against])),
        }
    }

    /// A line for each: the machine, Petasos, the peers.
    fn standings(self, scheme: &'static str, waiting: &'static str) -> Vec<Standing> {
        let Tally { cell, machine, ours, another, peers } = self;
        let pairs = machine.iter().zip(&ours);
        let own: Vec<_> =
            pairs.map(|(&machine, &ours)| Against { found: ours, machine, ours }).collect();
        let limit: Vec<_> = own.iter().map(|own| Against { found: own.machine, ..*own }).collect();
        let mut name = limit.first().map_or("", |limit| limit.found.name).replace('_', " ");
        if name.starts_with("process ") {
            name = name.replace(' ', "_");
        }
        if matches!(cell, Cell::Rate { .. }) {
            name += ", one at a time";
        }
        let standing = |stack: String, over: String, rounds: Vec<Against>, ratio: Ratio| {
            Standing::new(cell, (scheme, waiting), stack, over, rounds, ratio)
        };
        let mut all = vec![
            standing(format!("{MACHINE}{name}"), scheme.to_owned(), limit, Against::of_petasos),
            standing(PETASOS.to_owned(), scheme.to_owned(), own, Against::of_machine),
        ];
        if !another.is_empty() {
            let name = if matches!(cell, Cell::Large { .. }) { LOAN } else { MESSAGE };
            let scheme = scheme.to_owned();
            all.push(standing(name.to_owned(), scheme, another, Against::of_petasos));
        }
        for (peer, rounds) in peers {
            let mut stack = peer.name.to_owned();
            if let Cell::Echo { bytes } = cell
                && bytes < peer.smallest
            {
                stack += &format!(" ({} B)", peer.smallest);
            }
            all.push(standing(stack, peer.transport.to_string(), rounds, Against::of_petasos));
        }
        all
    }
}

/// A line of the table.
#[derive(Debug, Serialize)]
struct Standing {
    /// The group that it is compared in: all on one node, or all over TCP.
    transport: &'static str,
    /// The transport that the stack itself used.
    over: String,
    waiting: &'static str,
    what: String,
    stack: String,
    value: f64,
    /// `ns`, `calls/s` or `GB/s` (10^9 bytes per second).
    unit: &'static str,
    /// 99th percentile of single calls, where there is one.
    p99: Option<f64>,
    /// As a multiple of the machine's limit in the same round.
    of_machine: f64,
    /// As a multiple of the value of Petasos in the same round.
    of_petasos: f64,
    /// The values of all rounds.
    rounds: Vec<f64>,
    #[serde(skip)]
    shown: [String; 2],
    #[serde(skip)]
    cell: Cell,
}

impl Standing {
    fn new(
        cell: Cell,
        (transport, waiting): (&'static str, &'static str),
        stack: String,
        over: String,
        rounds: Vec<Against>,
        ratio: Ratio,
    ) -> Standing {
        let values = rounds.iter().map(|round| round.found.value).collect();
        let shown = typical(rounds, ratio);
        let Found { value, p99, .. } = shown.found;
        Standing {
            transport,
            over,
            waiting,
            what: cell.what(),
            stack,
            value,
            unit: cell.unit(),
            p99,
            of_machine: shown.of_machine(),
            of_petasos: shown.of_petasos(),
            rounds: values,
            cell,
            shown: [cell.show(value), p99.map_or("–".to_owned(), |p99| cell.show(p99))],
        }
    }
}

/// A peer that is not in the tables, or not in all of them.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Skipped {
    name: &'static str,
    why: String,
}

/// A peer that is in the tables.
#[derive(Debug, Serialize)]
struct Entrant {
    name: &'static str,
    version: String,
    over: Vec<Transport>,
    how: &'static str,
}

/// All figures.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    standings: Vec<Standing>,
    peers: Vec<Entrant>,
    skipped: Vec<Skipped>,
}

impl Report {
    pub(super) fn add(&mut self, tallies: Vec<Tally>, scheme: &'static str, waiting: &'static str) {
        for tally in tallies {
            for (peer, _) in &tally.peers {
                self.enter(peer);
            }
            self.standings.extend(tally.standings(scheme, waiting));
        }
    }

    fn enter(&mut self, peer: &Peer) {
        match self.peers.iter_mut().find(|known| known.name == peer.name) {
            Some(known) if known.over.contains(&peer.transport) => {}
            Some(known) => known.over.push(peer.transport),
            None => self.peers.push(Entrant {
                name: peer.name,
                version: peer.version().unwrap_or_else(|why| why.to_string()),
                over: vec![peer.transport],
                how: peer.how,
            }),
        }
    }

    /// Notes why a peer could not be measured, once.
    pub(super) fn skip(&mut self, name: &'static str, why: &impl Display) {
        let skipped = Skipped { name, why: why.to_string() };
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_of_one_round() {
        let mut tally = Tally::new(Cell::Echo { bytes: 0 });
        let peers = petasos_peers::peers();
        let peer = peers.iter().find(|peer| peer.smallest > 0).expect("ucx_perftest");
        for (machine, ours, theirs) in
            [(50.0, 100.0, 900.0), (400.0, 600.0, 1200.0), (50.0, 200.0, 600.0)]
        {
            tally
                .machine_and_petasos(Found::value(machine).named("cache_line"), Found::value(ours));
            tally.another(Found::value(ours / 2.0));
            tally.peer(peer, Found::value(theirs));
        }
        let lines = tally.standings("shm", "spinning");
        let of = |line: &Standing| (line.value, line.of_machine, line.of_petasos);
        // Ratios to the machine were 2, 1.5 and 4, and those of the peer to Petasos 9, 2 and 3.
        assert_eq!(of(&lines[0]), (50.0, 1.0, 0.5));
        assert_eq!(of(&lines[1]), (100.0, 2.0, 1.0));
        assert_eq!(of(&lines[2]).2, 0.5);
        assert_eq!(of(&lines[3]), (600.0, 12.0, 3.0));
        assert_eq!(lines[0].stack, "machine: cache line");
        assert_eq!(lines[2].stack, "petasos, message");
        assert_eq!(lines[3].stack, "ucx_perftest (8 B)");
        assert_eq!(lines[3].rounds, [900.0, 1200.0, 600.0]);
    }

    #[test]
    fn a_reason_is_said_once() {
        let mut report = Report::default();
        for _ in 0..3 {
            report.skip(
                "fi_pingpong",
                &"fi_pingpong is not installed: apt-get install libfabric-bin",
            );
        }
        let text = report.text(3);
        assert_eq!(text.matches("skipped: fi_pingpong: fi_pingpong is not installed").count(), 1);
    }
}
