//! `petasos quickstart`: a server process, files written to it and read back, checked, and figures.

mod copy;
mod directory;
mod remote;
mod sample;
mod source;
mod stage;
mod transfer;
mod tree;

use crate::{
    beside::Beside,
    bulk::{self, Amount, Moved},
    cli, client,
    exit::{Code, Failure, Outcome},
    figures::{self, Row},
    latency::{self, Latency},
    limits::{self, Plan},
    machine, output,
    pair::{Pair, ServerConnection, Setting},
    progress::Progress,
    scratch::Scratch,
    waiting::Waiting,
};
use directory::ServerDirectory;
use remote::RemoteServer;
use serde::Serialize;
use source::{Contents, Source};
use stage::Stage;
use std::{ops::RangeInclusive, path::Path, time::Instant};

/// Size of the transfers between memories, if not so much data is asked for.
const BULK: RangeInclusive<usize> = 64 << 10..=16 << 20;

/// How often transfers and their limit are measured in turn.
const ROUNDS: u32 = 3;

#[derive(Serialize)]
struct Report {
    data: Contents,
    left_out: Vec<String>,
    transports: Vec<&'static str>,
    /// The server that had the files, if it was no process of this command's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// Always true: what did not come back whole is a failure, with its own exit code.
    verified: bool,
    kept_as: Option<String>,
    figures: Vec<Row>,
    seconds: f64,
}

pub(crate) fn run(options: &cli::Quickstart) -> Outcome {
    let begin = Instant::now();
    let transports = match &options.server {
        Some(url) => vec![remote::transport(url)?],
        None => client::transports(&options.transport)?,
    };
    let scratch = Scratch::new()?;
    let source = match &options.path {
        Some(path) => Source::open(path)?,
        None => {
            room(scratch.path(), 2 * options.size)?;
            let path = scratch.directory("sample")?;
            sample::make(&path, options.size)?;
            Source::open(&path)?
        }
    };
    let contents = source.contents();
    // Of the copy that tells how fast files can be, and of what the server keeps if that is here.
    room(scratch.path(), contents.bytes)?;
    let stage = options.out.as_deref().map(|out| Stage::new(out, &source)).transpose()?;
    let secret = scratch.secret()?;
    let plan = Plan { time: options.time, ..Plan::default() };
    let bulk = options.path.is_none().then_some(options.size).and_then(|size| size.try_into().ok());
    let bulk = bulk.unwrap_or(usize::MAX).clamp(*BULK.start(), *BULK.end());
    if let Some(busy) = machine::load_of_others() {
        output::note(&busy);
    }
    let copied = copy::rates(&source, &scratch)?;
    let mut figures = Vec::new();
    if let Some(url) = &options.server {
        let there =
            RemoteServer { transport: transports[0], url, secret: options.secret.as_deref() };
        let all = || there.all(&plan, &source, stage.as_ref(), copied, bulk);
        figures = limits::on_client_core(&plan, all)?;
    }
    let ours = if options.server.is_none() { &transports[..] } else { &[] };
    for (at, transport) in ours.iter().enumerate() {
        // What is kept is kept from the last one, when all before it have succeeded.
        let stage = stage.as_ref().filter(|_| at + 1 == ours.len());
        let store = scratch.directory(&format!("store-{}", transport.scheme))?;
        let setting = Setting {
            transport,
            waiting: Waiting::for_latency(&plan),
            plan: &plan,
            secret: &secret,
            store: Some(store.clone()),
            scratch: scratch.path(),
            channel: None,
            lend_above: None,
            engines: 1,
        };
        let rows = limits::on_client_core(&plan, || one(&setting, &source, stage, copied, bulk));
        figures.extend(rows.map_err(|failure| failure.within(transport.title))?);
        crate::scratch::remove(&store);
    }
    let kept_as = stage.map(Stage::publish).transpose()?;
    let report = Report {
        data: contents,
        left_out: source.left_out.iter().map(|path| path.display().to_string()).collect(),
        transports: transports.iter().map(|transport| transport.scheme).collect(),
        server: options.server.as_ref().map(ToString::to_string),
        verified: true,
        kept_as: kept_as.map(|path| path.display().to_string()),
        figures,
        seconds: begin.elapsed().as_secs_f64(),
    };
    for path in &report.left_out {
        output::note(&format!("left out, neither file, directory nor link: {path}"));
    }
    if options.json.json { output::print_json(&report) } else { show(&report) }
}

fn show(report: &Report) -> Outcome {
    let server = match &report.server {
        Some(url) => format!("the server at {url}"),
        None => "a server process".to_owned(),
    };
    let mut text = format!(
        "{} written to {server} and read back, over {}: every byte is as it was.\n",
        report.data.describe(),
        report.transports.join(" and "),
    );
    text += &format!("{}\n", figures::table(&report.figures));
    text += "ratio: to the machine's own limit in this run; times: small is good, GB/s: large is \
             good.";
    for doubt in figures::doubts(&report.figures) {
        text += &format!("\n{doubt}");
    }
    if let Some(path) = &report.kept_as {
        text += &format!("\nkept as {path}");
    }
    text += &format!("\n{:.1} s in all", report.seconds);
    output::print(&text)
}

