//! `petasos bench`: calls and bulk data, each beside the machine's limit.
//!
//! Limit and figure are measured in turn, several times over, on the same two cores, so that an
//! hour in which the machine is slow is slow for both: see [`crate::beside`].

mod bulk;
mod clients;
mod null;
#[cfg(feature = "peers")]
mod peers;
#[cfg(not(feature = "peers"))]
#[path = "no_peers.rs"]
mod peers;

use crate::{
    cli::{self, Topic},
    client,
    exit::Outcome,
    figures::{self, Row},
    limits::{Cores, Plan},
    output,
    progress::Progress,
    scratch::Scratch,
};
use serde::Serialize;
use std::{path::PathBuf, time::Duration};

/// What the parts of the bench share.
struct Bench {
    plan: Plan,
    quick: bool,
    /// How often limit and figure are measured in turn.
    rounds: usize,
    scratch: PathBuf,
    secret: PathBuf,
    progress: Progress,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    quick: bool,
    rounds: usize,
    client_core: Option<usize>,
    server_core: Option<usize>,
    figures: Vec<Row>,
    /// Where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<peers::Report>,
}

pub(crate) fn run(options: &cli::Bench) -> Outcome {
    let transports = client::transports(&options.transport)?;
    let topics = match options.what.as_slice() {
        [] => &[Topic::Null, Topic::Bulk, Topic::Clients][..],
        some => some,
    };
    if topics.contains(&Topic::Peers) {
        peers::see_that_they_are_built_in()?;
    }
    let scratch = Scratch::new()?;
    let time = Duration::from_millis(if options.quick { 100 } else { 300 });
    let bench = Bench {
        plan: Plan { time, ..Plan::default() },
        quick: options.quick,
        rounds: if options.quick { 3 } else { 5 },
        scratch: scratch.path().to_owned(),
        secret: scratch.secret()?,
        progress: Progress::steps((topics.len() * transports.len() * 2) as u64),
    };
    let (mut figures, mut peers) = (Vec::new(), None);
    for transport in transports {
        for topic in topics {
            let measured = match topic {
                Topic::Null => null::measure(&bench, transport),
                Topic::Bulk => bulk::measure(&bench, transport),
                Topic::Clients => clients::measure(&bench, transport),
                Topic::Peers => peers::measure(&bench, transport, &mut peers).map(|()| Vec::new()),
            };
            figures.extend(measured.map_err(|failure| failure.within(transport.title))?);
        }
    }
    let Cores { client, server } = bench.plan.cores;
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        quick: options.quick,
        rounds: bench.rounds,
        client_core: client,
        server_core: server,
        figures,
        peers,
    };
    drop(bench);
    if options.json.json { output::print_json(&report) } else { show(&report) }
}

fn show(report: &Report) -> Outcome {
    let mut text = String::new();
    if !report.figures.is_empty() {
        text += &format!("{}\n", figures::table(&report.figures));
        text += "ratio: to the machine's limit in the same run; of times, small is good, of rates \
                 and GB/s, large is good.\n";
        text += &format!(
            "How each was measured (of {} rounds, that with the median ratio is shown):\n",
            report.rounds
        );
        text += &figures::notes(&report.figures);
    }
    if let Some(peers) = &report.peers {
        text += &peers.text(report.rounds);
    }
    output::print(&text)
}
