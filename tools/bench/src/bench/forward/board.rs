//! The figures of each contender, round by round, and which is ahead.

use super::{
    cells::{Cell, Table},
    contender::{Kind, Label},
};
use crate::{beside::typical, plots::At};
use serde::Serialize;

/// A measurement, and its limit in the same round.
#[derive(Clone, Copy, Debug)]
struct Round {
    value: f64,
    limit: f64,
    /// Which limit.
    of: &'static str,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.value / self.limit
    }
}

/// All rounds of one contender in one row.
struct Entry {
    label: Label,
    rounds: Vec<Round>,
}

/// All that was measured, row by row.
#[derive(Default)]
pub(super) struct Board {
    rows: Vec<(Cell, Vec<Entry>)>,
}

impl Board {
    pub(super) fn record(
        &mut self,
        cell: Cell,
        label: Label,
        value: f64,
        (of, limit): (&'static str, f64),
    ) {
        let round = Round { value, limit, of };
        let at = self.rows.iter().position(|(known, _)| *known == cell).unwrap_or_else(|| {
            self.rows.push((cell, Vec::new()));
            self.rows.len() - 1
        });
        let entries = &mut self.rows[at].1;
        match entries.iter_mut().find(|entry| entry.label == label) {
            Some(entry) => entry.rounds.push(round),
            None => entries.push(Entry { label, rounds: vec![round] }),
        }
    }

    /// The rows as they are shown, table by table.
    pub(super) fn lines(self) -> Vec<Line> {
        let mut lines: Vec<Line> = self.rows.into_iter().map(Line::new).collect();
        lines.sort_by_key(|line| Table::ALL.iter().position(|table| *table == line.table));
        lines
    }
}

/// A row of a table.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) table: Table,
    pub(super) what: String,
    /// Of all values.
    pub(super) unit: &'static str,
    /// The ratio to the limit that is the goal of Petasos.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) goal: Option<f64>,
    pub(super) standings: Vec<Standing>,
    /// The fastest of all but the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ahead: Option<Ahead>,
}

/// One contender's figure.
#[derive(Debug, Serialize)]
pub(super) struct Standing {
    #[serde(flatten)]
    pub(super) label: Label,
    /// Of the round with the median ratio.
    pub(super) value: f64,
    /// Its limit in that round.
    pub(super) limit: f64,
    pub(super) limit_of: &'static str,
    /// The value as a multiple of the limit.
    pub(super) ratio: f64,
    /// The values of all rounds.
    pub(super) rounds: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<At>,
}

/// The contender that is ahead.
#[derive(Debug, Serialize)]
pub(super) struct Ahead {
    pub(super) name: &'static str,
    pub(super) ours: bool,
    /// How many times as fast as the best of the other side, if there is one: the best peer where
    /// Petasos is ahead, the best of Petasos where a peer is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) times: Option<f64>,
}

impl Line {
    fn new((cell, entries): (Cell, Vec<Entry>)) -> Line {
        let standings: Vec<Standing> =
            entries.into_iter().map(|entry| Standing::new(cell, entry)).collect();
        let ahead = ahead(&standings);
        Line {
            table: cell.table(),
            what: cell.what(),
            unit: cell.unit(),
            goal: cell.goal(),
            standings,
            ahead,
        }
    }

    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Standing> {
        self.standings.iter().filter(move |standing| standing.label.kind == kind)
    }

    /// The best of a kind.
    pub(super) fn best(&self, kind: Kind) -> Option<&Standing> {
        best(&self.standings, kind)
    }
}

fn best(standings: &[Standing], kind: Kind) -> Option<&Standing> {
    let of = standings.iter().filter(|standing| standing.label.kind == kind);
    of.max_by(|a, b| a.value.total_cmp(&b.value))
}

fn ahead(standings: &[Standing]) -> Option<Ahead> {
    let (ours, peer) = (best(standings, Kind::Ours), best(standings, Kind::Peer));
    let (first, second) = match (ours, peer) {
        (Some(ours), Some(peer)) if peer.value > ours.value => (peer, Some(ours)),
        (Some(ours), peer) => (ours, peer),
        (None, peer) => (peer?, None),
    };
    Some(Ahead {
        name: first.label.name,
        ours: first.label.kind == Kind::Ours,
        times: second.map(|second| first.value / second.value),
    })
}

impl Standing {
    fn new(cell: Cell, Entry { label, rounds }: Entry) -> Standing {
        let values = rounds.iter().map(|round| round.value).collect();
        let shown = match label.kind {
            // Its ratio is always one.
            Kind::Limit => typical(rounds, |round| round.value),
            _ => typical(rounds, Round::ratio),
        };
        Standing {
            label,
            value: shown.value,
            limit: shown.limit,
            limit_of: shown.of,
            ratio: shown.ratio(),
            rounds: values,
            at: cell.at(label.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Label = Label { name: "cp", kind: Kind::Limit, over: "disk" };
    const SHM: Label = Label { name: "petasos shm", kind: Kind::Ours, over: "shm" };
    const TCP: Label = Label { name: "petasos tcp", kind: Kind::Ours, over: "tcp" };

    #[test]
    fn the_median_ratio_and_the_best_of_each_side() {
        let mut board = Board::default();
        for (limit, shm) in [(50.0, 50.0), (400.0, 200.0), (50.0, 35.0)] {
            board.record(Cell::Put, LIMIT, limit, ("cp", limit));
            board.record(Cell::Put, SHM, shm, ("cp", limit));
            board.record(Cell::Put, TCP, 20.0, ("cp", limit));
            board.record(Cell::Put, Label::peer("rsync"), 25.0, ("cp", limit));
        }
        let lines = board.lines();
        let line = &lines[0];
        let shm = line.of(Kind::Ours).next().unwrap();
        assert_eq!((shm.value, shm.limit, shm.rounds.len()), (35.0, 50.0, 3));
        let ahead = line.ahead.as_ref().unwrap();
        assert_eq!((ahead.name, ahead.times), ("petasos shm", Some(35.0 / 25.0)));
        assert_eq!(line.best(Kind::Limit).unwrap().value, 50.0);
    }

    #[test]
    fn a_peer_may_be_ahead() {
        let mut board = Board::default();
        board.record(Cell::Get, SHM, 1.0, ("cp", 4.0));
        board.record(Cell::Get, Label::peer("rsync"), 2.0, ("cp", 4.0));
        let lines = board.lines();
        let ahead = lines[0].ahead.as_ref().unwrap();
        assert_eq!((ahead.name, ahead.ours, ahead.times), ("rsync", false, Some(2.0)));
    }
}
