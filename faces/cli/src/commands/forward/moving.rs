//! `put`, `get` and `sync`: what they share is how they are set up, watched, and summed up.

use super::{out::name_json, session};
use crate::{
    cli::{
        forward::{Get, Moving, Put, ServerAccess, Sync},
        location::{Location, Side},
    },
    exit::{Code, Failure, Outcome, files},
    output::{self, count},
};
use indicatif::{ProgressBar, ProgressStyle};
use petasos::fabric::Address;
use petasos_forward::{
    RelPath,
    client::RemoteError,
    protocol::Kind,
    transfer::{
        self, Cause, Connection, Event, Glob, Observer, Options, Problem, Progress, Report,
        SyncOptions,
    },
};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::{
    cell::Cell,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// A server is looked for as long, also where `--retry` says less: it may be about to start.
const AT_LEAST: Duration = Duration::from_secs(1);

/// Failures that are said one by one; of the others only how many.
const SAID: u64 = 20;

pub(super) fn put(options: &Put) -> Outcome {
    let Put { sources, target, moving, access } = options;
    run("put", &target.address, access, moving, async |connection, how, progress, watch| {
        let into = target.directory
            || sources.len() > 1
            || target.path.is_root()
            || is_directory(connection, &target.path).await?;
        if into && !target.path.is_root() && !is_directory(connection, &target.path).await? {
            let text = format!("{target} is no directory");
            let advice = format!("petasos forward mkdir -p {target}");
            return Err(Failure::new(Code::Usage, text).advise(advice));
        }
        let mut pairs = Vec::new();
        for source in sources {
            let to = match (into, source.file_name()) {
                (true, Some(name)) => target.path.join(name.as_bytes()).map_err(|error| {
                    Failure::new(Code::Usage, format!("{}: {error}", source.display()))
                })?,
                _ => target.path.clone(),
            };
            pairs.push((source.clone(), to));
        }
        distinct(pairs.iter().map(|(_, to)| to))?;
        transfer::put(connection, &pairs, how, progress, watch).await.map_err(fatal)
    })
}

pub(super) fn get(options: &Get) -> Outcome {
    let Get { sources, target, moving, access } = options;
    let Some(first) = sources.first() else { return Ok(()) };
    if let Some(other) = sources.iter().find(|source| source.address != first.address) {
        let text = format!("{} and {} are two servers", first.address, other.address);
        return Err(Failure::new(Code::Usage, text).advise("one command for each"));
    }
    run("get", &first.address, access, moving, async |connection, how, progress, watch| {
        let target = resolved(target);
        let into = target.is_dir();
        if sources.len() > 1 && !into {
            let text = format!("{} is no directory", target.display());
            return Err(Failure::new(Code::Usage, text).advise("mkdir -p, and again"));
        }
        let pairs: Vec<_> = sources
            .iter()
            .map(|Location { path, .. }| match path.split() {
                Some((_, name)) if into => (path.clone(), target.join(name)),
                _ => (path.clone(), target.clone()),
            })
            .collect();
        distinct(pairs.iter().map(|(_, to)| to))?;
        transfer::get(connection, &pairs, how, progress, watch).await.map_err(fatal)
    })
}

pub(super) fn sync(options: &Sync) -> Outcome {
    let Sync { source, target, delete, dry_run, moving, access } = options;
    let mut sync = SyncOptions::default();
    (sync.delete, sync.dry_run) = (*delete, *dry_run);
    match (source, target) {
        (Side::Here(here), Side::There(there)) => {
            run("sync", &there.address, access, moving, async |connection, how, progress, watch| {
                let here = resolved(here);
                transfer::sync_to(connection, &here, &there.path, how, sync, progress, watch)
                    .await
                    .map_err(fatal)
            })
        }
        (Side::There(there), Side::Here(here)) => {
            run("sync", &there.address, access, moving, async |connection, how, progress, watch| {
                let here = resolved(here);
                transfer::sync_from(connection, &there.path, &here, how, sync, progress, watch)
                    .await
                    .map_err(fatal)
            })
        }
        _ => Err(Failure::new(Code::Usage, "one of the two trees is here, the other at a server")
            .advise("petasos forward sync DIR tcp://HOST:PORT/DIR, or the other way round")),
    }
}

/// What the user means by a name here: a symbolic link is what it leads to.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

async fn is_directory(connection: &Connection, path: &RelPath) -> Outcome<bool> {
    match connection.stat(path, true).await {
        Ok(attr) => Ok(attr.kind == Kind::Directory),
        Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Two sources must not have one target.
fn distinct<T: Ord + std::fmt::Debug>(targets: impl Iterator<Item = T>) -> Outcome {
    let mut targets: Vec<T> = targets.collect();
    targets.sort();
    match targets.windows(2).find(|two| two[0] == two[1]) {
        None => Ok(()),
        Some(two) => {
            let text = format!("two sources would become {:?}", two[0]);
            Err(Failure::new(Code::Usage, text).advise("one after the other, to different names"))
        }
    }
}

fn how(moving: &Moving) -> Options {
    let mut options = Options::default();
    options.parallel = moving.parallel.into();
    options.memory = moving.memory;
    options.rate = moving.rate;
    options.checksum = moving.checksum;
    options.resume = !moving.no_resume;
    options.durable = moving.durable;
    options.owner = moving.owner;
    options.fifos = moving.fifos;
    options.exclude = moving.exclude.iter().map(|glob| Glob::new(glob.as_bytes())).collect();
    options
}

/// Connects, transfers, and says what became of it.
fn run(
    what: &str,
    address: &Address,
    access: &ServerAccess,
    moving: &Moving,
    work: impl AsyncFnOnce(&Rc<Connection>, &Options, &Arc<Progress>, Observer) -> Outcome<Report>,
) -> Outcome {
    // The engine gives up before the session does: it knows why the server cannot be reached.
    let most = moving.retry.max(AT_LEAST) * 3 / 4;
    let engine = session::engine_within(address, access, most)?;
    let connecting = session::connecting(what, access);
    let progress = Progress::new();
    let report = engine.block_on(async {
        let connection = Connection::connect(&engine, address, connecting, moving.retry).await?;
        let connection = Rc::new(connection);
        let shown = (!moving.quiet && !moving.json).then(|| Shown::start(&progress));
        let report =
            work(&connection, &how(moving), &progress, watch(moving, shown.as_ref())).await;
        drop(shown);
        if let Ok(connection) = Rc::try_unwrap(connection) {
            connection.disconnect().await;
        }
        report
    })?;
    sum_up(&report, moving)
}

/// Says what happens.
fn watch(moving: &Moving, shown: Option<&Shown>) -> Observer {
    let (json, quiet) = (moving.json, moving.quiet);
    let bar = shown.map(|shown| shown.bar.clone());
    let failed = Cell::new(0);
    let say = move |text: String| match &bar {
        Some(bar) => bar.suspend(|| output::note(&text)),
        None => output::note(&text),
    };
    // That the reader has gone is no failure of the work; the summary finds other reasons.
    let line = |value: Value| drop(output::print_json_line(&value));
    Box::new(move |event| match event {
        Event::Failed(problem) => {
            failed.set(failed.get() + 1);
            match json {
                true => line(json!({ "failed": problem_json(problem) })),
                false if failed.get() <= SAID => say(problem.to_string()),
                false => {}
            }
        }
        Event::LeftOut(path, kind) if json => {
            line(json!({ "left_out": merged(name_json(path), json!({ "kind": kind })) }));
        }
        Event::LeftOut(path, kind) if !quiet => {
            say(format!("left out: {} is {kind}", String::from_utf8_lossy(path)));
        }
        Event::WouldWrite(path) if json => line(json!({ "write": name_json(path) })),
        Event::Delete(path) if json => line(json!({ "delete": name_json(path) })),
        Event::WouldWrite(path) if !quiet => {
            drop(output::print(&format!("write  {}", String::from_utf8_lossy(path))));
        }
        Event::Delete(path) if !quiet => {
            drop(output::print(&format!("delete {}", String::from_utf8_lossy(path))));
        }
        _ => {}
    })
}

fn merged(mut a: Value, b: Value) -> Value {
    if let (Some(a), Value::Object(b)) = (a.as_object_mut(), b) {
        a.extend(b);
    }
    a
}

fn problem_json(problem: &Problem) -> Value {
    let error = json!({ "error": problem.cause.to_string(), "exit": code(&problem.cause) as u8 });
    merged(name_json(&problem.path), error)
}

/// The exit code of one failure.
fn code(cause: &Cause) -> Code {
    match cause {
        Cause::Mismatch(_) => Code::Mismatch,
        Cause::Remote(error) if error.errno() == Errno::BADMSG => Code::Mismatch,
        Cause::Remote(error) if error.is_lost() => Code::Unreachable,
        Cause::Remote(RemoteError::Refused { error, .. }) => files::code(error.errno()),
        _ => Code::Failed,
    }
}

/// Nothing could be begun.
fn fatal(cause: Cause) -> Failure {
    match cause {
        Cause::Remote(error) => error.into(),
        cause => Failure::new(Code::Failed, cause),
    }
}

fn sum_up(report: &Report, moving: &Moving) -> Outcome {
    let failed = report.problems.len() as u64 + report.unreached;
    let seconds = report.took.as_secs_f64();
    if moving.json {
        let summary = json!({
            "files": report.files,
            "directories": report.directories,
            "symlinks": report.symlinks,
            "hard_links": report.hard_links,
            "fifos": report.fifos,
            "bytes": report.bytes,
            "resumed_bytes": report.resumed,
            "same": report.same,
            "deleted": report.deleted,
            "left_out": report.left_out,
            "failed": failed,
            "lost": report.lost.as_ref().map(ToString::to_string),
            "reconnected": report.reconnected,
            "seconds": seconds,
        });
        output::print_json_line(&json!({ "summary": summary }))?;
    } else if !moving.quiet {
        output::print(&summary(report, seconds))?;
    }
    let codes = || report.problems.iter().map(|problem| code(&problem.cause));
    let worst = match failed {
        0 => return Ok(()),
        _ if report.lost.is_some() && codes().all(|code| code != Code::Mismatch) => {
            Code::Unreachable
        }
        _ if codes().any(|code| code == Code::Mismatch) => Code::Mismatch,
        _ if codes().any(|code| code == Code::Unreachable) => Code::Unreachable,
        _ => Code::Failed,
    };
    let mut text = format!("{} not transferred", count(failed, "item was", "items were"));
    if let Some(lost) = &report.lost {
        text = format!("{lost}: {text}, and no more were looked for");
    }
    let failure = Failure::new(worst, text);
    let errno = report.problems.iter().find_map(|problem| match &problem.cause {
        Cause::Remote(error) => Some(error.errno()),
        Cause::Local { error, .. } => Some(*error),
        _ => None,
    });
    Err(match (worst, errno.and_then(files::advice)) {
        (Code::Unreachable, _) => {
            failure.advise("start the server again, and repeat: what is there is not sent again")
        }
        (_, Some(advice)) => failure.advise(advice),
        _ => failure,
    })
}

fn summary(report: &Report, seconds: f64) -> String {
    let mut parts = vec![count(report.files, "file", "files")];
    for (number, one, many) in [
        (report.directories, "directory", "directories"),
        (report.symlinks, "symbolic link", "symbolic links"),
        (report.hard_links, "hard link", "hard links"),
        (report.fifos, "FIFO", "FIFOs"),
    ] {
        if number > 0 {
            parts.push(count(number, one, many));
        }
    }
    if report.same > 0 {
        parts.push(format!("{} the same", report.same));
    }
    if report.deleted > 0 {
        parts.push(format!("{} deleted", report.deleted));
    }
    let rate = report.bytes as f64 / (seconds * 1e9).max(1.0);
    let mut text = format!(
        "{}: {} in {} ({})",
        parts.join(", "),
        output::size(report.bytes),
        output::time(seconds * 1e9),
        output::bandwidth(rate)
    );
    if report.resumed > 0 {
        text += &format!("; {} were there from before", output::size(report.resumed));
    }
    if report.reconnected > 0 {
        text += &format!("; connected again {}", count(report.reconnected, "time", "times"));
    }
    text
}

/// A bar on standard error, where that is a terminal.
struct Shown {
    bar: ProgressBar,
    over: Arc<AtomicBool>,
}

impl Shown {
    fn start(progress: &Arc<Progress>) -> Shown {
        let bar = ProgressBar::new(0);
        let style = "{msg} {bar:24} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(style);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let over = Arc::new(AtomicBool::new(false));
        if !bar.is_hidden() {
            let (bar, over, progress) = (bar.clone(), Arc::clone(&over), Arc::clone(progress));
            thread::spawn(move || {
                while !over.load(Relaxed) {
                    let reached = progress.snapshot();
                    let more = if reached.all_found { "" } else { "+" };
                    bar.set_length(reached.bytes_found.max(reached.bytes));
                    bar.set_position(reached.bytes);
                    bar.set_message(format!(
                        "{}/{}{more} files",
                        reached.files, reached.files_found
                    ));
                    thread::sleep(Duration::from_millis(100));
                }
            });
        }
        Shown { bar, over }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        self.bar.finish_and_clear();
    }
}
