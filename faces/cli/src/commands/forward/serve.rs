//! `petasos forward serve`: exports a directory until it is interrupted.

use super::bucket::bucket;
use crate::{
    cli::forward::Serve,
    exit::{Code, Failure, Outcome},
    interrupt,
    listen::{self, Listening},
    metrics::{Metrics, Text},
    output,
};
use petasos::OpenOptions;
use petasos_forward::{
    descriptors,
    protocol::{Counters, SessionStatus, Status},
    server::{Server, ServerConfig},
    storage::{Local, Storage},
};
use serde_json::json;
use std::{collections::BTreeMap, io, path::Path, sync::Arc, time::Duration};

/// The limits that can be set, and what they are.
const LIMITS: [(&str, &str); 8] = [
    ("memory", "bytes for data on the way"),
    ("sessions", "clients at a time"),
    ("files", "open files of a client"),
    ("calls", "calls of a client that are served at a time"),
    ("locks", "locks of a client"),
    ("lease", "seconds after which locks of a silent client are released"),
    ("rate", "bytes a second of a client"),
    ("threads", "threads that work on files"),
];

pub(super) fn run(options: &Serve) -> Outcome {
    if options.limit.iter().any(|(name, _)| name == "help") {
        if options.json.json {
            return output::print_json(&LIMITS.into_iter().collect::<BTreeMap<_, _>>());
        }
        let lines: Vec<_> = LIMITS.iter().map(|(name, what)| format!("{name:9} {what}")).collect();
        return output::print(&lines.join("\n"));
    }
    interrupt::be_polite();
    descriptors::raise();
    let config = config(options)?;
    let storage = storage(options)?;
    let what = storage.describe();
    let mut open = OpenOptions::default();
    open.secret_file.clone_from(&options.secret);
    let listening = listening(options);
    let server = Arc::new(Server::listen(storage, &listening.urls()?, &open, config)?);
    let addresses = server.addresses();
    let verb = if options.read_only { "read" } else { "read and write" };
    let clients = listening.clients(&addresses, &format!("{verb} {what} as {}", listen::user()));
    for url in &addresses {
        tracing::info!(%url, export = what, "listening");
        match options.json.json {
            true => output::print_json_line(&json!({ "listening": url.as_str() }))?,
            false => output::print(&format!("listening at {url}"))?,
        }
    }
    let metrics = options.metrics.map(|address| {
        let server = Arc::clone(&server);
        Metrics::start(address, move |text| write_metrics(&server.status(), text))
    });
    let metrics = metrics.transpose()?;
    if let Some(metrics) = &metrics {
        output::print_metrics(&metrics.url(), options.json.json)?;
    }
    // Also where a program reads the lines above: a person should see it in its log.
    output::note(&clients);
    if !options.json.json {
        output::note(&format!("exports {what}; Ctrl-C ends the server"));
    }
    interrupt::wait(None);
    // They look at the server.
    drop(metrics);
    drop(server);
    Ok(())
}

/// What the server counts, without a word of its clients' names.
fn write_metrics(status: &Status, text: &mut Text) {
    let Counters { calls, failed, read, written, gathered } = status.total;
    text.counter("petasos_forward_calls_total", "Calls, of any kind.", calls);
    text.counter("petasos_forward_calls_failed_total", "Calls that failed.", failed);
    text.counter("petasos_forward_read_bytes_total", "Bytes read from files.", read);
    text.counter("petasos_forward_written_bytes_total", "Bytes written to files.", written);
    let help = "Requests served together with a neighbour in the file.";
    text.counter("petasos_forward_gathered_total", help, gathered);
    let help = "Clients that ended without a goodbye.";
    text.counter("petasos_forward_clients_lost_total", help, status.lost);
    let sum = |of: fn(&SessionStatus) -> u64| status.sessions.iter().map(of).sum::<u64>();
    text.gauge("petasos_forward_clients", "Clients that are there.", status.sessions.len());
    text.gauge("petasos_forward_open_files", "Files that they have open.", sum(|s| s.files));
    text.gauge("petasos_forward_locks", "Locks that they have.", sum(|s| s.locks));
    text.gauge("petasos_forward_calls_in_progress", "Calls under way.", sum(|s| s.calls));
    let [now, most, limit] = status.memory;
    let memory = [("now", now), ("most", most), ("limit", limit)];
    let help = "Memory for data on the way, in bytes.";
    text.gauges("petasos_forward_memory_bytes", help, &memory, "which");
    let [now, most] = status.early;
    let help = "Data within calls that wait for their turn, in bytes.";
    text.gauges("petasos_forward_early_bytes", help, &[("now", now), ("most", most)], "which");
    text.gauge("petasos_forward_queued", "Work that waits for a thread.", status.queued);
    text.gauge("petasos_forward_threads", "Threads that work on files.", status.threads);
}

fn listening(options: &Serve) -> Listening<'_> {
    Listening { urls: &options.listen, secret: options.secret.as_deref(), open: options.open }
}

fn config(options: &Serve) -> Outcome<ServerConfig> {
    let mut config = ServerConfig::default();
    config.read_only = options.read_only;
    for (name, value) in &options.limit {
        let number = usize::try_from(*value).unwrap_or(usize::MAX);
        if number == 0 {
            let text = format!("--limit {name}={value}: it must be more than nothing");
            return Err(Failure::new(Code::Usage, text));
        }
        let limits = &mut config.limits;
        match name.as_str() {
            "memory" => limits.memory = *value,
            "sessions" => limits.sessions = number,
            "files" => limits.files_per_session = number,
            "calls" => limits.calls_per_session = number,
            "locks" => limits.locks_per_session = number,
            "lease" => limits.lease = Some(Duration::from_secs(*value)),
            "rate" => limits.rate = Some(*value),
            "threads" => config.threads = number.min(1024),
            _ => {
                let names: Vec<_> = LIMITS.iter().map(|(name, _)| *name).collect();
                let text = format!("--limit {name}: unknown limit");
                return Err(Failure::new(Code::Usage, text).advise(names.join(", ")));
            }
        }
    }
    Ok(config)
}

fn storage(options: &Serve) -> Outcome<Arc<dyn Storage>> {
    match (&options.directory, &options.object_store) {
        (Some(directory), _) => Ok(Arc::new(local(directory)?)),
        (None, Some(url)) => bucket(url),
        (None, None) => Err(Failure::new(Code::Usage, "nothing to export").advise("name a DIR")),
    }
}

fn local(directory: &Path) -> Outcome<Local> {
    Local::open(directory).map_err(|error| {
        let failure = Failure::file("exporting", directory, &error);
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Failure::new(Code::Usage, failure).advise("name a directory that exists")
            }
            _ => failure,
        }
    })
}
