//! Jobs of many shapes, and whatever may happen to them in any order, one seed each: every job
//! ends, once, with the exit code of the first failure that counts; nothing is begun after the end
//! has; no order goes to a node that is lost; and where something is awaited that may never come
//! there is a deadline.

use super::world::World;
use std::ops::Range;

/// Which seeds: `PETASOS_SEEDS=17..18`, or so many from 0 on.
fn seeds() -> Range<u64> {
    let text = std::env::var("PETASOS_SEEDS").unwrap_or_default();
    let range = |(from, to): (&str, &str)| Some(from.parse().ok()?..to.parse().ok()?);
    let named = text.split_once("..").and_then(range);
    named.or_else(|| Some(0..text.parse().ok()?)).unwrap_or(0..5000)
}

#[test]
fn every_job_ends_once_and_rightly() {
    for seed in seeds() {
        World::new(seed).run();
    }
}
