//! Signals to a daemon, which end it in order: they are told to its loop.

use super::{
    Daemon,
    wake::{Wake, Waker},
};
use nix::sys::signal::{SigSet, Signal, raise};
use std::{fs, io, thread, time::Duration};

/// How long it may take to tell the others that all stop.
const FLUSH: Duration = Duration::from_secs(1);

/// Has those signals told to the daemon of the head node that a user, or the terminal, sends to a
/// job.
pub(super) fn take_users(waker: Waker) -> io::Result<()> {
    let wanted = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGTSTP,
    ];
    // As with `nohup`, and where no shell could have this process go on.
    let is_left =
        |signal: &Signal| [Signal::SIGHUP, Signal::SIGTSTP].contains(signal) && is_ignored(*signal);
    let wanted = wanted.into_iter().filter(|signal| !is_left(signal));
    // In the background of a terminal it is not stopped, with all that its ranks rely on: it reads
    // nothing there.
    let blocked = [Signal::SIGTTIN, Signal::SIGTTOU];
    take(wanted, blocked, waker)
}

/// Has these signals told to the daemon, and blocks others besides. To be called before there are
/// other threads.
fn take(
    wanted: impl IntoIterator<Item = Signal>,
    besides: impl IntoIterator<Item = Signal>,
    waker: Waker,
) -> io::Result<()> {
    let mut set = SigSet::empty();
    wanted.into_iter().for_each(|signal| set.add(signal));
    let mut blocked = set;
    besides.into_iter().for_each(|signal| blocked.add(signal));
    blocked.thread_block()?;
    let take = move || {
        while let Ok(signal) = set.wait() {
            waker.tell(Wake::Signal(signal as i32));
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(take)?;
    Ok(())
}

/// Whether this process was started so that a signal does nothing to it.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

/// Stops this process as the terminal would have; returns when it goes on.
fn stop() {
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTSTP);
    if stops.thread_unblock().is_ok() {
        // It is done to this thread, which so does not go on before; without a shell that could let
        // it, nothing is.
        let _ = raise(Signal::SIGTSTP);
        let _ = stops.thread_block();
    }
}

impl Daemon {
    /// The user stops the job at the terminal: this process stops when the others have been told
    /// that their ranks do.
    pub(super) fn pause(&mut self) {
        let until = self.clock.now().after(FLUSH);
        self.flush();
        while self.peers.total_backlog() > 0 && self.clock.now() < until {
            thread::sleep(Duration::from_millis(1));
            self.flush();
        }
        let stopped = self.clock.now();
        stop();
        let took = self.clock.now().since(stopped);
        self.tell_controller(|controller, _| controller.resumed(took));
    }

    /// What ends a daemon that is not the head node's. A resource manager that ends the processes
    /// of a host asks all of them to, the guard as well; when those that it started have ended, it
    /// kills the others at once, and so the guard where that still has the work to do that this
    /// daemon leaves to it.
    pub(super) fn take_ends(&self) -> io::Result<()> {
        let wanted = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
        let wanted = wanted.into_iter().filter(|signal| !is_ignored(*signal));
        take(wanted, [], self.waker.another()?)
    }

    /// One of these came.
    pub(super) fn asked_to_end(&mut self, signal: i32) {
        let name = Signal::try_from(signal).map_or("a signal", Signal::as_str);
        self.over.get_or_insert_with(|| Err(format!("ended by {name}")));
    }
}
