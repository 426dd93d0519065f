//! `petasos run`: a job from its start to its end.

mod files;
mod libraries;
mod over;
mod usual;

use crate::{
    cli::run::{Bind, MapBy, Run, WireBy},
    exit::{Code, Failure, Outcome},
    log, output,
    plugins::{self, Moving},
};
use petasos_launch::{
    FilesError, Launch, LaunchError, Map, Placement, Settings, Speaks, allocation,
    inventory::binding, parse_hostfile, parse_hosts,
};
use petasos_pmix::Node;
use serde::Serialize;
use std::{collections::BTreeMap, process::ExitCode};
pub(crate) use usual::words;

/// Ranks that were restarted of which a line tells.
const MAX_TOLD: usize = 16;

/// The exit code of a job without a reader, as a shell has it of a program that `SIGPIPE` ended.
const UNREAD: i32 = 128 + 13;

/// Which rank goes where.
#[derive(Debug, Serialize)]
struct Placed {
    hosts: Vec<String>,
    /// By rank.
    ranks: Vec<String>,
    /// Those that would be kept for when others are lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spares: Vec<String>,
    /// By rank, what it would keep to; nothing of ranks of other hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<Vec<Option<u32>>>,
    /// What would be copied to the hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<files::Planned>,
}

/// How a job ended.
#[derive(Debug, Serialize)]
struct Ended {
    code: i32,
    why: Option<String>,
    ranks: BTreeMap<u32, EndedRank>,
    /// Hosts that were lost, and whose ranks went on elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replaced: Vec<Replaced>,
    /// What was copied to the hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    staged: Option<files::Staged>,
}

#[derive(Debug, Serialize)]
struct EndedRank {
    host: String,
    end: String,
    /// How often it was started again.
    restarts: u32,
}

#[derive(Debug, Serialize)]
struct Replaced {
    host: String,
    why: String,
    by: String,
}

/// The job's exit code is this command's.
pub(crate) fn run(options: &Run) -> ExitCode {
    let launch = match launch(options) {
        Ok(launch) => launch,
        Err(failure) => return failed(&failure),
    };
    if options.dry_run {
        return match show(&launch, options.json) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failed(&failure),
        };
    }
    match launch.run() {
        Err(error) => failed(&refused(error)),
        Ok(outcome) => {
            if options.json {
                let restarts = |rank: u32| outcome.restarts.get(&rank).copied().unwrap_or_default();
                let ranks = outcome.ranks.into_iter().map(|(rank, (host, how))| {
                    let (end, restarts) = (how.to_string(), restarts(rank));
                    (rank, EndedRank { host, end, restarts })
                });
                let replaced = outcome.replaced.into_iter();
                let ended = Ended {
                    code: outcome.code,
                    why: outcome.why,
                    ranks: ranks.collect(),
                    replaced: replaced.map(|(host, why, by)| Replaced { host, why, by }).collect(),
                    staged: outcome.staged.map(files::Staged::from),
                };
                if let Ok(text) = serde_json::to_string(&ended) {
                    output::tell(&text);
                }
            } else {
                tell(&outcome);
            }
            ExitCode::from(u8::try_from(outcome.code).unwrap_or(1))
        }
    }
}

/// How the job ended, if there is something to say of it.
fn tell(outcome: &petasos_launch::Outcome) {
    for (host, why, by) in &outcome.replaced {
        output::tell(&format!("petasos: {host} was lost ({why}), and {by} took its place"));
    }
    tell_restarts(&outcome.restarts);
    // In a pipeline it is usual that a reader has had enough: programs say nothing of it.
    if let Some(why) = outcome.why.as_ref().filter(|_| !(outcome.unread && outcome.code == UNREAD))
    {
        output::tell(&format!("petasos: {why}"));
    }
    if let Some(lost) =
        outcome.output_lost.as_ref().filter(|lost| outcome.why.as_ref() != Some(lost))
    {
        output::tell(&format!("petasos: {lost}"));
    }
}

/// What did not go as it should, and is no failure of the job.
fn tell_restarts(restarts: &BTreeMap<u32, u32>) {
    for (rank, restarts) in restarts.iter().take(MAX_TOLD) {
        let times = if *restarts == 1 { "once".to_owned() } else { format!("{restarts} times") };
        output::tell(&format!("petasos: rank {rank} was restarted {times}"));
    }
    if let Some(more) = restarts.len().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
        output::tell(&format!("petasos: so were {more} more ranks"));
    }
}

fn failed(failure: &Failure) -> ExitCode {
    failure.say();
    failure.exit_code()
}

fn refused(error: LaunchError) -> Failure {
    let code = match error {
        LaunchError::Io(_) | LaunchError::Files(FilesError::Source { .. }) => Code::Failed,
        _ => Code::Usage,
    };
    let too_few = matches!(error, LaunchError::TooFewSlots { .. });
    let failure = Failure::new(code, error);
    match too_few {
        true => failure.advise("--oversubscribe, or more slots: --hosts a:8"),
        false => failure,
    }
}

/// A variable for the ranks: with its value, or with that which it has here.
fn exported(word: &String) -> Outcome<(String, String)> {
    let wrong = |why: &str| {
        let text = format!("-x {}: {why}", output::plain(word));
        Failure::new(Code::Usage, text)
            .advise("-x NAME=VALUE, or -x NAME with one of this environment")
    };
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => {
            let value = std::env::var(word);
            (word.as_str(), value.map_err(|error| wrong(&error.to_string()))?)
        }
    };
    match name.is_empty() {
        true => Err(wrong("it has no name")),
        false => Ok((name.to_owned(), value)),
    }
}

