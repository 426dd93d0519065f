//! The page: facts, ratios, and a section for each plot with its tables.

use super::{charts::Chart, plot, text::escape};
use crate::{
    grid::{Grid, STANDS_OUT},
    machine::Machine,
    plots::Plot,
};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// Tables with a heading, without a plot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) grids: Vec<Grid>,
    /// Notes, a line each.
    pub(crate) notes: Vec<String>,
}

/// What is in a page.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    pub(crate) about: &'a str,
    pub(crate) machine: &'a Machine,
    /// Facts of this run, beside those of the machine.
    pub(crate) facts: Vec<(&'static str, String)>,
    /// Above the plots.
    pub(crate) summary: Option<Section>,
    pub(crate) charts: Vec<Chart>,
    /// The tables of the plots.
    pub(crate) grids: Vec<(Plot, Grid)>,
    /// Below the plots.
    pub(crate) sections: Vec<Section>,
}

impl Page<'_> {
    /// The page; the results are in a file of this name beside it.
    pub(super) fn html(&self, results: &str) -> String {
        let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n");
        let _ = write!(
            out,
            "<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
             initial-scale=1\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
            escape(self.title)
        );
        let _ = writeln!(out, "<h1>{}</h1>\n<p>{}</p>", escape(self.title), escape(self.about));
        out += "<dl class=\"facts\">\n";
        for (name, fact) in self.machine.facts().iter().chain(&self.facts) {
            let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(fact));
        }
        out += "</dl>\n";
        let plots: Vec<Plot> = Plot::ALL
            .into_iter()
            .filter(|plot| self.charts.iter().any(|c| c.plot == *plot))
            .collect();
        self.contents(&plots, &mut out);
        if let Some(summary) = &self.summary {
            section(summary, false, &mut out);
        }
        for plot in plots {
            self.plot(plot, &mut out);
        }
        for further in &self.sections {
            section(further, true, &mut out);
        }
        let _ = write!(
            out,
            "<footer>All figures: <a href=\"{results}\">{results}</a>. Dashed lines are limits of \
             the machine, measured in turn with their figures; open marks are other \
             stacks.</footer>\n</body>\n</html>\n"
        );
        out
    }

    fn contents(&self, plots: &[Plot], out: &mut String) {
        let summary = self.summary.iter().map(|section| &*section.title);
        let titles = plots.iter().map(|plot| plot.labels().title);
        let sections = self.sections.iter().map(|section| &*section.title);
        *out += "<nav><ul>";
        for title in summary.chain(titles).chain(sections) {
            let _ = write!(out, "<li><a href=\"#{}\">{}</a></li>", anchor(title), escape(title));
        }
        *out += "</ul></nav>\n";
    }

    fn plot(&self, plot: Plot, out: &mut String) {
        let words = plot.labels();
        heading(words.title, words.about, out);
        *out += "<div class=\"charts\">\n";
        for chart in self.charts.iter().filter(|chart| chart.plot == plot) {
            *out += &plot::figure(chart);
        }
        *out += "</div>\n";
        let grids: Vec<&Grid> =
            self.grids.iter().filter(|(of, _)| *of == plot).map(|(_, grid)| grid).collect();
        folded(&grids, "The figures", out);
    }
}

fn heading(title: &str, about: &str, out: &mut String) {
    let (id, title, about) = (anchor(title), escape(title), escape(about));
    let _ = writeln!(out, "<section id=\"{id}\">\n<h2>{title}</h2>\n<p>{about}</p>\n</section>");
}

fn section(section: &Section, fold: bool, out: &mut String) {
    heading(&section.title, &section.about, out);
    if fold {
        folded(&section.grids.iter().collect::<Vec<_>>(), "The figures", out);
    } else {
        section.grids.iter().for_each(|grid| table(grid, out));
    }
    if !section.notes.is_empty() {
        *out += "<ul class=\"how\">";
        for note in &section.notes {
            let _ = write!(out, "<li>{}</li>", escape(note));
        }
        *out += "</ul>\n";
    }
}

fn folded(grids: &[&Grid], what: &str, out: &mut String) {
    if grids.is_empty() {
        return;
    }
    let _ = writeln!(out, "<details><summary>{what}</summary>");
    grids.iter().for_each(|grid| table(grid, out));
    *out += "</details>\n";
}

fn table(grid: &Grid, out: &mut String) {
    let numbers: Vec<bool> = grid.columns.iter().map(|column| column.starts_with('>')).collect();
    let class = |at: usize| if numbers.get(at) == Some(&true) { " class=\"number\"" } else { "" };
    *out += "<div class=\"wide\"><table>";
    if !grid.caption.is_empty() {
        let _ = write!(out, "<caption>{}</caption>", escape(&grid.caption));
    }
    *out += "<thead><tr>";
    for (at, column) in grid.columns.iter().enumerate() {
        let text = escape(column.trim_start_matches('>'));
        let _ = write!(out, "<th{}>{text}</th>", class(at));
    }
    *out += "</tr></thead>\n<tbody>\n";
    for line in &grid.lines {
        *out += "<tr>";
        for (at, cell) in line.iter().enumerate() {
            let (text, class) = match cell.strip_suffix(STANDS_OUT) {
                Some(text) => (text, " class=\"number over\""),
                None => (&**cell, class(at)),
            };
            let _ = write!(out, "<td{class}>{}</td>", escape(text));
        }
        *out += "</tr>\n";
    }
    *out += "</tbody></table></div>\n";
}

/// The name of a link target.
fn anchor(title: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    title.chars().map(letter).collect()
}
