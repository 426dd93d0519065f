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
mod machine;
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
mod tree;

use clap::Parser;
use cli::{Cli, Command};
use commands::{
    bench::{forward, launch},
    forward as forward_mount,
};
use exit::Outcome;
use std::{env, process::ExitCode};

fn main() -> ExitCode {
    forward_mount::let_go();
    // Processes of the command's own: no command line to parse, no signals to take.
    let outcome = match env::args_os().nth(1).as_ref().and_then(|word| word.to_str()) {
        Some(limits::HELPER_SUBCOMMAND) => {
            limits::run_helper().map_err(exit::Failure::system("helping to measure"))
        }
        #[cfg(feature = "peers")]
        Some(peer_process::SUBCOMMAND) => peer_process::run(env::args_os().nth(2)),
        Some(forward::TIED) => forward::run_tied(env::args_os().skip(2)),
        Some(forward_mount::guard::GUARD) => forward_mount::guard::run(env::args_os().skip(2)),
        Some(forward::WORK) => forward::run_work(env::args_os().skip(2)),
        Some(client_process::SUBCOMMAND) => client_process::run(),
        Some(server::SUBCOMMAND) => server::run(env::args_os().nth(2)),
        Some(launch::RANK) => launch::run_rank(env::args_os().skip(2)),
        Some(launch::BARE) => launch::run_bare(),
        Some(petasos_pmix::GUARD) => {
            petasos_pmix::run_guard();
            Ok(())
        }
        Some(petasos_pmix::DAEMON) => {
            let plugins = plugins::all(plugins::Moving::default());
            petasos_pmix::run_daemon(plugins)
                .map_err(|why| exit::Failure::new(exit::Code::Failed, why))
        }
        _ => match parse().command {
            // It takes the signals itself, for the job.
            Command::Run(options) => return commands::run::run(&options),
            command => {
                // Not for jobs: what others run is none of our business.
                petasos::prepare();
                run(command)
            }
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("petasos: {failure}");
            failure.exit_code()
        }
    }
}

/// The command line: where this was started as what mount(8) wants, that of `forward mount`.
fn parse() -> Cli {
    match arguments() {
        // Only to be tried, for mount(8).
        Ok(words) if words.is_empty() => std::process::exit(0),
        Ok(words) => Cli::parse_from(words),
        Err(text) => {
            eprintln!("petasos: {text}");
            std::process::exit(exit::Code::Usage as i32);
        }
    }
}

/// The words of the command line, the program's name among them.
fn arguments() -> Result<Vec<std::ffi::OsString>, String> {
    forward_mount::mount_helper::arguments(env::args_os())
        .unwrap_or_else(|| Ok(env::args_os().collect()))
}

fn run(command: Command) -> Outcome {
    interrupt::install().map_err(exit::Failure::system("taking signals"))?;
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
