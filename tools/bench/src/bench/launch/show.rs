//! The results: tables, JSON, a page with plots.

use super::{
    lines::{Line, Standing, Table},
    programs::Launcher,
    simulated::{MODEL, Model},
};
use crate::{
    exit::Outcome,
    grid::Grid,
    limits::Cores,
    machine::Machine,
    output,
    plots::Plot,
    report::{Folder, Guest, Page, Section, Whose, charts},
};
use serde::Serialize;
use std::time::Duration;

const TITLE: &str = "Petasos launching jobs beside OpenPMIx";

const ABOUT: &str = "Jobs from their start to their end, fences, business cards and events in them, and how \
                     processes learn the addresses of others: petasos, OpenPMIx with mpirun of Open \
                     MPI, and the machine without either. All are measured in turn, several times.";

/// All results.
#[derive(Serialize)]
pub(super) struct Results {
    version: &'static str,
    rounds: usize,
    machine: Machine,
    seconds: f64,
    lines: Vec<Line>,
    /// The times of the simulation.
    model: Model,
    notes: Vec<String>,
    skipped: Vec<String>,
}

impl Results {
    pub(super) fn new(
        rounds: usize,
        took: Duration,
        lines: Vec<Line>,
        skipped: Vec<String>,
    ) -> Results {
        let unpinned = Cores { client: None, server: None };
        Results {
            version: env!("CARGO_PKG_VERSION"),
            rounds,
            machine: Machine::detect(unpinned),
            seconds: took.as_secs_f64(),
            notes: notes(rounds, &lines),
            lines,
            model: MODEL,
            skipped,
        }
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
        text += &self.footnotes().iter().fold(String::new(), |all, line| all + line + "\n");
        text += &format!("{:.0} s in all", self.seconds);
        if let Some(page) = page {
            text += &format!("\nreport: {}", page.display());
        }
        output::print(&text)
    }

    fn of(&self, table: Table) -> Vec<&Line> {
        self.lines.iter().filter(|line| line.table == table).collect()
    }

    fn grids(&self) -> Vec<(Table, Grid)> {
        let tables = Table::ALL.into_iter();
        let grids = tables.map(|table| (table, grid(table, &self.of(table))));
        grids.filter(|(_, grid)| !grid.lines.is_empty()).collect()
    }

    /// All lines below the tables.
    fn footnotes(&self) -> Vec<String> {
        let skipped = self.skipped.iter().map(|why| format!("skipped: {why}"));
        self.notes.iter().cloned().chain(skipped).collect()
    }

    fn page(&self) -> Page<'_> {
        let mut sections: Vec<Section> = Vec::new();
        for (table, grid) in self.grids() {
            let (title, grid) = (table.title().to_owned(), Grid { caption: String::new(), ..grid });
            let about = "Medians of the rounds; ratios are of rounds, too.".to_owned();
            sections.push(Section { title, about, grids: vec![grid], notes: Vec::new() });
        }
        let (title, about) = ("How it was measured".to_owned(), String::new());
        sections.push(Section { title, about, grids: Vec::new(), notes: self.footnotes() });
        let rounds = format!("{} in turn, {:.0} s in all", self.rounds, self.seconds);
        Page {
            title: TITLE,
            about: ABOUT,
            machine: &self.machine,
            facts: vec![("Rounds", rounds)],
            summary: None,
            charts: charts(&[], &self.guests()),
            grids: Plot::LAUNCH.into_iter().flat_map(|plot| self.of_plot(plot)).collect(),
            sections,
        }
    }

    fn guests(&self) -> Vec<Guest> {
        let guest = |standing: &Standing| {
            let whose = match standing.launcher {
                Launcher::Bare => Whose::Machine,
                Launcher::Petasos => Whose::Ours,
                _ => Whose::Others,
            };
            Some(Guest { whose, at: standing.at.clone()?, value: standing.value })
        };
        self.lines.iter().flat_map(|line| &line.standings).filter_map(guest).collect()
    }

    /// The tables that have what a plot shows.
    fn of_plot(&self, plot: Plot) -> Vec<(Plot, Grid)> {
        let shown = |line: &&Line| {
            line.standings.iter().any(|one| one.at.as_ref().is_some_and(|at| at.plot == plot))
        };
        let grids = Table::ALL.into_iter().map(|table| {
            let lines: Vec<&Line> = self.of(table).into_iter().filter(shown).collect();
            (plot, grid(table, &lines))
        });
        grids.filter(|(_, grid)| !grid.lines.is_empty()).collect()
    }
}

