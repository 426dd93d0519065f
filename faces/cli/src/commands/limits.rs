//! `petasos limits`: what this machine can do at best.

use crate::{
    all_limits::{Found, SIZES},
    cli::Json,
    exit::Outcome,
    limits::Plan,
    machine, output,
    progress::Progress,
};
use serde_json::Value;

pub(crate) fn run(options: &Json) -> Outcome {
    let progress = Progress::steps(Found::STEPS as u64);
    if let Some(busy) = machine::load_of_others() {
        progress.say(&busy);
    }
    let found = Found::measure(&Plan::default(), &SIZES, 1, &progress)?;
    drop(progress);
    for refused in &found.refused {
        output::note(refused);
    }
    if options.json {
        let value = |found: serde_json::Result<Value>| found.unwrap_or_default();
        let round_trips = found.round_trips.iter().map(serde_json::to_value).map(value);
        let bulk = found.bulk.iter().map(serde_json::to_value).map(value);
        return output::print_json(&round_trips.chain(bulk).collect::<Vec<Value>>());
    }
    let mut text: Vec<String> = found.grids().iter().map(|grid| grid.table().to_string()).collect();
    text.extend(found.doubts());
    output::print(&text.join("\n"))
}
