//! Continues a stopped peer for which a call of the endpoint waits, which would never return.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A call that takes so long waits for the peer: on a busy machine, too, where nothing else takes
/// seconds.
const STANDS_STILL: Duration = Duration::from_secs(5);

/// Learns of each call, and of the peer when it is stopped. Its thread ends with it.
pub(super) struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Calls so far.
    beats: u64,
    /// The peer, while it is stopped.
    stopped: Option<Pid>,
    /// It was continued since.
    continued: bool,
    over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // What is in it is whole at each moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut state = self.state();
        while !state.over {
            let Some(peer) = state.stopped else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let before = state.beats;
            let as_it_was = |state: &mut State| {
                state.beats == before && state.stopped == Some(peer) && !state.over
            };
            let waited = self.changed.wait_timeout_while(state, STANDS_STILL, as_it_was);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if timeout.timed_out() {
                state.stopped = None;
                state.continued = kill_process(peer, Signal::CONT).is_ok();
            }
        }
    }
}

impl Watch {
    pub(super) fn start() -> Watch {
        let shared = Arc::new(Shared::default());
        let of = Arc::clone(&shared);
        std::thread::spawn(move || of.watch());
        Watch(shared)
    }

    /// A call begins; the one before has returned.
    pub(super) fn beat(&self) {
        self.0.state().beats += 1;
    }

    /// The peer is stopped from now on.
    pub(super) fn begin(&self, peer: Pid) {
        let mut state = self.0.state();
        (state.stopped, state.continued) = (Some(peer), false);
        self.0.changed.notify_all();
    }

    /// It is not any more.
    pub(super) fn end(&self) {
        self.0.state().stopped = None;
        self.0.changed.notify_all();
    }

    /// Whether it had to be continued.
    pub(super) fn has_continued(&self) -> bool {
        self.0.state().continued
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.changed.notify_all();
    }
}
