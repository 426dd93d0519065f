//! The `petasos` command: see it work (`quickstart`), look at it (`info`, `ping`), measure it
//! (`bench`).

#![forbid(unsafe_code)]

mod accounting;
mod again;
mod bare;
mod beside;
mod bulk;
mod channel;
mod cli;
mod client;
mod client_process;
mod commands;
mod exit;
mod figures;
mod grid;
mod interrupt;
mod latency;
mod limits;
mod listen;
mod load;
mod log;
mod machine;
mod metrics;
mod output;
#[cfg(feature = "peers")]
mod peer_process;
mod plots;
mod plugins;
mod progress;
mod report;
mod scratch;
mod server;
mod service;
mod table;
mod tree;

use clap::Parser;
use cli::{Cli, Command};
use commands::{
    bench::{forward, launch},
    forward::{guard, mount_helper},
};
use exit::{Code, Failure, Outcome};
use std::{env, ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    commands::forward::let_go();
    let outcome = match of_its_own() {
        Some(outcome) => outcome,
        None => match words().map(Cli::try_parse_from) {
            Ok(Ok(cli)) => return command(cli),
            // Help and the version are no errors; what is wrong is said in clap's way to people.
            Ok(Err(error)) if !error.use_stderr() || !wants_json(env::args_os()) => error.exit(),
            said => {
                if wants_json(env::args_os()) {
                    exit::say_as_json();
                }
                said.and_then(|parsed| parsed.map(drop).map_err(|error| misunderstood(&error)))
            }
        },
    };
    ended(outcome)
}

fn ended(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.say();
            failure.exit_code()
        }
    }
}

/// Processes of the command's own: no command line to parse, no signals to take.
fn of_its_own() -> Option<Outcome> {
    let name = env::args_os().nth(1)?;
    let work: fn() -> Outcome = match name.to_str()? {
        limits::HELPER_SUBCOMMAND => {
            || limits::run_helper().map_err(Failure::system("helping to measure"))
        }
        #[cfg(feature = "peers")]
        peer_process::SUBCOMMAND => || peer_process::run(env::args_os().nth(2)),
        forward::TIED => || forward::run_tied(env::args_os().skip(2)),
        guard::GUARD => || guard::run(env::args_os().skip(2)),
        forward::WORK => || forward::run_work(env::args_os().skip(2)),
        client_process::SUBCOMMAND => client_process::run,
        server::SUBCOMMAND => || server::run(env::args_os().nth(2)),
        launch::RANK => || launch::run_rank(env::args_os().skip(2)),
        launch::BARE => launch::run_bare,
        petasos_pmix::GUARD => || {
            petasos_pmix::run_guard();
            Ok(())
        },
        petasos_pmix::DAEMON => || {
            let mut plugins = plugins::all(plugins::Moving::default());
            plugins.log = Some(log::begin_as_told);
            petasos_pmix::run_daemon(plugins).map_err(|why| Failure::new(Code::Failed, why))
        },
        _ => return None,
    };
    // A daemon is told.
    if name != petasos_pmix::DAEMON {
        log::begin_by_environment();
    }
    Some(work())
}

/// The words of the command line, the program's name among them: where this was started as what mount(8) wants, those
/// of `forward mount`; `run` takes those of other launchers.
fn words() -> Outcome<Vec<OsString>> {
    match mount_helper::arguments(env::args_os()) {
        // Only to be tried, for mount(8).
        Some(Ok(words)) if words.is_empty() => std::process::exit(0),
        Some(words) => words.map_err(|text| Failure::new(Code::Usage, text)),
        None => commands::run::words(env::args_os()),
    }
}

fn command(cli: Cli) -> ExitCode {
    let Cli { common, command } = cli;
    if common.json {
        exit::say_as_json();
    }
    let wanted = log::Wanted {
        filter: common.log.as_deref(),
        verbose: common.verbose,
        server: command.is_server(),
    };
    if let Err(failure) = log::begin(wanted) {
        return ended(Err(failure));
    }
    tracing::debug!(version = env!("CARGO_PKG_VERSION"), "petasos begins");
    match command {
        // It takes the signals itself, for the job.
        Command::Run(options) => commands::run::run(&options),
        command => {
            // Not for jobs: what others run is none of our business.
            petasos::prepare();
            ended(run(command))
        }
    }
}

/// Whether a command line that was not understood asks for JSON: before a `--`, where it has one.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// What was not understood, for programs.
fn misunderstood(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut parts = text.split("\n\n").map(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        words.join(" ")
    });
    let first = parts.next().unwrap_or_default();
    // Of a command that is missing clap says only what there is.
    let failure = match first.strip_prefix("error: ") {
        Some(message) => Failure::new(Code::Usage, message),
        None => Failure::new(Code::Usage, "a command is missing"),
    };
    match parts.find(|part| part.starts_with("tip: ") || part.starts_with("Usage: ")) {
        Some(tip) if first.starts_with("error: ") => {
            failure.advise(tip.strip_prefix("tip: ").unwrap_or(&tip))
        }
        _ => failure.advise("petasos --help"),
    }
}

fn run(command: Command) -> Outcome {
    interrupt::install().map_err(Failure::system("taking signals"))?;
    if !matches!(command, Command::Tune(_) | Command::Completions { .. }) {
        commands::tune::check();
    }
    match command {
        Command::Quickstart(options) => commands::quickstart::run(&options),
        Command::Serve(options) => commands::serve::run(&options),
        Command::Info(options) => commands::info::run(&options),
        Command::Forward(options) => commands::forward::run(&options),
        Command::Ping(options) => commands::ping::run(&options),
        Command::Bench(options) => commands::bench::run(&options),
        Command::Limits(options) => commands::limits::run(&options),
        Command::Tune(options) => commands::tune::run(&options),
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Run(_) => unreachable!("it was taken before"),
        Command::Ps(options) => commands::jobs::ps(&options),
        Command::Events(options) => commands::jobs::events(&options),
        Command::Query(options) => commands::jobs::query(&options),
        Command::Notify(options) => commands::jobs::notify(&options),
    }
}
