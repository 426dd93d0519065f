//! The network interface as a program uses it.

use crate::{
    Accepts, Action, Config, Count, Counter, Descriptor, Directory, Error, EventQueue, Handle,
    InterfaceId, Limits, List, MatchEntry, Operation, PortalOptions, ProcessId, Promises, Status,
    Taken, descriptor::Bound, flags::Quiet, matching::EntryError, state::State, wait::Shared,
};
use petasos_fabric::{Clock, Endpoint, Time};
use std::{
    fmt,
    sync::{Arc, MutexGuard},
    time::Duration,
};

/// A network interface over one endpoint: portals for other processes, and operations at theirs.
///
/// Cheap to clone, and usable from any thread: all of it lies behind one lock, which is not held
/// while a thread sleeps. It is driven by threads that wait on it, by [`Interface::progress`], and
/// by the thread of an [`Engine`](crate::Engine) if there is one; then a process that computes
/// still answers.
///
/// The endpoint is closed with the last clone: [`Interface::close`] waits before that for what is
/// on its way.
///
/// ```
/// use petasos_fabric::Endpoint;
/// use petasos_portals::{Config, Interface, PortalOptions, ProcessId, ProcessMap};
/// use std::sync::Arc;
///
/// let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// // A job of one process: rank 0 is this endpoint.
/// let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// assert_eq!(interface.process(), ProcessId::rank(0));
/// let portal = interface.portal(PortalOptions { index: Some(4), ..Default::default() })?;
/// assert_eq!(portal, 4);
/// interface.close_portal(portal)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Interface {
    pub(crate) shared: Arc<Shared>,
}

/// Passes before something is said to be in use, which take in what has come.
const PASSES: u32 = 100;

impl Interface {
    /// Opens an interface over an endpoint whose address the directory knows.
    ///
    /// # Errors
    /// [`Error::NotInDirectory`] if the directory does not know the endpoint's address (but see
    /// [`Config::named_later`]), [`Error::System`] if the system gives no descriptor for the
    /// wake-up of threads, [`Error::Argument`] if messages of the transport are too short.
    pub fn open(
        endpoint: Box<dyn Endpoint>,
        directory: Arc<dyn Directory>,
        config: Config,
    ) -> Result<Interface, Error> {
        Interface::with(endpoint, directory, config, Ok(Clock::start()))
    }

    /// Opens an interface whose time is given with [`Interface::progress_at`], as on the simulated
    /// network.
    ///
    /// # Errors
    /// As [`Interface::open`].
    pub fn with_given_time(
        endpoint: Box<dyn Endpoint>,
        directory: Arc<dyn Directory>,
        config: Config,
        now: Time,
    ) -> Result<Interface, Error> {
        Interface::with(endpoint, directory, config, Err(now))
    }

    fn with(
        endpoint: Box<dyn Endpoint>,
        directory: Arc<dyn Directory>,
        config: Config,
        time: Result<Clock, Time>,
    ) -> Result<Interface, Error> {
        let state = State::new(endpoint, directory, config, time)?;
        Ok(Interface { shared: Arc::new(Shared::new(state)?) })
    }

    /// Does something with the state, and runs what that triggers.
    #[inline]
    pub(crate) fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = work(&mut state);
        self.shared.leave(state);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Which interface of this process it is: the one that its handles belong to.
    #[must_use]
    pub fn id(&self) -> InterfaceId {
        self.lock().id
    }

    /// The user and the job that requests of this interface name.
    #[must_use]
    pub fn user_and_job(&self) -> (u32, u32) {
        let state = self.lock();
        (state.config.user, state.config.job)
    }

    /// This process, as the directory names it; [`ProcessId::ANY`] while the directory does not
    /// know it ([`Config::named_later`]).
    #[must_use]
    pub fn process(&self) -> ProcessId {
        self.lock().process.unwrap_or(ProcessId::ANY)
    }