/// A table: a line for each figure, a column for each launcher that has one.
fn grid(table: Table, lines: &[&Line]) -> Grid {
    let mut names: Vec<&str> = Vec::new();
    for standing in lines.iter().flat_map(|line| &line.standings) {
        if !names.contains(&&*standing.name) {
            names.push(&standing.name);
        }
    }
    let mut columns = vec![format!(">{}", table.of()), "what".to_owned()];
    columns.extend(names.iter().map(|name| format!(">{name}")));
    let judged = matches!(table, Table::Start | Table::Within);
    if judged {
        columns.extend([">ahead", ">of bare", ">goal", ""].map(str::to_owned));
    }
    let line = |line: &&Line| {
        let mut cells = vec![line.size.to_string(), line.what.to_owned()];
        let dash = || "–".to_owned();
        for name in &names {
            let found = line.standings.iter().find(|one| one.name == *name);
            cells.push(found.map_or_else(dash, |one| line.show(one.value)));
        }
        if judged {
            let ratio =
                |ratio: Option<f64>| ratio.map_or_else(dash, |ratio| format!("{ratio:.1}×"));
            cells.extend([ratio(line.ahead), ratio(line.of_limit)]);
            cells.push(line.goal.map_or_else(dash, |goal| line.show(goal)));
            let reached = line.reached.map(|yes| if yes { "reached" } else { "missed" });
            cells.push(reached.unwrap_or_default().to_owned());
        }
        cells
    };
    let lines = lines.iter().map(line).collect();
    Grid { caption: table.title().to_owned(), columns, lines }
}

fn notes(rounds: usize, lines: &[Line]) -> Vec<String> {
    let has = |table: Table| lines.iter().any(|line| line.table == table);
    let mut notes = vec![format!(
        "medians of {rounds} rounds, in each of which all are measured right after each other; \
         unpinned; ahead: so many times as fast as OpenPMIx in the same round"
    )];
    if has(Table::Start) {
        notes.push(
            "start: the program is `true`; bare: as many processes, started and waited for; the \
             goal is twice that, from 64 on"
                .to_owned(),
        );
    }
    if has(Table::Within) {
        notes.push(
            "within a job: times of rank 0, of many the median (of first gets, one for each peer); bare: \
             as many processes that send a byte each to one over Unix sockets, asleep in between, and \
             get one back when it has all; for gets, commits and events, one process there and back; \
             libpmix in petasos run: the client library of OpenPMIx with the daemon of petasos"
                .to_owned(),
        );
        notes.push(
            "memory is anonymous, as the kernel counts it; events go from rank 0 to rank 1, with \
             2 ms between them, or there and back at once"
                .to_owned(),
        );
    }
    if has(Table::WireUp) {
        notes.push(
            "addresses: each process needs those of its neighbours in a ring; instant on: assigned \
             before the start; direct: each puts its own on its card, and asks (under mpirun again \
             every 100 µs, as mpirun does not wait for a card that is not published yet); full: a fence \
             spreads all cards first"
                .to_owned(),
        );
    }
    if has(Table::Simulated) {
        notes.push(format!(
            "simulated: the engines of real daemons, one process on each node, in virtual time: {} µs \
             from node to node, {} µs and {} ns a byte for a daemon to send or receive a message, {} µs \
             for a request to the daemon, processes start within {} ms",
            MODEL.latency_ns / 1000,
            MODEL.message_ns / 1000,
            MODEL.byte_ns,
            MODEL.request_ns / 1000,
            MODEL.spread_ns / 1_000_000
        ));
    }
    notes
}
