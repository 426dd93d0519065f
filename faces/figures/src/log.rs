//! What happens, on standard error: for all commands, servers and the processes that they start.
//!
//! What is logged is said by `--log FILTER`, else by `-v` (and `-vv`, `-vvv`), else by `RUST_LOG`,
//! else it is what servers warn of, and errors of all others. Processes of a command's own get the
//! same filter in their environment.

use crate::exit::{Code, Failure, Outcome};
use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal},
    process::Command,
    sync::OnceLock,
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, fmt, prelude::*};

/// Where processes of the command's own find the filter, and users give theirs.
const VARIABLE: &str = "RUST_LOG";

/// What was asked for, for processes of the command's own.
static FILTER: OnceLock<String> = OnceLock::new();

/// What a command line says of the log.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// As `--log` has it.
    pub filter: Option<&'a str>,
    /// How often `-v` was given.
    pub verbose: u8,
    /// It runs until it is stopped: what it warns of is wanted in any case.
    pub server: bool,
}

/// Begins to log. Once, at the beginning.
///
/// # Errors
/// A filter of the command line that means nothing. One of the environment, which is meant for
/// other programs, too, is left aside.
pub fn begin(wanted: Wanted<'_>) -> Outcome {
    let by_environment = env::var_os(VARIABLE).filter(|filter| !filter.is_empty());
    let text = filter(wanted, by_environment.as_ref());
    let parsed = match text.parse::<Targets>() {
        Ok(parsed) => parsed,
        Err(error) if wanted.filter.is_some() => {
            let text = format!("--log {text}: {error}");
            return Err(Failure::new(Code::Usage, text).advise(
                "a level (error, warn, info, debug, trace), or TARGET=LEVEL,TARGET=LEVEL",
            ));
        }
        Err(_) => Targets::new().with_default(quiet(wanted.server)),
    };
    if wanted.filter.is_some() || wanted.verbose > 0 {
        let _ = FILTER.set(text);
    }
    let colours =
        io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(colours)
        // It would panic where standard error cannot be written either.
        .log_internal_errors(false);
    // Fails where a log is kept already: this one is not needed then.
    let _ = tracing_subscriber::registry().with(lines).with(parsed).try_init();
    Ok(())
}

/// What was asked for on the command line, for daemons on other hosts, which the environment does
/// not reach.
pub fn filter_given() -> Option<String> {
    FILTER.get().cloned()
}

/// Begins to log in a daemon of another host: what the launcher was told, else what the environment
/// says there.
pub fn begin_as_told(filter: Option<&str>) {
    // What the launcher has taken is a filter.
    let _ = begin(Wanted { filter, verbose: 0, server: false });
}

/// The same in a process of the command's own: what the environment says.
pub fn begin_by_environment() {
    // Without a filter of the command line nothing is refused.
    let _ = begin(Wanted { filter: None, verbose: 0, server: false });
}

/// Has a process of the command's own log the same.
pub fn pass_on(command: &mut Command) {
    if let Some(filter) = FILTER.get() {
        command.env(VARIABLE, filter);
    }
}

fn quiet(server: bool) -> LevelFilter {
    if server { LevelFilter::WARN } else { LevelFilter::ERROR }
}

fn filter(wanted: Wanted<'_>, by_environment: Option<&OsString>) -> String {
    if let Some(filter) = wanted.filter {
        return filter.to_owned();
    }
    // By the beginning of a name: `petasos` is for all crates of ours.
    let of_ours = match wanted.verbose {
        0 => None,
        1 => Some("info"),
        2 => Some("debug"),
        _ => Some("trace"),
    };
    match (of_ours, by_environment) {
        (Some(level), _) => format!("warn,petasos={level}"),
        (None, Some(filter)) => filter.to_string_lossy().into_owned(),
        (None, None) => quiet(wanted.server).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_goes_before_the_environment() {
        let of = |filter, verbose, server, environment: Option<&str>| {
            let environment = environment.map(OsString::from);
            super::filter(Wanted { filter, verbose, server }, environment.as_ref())
        };
        assert_eq!(of(None, 0, false, None), "error");
        assert_eq!(of(None, 0, true, None), "warn");
        assert_eq!(of(None, 0, true, Some("debug")), "debug");
        assert_eq!(of(None, 1, true, Some("debug")), "warn,petasos=info");
        assert_eq!(of(None, 9, false, None), "warn,petasos=trace");
        assert_eq!(of(Some("petasos_rpc=trace"), 2, true, Some("x")), "petasos_rpc=trace");
    }
}