    /// Says that the directory has changed: it knows this process, or others whose messages were
    /// dropped before. Gives this process.
    ///
    /// # Errors
    /// [`Error::NotInDirectory`] if it does not know this process. Nothing has changed then.
    pub fn directory_changed(&self) -> Result<ProcessId, Error> {
        let changed = self.with_state(|state| {
            let process = state.network.own_process()?;
            state.process = Some(process);
            state.network.identify_all();
            state.events.announce();
            Ok(process)
        });
        self.shared.wake();
        changed
    }

    /// The distance of a process, as the directory says: less is nearer, 0 is this process.
    ///
    /// # Errors
    /// [`Error::Process`] if the directory does not know the process, [`Error::NotInDirectory`] if
    /// it does not know this one.
    pub fn distance(&self, process: ProcessId) -> Result<u32, Error> {
        let state = self.lock();
        state.network.check_process(process)?;
        let own = state.process.map_or_else(|| state.network.own_process(), Ok)?;
        Ok(state.network.distance(own, process))
    }

    /// The limits of this interface, and what it promises of operations: its settings, as far as
    /// the transport allows them.
    #[must_use]
    pub fn limits(&self) -> (Limits, Promises) {
        let state = self.lock();
        let short = state.config.eager as u64;
        let coherent_atomics = state.network.has_processor_atomics();
        let promises =
            Promises { coherent_atomics, ordered: short, volatile: short, ..Promises::default() };
        (state.config.limits, promises)
    }

    /// The status registers: what was counted, and what there is now.
    #[must_use]
    pub fn status(&self) -> Status {
        let state = self.lock();
        let (entries, headers) = state.portals.matching.len();
        Status {
            operations: state.operations.len() as u64,
            entries: entries as u64,
            headers: headers as u64,
            peers: state.network.peers() as u64,
            ..state.status
        }
    }

    /// Opens a portal.
    ///
    /// # Errors
    /// [`Error::PortalTaken`] or [`Error::Portal`] for the index that is wanted,
    /// [`Error::NoPortal`] if none is free, [`Error::Handle`] for a stale queue,
    /// [`Error::Argument`] for a queue of one event with flow control.
    pub fn portal(&self, options: PortalOptions) -> Result<u16, Error> {
        let state = &mut *self.lock();
        state.portals.open(options, &mut state.events)
    }

    /// Closes a portal without entries and headers.
    ///
    /// # Errors
    /// [`Error::Portal`] if it is not open, [`Error::InUse`] if it has entries or headers.
    pub fn close_portal(&self, portal: u16) -> Result<(), Error> {
        let state = &mut *self.lock();
        state.portals.close(portal, &mut state.events).map_err(|error| match error {
            EntryError::InUse => Error::InUse("the portal"),
            error => error.explain(portal, &state.config.limits),
        })
    }

    /// Enables a portal that was disabled.
    ///
    /// # Errors
    /// [`Error::Portal`] if it is not open.
    pub fn enable(&self, portal: u16) -> Result<(), Error> {
        let known = self.lock().portals.matching.enable(portal, true);
        if known { Ok(()) } else { Err(Error::Portal(portal)) }
    }

    /// Disables a portal: messages are refused with [`Failure::PortalDisabled`](crate::Failure).
    ///
    /// # Errors
    /// [`Error::Portal`] if it is not open.
    pub fn disable(&self, portal: u16) -> Result<(), Error> {
        let known = self.lock().portals.matching.enable(portal, false);
        if known { Ok(()) } else { Err(Error::Portal(portal)) }
    }

    /// Appends an entry to a list of a portal: [`Event::Link`](crate::Event::Link) follows. An
    /// entry of the priority list first gets the messages that came before it, in the order in
    /// which they came ([`Event::Overflow`]). If it is used up by that, and unlinks, it is not
    /// linked, and its handle is stale at once.
    ///
    /// [`Event::Overflow`]: crate::Event::Overflow
    ///
    /// # Errors
    /// [`Error::Portal`] if the portal is not open, [`Error::Handle`] for a stale queue or counter,
    /// [`Error::ListTooLong`] or [`Error::NoSpace`] at a limit, [`Error::ReadOnly`] or
    /// [`Error::Argument`] if the entry makes no sense. Nothing was appended.
    pub fn append(
        &self,
        portal: u16,
        list: List,
        entry: MatchEntry,
    ) -> Result<Handle<MatchEntry>, Error> {
        self.with_state(|state| {
            state.check_entry(&entry)?;
            let entry = MatchEntry { quiet: entry.quiet.with(Quiet::PORTALS_4), ..entry };
            let appended = state.portals.append(portal, list, entry, &mut state.events);
            appended.map_err(|error| error.explain(portal, &state.config.limits))
        })
    }

