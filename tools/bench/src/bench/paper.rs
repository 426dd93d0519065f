//! `petasos bench paper`: the experiments of the papers, by name, with Petasos.

use super::{
    CHANNELS, ECHO, NULL, PIPELINE, Part, Run, clients,
    options::{Experiment, Paper},
};
use crate::exit::Outcome;

const BULK_CLIENTS: Part<'_> =
    Part { measure: &clients::with_data, steps: |b, _| b.rounds, takes: [(1.2, 0.3); 2] };

pub(super) fn run(options: &Paper) -> Outcome {
    let all = [
        (Experiment::NullCall, vec![NULL, ECHO]),
        (Experiment::PipelinedBulk, vec![PIPELINE]),
        (Experiment::Clients, vec![BULK_CLIENTS]),
        (Experiment::Channels, vec![CHANNELS]),
    ];
    let wanted = |experiment: &Experiment| {
        options.experiments.is_empty() || options.experiments.contains(experiment)
    };
    let chosen = all.into_iter().filter(|(experiment, _)| wanted(experiment));
    let parts: Vec<Part<'_>> = chosen.flat_map(|(_, parts)| parts).collect();
    let title = "Petasos: the experiments of the papers";
    Run { title, measuring: &options.measuring, parts: &parts, limits: false, peers: false }.go()
}
