//! Figures of ours beside limits of the machine, and how they are shown.

use crate::{
    grid::Grid,
    output,
    plots::{At, Plot},
    table::Table,
};
use serde::Serialize;

/// A figure of ours, and the limit of the machine that belongs to it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub transport: &'static str,
    /// What was measured.
    pub what: String,
    pub value: f64,
    /// `ns`, `B`, `GB/s` (10^9 bytes per second), `calls/s`, `messages/s`, or `a call`, `a message`
    /// for what there is of each.
    pub unit: &'static str,
    pub limit: Option<Limit>,
    /// The value as a multiple of the limit: small is good for times, large for rates.
    pub ratio: Option<f64>,
    /// Single events behind it, where it is of such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Why it means less than it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// How it was measured.
    pub how: String,
    /// Where it stands in a plot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// Of times by size: as a multiple of that of the next smaller size, without what the machine
    /// takes for the bytes that are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<f64>,
    /// One of many, which tables show by plot.
    #[serde(skip)]
    pub dense: bool,
}

/// What the machine can do.
#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    pub name: String,
    pub value: f64,
}

impl Row {
    pub fn new(
        transport: &'static str,
        what: impl Into<String>,
        (value, unit): (f64, &'static str),
        limit: Option<(&str, f64)>,
        how: impl Into<String>,
    ) -> Row {
        let ratio = limit.map(|(_, limit)| value / limit);
        let limit = limit.map(|(name, value)| Limit { name: name.to_owned(), value });
        let (what, how) = (what.into(), how.into());
        Row {
            transport,
            what,
            value,
            unit,
            limit,
            ratio,
            samples: None,
            doubt: None,
            how,
            at: None,
            step: None,
            dense: false,
        }
    }

    /// The same row, with a place in a plot.
    pub fn at(self, plot: Plot, panel: &str, series: &str, x: f64) -> Row {
        let at = At { plot, panel: panel.to_owned(), series: series.to_owned(), x };
        Row { at: Some(at), ..self }
    }

    /// The same row, of so many single events.
    pub fn of_samples(self, samples: u64) -> Row {
        Row { samples: Some(samples), ..self }
    }

    /// The same row, with what is to be said against it, if something is.
    pub fn doubted(self, doubt: Option<impl Into<String>>) -> Row {
        Row { doubt: doubt.map(Into::into).or(self.doubt), ..self }
    }

    /// The value in words, marked if something is to be said against it.
    pub fn shown(&self) -> String {
        let mark = if self.doubt.is_some() { DOUBTED } else { "" };
        format!("{}{mark}", self.show(self.value))
    }

    /// The same row, one of many.
    pub fn dense(self) -> Row {
        Row { dense: true, ..self }
    }

    /// A value in the unit of this row, in words.
    pub fn show(&self, value: f64) -> String {
        show(self.unit, value)
    }
}

/// Behind a value that means less than it should.
pub const DOUBTED: &str = " ?";

/// What is to be said against figures, a line each; nothing where there is nothing.
pub fn doubts<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<String> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let Some(doubt) = &row.doubt else { continue };
        match all.iter_mut().find(|(known, _)| known == doubt) {
            Some((_, whats)) => whats.push(&row.what),
            None => all.push((doubt, vec![&row.what])),
        }
    }
    all.into_iter().map(|(doubt, whats)| format!("? {}: {doubt}", whats.join("; "))).collect()
}

/// A value in words.
pub fn show(unit: &str, value: f64) -> String {
    match unit {
        "ns" => output::time(value),
        "GB/s" => output::bandwidth(value),
        "a call" | "a message" => format!("{value:.3}"),
        "B" => output::size(value as u64),
        _ => output::rate(value),
    }
}

/// The rows as a table.
pub fn table<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Table {
    grid(rows).table()
}

/// The same, to be shown anywhere.
pub fn grid<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Grid {
    let columns = ["transport", "what", ">petasos", ">machine", ">ratio", "of"];
    let line = |row: &Row| {
        let limit = row.limit.as_ref();
        vec![
            row.transport.to_owned(),
            row.what.clone(),
            row.shown(),
            limit.map_or("–".to_owned(), |limit| row.show(limit.value)),
            row.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
            limit.map_or(String::new(), |limit| spoken(&limit.name)),
        ]
    };
    Grid {
        caption: String::new(),
        columns: columns.map(str::to_owned).to_vec(),
        lines: rows.into_iter().map(line).collect(),
    }
}

/// A limit's name in words; system calls keep theirs.
pub fn spoken(name: &str) -> String {
    if name.starts_with("process_") { name.to_owned() } else { name.replace('_', " ") }
}

/// The line of a limit in a plot: over TCP it is one, in whichever way the bytes went fastest.
pub fn line_of(limit: &str) -> String {
    if limit.starts_with("tcp_") { "raw TCP".to_owned() } else { spoken(limit) }
}

/// The distinct ways in which the rows were measured, a line each.
pub fn notes<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In tables, in lines below them, and in JSON.
    #[test]
    fn doubts_are_marked_and_said() {
        let row = |what: &str, doubt: Option<&str>| {
            Row::new("shm", what, (1500.0, "ns"), Some(("cache_line", 100.0)), "how").doubted(doubt)
        };
        let rows =
            [row("a", None), row("b", Some("busy")), row("c", Some("few")), row("d", Some("busy"))];
        let shown: Vec<String> = rows.iter().map(Row::shown).collect();
        let plain = output::time(1500.0);
        let marked = format!("{plain} ?");
        assert_eq!(shown, [&plain, &marked, &marked, &marked].map(String::as_str));
        let cells: Vec<String> =
            grid(&rows).lines.into_iter().map(|line| line[2].clone()).collect();
        assert_eq!(cells, shown);
        assert_eq!(doubts(&rows), ["? b; d: busy", "? c: few"]);
        assert_eq!(doubts(&rows[..1]), [""; 0]);
        let json = |row: &Row| serde_json::to_value(row).unwrap();
        assert_eq!(json(&rows[1])["doubt"], "busy");
        assert!(json(&rows[0]).get("doubt").is_none());
        // What is said against one stays, where nothing else is.
        assert_eq!(row("b", Some("busy")).doubted(None::<&str>).doubt.unwrap(), "busy");
    }
}