    /// Unlinks an entry, and gives back what was appended: its memory belongs to the caller alone.
    /// Takes in what has come first; refused while operations or headers need the entry. Raises no
    /// event.
    ///
    /// # Errors
    /// [`Error::Handle`] if the entry is gone, [`Error::InUse`] while something needs it: try
    /// again.
    pub fn unlink(&self, entry: Handle<MatchEntry>) -> Result<MatchEntry, Error> {
        self.with_state(|state| {
            let mut passes = 0;
            loop {
                match state.portals.matching.unlink(entry) {
                    Err(EntryError::InUse) if passes < PASSES && state.pass() => passes += 1,
                    result => {
                        let limits = &state.config.limits;
                        return result.map_err(|error| error.explain(0, limits));
                    }
                }
            }
        })
    }

    /// Searches the unexpected messages for those that an entry would get, and leaves them there:
    /// one with `once`, so many with `threshold`, else all. [`Event::Search`] comes for each, the
    /// oldest first, or says that there is none. Of the entry these count: what it matches, whether
    /// it truncates, its queue, its counter with [`Counts::OVERFLOW`], and the events that it does
    /// not want ([`Quiet::OVERFLOW`], [`Quiet::COMMUNICATION`], [`Quiet::SUCCESS`]). The counter
    /// counts each message, and one failure if fewer were found than were searched for; a search
    /// for all always counts that failure.
    ///
    /// [`Event::Search`]: crate::Event::Search
    /// [`Counts::OVERFLOW`]: crate::Counts::OVERFLOW
    ///
    /// # Errors
    /// As [`Interface::append`], but for the limits of lists.
    pub fn search(&self, portal: u16, entry: MatchEntry) -> Result<(), Error> {
        self.with_state(|state| state.search(portal, &entry))
    }

    /// Takes the unexpected messages that an entry would get: [`Event::Overflow`] comes for each,
    /// or [`Event::Search`] if there is none. Of the entry the same counts as for
    /// [`Interface::search`].
    ///
    /// [`Event::Overflow`]: crate::Event::Overflow
    /// [`Event::Search`]: crate::Event::Search
    ///
    /// # Errors
    /// As [`Interface::search`].
    pub fn search_and_delete(&self, portal: u16, entry: MatchEntry) -> Result<(), Error> {
        self.with_state(|state| state.search_and_delete(portal, entry))
    }

    /// Binds memory for operations of this process.
    ///
    /// # Errors
    /// [`Error::Handle`] for a stale queue or counter, [`Error::NoSpace`] beyond
    /// `limits.descriptors`.
    pub fn bind(&self, descriptor: Descriptor) -> Result<Handle<Descriptor>, Error> {
        let mut state = self.lock();
        state.events.check(descriptor.queue, descriptor.counter)?;
        let quiet = descriptor.quiet.with(Quiet::PORTALS_4);
        state.descriptors.bind(Bound::new(Descriptor { quiet, ..descriptor }))
    }

    /// Releases a descriptor, and gives it back. Takes in what has come first; refused while
    /// operations need the descriptor.
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale, [`Error::InUse`] while operations need it: try
    /// again.
    pub fn release(&self, descriptor: Handle<Descriptor>) -> Result<Descriptor, Error> {
        self.with_state(|state| {
            let mut passes = 0;
            while state.descriptors.bound(descriptor)?.is_in_use() {
                if passes >= PASSES || !state.pass() {
                    return Err(Error::InUse("the descriptor"));
                }
                passes += 1;
            }
            let bound = state.descriptors.remove(descriptor);
            Ok(bound.ok_or(Error::Handle("a descriptor"))?.spec)
        })
    }

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

