//! The `petasos` command: see it work (`quickstart`), look at it (`info`, `ping`), serve and
//! forward files, run jobs. It measures itself by a program of its own, `petasos-bench`, which
//! `petasos bench` becomes.
//!
//! This library is the command line: its options, and what each subcommand does. What measures, and
//! how a command fails, ends and shows its results, is in `petasos-figures`. It is no interface for
//! programs: what is public here is for `petasos-bench`, and changes with it.

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod cli;
mod commands;
mod listen;
mod metrics;
mod plugins;

use petasos_figures::{
    all_limits, beside, bulk, channel, client, exit, figures, grid, interrupt, latency, limits,
    log, machine, noise, output, pair, progress, scratch, server, service, waiting,
};

use clap::Parser;
use cli::{Cli, Command, Common};
#[doc(hidden)]
pub use commands::completions::print as print_completions;
use commands::forward::{guard, mount_ask, mount_helper};
use exit::{Code, Failure, Outcome};
use nix::sys::signal::{SigSet, Signal};
use std::{env, ffi::OsString, process::ExitCode, sync::OnceLock};

/// The word behind which another program is this command, if it is.
static BEHIND: OnceLock<&str> = OnceLock::new();

/// The command: does what the command line says, and gives how it ended. `behind` is for another
/// program that is this command, too, where its first argument is that word.
pub fn main(behind: Option<&'static str>) -> ExitCode {
    no_signal_for_long_files();
    commands::forward::let_go();
    if let Some(word) = behind {
        let _ = BEHIND.set(word);
    }
    if let Some(outcome) = of_its_own() {
        return ended(outcome);
    }
    match words().map(understood::<Cli>) {
        Ok(Ok(cli)) => command(cli),
        Ok(Err(failure)) => ended(Err(failure)),
        Err(failure) => {
            if wants_json(given()) {
                exit::say_as_json();
            }
            ended(Err(failure))
        }
    }
}

/// Where files have a limit of length (`ulimit -f`), what goes beyond it fails, as on a full disk,
/// and nothing else does: by default the system ends the whole process, for one client's file. To be
/// called before there are other threads. The ranks of jobs have the default again.
fn no_signal_for_long_files() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGXFSZ);
    // A set of signals is never refused.
    let _ = set.thread_block();
}

/// The words of the command line, without that of [`main`].
fn given() -> impl Iterator<Item = OsString> {
    let left_out = usize::from(BEHIND.get().is_some());
    let mut words = env::args_os();
    words.next().into_iter().chain(words.skip(left_out))
}

/// What stands before the command line where this is another program, too.
pub(crate) fn before() -> Option<&'static str> {
    BEHIND.get().copied()
}

/// What a command line says. Help and the version are no errors, and end the process here; what is
/// wrong is said in clap's way to people, and given as a failure for programs.
#[doc(hidden)]
pub fn understood<C: Parser>(words: Vec<OsString>) -> Outcome<C> {
    let json = wants_json(words.iter().cloned());
    C::try_parse_from(words).map_err(|error| {
        if !error.use_stderr() {
            match output::written(error.print()) {
                Ok(()) => std::process::exit(0),
                Err(failure) => {
                    if json {
                        exit::say_as_json();
                    }
                    return failure;
                }
            }
        }
        if !json {
            error.exit();
        }
        exit::say_as_json();
        misunderstood(&error)
    })
}

/// Says what went wrong, if something did.
#[doc(hidden)]
pub fn ended(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.say();
            failure.exit_code()
        }
    }
}

/// Processes of the command's own: no command line to parse, no signals to take.
#[doc(hidden)]
pub fn of_its_own() -> Option<Outcome> {
    let name = env::args_os().nth(1)?;
    let work: fn() -> Outcome = match name.to_str()? {
        limits::HELPER_SUBCOMMAND => {
            || limits::run_helper().map_err(Failure::system("helping to measure"))
        }
        guard::GUARD => || guard::run(env::args_os().skip(2)),
        mount_ask::ASK => || mount_ask::run(env::args_os().nth(2)),
        server::SUBCOMMAND => || server::run(env::args_os().nth(2)),
        petasos_launch::GUARD => || {
            petasos_launch::run_guard();
            Ok(())
        },
        petasos_launch::DAEMON => || {
            let mut plugins = plugins::all(plugins::Moving::default());
            plugins.log = Some(log::begin_as_told);
            petasos_launch::run_daemon(plugins).map_err(|why| Failure::new(Code::Failed, why))
        },
        _ => return None,
    };
    // A daemon is told.
    if name != petasos_launch::DAEMON {
        log::begin_by_environment();
    }
    Some(work())
}

/// The words of the command line, the program's name among them: where this was started as what
/// mount(8) wants, those of `forward mount`; `run` takes those of other launchers.
fn words() -> Outcome<Vec<OsString>> {
    match mount_helper::arguments(given()) {
        // Only to be tried, for mount(8).
        Some(Ok(words)) if words.is_empty() => std::process::exit(0),
        Some(words) => words.map_err(|text| Failure::new(Code::Usage, text)),
        None => commands::run::words(given()),
    }
}

fn command(cli: Cli) -> ExitCode {
    let Cli { common, command } = cli;
    match command {
        // It says all else itself, and logs.
        Command::Bench(options) => ended(commands::bench::run(&common, &options)),
        // It takes the signals itself, for the job.
        Command::Run(options) => match begin(&common, false) {
            Ok(()) => commands::run::run(&options),
            failed => ended(failed),
        },
        command => {
            let begun = begin(&common, command.is_server());
            ended(begun.and_then(|()| {
                // Not for jobs: what others run is none of our business.
                petasos::prepare();
                interrupted_by_signals()?;
                run(command)
            }))
        }
    }
}

/// Begins as the command line says: how failures are said, and what is logged.
fn begin(common: &Common, server: bool) -> Outcome {
    if common.json {
        exit::say_as_json();
    }
    let wanted = log::Wanted { filter: common.log.as_deref(), verbose: common.verbose, server };
    log::begin(wanted)?;
    tracing::debug!(version = env!("CARGO_PKG_VERSION"), "petasos begins");
    Ok(())
}

fn interrupted_by_signals() -> Outcome {
    interrupt::install().map_err(Failure::system("taking signals"))
}

/// Does the work of a tool beside the command as the command does its own.
#[doc(hidden)]
pub fn run_tool(common: &Common, work: impl FnOnce() -> Outcome) -> ExitCode {
    let begun = begin(common, false);
    ended(begun.and_then(|()| {
        petasos::prepare();
        interrupted_by_signals()?;
        commands::tune::check();
        work()
    }))
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
    if !matches!(command, Command::Tune(_) | Command::Completions { .. }) {
        commands::tune::check();
    }
    match command {
        Command::Quickstart(options) => commands::quickstart::run(&options),
        Command::Serve(options) => commands::serve::run(&options),
        Command::Info(options) => commands::info::run(&options),
        Command::Forward(options) => commands::forward::run(&options),
        Command::Broker(options) => commands::broker::run(&options),
        Command::Ping(options) => commands::ping::run(&options),
        Command::Limits(options) => commands::limits::run(&options),
        Command::Tune(options) => commands::tune::run(&options),
        Command::Provider(options) => commands::provider::run(&options),
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Bench(_) | Command::Run(_) => unreachable!("they were taken before"),
        Command::Ps(options) => commands::jobs::ps(&options),
        Command::Events(options) => commands::jobs::events(&options),
        Command::Query(options) => commands::jobs::query(&options),
        Command::Notify(options) => commands::jobs::notify(&options),
    }
}
