//! The results: tables, JSON, a page with plots.

use super::{
    board::{Line, Standing},
    cells::Table,
    contender::Kind,
    rounds::Found,
};
use crate::{
    bench::Bench,
    exit::Outcome,
    figures,
    grid::Grid,
    machine::Machine,
    output,
    plots::Plot,
    report::{Folder, Guest, Page, Section, Whose, charts},
};
use serde::Serialize;
use std::time::Duration;

const TITLE: &str = "Petasos forwarding files beside others";

const ABOUT: &str = "Files through petasos forward, beside other programs that move files between \
                     machines, all over loopback or shared memory of this machine, and beside the \
                     local file system, that is, the page cache. All servers export the same \
                     directory; each row is measured for all right after each other, in rounds.";

/// All results.
#[derive(Serialize)]
pub(super) struct Results {
    version: &'static str,
    quick: bool,
    rounds: usize,
    large_bytes: u64,
    medium_bytes: u64,
    files: usize,
    machine: Machine,
    seconds: f64,
    lines: Vec<Line>,
    /// The rows in which a peer is faster than Petasos, as text.
    behind: Vec<String>,
    notes: Vec<String>,
    skipped: Vec<String>,
    /// Failures of Petasos itself.
    broken: Vec<String>,
}

impl Results {
    pub(super) fn new(
        bench: &Bench,
        sizes: &super::Sizes,
        took: Duration,
        found: Found,
    ) -> Results {
        let Found { lines, broken, how } = found;
        let notes = notes(sizes, bench.rounds, how);
        Results {
            version: env!("CARGO_PKG_VERSION"),
            quick: bench.quick,
            rounds: bench.rounds,
            large_bytes: sizes.large,
            medium_bytes: sizes.medium,
            files: sizes.files,
            machine: Machine::detect(bench.plan.cores),
            seconds: took.as_secs_f64(),
            behind: lines.iter().flat_map(behind).collect(),
            lines,
            notes,
            skipped: bench.skipped(),
            broken,
        }
    }

    /// Whether anything was measured.
    pub(super) fn has_some(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Failures of Petasos itself, if any.
    pub(super) fn broken(&self) -> Option<String> {
        (!self.broken.is_empty()).then(|| self.broken.join("\n  "))
    }

    /// Prints them, and writes the page if one is wanted.
    pub(super) fn give(&self, folder: Option<&Folder>, json: bool) -> Outcome {
        let page = folder.map(|folder| folder.write(&self.page(), self)).transpose()?;
        if json {
            return output::print_json(self);
        }
        let mut text = String::new();
        for (_, grid) in self.grids() {
            text += &format!("{}\n", grid.text());
        }
        let goals = self.goals();
        if !goals.lines.is_empty() {
            text += &format!("{}\n", goals.text());
        }
        text += &self.footnotes().iter().fold(String::new(), |all, line| all + line + "\n");
        text += &format!("{:.0} s in all", self.seconds);
        if let Some(page) = page {
            text += &format!("\nreport: {}", page.display());
        }
        output::print(&text)
    }

    fn of(&self, table: Table) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.table == table)
    }

    fn grids(&self) -> Vec<(Table, Grid)> {
        let tables = Table::ALL.into_iter();
        let grids = tables.map(|table| (table, grid(table, &self.of(table).collect::<Vec<_>>())));
        grids.filter(|(_, grid)| !grid.lines.is_empty()).collect()
    }

    /// The rows with a goal, and whether it is reached.
    fn goals(&self) -> Grid {
        let columns = ["what", "program", ">value", ">limit", "of", ">ratio", ">goal", ""];
        let mut lines = Vec::new();
        for line in &self.lines {
            let Some(goal) = line.goal else { continue };
            for ours in line.of(Kind::Ours) {
                let show = |value| figures::show(line.unit, value);
                lines.push(vec![
                    line.what.clone(),
                    ours.label.name.to_owned(),
                    show(ours.value),
                    show(ours.limit),
                    ours.limit_of.to_owned(),
                    format!("{:.2}", ours.ratio),
                    format!("{goal:.1}"),
                    if ours.ratio >= goal { "reached" } else { "missed" }.to_owned(),
                ]);
            }
        }
        let caption = "Large files: of the slower of disk and transport".to_owned();
        Grid { caption, columns: columns.map(str::to_owned).to_vec(), lines }
    }

    /// All lines below the tables.
    fn footnotes(&self) -> Vec<String> {
        let mut said: Vec<String> = self.notes.clone();
        let both =
            |line: &Line| [Kind::Ours, Kind::Peer].iter().all(|kind| line.best(*kind).is_some());
        match self.lines.iter().any(both) {
            true if self.behind.is_empty() => said.push("no peer is ahead anywhere".to_owned()),
            _ => said.extend(self.behind.iter().map(|line| format!("behind: {line}"))),
        }
        said.extend(self.skipped.iter().map(|why| format!("skipped: {why}")));
        said.extend(self.broken.iter().map(|why| format!("FAILED: {why}")));
        said
    }

    fn page(&self) -> Page<'_> {
        let kind = if self.quick { "quick: small, few clients" } else { "full" };
        let size = |bytes: u64| output::size(bytes);
        let goals = self.goals();
        let summary = (!goals.lines.is_empty()).then(|| Section {
            title: "Large files".to_owned(),
            about: "The goals: ratios to the slower of the local disk and the transport."
                .to_owned(),
            grids: vec![Grid { caption: String::new(), ..goals }],
            notes: Vec::new(),
        });
        let plots = [Plot::ForwardBlocks, Plot::ForwardClients, Plot::ForwardSmall];
        let mut sections: Vec<Section> = Vec::new();
        for (table, grid) in self.grids() {
            let about = "Of rounds, that with the median ratio to the limit.".to_owned();
            let (title, notes) = (table.title().to_owned(), Vec::new());
            let grid = Grid { caption: String::new(), ..grid };
            sections.push(Section { title, about, grids: vec![grid], notes });
        }
        let (title, about) = ("How it was measured".to_owned(), String::new());
        sections.push(Section { title, about, grids: Vec::new(), notes: self.footnotes() });
        Page {
            title: TITLE,
            about: ABOUT,
            machine: &self.machine,
            facts: vec![
                ("Rounds", format!("{} in turn, {:.0} s in all", self.rounds, self.seconds)),
                ("Run", kind.to_owned()),
                (
                    "Files",
                    format!(
                        "{}, {}, {} small",
                        size(self.large_bytes),
                        size(self.medium_bytes),
                        self.files
                    ),
                ),
            ],
            summary,
            charts: charts(&[], &self.guests()),
            grids: plots.into_iter().flat_map(|plot| self.of_plot(plot)).collect(),
            sections,
        }
    }

    fn guests(&self) -> Vec<Guest> {
        let all = self.lines.iter().flat_map(|line| &line.standings);
        let guest = |standing: &Standing| {
            let whose = match standing.label.kind {
                Kind::Limit => Whose::Machine,
                Kind::Ours => Whose::Ours,
                Kind::Peer => Whose::Others,
            };
            Some(Guest { whose, at: standing.at.clone()?, value: standing.value })
        };
        all.filter_map(guest).collect()
    }

    /// The tables that have what a plot shows.
    fn of_plot(&self, plot: Plot) -> Vec<(Plot, Grid)> {
        let shown = |line: &&Line| {
            line.standings.iter().any(|one| one.at.as_ref().is_some_and(|at| at.plot == plot))
        };
        let tables = Table::ALL.into_iter().map(|table| {
            let lines: Vec<&Line> = self.of(table).filter(shown).collect();
            (plot, grid(table, &lines))
        });
        tables.filter(|(_, grid)| !grid.lines.is_empty()).collect()
    }
}