    /// The next event of a queue; does not drive the interface.
    ///
    /// # Errors
    /// [`Error::Empty`] if there is none, [`Error::Handle`] if the handle is stale.
    pub fn take_event(&self, queue: Handle<EventQueue>) -> Result<Taken, Error> {
        self.lock().events.take(queue)
    }

    /// Waits for the next event of a queue, and drives the interface meanwhile.
    ///
    /// # Errors
    /// [`Error::Timeout`] if none came in time, [`Error::Aborted`] if the interface was ended,
    /// [`Error::Handle`] if the queue is gone, or was freed meanwhile.
    pub fn wait_event(&self, queue: Handle<EventQueue>, timeout: Duration) -> Result<Taken, Error> {
        let (mut state, found) = self
            .shared
            .wait(timeout, |state| Ok((!state.events.queue(queue)?.is_empty()).then_some(())));
        let taken = match found {
            Ok(()) => state.events.take(queue),
            Err(error) => Err(error),
        };
        self.shared.leave(state);
        taken
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
        let (mut state, found) =
            self.shared.wait(timeout, |state| state.events.least_recently_polled(queues));
        let taken = found.and_then(|at| Ok((at, state.events.take_polled(queues[at])?)));
        self.shared.leave(state);
        taken
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

    /// The value of a counter; does not drive the interface.
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale.
    pub fn count(&self, counter: Handle<Counter>) -> Result<Count, Error> {
        self.lock().events.value(counter)
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
        let (state, found) =
            self.shared.wait(timeout, |state| state.events.first_reached(counters));
        self.shared.leave(state);
        found
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

    fn act(&self, counter: Handle<Counter>, action: Action) -> Result<(), Error> {
        self.with_state(|state| state.events.act(counter, action))
    }

    /// Lets an action wait until a counter's successes and failures are `threshold` together; it
    /// runs at once if they are. An operation is checked again when it is started: what is refused
    /// then is counted ([`Status::misfired`]).
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

    /// Starts an operation. Its events say how it ended.
    ///
    /// # Errors
    /// [`Error::Handle`] for a stale descriptor, [`Error::OutOfBounds`] beyond its end,
    /// [`Error::Process`] if the target is unknown, [`Error::NoSpace`] beyond `limits.operations`,
    /// [`Error::AtomicTooLong`], [`Error::ReadOnly`] or [`Error::Argument`]. The operation was not
    /// started, and no event comes.
    pub fn start(&self, operation: Operation) -> Result<(), Error> {
        self.with_state(|state| state.start(&operation))
    }

    /// Starts operations one after the other, under one lock, up to the first that is refused. All
    /// before that were started.
    ///
    /// # Errors
    /// The number of the operation that was refused, from 0, and why, as [`Interface::start`].
    pub fn start_all(
        &self,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<(), (usize, Error)> {
        self.with_state(|state| {
            let mut numbered = operations.into_iter().enumerate();
            numbered.try_for_each(|(number, operation)| {
                state.start(&operation).map_err(|error| (number, error))
            })
        })
    }

    /// One pass: everything makes progress by a bounded amount, without blocking. False if there
    /// was nothing to do.
    pub fn progress(&self) -> bool {
        self.with_state(State::pass)
    }

    /// The same at a given time, for an interface of [`Interface::with_given_time`].
    pub fn progress_at(&self, now: Time) -> bool {
        self.with_state(|state| {
            state.network.advance_to(now);
            state.pass()
        })
    }

    /// Ends all waiting on this interface, now and later, with [`Error::Aborted`].
    pub fn abort(&self) {
        self.with_state(|state| {
            state.drivers.end();
            state.events.announce();
        });
        self.shared.wake();
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

    pub(crate) fn check_entry(&self, entry: &MatchEntry) -> Result<(), Error> {
        self.events.check(entry.queue, entry.counter)?;
        if entry.accepts.has(Accepts::PUT) && !entry.memory.is_writable() {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interface({:?})", self.process())
    }
}
