//! Waiting, and which thread drives meanwhile.
//!
//! A thread that waits drives the endpoint, for a while without sleep. Then it sleeps on the
//! endpoint's descriptor, if no other does yet; threads that come later sleep on a condition, and
//! are woken when something happened, or when the one that slept on the descriptor is gone and
//! another one has to.
//!
//! An endpoint rings for a sleeper only if it was armed, and not used since. A thread that uses it
//! while another sleeps so wakes that one, once; an [`Engine`](crate::Engine) then finds that
//! others drive, and naps without being rung for, until they do not any more or ask it to take
//! over. Where there is an engine it alone sleeps on the descriptor.

use crate::{Error, Idle, state::State};
use petasos_fabric::{EventFd, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Idle passes between two looks at the clock.
const PASSES: u32 = 32;
/// Of so many idle passes, one moves everything on.
const FULL: u32 = 4;
/// The sleep of a thread that has nothing to sleep on.
const NAP: Duration = Duration::from_micros(50);
/// How often an engine looks whether others still drive.
const WATCH: Duration = Duration::from_micros(250);

/// The state, and what wakes threads that wait for it.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The endpoint's descriptor.
    fd: Option<OwnedFd>,
    /// Ends a sleep on that. The endpoint's own notifier does not, once it was used by another.
    kick: EventFd,
    pub(crate) idle: Idle,
}

impl Shared {
    pub(crate) fn new(state: State) -> Result<Shared, Error> {
        let system = |error: &dyn ToString| Error::System(error.to_string());
        let fd = state.endpoint.fd().map(|fd| fd.try_clone_to_owned()).transpose();
        Ok(Shared {
            fd: fd.map_err(|error| system(&error))?,
            kick: EventFd::new().map_err(|error| system(&error))?,
            idle: state.config.idle,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the sleep of the threads that sleep here.
    pub(crate) fn wake(&self) {
        self.kick.signal();
        self.changed.notify_all();
    }

    /// To be called instead of unlocking where something was changed.
    #[inline]
    pub(crate) fn leave(&self, state: MutexGuard<'_, State>) {
        // Mostly nothing follows from it, and no thread sleeps.
        if !state.ready.is_empty() || state.armed || state.waiters > 0 {
            self.leave_and_tell(state);
        }
    }

    #[inline(never)]
    fn leave_and_tell(&self, mut state: MutexGuard<'_, State>) {
        state.run_ready();
        let ring = state.armed && state.touched;
        if ring {
            state.armed = false;
        }
        // Threads that wait are told of news, and that none drives or sleeps for them any more.
        let tell = state.waiters > 0 && {
            let alone = !state.sleeper && !state.engine && state.drivers == 0;
            std::mem::take(&mut state.news) || alone
        };
        drop(state);
        if ring {
            self.kick.signal();
        }
        if tell {
            self.changed.notify_all();
        }
    }

    /// Drives until `ready` gives something. The state is locked then: [`Shared::leave`] it.
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        timeout: Duration,
        mut ready: impl FnMut(&mut State) -> Result<Option<T>, Error>,
    ) -> (MutexGuard<'_, State>, Result<T, Error>) {
        let mut state = self.lock();
        state.drivers += 1;
        let mut idle = Spinning::new(self.idle);
        // Counted from when nothing was there.
        let mut end = None;
        let result = loop {
            if state.ended {
                break Err(Error::Aborted);
            }
            match ready(&mut state) {
                Ok(Some(found)) => break Ok(found),
                Err(error) => break Err(error),
                Ok(None) => {}
            }
            let busy = if timeout.is_zero() { state.pass() } else { idle.turn(&mut state) };
            if busy {
                if state.waiters > 0 && std::mem::take(&mut state.news) {
                    self.changed.notify_all();
                }
                continue;
            }
            if timeout.is_zero() {
                break Err(Error::Timeout);
            }
            if let Some(now) = idle.look() {
                let end = *end.get_or_insert(now.checked_add(timeout));
                if end.is_some_and(|end| now >= end) {
                    break Err(Error::Timeout);
                }
            }
            if idle.is_over() {
                let rest = end.flatten().map(|end| end.saturating_duration_since(Instant::now()));
                state.drivers -= 1;
                state = self.sleep(state, rest);
                state.drivers += 1;
                idle.begin();
            } else {
                state.endpoint.relax();
                if idle.is_full() {
                    // Others get their turn.
                    drop(state);
                    state = self.lock();
                }
            }
        };
        state.drivers -= 1;
        (state, result)
    }

    /// Sleeps until there may be something, or for so long.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        if state.sleeper && (!state.armed || state.touched) {
            // Nothing rings for this one.
            state.take_over = true;
            state.armed = false;
            self.kick.signal();
        } else if state.engine {
            state.take_over = true;
        } else if !state.sleeper && state.drivers == 0 {
            return self.sleep_armed(state, longest);
        }
        state.waiters += 1;
        let longest = longest.unwrap_or(Duration::from_secs(1));
        let waited = self.changed.wait_timeout(state, longest);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        state
    }