/// Everything over one transport.
fn one(
    setting: &Setting<'_>,
    source: &Source,
    stage: Option<&Stage>,
    copied: copy::Rates,
    bulk: usize,
) -> Outcome<Vec<Row>> {
    let progress = Progress::steps(3);
    let scheme = setting.transport.scheme;
    progress.step(format!("{scheme}: bulk data, and what the machine can do"));
    let moved = memory(setting, bulk)?;
    progress.step(format!("{scheme}: starting a server process"));
    let mut pair = Pair::start(setting)?;
    progress.step(format!("{scheme}: calls, and what the machine can do"));
    let mut rows = match calls(&pair, setting) {
        Ok(rows) => rows,
        Err(failure) => return Err(pair.explain(failure)),
    };
    rows.extend(moved);
    drop(progress);
    let of_files = || {
        let directory = pair.engine.block_on(ServerDirectory::begin(&pair))?;
        files(&pair, &directory, scheme, source, stage, copied)
    };
    match of_files() {
        Ok(more) => rows.extend(more),
        Err(failure) => return Err(pair.explain(failure)),
    }
    Ok(rows)
}

/// Calls.
fn calls(pair: &Pair, setting: &Setting<'_>) -> Outcome<Vec<Row>> {
    let (scheme, plan) = (setting.transport.scheme, setting.plan);
    let limit = latency::limit(setting.transport, setting.waiting);
    let found = pair.latency(plan, limit, petasos::wire::Encoding::Native)?;
    let Latency { machine, null, .. } = &found;
    let call = |what: &str, time, limit| {
        let row = Row::new(scheme, what, (time, "ns"), Some((machine.name, limit)), &null.how);
        row.doubted(found.doubt())
    };
    Ok(vec![
        call("null call, median", null.median, machine.median),
        call("null call, p99", null.p99, machine.p99),
    ])
}

/// Bulk data between memories, in transfers of so many bytes.
fn memory(setting: &Setting<'_>, bytes: usize) -> Outcome<Vec<Row>> {
    let plan = &Plan { time: setting.plan.time / ROUNDS, ..*setting.plan };
    let amount = Amount { bytes, of_transport: false, rounds: ROUNDS as usize };
    let found = bulk::measure(&Setting { plan, store: None, ..*setting }, amount)?;
    let row = |what: &str, Beside { value, limit, of }| {
        let what = format!("{what}, {}", output::size(bytes as u64));
        let how = "one transfer at a time, memory used again";
        Row::new(setting.transport.scheme, what, (value, "GB/s"), Some((of, limit)), how)
    };
    let rows =
        |Moved { pull, push }| vec![row("memory to server", pull), row("server to memory", push)];
    Ok(found.map_or_else(Vec::new, rows))
}

/// The files: there and back.
fn files(
    connection: &ServerConnection,
    directory: &ServerDirectory,
    scheme: &'static str,
    source: &Source,
    stage: Option<&Stage>,
    copied: copy::Rates,
) -> Outcome<Vec<Row>> {
    let bytes = source.contents().bytes;
    let timed = |what: &str, limit, work: &mut dyn FnMut(&Progress) -> Outcome| {
        let progress = Progress::bytes(bytes, format!("{scheme}: {what}"));
        let begin = Instant::now();
        work(&progress)?;
        let rate = bytes as f64 / begin.elapsed().as_nanos().max(1) as f64;
        let how = "through the file systems of both sides";
        let unit = (rate, "GB/s");
        Ok::<_, Failure>(Row::new(scheme, what, unit, Some(limit), how))
    };
    let written = timed("files written", ("file copy", copied.copied), &mut |progress| {
        connection.engine.block_on(transfer::upload(directory, source, progress))
    })?;
    // What is there is compared by names first: the limit beside the next row lists nothing,
    // either.
    connection.engine.block_on(transfer::compare_names(directory, source))?;
    let read =
        timed("files read back, compared", ("file compare", copied.compared), &mut |progress| {
            connection.engine.block_on(transfer::download(directory, source, stage, progress))
        })?;
    Ok(vec![written, read])
}

/// Makes sure that so much fits where temporary files go.
fn room(path: &Path, bytes: u64) -> Outcome {
    let Ok(found) = rustix::fs::statvfs(path) else { return Ok(()) };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if bytes < free {
        return Ok(());
    }
    let (needed, free) = (output::size(bytes), output::size(free));
    let text = format!("{needed} are needed in {}, {free} are free", path.display());
    Err(Failure::new(Code::Failed, text)
        .advise("set TMPDIR to a directory on a larger file system, or take less data (--size)"))
}
