//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

/// Families of samples.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// A number that only grows; its name ends in `_total`.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, &[("", value)], "");
    }

    /// One for each of several things, which a label tells apart.
    pub(crate) fn counters(&mut self, name: &str, help: &str, of: &[(&str, u64)], label: &str) {
        self.family(name, "counter", help);
        of.iter().for_each(|(which, value)| self.sample(name, (label, which), value));
    }

    /// A number that grows and shrinks.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, ("", ""), value);
    }

    /// One for each of several things, which a label tells apart.
    pub(crate) fn gauges(&mut self, name: &str, help: &str, of: &[(&str, u64)], label: &str) {
        self.family(name, "gauge", help);
        of.iter().for_each(|(which, value)| self.sample(name, (label, which), value));
    }

    /// A counter of seconds, or of others that are no whole numbers.
    pub(crate) fn fraction(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "counter", help);
        self.sample(name, ("", ""), value);
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {}\n# TYPE {name} {kind}\n", escaped(help));
    }

    fn sample(&mut self, name: &str, (label, which): (&str, &str), value: impl Display) {
        let _ = match label {
            "" => writeln!(self.0, "{name} {value}"),
            label => writeln!(self.0, "{name}{{{label}=\"{}\"}} {value}", escaped(which)),
        };
    }
}

/// What must not stand in a label or a help text as it is.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families() {
        let mut text = Text::default();
        text.counter("a_total", "What.", 7);
        text.gauges("b", "Of each.", &[("x\"y\\\n", 1), ("z", 2)], "which");
        text.fraction("c_total", "Seconds.", 0.5);
        assert_eq!(
            text.into_string(),
            "# HELP a_total What.\n# TYPE a_total counter\na_total 7\n\
             # HELP b Of each.\n# TYPE b gauge\nb{which=\"x\\\"y\\\\\\n\"} 1\nb{which=\"z\"} 2\n\
             # HELP c_total Seconds.\n# TYPE c_total counter\nc_total 0.5\n"
        );
    }
}
