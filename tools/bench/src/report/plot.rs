//! A chart as SVG.
//!
//! Without a library, as the page's style sheet sets the colours, for light and dark: a line has a
//! class, and the style sheet does the rest. No position depends on the width of a text: labels are
//! beside the axes, and the key is a list in the page.

use super::{
    charts::{Chart, Series, Whose},
    scale::{Across, Up},
    text::escape,
};
use crate::figures;
use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 88.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 52.0;

/// Half the length of the line of a limit with a single point.
const ALONE: f64 = 14.0;

/// Colours that the style sheet has.
pub(super) const COLOURS: usize = 8;

/// Dash patterns for the lines of limits.
const DASHES: usize = 3;

/// The class of each line: its colour, or which of the limits it is.
fn classes(chart: &Chart) -> Vec<String> {
    let mut limits = 0;
    let class = |series: &Series| match (series.whose, series.colour) {
        (Whose::Machine, None) => {
            limits += 1;
            format!("limit d{}", (limits - 1) % DASHES)
        }
        (Whose::Machine, Some(colour)) => format!("limit c{} d0", colour % COLOURS),
        (Whose::Others, Some(colour)) => format!("other c{}", colour % COLOURS),
        (_, colour) => format!("ours c{}", colour.unwrap_or(0) % COLOURS),
    };
    chart.series.iter().map(class).collect()
}

/// The chart, with its key.
pub(super) fn figure(chart: &Chart) -> String {
    let classes = classes(chart);
    let mut key = String::new();
    for (series, class) in chart.series.iter().zip(&classes) {
        let colour = series.colour.unwrap_or(0);
        let sample = format!(
            "<svg class=\"sample\" viewBox=\"0 0 34 12\" aria-hidden=\"true\"><g class=\"{class}\"><path \
             d=\"M1 6H33\"/>{}</g></svg>",
            mark(series, colour, (17.0, 6.0), "")
        );
        let _ = write!(key, "<li>{sample}{}</li>", escape(&series.name));
    }
    let panel = escape(&chart.panel);
    format!(
        "<figure>\n<figcaption>{panel}</figcaption>\n{}\n<ul class=\"key\">{key}</ul>\n</figure>\n",
        svg(chart, &classes)
    )
}

fn svg(chart: &Chart, classes: &[String]) -> String {
    let words = chart.plot.labels();
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let across = Across::new(words.along, points().map(|(x, _)| *x));
    let up = Up::new(words.unit, points().map(|(_, y)| *y));
    let x_of = |at: f64| LEFT + at * (WIDTH - LEFT - RIGHT);
    let y_of = |at: f64| HEIGHT - BOTTOM - at * (HEIGHT - TOP - BOTTOM);
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);

    let mut out = format!(
        "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         role=\"img\" aria-label=\"{}: {}\">\n",
        words.title,
        escape(&chart.panel)
    );
    for (at, label) in up.ticks() {
        let y = y_of(at);
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
        let (x, y) = (LEFT - 7.0, y + 4.0);
        let _ = writeln!(out, "<text class=\"tick end\" x=\"{x}\" y=\"{y:.1}\">{label}</text>");
    }
    for (at, label) in across.ticks() {
        let x = x_of(at);
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>");
        let y = bottom + 17.0;
        let _ = writeln!(out, "<text class=\"tick mid\" x=\"{x:.1}\" y=\"{y}\">{label}</text>");
    }
    let _ = writeln!(out, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
    let middle = (LEFT + right) / 2.0;
    let y = HEIGHT - 10.0;
    let _ = writeln!(out, "<text class=\"name mid\" x=\"{middle}\" y=\"{y}\">{}</text>", words.x);
    let middle = (TOP + bottom) / 2.0;
    let _ = writeln!(
        out,
        "<text class=\"name mid\" transform=\"translate(14 {middle}) rotate(-90)\">{}</text>",
        words.y
    );
    // Limits first, so that lines of figures lie above them.
    let mut order: Vec<_> = chart.series.iter().zip(classes).collect();
    order.sort_by_key(|(series, _)| series.whose != Whose::Machine);
    for (series, class) in order {
        let position = |&(x, y): &(f64, f64)| (x_of(across.position(x)), y_of(up.position(y)));
        let mut path = String::new();
        for (x, y) in series.points.iter().map(position) {
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
        }
        if let ([alone], Whose::Machine) = (&series.points[..], series.whose) {
            let (x, y) = position(alone);
            path = format!("M{:.1} {y:.1}H{:.1}", x - ALONE, x + ALONE);
        }
        let _ = writeln!(out, "<g class=\"{class}\"><path d=\"{path}\"/>");
        for point in &series.points {
            let at = words.along.show(point.0);
            let value = figures::show(words.unit, point.1);
            let title = format!("{}, {at}: {value}", escape(&series.name));
            let colour = series.colour.unwrap_or(0);
            out += &mark(series, colour, position(point), &title);
        }
        out += "</g>\n";
    }
    out + "</svg>"
}

/// The mark of a point: its shape tells lines apart, as the colour does. Limits have none.
fn mark(series: &Series, colour: usize, (x, y): (f64, f64), title: &str) -> String {
    let title = if title.is_empty() { String::new() } else { format!("<title>{title}</title>") };
    if series.whose == Whose::Machine {
        // An invisible spot for the pointer.
        return match title.is_empty() {
            true => String::new(),
            false => format!(
                "<circle class=\"spot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\">{title}</circle>"
            ),
        };
    }
    let shape = match colour % 4 {
        0 => return format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\">{title}</circle>"),
        1 => "m-3.2-3.2h6.4v6.4h-6.4z",
        2 => "m0-4.4l4.2 7.4h-8.4z",
        _ => "m0-4.6l4.2 4.6l-4.2 4.6l-4.2-4.6z",
    };
    format!("<path class=\"mark\" d=\"M{x:.1} {y:.1}{shape}\">{title}</path>")
}
