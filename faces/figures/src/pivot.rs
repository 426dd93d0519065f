//! Many figures as a table for each panel of each plot.

use crate::{
    figures::{self, Row},
    grid::{Grid, STANDS_OUT},
    plots::Plot,
};

/// A step between neighbouring sizes that is larger stands out.
pub const LARGE_STEP: f64 = 1.5;

/// The rows of which there are many: a table for each panel of each plot, a line for each place
/// along it, and a column for each series.
pub fn pivots(rows: &[Row]) -> Vec<(Plot, Grid)> {
    let mut grids = Vec::new();
    for plot in Plot::ALL {
        let of_plot: Vec<&Row> =
            rows.iter().filter(|row| row.at.as_ref().is_some_and(|at| at.plot == plot)).collect();
        if !of_plot.iter().any(|row| row.dense) {
            continue;
        }
        for panel in distinct(of_plot.iter().map(|row| panel_of(row))) {
            let of_panel: Vec<&Row> =
                of_plot.iter().copied().filter(|row| panel_of(row) == panel).collect();
            grids.push((plot, pivot(plot, panel, &of_panel)));
        }
    }
    grids
}

fn panel_of(row: &Row) -> &str {
    row.at.as_ref().map_or("", |at| &at.panel)
}

fn series_of(row: &Row) -> &str {
    row.at.as_ref().map_or("", |at| &at.series)
}

fn x_of(row: &Row) -> f64 {
    row.at.as_ref().map_or(0.0, |at| at.x)
}

/// Each of them once, in the order in which they come.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn pivot(plot: Plot, panel: &str, rows: &[&Row]) -> Grid {
    let words = plot.labels();
    let mut places = distinct(rows.iter().map(|row| x_of(row)));
    places.sort_by(f64::total_cmp);
    let limit_of = |row: &&Row| row.limit.as_ref().map(|limit| figures::line_of(&limit.name));
    let limits = match plot.limits_go_by_series() {
        true => Vec::new(),
        false => distinct(rows.iter().filter_map(limit_of)),
    };
    let mut columns = vec![format!(">{}", words.x)];
    let mut lines: Vec<Vec<String>> = places.iter().map(|x| vec![words.along.show(*x)]).collect();
    let mut column = |name: String, cell: &dyn Fn(f64) -> Option<String>| {
        columns.push(format!(">{name}"));
        for (line, x) in lines.iter_mut().zip(&places) {
            line.push(cell(*x).unwrap_or_else(|| "–".to_owned()));
        }
    };
    for series in distinct(rows.iter().map(|row| series_of(row))) {
        let of: Vec<&Row> = rows.iter().copied().filter(|row| series_of(row) == series).collect();
        let at = |x: f64| of.iter().copied().find(|row| x_of(row) == x);
        column(series.to_owned(), &|x| at(x).map(Row::shown));
        if of.iter().any(|row| row.ratio.is_some()) {
            column("ratio".to_owned(), &|x| at(x)?.ratio.map(|ratio| format!("{ratio:.2}")));
        }
        if of.iter().any(|row| row.step.is_some()) {
            column("step".to_owned(), &|x| at(x)?.step.map(step));
        }
    }
    for limit in limits {
        let at = |x: f64| {
            rows.iter().find(|row| x_of(row) == x && limit_of(row).as_ref() == Some(&limit))
        };
        column(limit.clone(), &|x| at(x).and_then(|row| Some(row.show(row.limit.as_ref()?.value))));
    }
    Grid { caption: format!("{}: {panel}", words.title), columns, lines }
}

/// A step, marked if it is large.
fn step(step: f64) -> String {
    let mark = if step > LARGE_STEP { STANDS_OUT } else { "" };
    format!("{step:.2}{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_size() {
        let row = |series: &str, x: f64, value: f64| {
            let limit = Some(("cache_line", 50.0));
            Row::new("shm", "echo", (value, "ns"), limit, "").at(Plot::Latency, "shm", series, x)
        };
        let mut rows = vec![
            row("petasos", 1024.0, 800.0),
            row("petasos", 64.0, 100.0),
            row("XDR", 64.0, 150.0),
        ];
        rows[0].step = Some(8.0);
        assert!(pivots(&rows).is_empty());
        let rows: Vec<Row> = rows.into_iter().map(Row::dense).collect();
        let (_, grid) = pivots(&rows).remove(0);
        assert_eq!(
            grid.columns,
            [">bytes each way", ">petasos", ">ratio", ">step", ">XDR", ">ratio", ">cache line"]
        );
        assert_eq!(grid.lines[0], ["64 B", "100 ns", "2.00", "–", "150 ns", "3.00", "50 ns"]);
        assert_eq!(grid.lines[1], ["1 KiB", "800 ns", "16.00", "8.00 !", "–", "–", "50 ns"]);
    }
}
