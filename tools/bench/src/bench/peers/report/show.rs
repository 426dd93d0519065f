//! How the figures are shown: as text, in a page, in plots.

use super::{Cell, Entrant, LOAN, MACHINE, MESSAGE, PETASOS, Report, Skipped, Standing};
use crate::{
    grid::Grid,
    plots::{At, Plot},
    report::{Guest, Section, Whose},
};

impl Report {
    /// All lines as one table.
    fn grid(&self) -> Grid {
        let columns =
            ["transport", "waiting", "what", "stack", ">value", ">p99", ">× machine", ">× petasos"];
        let mut last = None;
        let mut lines = Vec::new();
        for line in &self.standings {
            // Shown once for the lines that are compared.
            let group = [line.transport, line.waiting, &line.what];
            let cells = if last == Some(group) { [""; 3] } else { group };
            last = Some(group);
            let [value, p99] = line.shown.clone();
            let ratio = |ratio: f64| format!("{ratio:.2}");
            let mut row: Vec<String> = cells.map(str::to_owned).to_vec();
            row.extend([line.name(), value, p99]);
            row.extend([ratio(line.of_machine), ratio(line.of_petasos)]);
            lines.push(row);
        }
        let columns = columns.map(str::to_owned).to_vec();
        Grid { caption: String::new(), columns, lines }
    }

    /// How to read the table, which stacks are in it, and which are not.
    fn notes(&self, rounds: usize) -> Vec<String> {
        let mut notes = vec![
            "× machine, × petasos: as a multiple of the machine's limit and of petasos, measured \
             right before; of times, small is good, of rates and GB/s, large is good."
                .to_owned(),
            format!(
                "Of {rounds} rounds, that with the median ratio of petasos to the machine, and of a \
                 peer to petasos, is shown."
            ),
            "petasos: typed calls, asynchronous, with a deadline; large arguments are pulled by the \
             server. petasos, message: bytes there and back by the same transport without calls, \
             to compare with the stacks that have no calls. petasos, loan: an argument that is copied \
             into an array of the transport's memory, lent, and looked at by the server where it \
             lies."
                .to_owned(),
        ];
        let peer =
            |Entrant { name, version, how, .. }: &Entrant| format!("{name} {version}: {how}");
        notes.extend(self.peers.iter().map(peer));
        let skipped = |Skipped { name, why }: &Skipped| format!("skipped: {name}: {why}");
        notes.extend(self.skipped.iter().map(skipped));
        notes
    }

    /// The report as text.
    pub(crate) fn text(&self, rounds: usize) -> String {
        format!("{}\n{}", self.grid().table(), self.notes(rounds).join("\n"))
    }

    /// The same for a page.
    pub(crate) fn section(&self, rounds: usize) -> Section {
        Section {
            title: "Other stacks".to_owned(),
            about:
                "Each cell is measured for the machine, for petasos, and for each of the others \
                    right after each other."
                    .to_owned(),
            grids: vec![self.grid()],
            notes: self.notes(rounds),
        }
    }

    /// The other stacks' figures, with their places in the plots.
    pub(crate) fn guests(&self) -> Vec<Guest> {
        // Those of Petasos and of the machine have rows of their own, except for large arguments.
        let large = |line: &Standing| matches!(line.cell, Cell::Large { .. });
        let without_calls = |line: &Standing| line.stack == MESSAGE;
        let lines = self.standings.iter().map(|line| (line, line.whose()));
        let wanted = lines
            .filter(|(line, whose)| *whose == Whose::Others || large(line) || without_calls(line));
        wanted.map(|(line, whose)| line.guest(whose)).collect()
    }
}

impl Standing {
    /// The stack's name, with its transport where that is another one.
    fn name(&self) -> String {
        let over = if self.over == self.transport { "" } else { ", unix socket" };
        format!("{}{over}", self.stack)
    }

    fn whose(&self) -> Whose {
        match &*self.stack {
            PETASOS | MESSAGE | LOAN => Whose::Ours,
            stack if stack.starts_with(MACHINE) => Whose::Machine,
            _ => Whose::Others,
        }
    }

    fn guest(&self, whose: Whose) -> Guest {
        let word = if self.waiting == "sleeping" { "blocking" } else { self.waiting };
        let (plot, x) = match self.cell {
            Cell::Echo { bytes } => (Plot::Latency, bytes),
            Cell::Rate { in_flight } => (Plot::Rate, in_flight),
            Cell::Large { bytes } => (Plot::PeerBandwidth, bytes),
        };
        // The smallest size of a peer is in its name; here a peer is one line.
        let series = match self.cell {
            Cell::Echo { .. } => self.name().split(" (").next().unwrap_or_default().to_owned(),
            _ => self.name(),
        };
        let panel = format!("{}, {word}", self.transport);
        Guest { whose, at: At { plot, panel, series, x: x as f64 }, value: self.value }
    }
}
