//! Event queues, counters, and the operations that counters trigger.

use super::Interface;
use crate::{
    Action, Count, Counter, Error, EventQueue, Handle, Taken, events, state::State, wait::Wait,
};
use std::time::Duration;

/// Event queues, counters and triggered operations.
impl Interface {
    /// Makes an event queue for so many events.
    ///
    /// # Errors
    /// [`Error::Argument`] for a capacity of 0, [`Error::NoSpace`] beyond `limits.queues`.
    pub fn queue(&self, capacity: usize) -> Result<Handle<EventQueue>, Error> {
        if capacity == 0 {
            return Err(Error::Argument("a queue holds an event at least"));
        }
        self.lock().events.add_queue(capacity)
    }

    /// Frees an event queue. Events for it are dropped from then on; threads that wait for one get
    /// [`Error::Handle`].
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale.
    pub fn free_queue(&self, queue: Handle<EventQueue>) -> Result<(), Error> {
        self.with_state(|state| state.events.free_queue(queue))
    }

    /// The next event of a queue; does not drive the interface. That there is none is seen without
    /// the lock.
    ///
    /// # Errors
    /// [`Error::Empty`] if there is none, [`Error::Handle`] if the handle is stale.
    pub fn take_event(&self, queue: Handle<EventQueue>) -> Result<Taken, Error> {
        if self.shared.boards.has_event(queue)? {
            self.lock().events.take(queue)
        } else {
            Err(Error::Empty)
        }
    }

    /// Waits for the next event of a queue, and drives the interface meanwhile.
    ///
    /// # Errors
    /// [`Error::Timeout`] if none came in time, [`Error::Aborted`] if the interface was ended,
    /// [`Error::Handle`] if the queue is gone, or was freed meanwhile.
    pub fn wait_event(&self, queue: Handle<EventQueue>, timeout: Duration) -> Result<Taken, Error> {
        let (mut state, waited) = self.wait(timeout, &Wait::Event(queue));
        waited?;
        state.events.take(queue)
    }

    /// Waits for an event of any of several queues: the position of the queue, and the event. If
    /// several have one, it is taken from the queue that was polled so least recently.
    ///
    /// # Errors
    /// As [`Interface::wait_event`], for any of the queues.
    pub fn poll_events(
        &self,
        queues: &[Handle<EventQueue>],
        timeout: Duration,
    ) -> Result<(usize, Taken), Error> {
        let (mut state, waited) = self.wait(timeout, &Wait::Events(queues.into()));
        waited?;
        let at = state.events.least_recently_polled(queues)?.ok_or(Error::Timeout)?;
        Ok((at, state.events.take_polled(queues[at])?))
    }

    /// Makes a counter.
    ///
    /// # Errors
    /// [`Error::NoSpace`] beyond `limits.counters`.
    pub fn counter(&self) -> Result<Handle<Counter>, Error> {
        self.lock().events.add_counter()
    }

    /// Frees a counter; the actions that wait for it are dropped.
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale.
    pub fn free_counter(&self, counter: Handle<Counter>) -> Result<(), Error> {
        self.with_state(|state| state.events.free_counter(counter))
    }

    /// The value of a counter; does not drive the interface, and takes no lock.
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale.
    pub fn count(&self, counter: Handle<Counter>) -> Result<Count, Error> {
        self.shared.boards.count(counter)
    }

    /// Waits until a counter has so many successes, or a failure; drives the interface meanwhile.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it was not reached in time, [`Error::Aborted`] if the interface was
    /// ended, [`Error::Handle`] if the counter is gone, or was freed meanwhile.
    pub fn wait_count(
        &self,
        counter: Handle<Counter>,
        success: u64,
        timeout: Duration,
    ) -> Result<Count, Error> {
        let (_, count) = self.poll_counts(&[(counter, success)], timeout)?;
        Ok(count)
    }

    /// The same for any of several counters: the position of the counter, and its value.
    ///
    /// # Errors
    /// As [`Interface::wait_count`], for any of the counters.
    pub fn poll_counts(
        &self,
        counters: &[(Handle<Counter>, u64)],
        timeout: Duration,
    ) -> Result<(usize, Count), Error> {
        let reached =
            || events::first_reached(counters, |counter| self.shared.boards.count(counter));
        // Without the lock, unless it was ended: that is seen behind it.
        if !self.shared.boards.have_ended()
            && let Some(found) = reached()?
        {
            return Ok(found);
        }
        let (state, waited) = self.wait(timeout, &Wait::Counts(counters.into()));
        waited?;
        state.events.first_reached(counters)?.ok_or(Error::Timeout)
    }

    /// Adds to a counter.
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale.
    pub fn add(&self, counter: Handle<Counter>, count: Count) -> Result<(), Error> {
        self.act(counter, Action::Add(counter, count))
    }

    /// Sets a counter, also to a lower value: actions whose threshold is not reached then go on
    /// waiting.
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale.
    pub fn set(&self, counter: Handle<Counter>, count: Count) -> Result<(), Error> {
        self.act(counter, Action::Set(counter, count))
    }

    /// Lets an action wait until a counter's successes and failures are `threshold` together; it
    /// runs at once if they are. An operation is checked again when it is started: what is refused
    /// then is counted ([`Status::misfired`](crate::Status)).
    ///
    /// # Errors
    /// [`Error::Handle`] for a stale counter, [`Error::NoSpace`] beyond `limits.triggered`, and
    /// what `action` itself would be refused for.
    pub fn trigger(
        &self,
        counter: Handle<Counter>,
        threshold: u64,
        action: Action,
    ) -> Result<(), Error> {
        self.with_state(|state| {
            state.check_action(&action)?;
            state.events.trigger(counter, threshold, action)
        })
    }

    /// Drops all actions that wait for a counter.
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale.
    pub fn cancel_triggered(&self, counter: Handle<Counter>) -> Result<(), Error> {
        self.act(counter, Action::Cancel(counter))
    }

    fn act(&self, counter: Handle<Counter>, action: Action) -> Result<(), Error> {
        self.with_state(|state| state.events.act(counter, action))
    }
}

impl State {
    /// Checks what can be checked of an action before it is due. Its handles may be stale by then;
    /// that they are of this interface can be checked now.
    fn check_action(&self, action: &Action) -> Result<(), Error> {
        match action {
            Action::Start(operation) => {
                operation.check(self.config.limits.atomic)?;
                let parts = operation.data.iter().chain(&operation.result);
                for part in parts {
                    self.check_own(part.descriptor, "a descriptor")?;
                }
                Ok(())
            }
            Action::Add(counter, _) | Action::Set(counter, _) | Action::Cancel(counter) => {
                self.check_own(*counter, "a counter")
            }
        }
    }

    fn check_own<K>(&self, handle: Handle<K>, of: &'static str) -> Result<(), Error> {
        if handle.interface() == self.id { Ok(()) } else { Err(Error::Handle(of)) }
    }
}