/// A table: a line for each row, a column for each contender, with ratios for Petasos.
fn grid(table: Table, lines: &[&Line]) -> Grid {
    let mut all: Vec<&Standing> = Vec::new();
    for standing in lines.iter().flat_map(|line| &line.standings) {
        if !all.iter().any(|known| known.label == standing.label) {
            all.push(standing);
        }
    }
    let mut columns = vec!["what".to_owned()];
    for standing in &all {
        columns.push(format!(">{}", standing.label.name));
        if standing.label.kind == Kind::Ours {
            columns.push(">ratio".to_owned());
        }
    }
    columns.push("ahead".to_owned());
    let line = |line: &&Line| {
        let mut cells = vec![line.what.clone()];
        for standing in &all {
            let found = line.standings.iter().find(|one| one.label == standing.label);
            let none = || "–".to_owned();
            cells.push(found.map_or_else(none, |one| figures::show(line.unit, one.value)));
            if standing.label.kind == Kind::Ours {
                cells.push(found.map_or_else(none, |one| format!("{:.2}", one.ratio)));
            }
        }
        cells.push(line.ahead.as_ref().map_or(String::new(), |ahead| match ahead.times {
            Some(times) => format!("{}, {times:.1} times", ahead.name),
            None => ahead.name.to_owned(),
        }));
        cells
    };
    Grid { caption: table.title().to_owned(), columns, lines: lines.iter().map(line).collect() }
}

/// The rows in which a peer is faster than Petasos.
fn behind(line: &Line) -> Vec<String> {
    let Some(peer) = line.best(Kind::Peer) else { return Vec::new() };
    let slower = line.of(Kind::Ours).filter(|ours| ours.value < peer.value);
    let say = |ours: &Standing| {
        let times = peer.value / ours.value;
        let table = line.table.title().to_lowercase();
        let [ahead, value] = [peer.value, ours.value].map(|value| figures::show(line.unit, value));
        format!(
            "{table}, {}: {} {value}, {} {ahead} ({times:.2} times)",
            line.what, ours.label.name, peer.label.name
        )
    };
    slower.map(say).collect()
}

fn notes(sizes: &super::Sizes, rounds: usize, how: Vec<String>) -> Vec<String> {
    let size = output::size;
    let mut notes = vec![
        format!(
            "of {rounds} rounds, that with the median ratio is shown; ratio: to the local disk, or of \
             large files to the transport's bandwidth between memories where that is less; large is \
             good"
        ),
        format!(
            "commands: from the start of the process to its end; the large file has {}, of {} small \
             files each has 0 to 16 KiB",
            size(sizes.large),
            sizes.files
        ),
        format!(
            "mounts: calls of one process from the first to the close; a file of {}, an eighth of it \
             in blocks of less than 64 KiB; {} empty files for metadata, made when the server has \
             them. Files that are read or listed are in the server's page cache, and not in \
             that of the mount, which is made anew before. Written data is at the server when the file \
             is closed, on its disk with fsync only",
            size(sizes.medium),
            sizes.empty
        ),
        format!(
            "clients: so many processes at once share {} in {}, and the small files; one mount: they \
             write {}",
            size(sizes.large),
            "parts",
            size(sizes.medium)
        ),
        "copies are compared byte by byte in the first round".to_owned(),
    ];
    notes.extend(how);
    notes
}
