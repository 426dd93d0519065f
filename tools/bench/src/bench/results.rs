//! The results of a run: as tables, as JSON, as a page.

use super::{Bench, peers};
use crate::{
    all_limits::Found,
    exit::Outcome,
    figures::{self, Row},
    grid::Grid,
    machine::Machine,
    output,
    pivot::{self, LARGE_STEP},
    plots::Plot,
    report::{Folder, Page, Section, charts},
};
use serde::Serialize;
use std::time::Duration;

const ABOUT: &str = "Calls and bulk data between two processes, each figure beside the machine's \
                     limit. Limit and figure are measured in turn on the same two cores, \
                     several times; of these rounds, that with the median ratio is shown. Of \
                     times, a small ratio is good, of rates and bandwidths, a large one.";

/// All results; as JSON, the file `results.json`.
#[derive(Serialize)]
pub(super) struct Results {
    #[serde(skip)]
    title: String,
    version: &'static str,
    quick: bool,
    rounds: usize,
    client_core: Option<usize>,
    server_core: Option<usize>,
    machine: Machine,
    seconds: f64,
    figures: Vec<Row>,
    /// If it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Found>,
    /// If it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<peers::Report>,
    skipped: Vec<String>,
}

impl Results {
    pub(super) fn new(
        title: &str,
        bench: &Bench,
        took: Duration,
        figures: Vec<Row>,
        limits: Option<Found>,
        peers: Option<peers::Report>,
    ) -> Results {
        let cores = bench.plan.cores;
        Results {
            title: title.to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            quick: bench.quick,
            rounds: bench.rounds,
            client_core: cores.client,
            server_core: cores.server,
            machine: Machine::detect(cores),
            seconds: took.as_secs_f64(),
            figures,
            limits,
            peers,
            skipped: bench.skipped(),
        }
    }

    /// Prints them, and writes the report where one is wanted.
    pub(super) fn give(&self, folder: Option<&Folder>, json: bool) -> Outcome {
        let page = folder.map(|folder| folder.write(&self.page(), self)).transpose()?;
        if json {
            return output::print_json(self);
        }
        let mut text = self.text();
        if let Some(page) = page {
            text += &format!("\nreport: {}", page.display());
        }
        output::print(text.trim_end())
    }

    /// Figures that are shown one in a row.
    fn few(&self) -> impl Iterator<Item = &Row> {
        self.figures.iter().filter(|row| !row.dense)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(limits) = &self.limits {
            limits.grids().iter().for_each(|grid| text += &grid.text());
        }
        for (_, grid) in pivot::pivots(&self.figures) {
            text += &grid.text();
        }
        if self.few().next().is_some() {
            text += &format!("{}\n", figures::table(self.few()));
        }
        if !self.figures.is_empty() {
            text += "ratio: to the machine's limit in the same run; of times, small is good, of rates \
                     and GB/s, large is good.\n";
            for doubt in figures::doubts(&self.figures) {
                text += &format!("{doubt}\n");
            }
            text += &self.steps();
            text += &format!(
                "How each was measured (of {} rounds, that with the median ratio is shown):\n{}\n",
                self.rounds,
                figures::notes(&self.figures)
            );
        }
        if let Some(peers) = &self.peers {
            text += &format!("{}\n", peers.text(self.rounds));
        }
        for why in &self.skipped {
            text += &format!("not measured: {why}\n");
        }
        text + &format!("{:.0} s in all\n", self.seconds)
    }

    /// Steps between sizes that stand out, in a line.
    fn steps(&self) -> String {
        let large = |row: &&Row| row.step.is_some_and(|step| step > LARGE_STEP);
        let say = |row: &Row| {
            format!("{} {} ({:.2})", row.transport, row.what, row.step.unwrap_or_default())
        };
        let found: Vec<String> = self.figures.iter().filter(large).map(say).collect();
        match (found.as_slice(), self.figures.iter().any(|row| row.step.is_some())) {
            (_, false) => String::new(),
            ([], _) => format!("no step from one size to the next is above {LARGE_STEP}\n"),
            _ => format!(
                "steps from one size to the next above {LARGE_STEP}: {}\n",
                found.join("; ")
            ),
        }
    }

    fn page(&self) -> Page<'_> {
        let guests = self.peers.as_ref().map_or_else(Vec::new, peers::Report::guests);
        let took = format!("{} in turn, {:.0} s in all", self.rounds, self.seconds);
        let kind = if self.quick { "quick: few sizes, short" } else { "full" };
        Page {
            title: &self.title,
            about: ABOUT,
            machine: &self.machine,
            facts: vec![("Rounds", took), ("Run", kind.to_owned())],
            summary: self.summary(),
            charts: charts(&self.figures, &guests),
            grids: self.plotted(),
            sections: self.sections(),
        }
    }

    fn summary(&self) -> Option<Section> {
        let few = figures::grid(self.few());
        if few.lines.is_empty() {
            return None;
        }
        let about = "Each figure, its limit, and the ratio of both.".to_owned();
        Some(Section { title: "Ratios".to_owned(), about, grids: vec![few], notes: Vec::new() })
    }

    /// The tables of the plots, also of rows that are few.
    fn plotted(&self) -> Vec<(Plot, Grid)> {
        let rows: Vec<Row> = self.figures.iter().cloned().map(Row::dense).collect();
        pivot::pivots(&rows)
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        if let Some(limits) = &self.limits {
            sections.push(Section {
                title: "The machine".to_owned(),
                about: "Its limits, without Petasos: medians of all rounds.".to_owned(),
                grids: limits.grids(),
                notes: limits.notes(),
            });
        }
        if let Some(peers) = &self.peers {
            sections.push(peers.section(self.rounds));
        }
        let mut notes: Vec<String> =
            figures::notes(&self.figures).lines().map(|line| line.trim().to_owned()).collect();
        notes.extend(figures::doubts(&self.figures));
        notes.extend(Some(self.steps().trim().to_owned()).filter(|steps| !steps.is_empty()));
        notes.extend(self.skipped.iter().map(|why| format!("not measured: {why}")));
        if !notes.is_empty() {
            let about = "A step is the time of one size as a multiple of that of the next smaller \
                         one, without the machine's own time for the additional bytes.";
            let (title, about) = ("How it was measured".to_owned(), about.to_owned());
            sections.push(Section { title, about, grids: Vec::new(), notes });
        }
        sections
    }
}