fn launch(options: &Run) -> Outcome<Launch> {
    let usage = |error| Failure::new(Code::Usage, error);
    let given = match (&options.hosts.hosts, &options.hosts.hostfile) {
        (Some(text), _) => Some(parse_hosts(text).map_err(usage)?),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| Failure::file("reading", path, &error))?;
            let hosts = parse_hostfile(&text).map_err(usage)?;
            if hosts.is_empty() {
                let why = format!("{}: no host is named there", path.display());
                return Err(Failure::new(Code::Usage, why));
            }
            Some(hosts)
        }
        (None, None) => None,
    };
    let allocation = match allocation() {
        // It is not needed.
        Err(_) if given.is_some() => None,
        found => found.map_err(|error| Failure::new(Code::Usage, error))?,
    };
    let tasks = allocation.as_ref().and_then(|of| of.tasks).filter(|_| given.is_none());
    let ranks = options.hosts.ranks.or(tasks).unwrap_or(1);
    let mut launch = Launch::new(ranks, options.program.clone());
    match allocation.filter(|of| given.as_ref().is_none_or(|given| of.has(given))) {
        Some(of) => {
            launch.hosts = of.hosts_of(given.unwrap_or_else(|| of.hosts.clone()));
            launch.remote = of.start;
        }
        None => launch.hosts = given.unwrap_or_default(),
    }
    if let Some(command) = &options.start.remote_start {
        launch.remote = command.split_whitespace().map(str::to_owned).collect();
    }
    launch.map = match options.setup.map {
        MapBy::ByCore => Map::ByCore,
        MapBy::ByNode => Map::ByNode,
    };
    launch.speaks = match options.wire {
        WireBy::Auto => Speaks::Auto,
        WireBy::Native => Speaks::Native,
        WireBy::Pmi1 => Speaks::Pmi1,
        WireBy::Pmix => Speaks::Pmix,
    };
    launch.oversubscribe = options.hosts.oversubscribe;
    launch.directory.clone_from(&options.setup.wdir);
    launch.variables = options.setup.export.iter().map(exported).collect::<Outcome<_>>()?;
    if options.provider {
        launch.variables.extend(over::variables(&launch.variables)?);
        let path = launch.variables.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, path)| path.as_str());
        let why = options.program.first().and_then(|program| over::unused(program, path));
        if let Some(why) = why {
            output::note(&format!("--provider: the provider is not used: {}", output::plain(&why)));
        }
    }
    launch.bind = options.setup.bind == Bind::Core;
    set(&mut launch.settings, options);
    launch.output.clone_from(&options.output);
    launch.files =
        options.staging.stage.iter().map(|text| files::named(text)).collect::<Result<_, _>>()?;
    launch.stage_program = options.staging.stage_program;
    launch.stage_directory.clone_from(&options.staging.stage_dir);
    launch.plugins = plugins::all(Moving { rate: options.staging.stage_rate, quiet: options.json });
    Ok(launch)
}

/// How the job is run.
fn set(settings: &mut Settings, options: &Run) {
    settings.fan_out = options.start.fan_out;
    settings.labels = options.label;
    settings.input = options.input.0;
    settings.keep_going = options.recovery.keep_going;
    settings.restarts = options.recovery.restarts;
    settings.restart_failed = options.recovery.restart_failed;
    settings.spares = options.recovery.spares;
    settings.timeout = options.times.timeout;
    settings.connect = options.times.connect_timeout;
    settings.silence = options.times.silence;
    settings.measure_links = options.measure_links;
    settings.log = log::filter_given();
}

fn show(launch: &Launch, json: bool) -> Outcome {
    let placed = launch.placement().map_err(refused)?;
    let ranks = placed.node_of.iter().map(|node| placed.hosts[node.0 as usize].clone());
    let cpus = launch.bind.then(|| cpus_of(&placed));
    let staging = launch.staging().map_err(refused)?;
    let files = staging.as_ref().map(files::Planned::of);
    let spares = placed.hosts[placed.hosts.len() - placed.spares as usize..].to_vec();
    let placed = Placed { ranks: ranks.collect(), hosts: placed.hosts, spares, cpus, files };
    if json {
        return output::print_json(&placed);
    }
    let mut table = output::table(&["rank", "host"]);
    if placed.cpus.is_some() {
        table = output::table(&["rank", "host", "CPU"]);
    }
    for (rank, host) in placed.ranks.iter().enumerate() {
        let mut row = vec![rank.to_string(), host.clone()];
        let cpu = placed.cpus.as_ref().map(|cpus| cpus[rank]);
        row.extend(cpu.map(|cpu| cpu.map_or_else(|| "?".to_owned(), |cpu| cpu.to_string())));
        table.add_row(row);
    }
    for host in &placed.spares {
        let mut row = vec!["spare".to_owned(), host.clone()];
        row.extend(placed.cpus.as_ref().map(|_| String::new()));
        table.add_row(row);
    }
    output::print(&table.to_string())?;
    placed.files.as_ref().map_or(Ok(()), files::Planned::print)
}

/// What the ranks of this host would keep to.
fn cpus_of(placed: &Placement) -> Vec<Option<u32>> {
    let order = binding();
    let mut here = order.iter().cycle();
    let cpu = |node: &Node| if *node == Node::HEAD { here.next().copied() } else { None };
    placed.node_of.iter().map(cpu).collect()
}
