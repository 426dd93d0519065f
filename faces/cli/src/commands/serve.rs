//! `petasos serve`: a server to be pinged, and to keep files for a quickstart elsewhere.

use crate::{
    cli, exit::Outcome, interrupt, listen::Listening, metrics::Metrics, output, scratch::Scratch,
    server::Engines, waiting::Waiting,
};
use petasos::{EngineHandle, OpenOptions, Stats, Usage};
use serde_json::json;
use std::{net::SocketAddr, sync::mpsc, time::Duration};

pub(crate) fn run(options: &cli::Serve) -> Outcome {
    interrupt::be_polite();
    let mut open = OpenOptions::default();
    open.secret_file.clone_from(&options.secret);
    let waiting = match options.wait {
        cli::Wait::Adaptive => Waiting::Adaptive,
        cli::Wait::Spin => Waiting::Spinning,
        cli::Wait::Sleep => Waiting::Sleeping,
    };
    let secret = options.secret.as_deref();
    // Without files there is nothing here but answers: a client takes time of the processor.
    let open_to_all = options.open || !options.files;
    let listening = Listening { urls: &options.listen, secret, open: open_to_all };
    let urls = listening.urls()?;
    // Removed at the end, after the engines.
    let scratch = options.files.then(Scratch::new).transpose()?;
    let store = scratch.as_ref().map(|scratch| scratch.directory("store")).transpose()?;
    let endpoints = urls.iter().map(|url| petasos::open(url, &open)).collect::<Result<_, _>>()?;
    let server = Engines::start(endpoints, &waiting.config(), None, store.as_deref())?;
    let engines = server.handles();
    for engine in &engines {
        let url = engine.address();
        tracing::info!(%url, "listening");
        match options.json.json {
            true => output::print_json_line(&json!({ "listening": url.as_str() }))?,
            false => output::print(&format!("listening at {url}"))?,
        }
    }
    let metrics = options.metrics.map(|address| metrics(address, &engines)).transpose()?;
    if let Some(metrics) = &metrics {
        output::print_metrics(&metrics.url(), options.json.json)?;
    }
    let addresses: Vec<_> = engines.iter().map(|e| e.address().clone()).collect();
    let may =
        if options.files { "call this server, and fill its directory" } else { "call this server" };
    output::note(&listening.clients(&addresses, may));
    if !options.json.json && engines.iter().any(|e| e.address().scheme() == "tcp") {
        output::note("try `petasos ping URL`; Ctrl-C ends the server");
    }
    interrupt::wait(None);
    Ok(())
}

/// How long an engine may take to say what it has counted: its thread may be at work.
const PATIENCE: Duration = Duration::from_millis(500);

fn metrics(address: SocketAddr, engines: &[EngineHandle]) -> Outcome<Metrics> {
    let handles = engines.to_vec();
    Metrics::start(address, move |text| {
        let found: Vec<_> = handles.iter().filter_map(|h| Some((h, counted(h)?))).collect();
        let mut counters = |name: &str, help: &str, of: fn(&Stats) -> u64| {
            let each: Vec<_> =
                found.iter().map(|(h, (stats, _))| (h.address().as_str(), of(stats))).collect();
            text.counters(name, help, &each, "endpoint");
        };
        counters("petasos_calls_served_total", "Calls answered.", |s| s.calls_served);
        counters("petasos_calls_failed_total", "Of these, those that failed.", |s| s.calls_failed);
        counters("petasos_calls_cancelled_total", "Calls that their callers cancelled.", |s| {
            s.cancelled_by_caller
        });
        counters("petasos_calls_too_late_total", "Calls whose time was over.", |s| {
            s.served_too_late
        });
        counters("petasos_frames_not_understood_total", "Frames that meant nothing.", |s| {
            s.garbage
        });
        counters("petasos_peers_lost_total", "Peers that were lost.", |s| s.peers_lost);
        let mut gauges = |name: &str, help: &str, of: fn(&Usage) -> usize| {
            let each: Vec<_> = found
                .iter()
                .map(|(h, (_, usage))| (h.address().as_str(), of(usage) as u64))
                .collect();
            text.gauges(name, help, &each, "endpoint");
        };
        gauges("petasos_calls_in_progress", "Calls whose handlers are at work.", |u| u.serving);
        gauges("petasos_operations_in_progress", "Operations of the transport.", |u| u.operations);
        gauges("petasos_frames_waiting", "Frames that wait for the transport.", |u| u.deferred);
        gauges("petasos_results_lent", "Results that callers have to fetch.", |u| u.lent_results);
    })
}

/// What an engine has counted; nothing if it does not say so soon enough.
fn counted(engine: &EngineHandle) -> Option<(Stats, Usage)> {
    let (sender, receiver) = mpsc::channel();
    let asked = engine.run(move |engine| {
        // The one that asked may wait no more.
        let _ = sender.send((engine.stats(), engine.usage()));
        std::future::ready(())
    });
    let counted = receiver.recv_timeout(PATIENCE).ok();
    drop(asked);
    counted
}
