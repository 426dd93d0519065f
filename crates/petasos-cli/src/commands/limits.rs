//! `petasos limits`: what this machine can do at best.

use crate::{
    cli::Json,
    exit::Outcome,
    limits::{self, Plan},
    output,
    progress::Progress,
};
use serde_json::Value;

const SIZES: [usize; 3] = [1 << 20, 16 << 20, 256 << 20];

pub(crate) fn run(options: &Json) -> Outcome {
    let plan = Plan::default();
    let progress = Progress::steps((limits::ROUND_TRIPS.len() + limits::BULKS.len()) as u64);
    let mut table = output::table(&["limit", ">median", ">p99", ">p99.9"]);
    let mut bulk_table = output::table(&["limit", ">1 MiB", ">16 MiB", ">256 MiB"]);
    let mut all: Vec<Value> = Vec::new();
    for (name, measure) in limits::ROUND_TRIPS {
        progress.step(name);
        let found = measure(&plan)?;
        let times = [found.median, found.p99, found.p99_9].map(output::time);
        table.add_row([vec![name.to_owned()], times.to_vec()].concat());
        all.push(serde_json::to_value(found).unwrap_or_default());
    }
    for (name, measure) in limits::BULKS {
        progress.step(name);
        // One that is refused here is no reason to keep the others back.
        match measure(&plan, &SIZES) {
            Ok(found) => {
                let rates = found.points.iter().map(|point| output::bandwidth(point.median));
                bulk_table.add_row([vec![name.to_owned()], rates.collect()].concat());
                all.push(serde_json::to_value(found).unwrap_or_default());
            }
            Err(error) => eprintln!("petasos: {name}: {error}"),
        }
    }
    drop(progress);
    if options.json {
        return output::print_json(&all);
    }
    output::print(&format!("{table}\n{bulk_table}"))
}
