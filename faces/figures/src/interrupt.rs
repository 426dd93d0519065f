//! Ctrl-C: what has begun is cleaned up before the process ends.
//!
//! The signals are blocked in all threads and taken by one of its own, so that what is done about
//! them is ordinary code. Processes started from here inherit the blocking: the terminal's Ctrl-C
//! does not reach them, they end when this process closes their standard input.

use crate::{
    exit::{Code, Failure},
    scratch,
};
use nix::sys::signal::{SigSet, Signal};
use std::{
    fs, io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

#[derive(Default)]
struct State {
    /// The command ends by itself when it is told; else the process ends at once.
    polite: bool,
    interrupted: bool,
}

static STATE: Mutex<State> = Mutex::new(State { polite: false, interrupted: false });
static CHANGED: Condvar = Condvar::new();

/// What is said before the process ends at once.
static LAST_WORDS: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ends the command. A hang-up that was ignored when it began stays ignored, and so it does in
/// processes started from here: that is what `nohup` is for. Ctrl-C and the request to end are
/// taken in any case: a shell has them ignored by what a script starts in the background, where
/// nothing else would end a server.
fn signals(status: &str) -> SigSet {
    let mut set = SigSet::empty();
    [Signal::SIGINT, Signal::SIGTERM].into_iter().for_each(|signal| set.add(signal));
    if !is_ignored(status, Signal::SIGHUP) {
        set.add(Signal::SIGHUP);
    }
    set
}

/// Whether a process ignores a signal, by its `/proc/PID/status`.
fn is_ignored(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

/// Begins to take signals. To be called before any other thread is started.
pub fn install() -> io::Result<()> {
    let signals = signals(&fs::read_to_string("/proc/self/status")?);
    signals.thread_block()?;
    let take = move || take(&signals);
    thread::Builder::new().name("signals".to_owned()).spawn(take)?;
    Ok(())
}

fn take(signals: &SigSet) {
    while let Ok(signal) = signals.wait() {
        tracing::info!(%signal, "a signal");
        let mut state = state();
        let first = !std::mem::replace(&mut state.interrupted, true);
        CHANGED.notify_all();
        if state.polite && first {
            continue;
        }
        drop(state);
        let words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(words) = words {
            words();
        }
        scratch::remove_all();
        Failure::new(Code::Interrupted, "interrupted").say();
        std::process::exit(Code::Interrupted as i32);
    }
}

/// From now on the command looks at [`wait`] and ends by itself; a second signal still ends the
/// process at once.
pub fn be_polite() {
    state().polite = true;
}

/// Has something said before a signal ends the process, which it does at once after that.
pub fn at_interrupt(words: impl FnOnce() + Send + 'static) {
    *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(words));
}

/// Takes that back: it is said in another way.
pub fn clear_at_interrupt() {
    LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Waits for a signal, so long at most; true if there was one.
pub fn wait(longest: Option<Duration>) -> bool {
    let state = state();
    let quiet = |state: &mut State| !state.interrupted;
    match longest {
        Some(longest) => {
            let waited = CHANGED.wait_timeout_while(state, longest, quiet);
            waited.unwrap_or_else(PoisonError::into_inner).0.interrupted
        }
        None => CHANGED.wait_while(state, quiet).is_ok(),
    }
}

/// Lets a signal end this process after all: for processes that keep nothing.
pub fn unblock_terminate() -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    Ok(set.thread_unblock()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ignored_stays_ignored() {
        let status = |mask: &str| format!("Name:\tx\nSigBlk:\tffff\nSigIgn:\t{mask}\nSigCgt:\t0\n");
        for (mask, taken) in [("0000000000000000", true), ("0000000000001000", true)] {
            assert_eq!(signals(&status(mask)).contains(Signal::SIGHUP), taken, "{mask}");
        }
        for mask in ["0000000000000001", "0000000000001007"] {
            let signals = signals(&status(mask));
            assert!(!signals.contains(Signal::SIGHUP), "{mask}");
            assert!(signals.contains(Signal::SIGINT) && signals.contains(Signal::SIGTERM));
        }
        assert!(signals("").contains(Signal::SIGHUP));
    }
}
