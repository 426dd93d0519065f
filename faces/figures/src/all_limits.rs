//! All limits of a machine, one after the other, as tables and as JSON.

use crate::{
    beside::typical,
    exit::Outcome,
    figures::{self, DOUBTED},
    grid::Grid,
    limits::{self, Bulk, BulkPoint, Plan, RoundTrip},
    output,
    progress::Progress,
};
use serde::Serialize;

/// Bytes of bulk data.
pub const SIZES: [usize; 3] = [1 << 20, 16 << 20, 256 << 20];
/// The same, where little time is to be spent.
pub const QUICK: [usize; 2] = [1 << 20, 16 << 20];

/// All limits.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Each of them, with its tail.
    pub round_trips: Vec<RoundTrip>,
    /// Each of them, by size.
    pub bulk: Vec<Bulk>,
    /// What the system refused.
    pub refused: Vec<String>,
}

impl Found {
    /// Steps of a round.
    pub const STEPS: usize = limits::ROUND_TRIPS.len() + limits::BULKS.len();

    /// Measures each of them in turn, so many times, and takes that with the median.
    pub fn measure(
        plan: &Plan,
        sizes: &[usize],
        rounds: usize,
        progress: &Progress,
    ) -> Outcome<Found> {
        let mut round_trips = vec![Vec::new(); limits::ROUND_TRIPS.len()];
        let mut bulk = vec![Vec::new(); limits::BULKS.len()];
        let mut refused = Vec::new();
        for _ in 0..rounds {
            for ((name, measure), found) in limits::ROUND_TRIPS.iter().zip(&mut round_trips) {
                progress.step(*name);
                found.push(measure(plan)?);
            }
            for ((name, measure), found) in limits::BULKS.iter().zip(&mut bulk) {
                progress.step(*name);
                // One that is refused here is no reason to keep the others back.
                match measure(plan, sizes) {
                    Ok(bulk) => found.push(bulk),
                    Err(error) => {
                        let why = format!("{name}: {error}");
                        if !refused.contains(&why) {
                            refused.push(why);
                        }
                    }
                }
            }
        }
        let round_trips = round_trips
            .into_iter()
            .filter(|all: &Vec<RoundTrip>| !all.is_empty())
            .map(|all| typical(all, |found| found.median));
        Ok(Found {
            round_trips: round_trips.collect(),
            bulk: bulk.into_iter().filter_map(typical_bulk).collect(),
            refused,
        })
    }

    /// Round trips, and bulk data.
    pub fn grids(&self) -> Vec<Grid> {
        let times = |found: &RoundTrip| {
            let mut times = [found.median, found.p99, found.p99_9].map(output::time);
            let few = limits::too_few(found.samples, limits::FOR_P99_9);
            for (at, time) in times.iter_mut().enumerate() {
                if found.doubt.is_some() || (at == 2 && few.is_some()) {
                    *time += DOUBTED;
                }
            }
            [vec![found.name.to_owned()], times.to_vec()].concat()
        };
        let rates = |found: &Bulk| {
            let rates = found.points.iter().map(|point| output::bandwidth(point.median));
            [vec![found.name.to_owned()], rates.collect()].concat()
        };
        let points = self.bulk.first().map_or(&[][..], |bulk| &bulk.points);
        let sizes = points.iter().map(|point| format!(">{}", output::size(point.bytes as u64)));
        vec![
            Grid {
                caption: "The machine: round trips".to_owned(),
                columns: ["limit", ">median", ">p99", ">p99.9"].map(str::to_owned).to_vec(),
                lines: self.round_trips.iter().map(times).collect(),
            },
            Grid {
                caption: "The machine: bulk data".to_owned(),
                columns: ["limit".to_owned()].into_iter().chain(sizes).collect(),
                lines: self.bulk.iter().map(rates).collect(),
            },
        ]
    }

    /// What is to be said against round trips, a line each.
    pub fn doubts(&self) -> Vec<String> {
        let said = |found: &RoundTrip| {
            let few = limits::too_few(found.samples, limits::FOR_P99_9);
            let few = few.map(|few| format!("p99.9 {few}"));
            let doubt = found.doubt.clone().or(few)?;
            Some(format!("? {}: {doubt}", figures::spoken(found.name)))
        };
        self.round_trips.iter().filter_map(said).collect()
    }

    /// How each was measured, and what could not be.
    pub fn notes(&self) -> Vec<String> {
        let round_trips = self.round_trips.iter().map(|found| (found.name, &found.how));
        let bulk = self.bulk.iter().map(|found| (found.name, &found.how));
        let how = round_trips.chain(bulk).map(|(name, how)| format!("{name}: {how}"));
        how.chain(self.doubts())
            .chain(self.refused.iter().map(|why| format!("refused: {why}")))
            .collect()
    }
}

/// Each size by itself.
fn typical_bulk(all: Vec<Bulk>) -> Option<Bulk> {
    let mut bulk = all.first()?.clone();
    for (at, point) in bulk.points.iter_mut().enumerate() {
        let points = all.iter().filter_map(|bulk| bulk.points.get(at)).cloned().collect();
        *point = typical(points, |point: &BulkPoint| point.median);
    }
    Some(bulk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_are_marked_and_said() {
        let of = |name, samples, doubt: Option<&str>| RoundTrip {
            name,
            unit: "ns",
            median: 5.0,
            p50: 5.0,
            p99: 5.0,
            p99_9: 5.0,
            batches: 1,
            batch: 1,
            samples,
            doubt: doubt.map(str::to_owned),
            how: "how".to_owned(),
        };
        let round_trips =
            vec![of("fine", 1000, None), of("few", 999, None), of("bad_one", 1000, Some("busy"))];
        let found = Found { round_trips, bulk: Vec::new(), refused: Vec::new() };
        let cells = &found.grids()[0].lines;
        let marks = |line: &Vec<String>| line[1..].iter().map(|c| c.ends_with(DOUBTED)).collect();
        let marks: Vec<Vec<bool>> = cells.iter().map(marks).collect();
        assert_eq!(marks, [[false; 3], [false, false, true], [true; 3]]);
        let said = found.doubts();
        assert_eq!((said.len(), said[1].as_str()), (2, "? bad one: busy"));
        assert!(said[0].starts_with("? few: p99.9 of 999 "), "{said:?}");
        assert!(said.iter().all(|doubt| found.notes().contains(doubt)));
    }
}
