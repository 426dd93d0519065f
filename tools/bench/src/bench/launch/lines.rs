//! The figures, as lines: a figure at a size, for all launchers, beside the machine's limit.

use super::programs::Launcher;
use crate::{
    figures,
    limits::median,
    plots::{At, Plot},
};
use serde::Serialize;

/// A figure within a job.
pub(super) struct Figure {
    /// Its name in the output of ranks.
    pub(super) key: &'static str,
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    /// The goals, from so many ranks on.
    goals: &'static [(u32, f64)],
    pub(super) plot: Option<Plot>,
}

const fn figure(
    key: &'static str,
    what: &'static str,
    goals: &'static [(u32, f64)],
    plot: Option<Plot>,
) -> Figure {
    Figure { key, what, unit: "ns", goals, plot }
}

/// All of them, in the order of the table.
pub(super) const FIGURES: [Figure; 12] = [
    figure("init", "init", &[], None),
    figure("init_cpu", "init, processor time", &[(1, 1e6)], None),
    Figure {
        key: "private",
        what: "memory added by init and the first fence",
        unit: "B",
        goals: &[(1, 1e5)],
        plot: None,
    },
    figure("job_get", "get of a key of the job", &[(1, 300.0)], None),
    figure(
        "first_get",
        "first get of a peer's key",
        &[(2, 20e3), (64, 40e3)],
        Some(Plot::LaunchGet),
    ),
    figure("again_get", "the same key again", &[], None),
    figure("put", "put", &[], None),
    figure("commit", "commit", &[], None),
    figure("fence", "fence", &[(2, 20e3), (16, 150e3), (64, 900e3)], Some(Plot::LaunchFence)),
    figure("full_fence", "fence with business cards", &[], None),
    figure("event", "event, one way", &[(2, 60e3)], None),
    figure("hop", "event, a hop of ping-pong", &[(2, 60e3)], None),
];

impl Figure {
    /// The goal with so many ranks.
    pub(super) fn goal(&self, ranks: u32) -> Option<f64> {
        let reached = self.goals.iter().rev().find(|(from, _)| *from <= ranks);
        reached.map(|(_, goal)| *goal)
    }

    /// The bare figure that is its limit: a barrier of so many processes.
    pub(super) fn limit(&self, ranks: u32) -> Option<u32> {
        match self.key {
            "fence" | "full_fence" => Some(ranks),
            // A byte to another process, and one back.
            "first_get" | "commit" | "event" | "hop" => Some(1),
            _ => None,
        }
    }
}

/// Which table a line is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Table {
    Start,
    Within,
    WireUp,
    Simulated,
}

impl Table {
    pub(super) const ALL: [Table; 4] =
        [Table::Start, Table::Within, Table::WireUp, Table::Simulated];

    pub(super) fn title(self) -> &'static str {
        match self {
            Table::Start => "Jobs that do nothing, from start to end",
            Table::Within => "Within a job, as rank 0 sees it",
            Table::WireUp => "Until a process has its neighbours' addresses",
            Table::Simulated => "The same, simulated",
        }
    }

    /// What the size of a line counts.
    pub(super) fn of(self) -> &'static str {
        if self == Table::Simulated { "nodes" } else { "ranks" }
    }
}

/// The figure of one launcher.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Standing {
    pub(super) launcher: Launcher,
    /// A column.
    pub(super) name: String,
    /// The median of the rounds.
    pub(super) value: f64,
    pub(super) rounds: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<At>,
}

/// A line of a table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) table: Table,
    /// The same text in every run, for scripts.
    pub(super) key: &'static str,
    pub(super) what: &'static str,
    /// Ranks, or nodes.
    pub(super) size: u32,
    pub(super) unit: &'static str,
    pub(super) standings: Vec<Standing>,
    /// The goal of Petasos.
    pub(super) goal: Option<f64>,
    pub(super) reached: Option<bool>,
    /// The value of OpenPMIx as a multiple of that of Petasos, the median of the rounds.
    pub(super) ahead: Option<f64>,
    /// The value of Petasos as a multiple of the machine's, the median of the rounds.
    pub(super) of_limit: Option<f64>,
}

impl Standing {
    /// A figure of one or more rounds.
    pub(super) fn new(launcher: Launcher, rounds: Vec<f64>) -> Standing {
        let value = median(&mut rounds.clone());
        Standing { launcher, name: launcher.name().to_owned(), value, rounds, at: None }
    }

    /// The same by another name.
    pub(super) fn named(self, name: impl Into<String>) -> Standing {
        Standing { name: name.into(), ..self }
    }

    /// The same, with a place in a plot.
    pub(super) fn at(self, plot: Plot, panel: &str, x: u32) -> Standing {
        let (panel, series) = (panel.to_owned(), self.name.clone());
        Standing { at: Some(At { plot, panel, series, x: f64::from(x) }), ..self }
    }
}

impl Line {
    pub(super) fn new(
        table: Table,
        (key, what): (&'static str, &'static str),
        size: u32,
        unit: &'static str,
        standings: Vec<Standing>,
    ) -> Line {
        let rounds = |launcher: Launcher| {
            standings.iter().find(|one| one.launcher == launcher).map(|one| &one.rounds)
        };
        let judged = matches!(table, Table::Start | Table::Within);
        let ratio = |above: Launcher, below: Launcher| {
            if !judged {
                // In the other tables a launcher has several figures.
                return None;
            }
            let ratios = rounds(above)?.iter().zip(rounds(below)?).map(|(a, b)| a / b);
            let mut ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
            (!ratios.is_empty()).then(|| median(&mut ratios))
        };
        Line {
            ahead: ratio(Launcher::OpenPmix, Launcher::Petasos),
            of_limit: ratio(Launcher::Petasos, Launcher::Bare),
            table,
            key,
            what,
            size,
            unit,
            standings,
            goal: None,
            reached: None,
        }
    }

    /// The same, with a goal.
    pub(super) fn with_goal(mut self, goal: Option<f64>) -> Line {
        let ours = self.of(Launcher::Petasos);
        self.goal = goal.filter(|_| ours.is_some());
        self.reached = self.goal.zip(ours).map(|(goal, ours)| ours <= goal);
        self
    }

    pub(super) fn of(&self, launcher: Launcher) -> Option<f64> {
        self.standings.iter().find(|one| one.launcher == launcher).map(|one| one.value)
    }

    pub(super) fn show(&self, value: f64) -> String {
        figures::show(self.unit, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_rounds() {
        let ours = Standing::new(Launcher::Petasos, vec![10.0, 20.0, 40.0]);
        let theirs = Standing::new(Launcher::OpenPmix, vec![20.0, 60.0, 40.0]);
        let bare = Standing::new(Launcher::Bare, vec![5.0, 5.0, 5.0]);
        let line = Line::new(Table::Within, ("fence", "fence"), 2, "ns", vec![ours, theirs, bare]);
        let line = line.with_goal(Some(20.0));
        assert_eq!((line.ahead, line.of_limit), (Some(2.0), Some(4.0)));
        assert_eq!((line.of(Launcher::Petasos), line.reached), (Some(20.0), Some(true)));
    }

    #[test]
    fn goals_are_those_of_the_table() {
        let fence = FIGURES.iter().find(|figure| figure.key == "fence").unwrap();
        assert_eq!(
            [1, 2, 16, 17, 64].map(|ranks| fence.goal(ranks)),
            [None, Some(20e3), Some(150e3), Some(150e3), Some(900e3)]
        );
    }
}
