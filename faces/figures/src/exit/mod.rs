//! How the command ends: codes that scripts can tell apart, and errors that say what to do.

mod causes;
pub mod files;

pub use causes::{MAKE_A_SECRET, lost_peer};

use serde::Serialize;
use std::{
    fmt,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

/// The table of exit codes, for `--help`.
pub const CODES: &str = "\
Exit codes:
    0  all went well
    1  the work failed: a file, the system, the other side's handler
    2  the command line was not understood, or asks for what cannot be
    3  the peer could not be reached, or was lost on the way
    4  the data that came back is not the data that was sent
    5  refused: credentials, file modes, a port that this user may not have
    6  not available here: a transport that is not built in or that this machine does not allow
  130  interrupted";

/// Kinds of failure, each with its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The work failed.
    Failed = 1,
    /// Wrong use.
    Usage = 2,
    /// The peer is not there, or not any more.
    Unreachable = 3,
    /// Wrong bytes.
    Mismatch = 4,
    /// Credentials.
    Refused = 5,
    /// Not on this machine.
    Unavailable = 6,
    /// A signal.
    Interrupted = 130,
}

impl Code {
    /// All of them.
    pub const ALL: [Code; 7] = [
        Code::Failed,
        Code::Usage,
        Code::Unreachable,
        Code::Mismatch,
        Code::Refused,
        Code::Unavailable,
        Code::Interrupted,
    ];

    /// The kind that has this exit code.
    pub fn of(number: u8) -> Option<Code> {
        Code::ALL.into_iter().find(|code| *code as u8 == number)
    }

    /// In a word, which is the same in every version.
    pub fn kind(self) -> &'static str {
        match self {
            Code::Failed => "failed",
            Code::Usage => "usage",
            Code::Unreachable => "unreachable",
            Code::Mismatch => "mismatch",
            Code::Refused => "refused",
            Code::Unavailable => "unavailable",
            Code::Interrupted => "interrupted",
        }
    }
}

/// Whether failures are said as JSON.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on failures are said as JSON, a line each.
pub fn say_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Whether `--json` was asked for, also of commands that have little to say.
pub fn as_json() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

/// A failure as JSON.
#[derive(Serialize)]
struct Said<'a> {
    error: SaidError<'a>,
}

#[derive(Serialize)]
struct SaidError<'a> {
    code: u8,
    kind: &'static str,
    message: &'a str,
    hint: Option<&'a str>,
}

/// A failed command: what happened, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    pub advice: Option<String>,
}

/// What commands give.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn new(code: Code, message: impl fmt::Display) -> Failure {
        Failure { code, message: message.to_string(), advice: None }
    }

    /// What to do about it.
    pub fn advise(mut self, advice: impl fmt::Display) -> Failure {
        self.advice.get_or_insert_with(|| advice.to_string());
        self
    }

    /// Says in which part of the work it happened.
    pub fn within(mut self, part: impl fmt::Display) -> Failure {
        self.message = format!("{part}: {}", self.message);
        self
    }

    /// A file could not be used.
    pub fn file(doing: &str, path: &Path, error: &io::Error) -> Failure {
        let failure = Failure::new(Code::Failed, format!("{doing} {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::StorageFull => failure.advise(
                "free some space, or set TMPDIR to a directory on another file system, \
                 or take a smaller --size",
            ),
            _ => failure,
        }
    }

    /// For `map_err`: the system refused what is named by `doing`.
    pub fn system<E: fmt::Display>(doing: &'static str) -> impl FnOnce(E) -> Failure {
        move |error| Failure::new(Code::Failed, format!("{doing}: {error}"))
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }

    /// Says it on standard error: for people, or under `--json` as one line of JSON,
    /// `{"error": {"code", "kind", "message", "hint"}}`.
    pub fn say(&self) {
        let text = match as_json() {
            true => self.json(),
            false => format!("petasos: {self}"),
        };
        // Without a reader, the exit code still tells.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    fn json(&self) -> String {
        let error = SaidError {
            code: self.code as u8,
            kind: self.code.kind(),
            message: &self.message,
            hint: self.advice.as_deref(),
        };
        serde_json::to_string(&Said { error }).unwrap_or_default()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(advice) = &self.advice {
            write!(f, "\n  try: {advice}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_word_and_a_line_in_the_help() {
        for code in Code::ALL {
            assert_eq!(Code::of(code as u8), Some(code));
            assert!(CODES.contains(&format!("  {} ", code as u8)), "{code:?}");
        }
        let mut kinds = Code::ALL.map(Code::kind).to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!((kinds.len(), Code::of(0), Code::of(7)), (Code::ALL.len(), None, None));
    }

    #[test]
    fn a_failure_for_programs() {
        let failure = Failure::new(Code::Refused, "a \"b\"\nc").advise("d");
        assert_eq!(
            failure.json(),
            r#"{"error":{"code":5,"kind":"refused","message":"a \"b\"\nc","hint":"d"}}"#
        );
        let without = Failure::new(Code::Failed, "a").json();
        assert!(without.ends_with(r#""message":"a","hint":null}}"#), "{without}");
    }
}
