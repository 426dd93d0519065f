//! What failed in a job, and which of that is its exit code: first what ended the job, then the
//! first rank that failed while the others went on, then output that is lost.

use nix::sys::signal::Signal;
use std::{fmt, io};

/// Output that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// The reader of a pipe has closed it, as `head` does.
    Closed,
    /// The system refused it.
    Refused {
        /// Whether that is standard error.
        error: bool,
        why: String,
    },
    /// A file for it was refused: which, and why.
    File(String),
}

impl Unwritten {
    pub(crate) fn of(error: bool, why: &io::Error) -> Unwritten {
        match why.kind() {
            io::ErrorKind::BrokenPipe => Unwritten::Closed,
            _ => Unwritten::Refused { error, why: why.to_string() },
        }
    }

    /// The exit code of a job whose output was lost: without a reader that of a program in a
    /// pipeline.
    pub(super) fn code(&self) -> i32 {
        match self {
            Unwritten::Closed => 128 + Signal::SIGPIPE as i32,
            Unwritten::Refused { .. } | Unwritten::File(_) => 1,
        }
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unwritten::Closed => f.write_str("its output is no longer read"),
            Unwritten::Refused { error, why } => {
                let stream = if *error { "error" } else { "output" };
                write!(f, "output of the ranks is lost: writing to standard {stream}: {why}")
            }
            Unwritten::File(why) => write!(f, "output of the ranks is lost: {why}"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Failures {
    /// What ended the job: its code, and why.
    fatal: Option<(i32, String)>,
    /// What failed while the job went on, in order.
    tolerated: Vec<Failed>,
    unwritten: Option<Unwritten>,
}

/// Ranks that failed together, while the others went on.
#[derive(Debug)]
struct Failed {
    ranks: Vec<u32>,
    code: i32,
    why: String,
}

impl Failures {
    /// The job ends for this; the first reason counts.
    pub(super) fn end_job(&mut self, code: i32, why: String) {
        self.fatal.get_or_insert((code, why));
    }

    /// Whether the job ends for something that failed.
    pub(super) fn end_the_job(&self) -> bool {
        self.fatal.is_some()
    }

    /// These ranks failed, and the others go on.
    pub(super) fn tolerate(&mut self, ranks: Vec<u32>, code: i32, why: String) {
        self.tolerated.push(Failed { ranks, code, why });
    }

    /// A rank was restarted, so that it has not failed.
    pub(super) fn forgive(&mut self, rank: u32) {
        self.tolerated.iter_mut().for_each(|failed| failed.ranks.retain(|of| *of != rank));
        self.tolerated.retain(|failed| !failed.ranks.is_empty());
    }

    /// Output was lost; the first reason counts.
    pub(super) fn lose_output(&mut self, why: Unwritten) {
        self.unwritten.get_or_insert(why);
    }

    /// Whether the reader of the output has closed it.
    pub(super) fn unread(&self) -> bool {
        self.unwritten == Some(Unwritten::Closed)
    }

    /// Why other output was lost.
    pub(super) fn output_lost(&self) -> Option<String> {
        self.unwritten.as_ref().filter(|_| !self.unread()).map(Unwritten::to_string)
    }

    /// The exit code of the job, and why, if it has not gone well. A job that was told to go on
    /// without a reader has.
    pub(super) fn verdict(&self, keep_going: bool) -> Option<(i32, String)> {
        let first = self.tolerated.first().map(|failed| (failed.code, failed.why.clone()));
        let unwritten = self.unwritten.as_ref().filter(|_| !(keep_going && self.unread()));
        let unwritten = unwritten.map(|lost| (lost.code(), lost.to_string()));
        self.fatal.clone().or(first).or(unwritten)
    }
}
