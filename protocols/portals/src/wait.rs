//! Waiting: the state as it is driven by the threads that wait for something of it, and what they
//! wait for.

use crate::{Counter, Error, EventQueue, Handle, Idle, Interface, state::State};
use petasos_fabric::{
    Time,
    driver::{Armed, Driven, Driver, Guard},
};
use smallvec::SmallVec;
use std::time::Duration;

/// What a thread may wait for. All of it is also there when the interface was ended, or when what
/// is waited for was freed.
#[derive(Clone, Debug)]
pub(crate) enum Wait {
    /// An event of this queue.
    Event(Handle<EventQueue>),
    /// An event of one of these.
    Events(Box<[Handle<EventQueue>]>),
    /// That one of these counters has so many successes, or a failure.
    Counts(SmallVec<[(Handle<Counter>, u64); 1]>),
    /// That all has left that was begun up to then.
    Flush(u64),
}

impl Driven for State {
    type Wait = Wait;

    #[inline]
    fn pass(&mut self, full: bool) -> bool {
        if full { State::pass(self) } else { self.take_waiting_messages() }
    }

    #[inline]
    fn is_ready(&mut self, what: &Wait) -> bool {
        self.events.have_ended()
            || match what {
                Wait::Event(queue) => {
                    self.events.queue(*queue).map_or(true, |queue| !queue.is_empty())
                }
                Wait::Events(queues) => {
                    !matches!(self.events.least_recently_polled(queues), Ok(None))
                }
                Wait::Counts(counts) => !matches!(self.events.first_reached(counts), Ok(None)),
                Wait::Flush(upto) => self.has_left(*upto),
            }
    }

    #[inline]
    fn take_news(&mut self) -> bool {
        self.events.take_news()
    }

    #[inline]
    fn relax(&self) {
        self.network.relax();
    }

    fn arm(&mut self) -> Armed {
        if self.process.is_none() {
            // What comes is left where it is until the directory has changed, which wakes us.
            return Armed::Deaf;
        }
        if self.events.has_due() {
            return Armed::Busy;
        }
        match self.network.arm() {
            None => Armed::Busy,
            Some(Time::NEVER) => Armed::For(None),
            Some(until) => Armed::For(Some(until.since(self.network.now()))),
        }
    }

    fn was_used(&self) -> bool {
        self.network.was_used()
    }

    fn awake(&mut self) {
        self.network.read_clock();
    }
}

impl Interface {
    pub(crate) fn driver(state: State) -> Result<Driver<State>, Error> {
        let system = |error: &dyn ToString| Error::System(error.to_string());
        let fd = state.network.descriptor().map_err(|error| system(&error))?;
        let spin = match state.config.idle {
            Idle::Spin => None,
            Idle::Adaptive(longest) => Some(longest),
            Idle::Sleep => Some(Duration::ZERO),
        };
        Driver::new(state, fd, spin).map_err(|error| system(&error))
    }

    /// Waits, and drives meanwhile; the state is locked after that.
    #[inline]
    pub(crate) fn wait(
        &self,
        timeout: Duration,
        what: &Wait,
    ) -> (Guard<'_, State>, Result<(), Error>) {
        let state = self.shared.driver.wait(timeout, what);
        let result = match state.is_ready() {
            _ if state.events.have_ended() => Err(Error::Aborted),
            true => Ok(()),
            false => Err(Error::Timeout),
        };
        (state, result)
    }
}
