//! `petasos-bench`: calls, bulk data, files and jobs, each beside the machine's limit or other
//! programs, in one run. `petasos bench` executes this program.
//!
//! It starts itself again as servers and clients, as the command does. With the first argument
//! [`COMMAND`] it *is* the command, so that commands that are measured as a user runs them
//! (`petasos forward`, `petasos run`) are of the same build as the program that measures.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod client_process;
mod load;
#[cfg(feature = "peers")]
mod peer_process;
mod report;

// Shared with the command; see the front page of the crate.
use petasos_figures::{
    accounting, again, all_limits, bare, beside, bulk, channel, client, exit, figures, grid,
    interrupt, latency, limits, log, machine, message, output, pair, pivot, plots, progress,
    scratch, server, service, waiting,
};

use bench::{forward, launch};
use clap::{CommandFactory, ValueEnum};
use cli::{Cli, Command};
use exit::{Code, Failure, Outcome};
use std::{env, ffi::OsString, process::ExitCode};

/// The first argument with which this program is the command.
pub(crate) const COMMAND: &str = "petasos";

/// The first argument of `petasos-bench completions SHELL`, which `petasos completions` asks for.
const COMPLETIONS: &str = "completions";

fn main() -> ExitCode {
    if env::args_os().nth(1).is_some_and(|word| word == COMMAND) {
        return petasos_cli::main(Some(COMMAND));
    }
    if let Some(outcome) = of_its_own().or_else(petasos_cli::of_its_own) {
        return petasos_cli::ended(outcome);
    }
    let words = [OsString::from("petasos"), "bench".into()].into_iter();
    match petasos_cli::understood(words.chain(env::args_os().skip(1)).collect()) {
        Ok(Cli { common, command: Command::Bench(options) }) => {
            petasos_cli::run_tool(&common, || bench::run(&options))
        }
        Err(failure) => petasos_cli::ended(Err(failure)),
    }
}

/// Processes of this program's own: no command line to parse, no signals to handle.
fn of_its_own() -> Option<Outcome> {
    let name = env::args_os().nth(1)?;
    let work: fn() -> Outcome = match name.to_str()? {
        #[cfg(feature = "peers")]
        peer_process::SUBCOMMAND => || peer_process::run(env::args_os().nth(2)),
        forward::TIED => || forward::run_tied(env::args_os().skip(2)),
        forward::WORK => || forward::run_work(env::args_os().skip(2)),
        client_process::SUBCOMMAND => client_process::run,
        launch::RANK => || launch::run_rank(env::args_os().skip(2)),
        launch::BARE => launch::run_bare,
        COMPLETIONS => || completions(env::args_os().nth(2)),
        _ => return None,
    };
    log::begin_by_environment();
    Some(work())
}

/// Completions of the whole command, those of `bench` among them.
fn completions(shell: Option<OsString>) -> Outcome {
    let shell = shell.as_deref().and_then(|shell| shell.to_str());
    let shell = shell.ok_or("no shell").and_then(|shell| {
        petasos_cli::cli::Shell::from_str(shell, false).map_err(|_| "an unknown shell")
    });
    let shell =
        shell.map_err(|why| Failure::new(Code::Usage, why).advise("petasos completions --help"))?;
    petasos_cli::print_completions(shell, |ours| {
        Cli::command().find_subcommand("bench").cloned().unwrap_or(ours)
    })
}
