//! Waiting, and which thread drives meanwhile.
//!
//! A thread that waits drives the endpoint, for a while without sleep. Then it sleeps on the
//! endpoint's descriptor, unless another thread does already; threads that come later sleep on a
//! condition variable. They are woken when something happened, and when the thread that slept on
//! the descriptor has left and another one has to take its place.
//!
//! An endpoint signals its descriptor only if it was armed, and was not used since. A thread that
//! uses it while another sleeps there therefore wakes that one, once. An
//! [`Engine`](crate::Engine) then finds that other threads drive, and sleeps for short times
//! without arming the endpoint, until they stop or ask it to take over. Where there is an engine,
//! only the engine sleeps on the descriptor.

use crate::{Error, Idle, drivers::SleepOn, state::State};
use petasos_fabric::{EventFd, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Idle passes between two reads of the clock.
const PASSES: u32 = 32;
/// One in so many idle passes moves everything on.
const FULL: u32 = 4;
/// The sleep of a thread whose endpoint has no descriptor.
const NAP: Duration = Duration::from_micros(50);
/// How often an engine checks whether other threads still drive.
const WATCH: Duration = Duration::from_micros(250);

/// The state, and what wakes threads that wait for it.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The endpoint's descriptor.
    fd: Option<OwnedFd>,
    /// Ends a sleep on that descriptor. The endpoint's own notifier does not, once another thread
    /// has used it.
    wakeup: EventFd,
    pub(crate) idle: Idle,
}

impl Shared {
    pub(crate) fn new(state: State) -> Result<Shared, Error> {
        let system = |error: &dyn ToString| Error::System(error.to_string());
        let fd = state.network.descriptor();
        Ok(Shared {
            fd: fd.map_err(|error| system(&error))?,
            wakeup: EventFd::new().map_err(|error| system(&error))?,
            idle: state.config.idle,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the sleep of all threads.
    pub(crate) fn wake(&self) {
        self.wakeup.signal();
        self.changed.notify_all();
    }

    /// To be called instead of unlocking where something was changed.
    #[inline]
    pub(crate) fn leave(&self, state: MutexGuard<'_, State>) {
        // Mostly nothing follows from it, and no thread sleeps.
        if state.events.has_due() || state.drivers.may_sleep() {
            self.leave_and_wake(state);
        }
    }

    #[inline(never)]
    fn leave_and_wake(&self, mut guard: MutexGuard<'_, State>) {
        guard.run_due();
        let state = &mut *guard;
        let wake_sleeper = state.drivers.disarm_if(state.network.was_used());
        // Threads on the condition variable are woken by news, and when no thread drives or sleeps
        // on the descriptor for them any more.
        let wake_waiting = state.drivers.any_waits() && {
            let alone = state.drivers.none_is_left();
            state.events.take_news() || alone
        };
        drop(guard);
        if wake_sleeper {
            self.wakeup.signal();
        }
        if wake_waiting {
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
        state.drivers.begin_driving();
        let mut idle = Spinning::new(self.idle);
        // Counted from when nothing was there.
        let mut end = None;
        let result = loop {
            if state.drivers.has_ended() {
                break Err(Error::Aborted);
            }
            match ready(&mut state) {
                Ok(Some(found)) => break Ok(found),
                Err(error) => break Err(error),
                Ok(None) => {}
            }
            let busy = if timeout.is_zero() { state.pass() } else { idle.pass(&mut state) };
            if busy {
                if state.drivers.any_waits() && state.events.take_news() {
                    self.changed.notify_all();
                }
                continue;
            }
            if timeout.is_zero() {
                break Err(Error::Timeout);
            }
            if let Some(now) = idle.count_idle() {
                let end = *end.get_or_insert(now.checked_add(timeout));
                if end.is_some_and(|end| now >= end) {
                    break Err(Error::Timeout);
                }
            }
            if idle.is_over() {
                let rest = end.flatten().map(|end| end.saturating_duration_since(Instant::now()));
                state.drivers.end_driving();
                state = self.sleep(state, rest);
                state.drivers.begin_driving();
                idle.restart();
            } else {
                state.network.relax();
                if idle.is_full() {
                    // Other threads may lock the state.
                    drop(state);
                    state = self.lock();
                }
            }
        };
        state.drivers.end_driving();
        (state, result)
    }

    /// Sleeps until there may be something, or for so long.
    fn sleep<'a>(
        &'a self,
        mut guard: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let state = &mut *guard;
        match state.drivers.choose_sleep(state.network.was_used()) {
            SleepOn::Descriptor => return self.sleep_armed(guard, longest),
            SleepOn::ConditionAfterWake => self.wakeup.signal(),
            SleepOn::Condition => {}
        }
        state.drivers.begin_waiting();
        let longest = longest.unwrap_or(Duration::from_secs(1));
        let waited = self.changed.wait_timeout(guard, longest);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.drivers.end_waiting();
        state
    }

    /// Sleeps on the endpoint, which will signal its descriptor; not if there is something to do.
    pub(crate) fn sleep_armed<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        if state.process.is_none() {
            // What comes is left where it is until the directory has changed, which wakes us.
            return self.sleep_on(state, longest);
        }
        let Some(until) = state.arm() else { return state };
        state.drivers.arm();
        let rest = (until != Time::NEVER).then(|| until.since(state.network.now()));
        self.sleep_on(state, longest.into_iter().chain(rest).min())
    }

    /// Sleeps for a short time, while other threads drive.
    pub(crate) fn watch<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.sleep_on(state, Some(WATCH))
    }

    fn sleep_on<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        state.drivers.begin_sleep();
        let unnamed = state.process.is_none();
        drop(state);
        match &self.fd {
            Some(fd) => {
                let timeout = longest.and_then(|longest| Timespec::try_from(longest).ok());
                // After an interrupted or failed wait the caller finds nothing, and waits again.
                let mut wait = [self.wakeup.as_fd(), fd.as_fd()]
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
                let watched = if unnamed { &mut wait[..1] } else { &mut wait[..] };
                if poll(watched, timeout.as_ref()).is_ok() && !wait[0].revents().is_empty() {
                    self.wakeup.take();
                }
            }
            None => std::thread::sleep(longest.map_or(NAP, |longest| longest.min(NAP))),
        }
        let mut state = self.lock();
        state.drivers.end_sleep();
        state.network.read_clock();
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

    /// One pass: false if there was nothing to do. Most passes only take messages, as mostly a
    /// message is waited for; one in [`FULL`] moves everything on.
    #[inline]
    pub(crate) fn pass(&mut self, state: &mut State) -> bool {
        let busy = if self.is_full() { state.pass() } else { state.take_waiting_messages() };
        if busy {
            self.restart();
        }
        busy
    }

    /// Whether it is time to move everything on, and to let other threads lock the state. The first
    /// passes are not full: while messages go to and fro, the next one is there before.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.idle == Idle::Sleep || self.passes % FULL == FULL - 1
    }

    /// There was something to do: counts from the beginning.
    #[inline]
    pub(crate) fn restart(&mut self) {
        (self.since, self.passes, self.over) = (None, 0, false);
    }

    /// Counts a pass in which there was nothing to do. Gives the time, if the clock was read.
    #[inline]
    pub(crate) fn count_idle(&mut self) -> Option<Instant> {
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

    /// Whether the thread is to sleep now.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}
