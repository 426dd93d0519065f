//! Ctrl-C: what has begun is cleaned up before the process ends.
//!
//! The signals are blocked in all threads and taken by one of its own, so that what is done about
//! them is ordinary code. Processes started from here inherit the blocking: the terminal's Ctrl-C
//! does not reach them, they end when this process closes their standard input.

use crate::{exit::Code, scratch};
use nix::sys::signal::{SigSet, Signal};
use std::{
    io,
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

fn signals() -> SigSet {
    let mut set = SigSet::empty();
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().for_each(|s| set.add(s));
    set
}

/// Begins to take signals. To be called before any other thread is started.
pub(crate) fn install() -> io::Result<()> {
    signals().thread_block()?;
    thread::Builder::new().name("signals".to_owned()).spawn(take)?;
    Ok(())
}

fn take() {
    while signals().wait().is_ok() {
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
        eprintln!("petasos: interrupted");
        std::process::exit(Code::Interrupted as i32);
    }
}

/// From now on the command looks at [`wait`] and ends by itself; a second signal still ends the
/// process at once.
pub(crate) fn be_polite() {
    state().polite = true;
}

/// Has something said before a signal ends the process, which it does at once after that.
pub(crate) fn last_words(words: impl FnOnce() + Send + 'static) {
    *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(words));
}

/// Takes that back: it is said in another way.
pub(crate) fn no_last_words() {
    LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Waits for a signal, so long at most; true if there was one.
pub(crate) fn wait(longest: Option<Duration>) -> bool {
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
pub(crate) fn unblock_terminate() -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    Ok(set.thread_unblock()?)
}
