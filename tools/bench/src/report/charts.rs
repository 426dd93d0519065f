//! Charts of rows: one for each panel of a plot.

use crate::{
    figures::{self, Row},
    plots::{At, Plot},
};

/// The owner of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Others,
    Machine,
}

/// A figure that is no row, with its point in a plot.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) whose: Whose,
    pub(crate) at: At,
    pub(crate) value: f64,
}

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) whose: Whose,
    /// The number of its colour; a limit that belongs to a line has the line's.
    pub(crate) colour: Option<usize>,
    /// In the order of x.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One panel.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) plot: Plot,
    pub(crate) panel: String,
    pub(crate) series: Vec<Series>,
}

/// The charts of the rows, by plot; charts without a line are left out.
pub(crate) fn charts(rows: &[Row], guests: &[Guest]) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    for row in rows {
        let Some(at) = &row.at else { continue };
        let chart = chart(&mut charts, at);
        let colour = chart.add(&at.series, Whose::Ours, None, (at.x, row.value));
        if let Some(limit) = &row.limit {
            let (name, colour) = match at.plot.limits_go_by_series() {
                true => (format!("{}: {}", figures::spoken(&limit.name), at.series), colour),
                false => (figures::line_of(&limit.name), None),
            };
            chart.add(&name, Whose::Machine, colour, (at.x, limit.value));
        }
    }
    for Guest { whose, at, value } in guests {
        chart(&mut charts, at).add(&at.series, *whose, None, (at.x, *value));
    }
    charts.sort_by_key(|chart| chart.plot);
    for series in charts.iter_mut().flat_map(|chart| &mut chart.series) {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    charts
}

fn chart<'a>(charts: &'a mut Vec<Chart>, at: &At) -> &'a mut Chart {
    let found = charts.iter().position(|c| (c.plot, &c.panel) == (at.plot, &at.panel));
    let index = found.unwrap_or_else(|| {
        charts.push(Chart { plot: at.plot, panel: at.panel.clone(), series: Vec::new() });
        charts.len() - 1
    });
    &mut charts[index]
}

impl Chart {
    /// Adds a point, and returns the colour of its line. The first of several at one x counts: a
    /// limit may have been measured for each of two lines.
    fn add(
        &mut self,
        name: &str,
        whose: Whose,
        colour: Option<usize>,
        point: (f64, f64),
    ) -> Option<usize> {
        let same = |series: &Series| series.name == name && series.whose == whose;
        let index = self.series.iter().position(same).unwrap_or_else(|| {
            let used = self.series.iter().filter(|series| series.whose != Whose::Machine).count();
            let colour = if whose == Whose::Machine { colour } else { Some(used) };
            let (name, points) = (name.to_owned(), Vec::new());
            self.series.push(Series { name, whose, colour, points });
            self.series.len() - 1
        });
        let series = &mut self.series[index];
        if !series.points.iter().any(|(x, _)| *x == point.0) {
            series.points.push(point);
        }
        series.colour
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(series: &str, x: f64, value: f64, limit: f64) -> Row {
        let row = Row::new("shm", "echo", (value, "ns"), Some(("cache_line", limit)), "");
        row.at(Plot::Latency, "shm, spinning", series, x)
    }

    #[test]
    fn a_line_each_and_one_for_the_limit() {
        let rows = [
            row("petasos", 64.0, 3.0, 1.0),
            row("petasos", 0.0, 2.0, 1.0),
            row("XDR", 64.0, 4.0, 9.0),
        ];
        let at = At { series: "tarpc".into(), ..rows[0].at.clone().unwrap() };
        let charts = charts(&rows, &[Guest { whose: Whose::Others, at, value: 70.0 }]);
        assert_eq!(charts.len(), 1);
        let lines: Vec<_> =
            charts[0].series.iter().map(|s| (&*s.name, s.colour, &*s.points)).collect();
        assert_eq!(lines[0], ("petasos", Some(0), &[(0.0, 2.0), (64.0, 3.0)][..]));
        // Of two limits at one x, the first.
        assert_eq!(lines[1], ("cache line", None, &[(0.0, 1.0), (64.0, 1.0)][..]));
        assert_eq!(lines[2].1, Some(1));
        assert_eq!(lines[3], ("tarpc", Some(2), &[(64.0, 70.0)][..]));
    }
}