    /// Sleeps on the endpoint, which will ring; not if there is something to do.
    pub(crate) fn sleep_armed<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        if state.process.is_none() {
            // What comes is left where it is until the directory has changed, which is told.
            return self.sleep_on(state, longest);
        }
        let Some(until) = state.arm() else { return state };
        state.armed = true;
        let rest = (until != Time::NEVER).then(|| until.since(state.now));
        self.sleep_on(state, longest.into_iter().chain(rest).min())
    }

    /// Looks again after a while: others drive.
    pub(crate) fn watch<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.sleep_on(state, Some(WATCH))
    }

    fn sleep_on<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        state.sleeper = true;
        let unnamed = state.process.is_none();
        drop(state);
        match &self.fd {
            Some(fd) => {
                let timeout = longest.and_then(|longest| Timespec::try_from(longest).ok());
                // An interrupted or failed wait only means to look again.
                let mut wait = [self.kick.as_fd(), fd.as_fd()]
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
                let watched = if unnamed { &mut wait[..1] } else { &mut wait[..] };
                if poll(watched, timeout.as_ref()).is_ok() && !wait[0].revents().is_empty() {
                    self.kick.take();
                }
            }
            None => std::thread::sleep(longest.map_or(NAP, |longest| longest.min(NAP))),
        }
        let mut state = self.lock();
        (state.sleeper, state.armed) = (false, false);
        state.read_clock();
        state
    }
}

/// How long a thread has found nothing to do.
pub(crate) struct Spinning {
    idle: Idle,
    since: Option<Instant>,
    passes: u32,
    over: bool,
}

impl Spinning {
    pub(crate) fn new(idle: Idle) -> Spinning {
        Spinning { idle, since: None, passes: 0, over: false }
    }

    /// One pass: false if there was nothing. All else moves on now and then only, as mostly it is a
    /// message that is waited for.
    #[inline]
    pub(crate) fn turn(&mut self, state: &mut State) -> bool {
        let busy = if self.is_full() { state.pass() } else { state.peek() };
        if busy {
            self.begin();
        }
        busy
    }

    /// Whether it is time to move everything on, and to let others have their turn. Not at once:
    /// while messages go to and fro, the next one is there before.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.idle == Idle::Sleep || self.passes % FULL == FULL - 1
    }

    /// There was something.
    #[inline]
    pub(crate) fn begin(&mut self) {
        (self.since, self.passes, self.over) = (None, 0, false);
    }

    /// There was nothing: the time, if it was looked at.
    #[inline]
    pub(crate) fn look(&mut self) -> Option<Instant> {
        self.passes += 1;
        if self.idle != Idle::Sleep && !self.passes.is_multiple_of(PASSES) {
            return None;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.over = match self.idle {
            Idle::Spin => false,
            Idle::Sleep => true,
            Idle::Adaptive(longest) => now - since >= longest,
        };
        Some(now)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}
