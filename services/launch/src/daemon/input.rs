//! Standard input of this process, on its way to the rank that reads it.

use petasos_fabric::Time;
use rustix::io::Errno;
use std::{
    io::{self, IsTerminal},
    time::Duration,
};

/// Input from a terminal is looked for again after this time where this process was in its
/// background.
const BACKGROUND: Duration = Duration::from_millis(250);
/// Standard input that has not been taken, in bytes.
const WINDOW: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct Input {
    /// Whether it goes to a rank at all.
    forwarded: bool,
    open: bool,
    /// It is not read before: this process is in the background of a terminal, and what is typed
    /// there is for others.
    later: Time,
    /// Bytes that were sent, and that the rank has not taken.
    untaken: u64,
}

impl Input {
    pub(super) fn new(forwarded: bool) -> Input {
        Input { forwarded, open: forwarded, later: Time::default(), untaken: 0 }
    }

    /// Whether more can be sent.
    pub(super) fn is_wanted(&self, now: Time) -> bool {
        self.open && self.untaken < WINDOW && now >= self.later
    }

    /// When it is to be looked for again.
    pub(super) fn deadline(&self, now: Time) -> Time {
        if self.open && self.later > now { self.later } else { Time::NEVER }
    }

    /// What there is; empty: it has ended.
    pub(super) fn read(&mut self, now: Time) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 32 << 10];
        let read = match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Err(Errno::INTR | Errno::AGAIN) => return None,
            Err(Errno::IO) if io::stdin().is_terminal() => {
                self.later = now.after(BACKGROUND);
                return None;
            }
            read => read.unwrap_or(0),
        };
        bytes.truncate(read);
        self.untaken += read as u64;
        self.open = read > 0;
        Some(bytes)
    }

    /// The rank has taken so many bytes.
    pub(super) fn taken(&mut self, bytes: u64) {
        self.untaken = self.untaken.saturating_sub(bytes);
    }

    /// What was read and not taken is lost with the rank. Says whether the new one is to be told
    /// that the input has ended.
    pub(super) fn begin_again(&mut self) -> bool {
        self.untaken = 0;
        self.forwarded && !self.open
    }
}
