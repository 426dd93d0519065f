//! The results: tables, and JSON.

use super::programs::{Measured, Way};
use crate::{
    exit::Outcome,
    grid::Grid,
    limits::{self, Cores},
    machine::Machine,
    output,
};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// All results.
#[derive(Serialize)]
pub(super) struct Results {
    version: &'static str,
    rounds: usize,
    machine: Machine,
    seconds: f64,
    mpis: Vec<Found>,
    skipped: Vec<String>,
}

/// What was found of an MPI.
#[derive(Serialize)]
pub(super) struct Found {
    /// Its compiler.
    mpi: String,
    library: String,
    rows: Vec<Row>,
}

/// One size.
#[derive(Serialize)]
struct Row {
    bytes: u64,
    ways: Vec<Standing>,
}

/// One way: medians of all rounds.
#[derive(Serialize)]
struct Standing {
    way: Way,
    /// From one rank to the other: half of a round trip.
    latency_ns: f64,
    /// Of windows of up to 32 messages.
    gb_per_s: f64,
    /// In the same round, as multiples of what the provider had: over 1 the provider is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_of_petasos: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    petasos_of_bandwidth: Option<f64>,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    limits::median(&mut values.collect::<Vec<_>>())
}

impl Found {
    pub(super) fn new(
        mpi: String,
        library: String,
        sizes: &[u64],
        all: &BTreeMap<Way, Vec<Measured>>,
    ) -> Found {
        let ours = all.get(&Way::Petasos);
        let row = |(at, bytes): (usize, &u64)| {
            let standing = |(way, rounds): (&Way, &Vec<Measured>)| {
                let ratio = |of: &dyn Fn(&Measured, &Measured) -> f64| {
                    let ours = ours.filter(|_| *way != Way::Petasos)?;
                    Some(median(rounds.iter().zip(ours).map(|(it, ours)| of(it, ours))))
                };
                Standing {
                    way: *way,
                    latency_ns: median(rounds.iter().map(|one| one.latency[at])),
                    gb_per_s: median(rounds.iter().map(|one| one.bandwidth[at])),
                    latency_of_petasos: ratio(&|it, ours| it.latency[at] / ours.latency[at]),
                    petasos_of_bandwidth: ratio(&|it, ours| ours.bandwidth[at] / it.bandwidth[at]),
                }
            };
            Row { bytes: *bytes, ways: all.iter().map(standing).collect() }
        };
        Found { mpi, library, rows: sizes.iter().enumerate().map(row).collect() }
    }

    /// Times and bandwidths, each with what they are of the provider's.
    fn grids(&self) -> [Grid; 2] {
        let ways: Vec<Way> = self.rows.iter().flat_map(|row| &row.ways).map(|of| of.way).collect();
        let mut names: Vec<Way> = Vec::new();
        ways.into_iter().for_each(|way| {
            if !names.contains(&way) {
                names.push(way);
            }
        });
        let grid = |what: &str, cell: &dyn Fn(&Standing) -> String| {
            let columns = names.iter().map(|way| format!(">{}", way.name()));
            let line = |row: &Row| {
                let cells = names.iter().map(|way| {
                    let found = row.ways.iter().find(|standing| standing.way == *way);
                    found.map_or("–".to_owned(), cell)
                });
                [output::size(row.bytes)].into_iter().chain(cells).collect()
            };
            Grid {
                caption: format!("{}: {what}", self.library),
                columns: [">message".to_owned()].into_iter().chain(columns).collect(),
                lines: self.rows.iter().map(line).collect(),
            }
        };
        let with = |text: String, ratio: Option<f64>| match ratio {
            Some(ratio) => format!("{text} ({ratio:.2}×)"),
            None => text,
        };
        [
            grid("one way", &|of| with(output::time(of.latency_ns), of.latency_of_petasos)),
            grid("bandwidth", &|of| with(output::bandwidth(of.gb_per_s), of.petasos_of_bandwidth)),
        ]
    }
}

impl Results {
    pub(super) fn new(
        rounds: usize,
        took: Duration,
        mpis: Vec<Found>,
        skipped: Vec<String>,
    ) -> Results {
        Results {
            version: env!("CARGO_PKG_VERSION"),
            rounds,
            machine: Machine::detect(Cores { client: None, server: None }),
            seconds: took.as_secs_f64(),
            mpis,
            skipped,
        }
    }

    pub(super) fn give(&self, json: bool) -> Outcome {
        if json {
            return output::print_json(self);
        }
        let grids = self.mpis.iter().flat_map(Found::grids);
        let mut text: Vec<String> = grids.map(|grid| grid.text()).collect();
        text.push(format!(
            "medians of {} rounds, in each of which all are measured right after each other, two \
             ranks on a core each, started by petasos run; in brackets: so many times as slow as the \
             provider in the same round",
            self.rounds
        ));
        text.extend(self.skipped.iter().map(|why| format!("skipped: {why}")));
        text.push(format!("{:.0} s in all", self.seconds));
        output::print(&text.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let round = |latency: f64, bandwidth: f64| Measured {
            library: "x".to_owned(),
            latency: vec![latency],
            bandwidth: vec![bandwidth],
        };
        let ours = vec![round(1.0, 4.0), round(10.0, 2.0), round(3.0, 1.0)];
        let others = vec![round(2.0, 1.0), round(20.0, 1.0), round(6.0, 1.0)];
        let all = BTreeMap::from([(Way::Petasos, ours), (Way::Own, others)]);
        let found = Found::new("m".to_owned(), "l".to_owned(), &[8], &all);
        let [ours, own] = &found.rows[0].ways[..] else { panic!("two ways") };
        assert_eq!((ours.latency_ns, ours.latency_of_petasos), (3.0, None));
        assert_eq!((own.latency_of_petasos, own.petasos_of_bandwidth), (Some(2.0), Some(2.0)));
        assert!(found.grids()[0].text().contains("2.00×"));
    }
}
