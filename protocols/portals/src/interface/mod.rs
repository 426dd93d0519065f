//! The network interface as a program uses it: here its opening, its identity and its progress;
//! what it offers to other processes (`target`); its own operations (`operations`); and how a
//! program learns of both (`events`).

mod events;
mod operations;
mod target;

use crate::{
    Config, Directory, Error, InterfaceId, Limits, ProcessId, Promises, Status, events::Boards,
    state::State,
};
use petasos_fabric::{
    Clock, Endpoint, Time,
    driver::{Driver, Guard},
};
use std::{fmt, sync::Arc};

/// A network interface over one endpoint: portals for other processes, and operations at theirs.
///
/// Cheap to clone, and usable from any thread: all of it lies behind one lock, which is not held
/// while a thread sleeps; counters, and whether a queue has events, are read without it. It is
/// driven by threads that wait on it, by [`Interface::progress`], and
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

/// What the clones of an interface share.
pub(crate) struct Shared {
    id: InterfaceId,
    /// The state, and the threads that drive it.
    pub(crate) driver: Driver<State>,
    /// What is read without the lock.
    boards: Arc<Boards>,
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
        let boards = Arc::default();
        let state = State::new(endpoint, directory, config, time, &boards)?;
        let (id, driver) = (state.id, Interface::driver(state)?);
        Ok(Interface { shared: Arc::new(Shared { id, driver, boards }) })
    }

    /// Does something with the state, and runs what that triggers.
    #[inline]
    pub(crate) fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = work(&mut state);
        state.run_due();
        result
    }

    #[inline]
    fn lock(&self) -> Guard<'_, State> {
        self.shared.driver.lock()
    }

    /// Which interface of this process it is: the one that its handles belong to.
    #[must_use]
    pub fn id(&self) -> InterfaceId {
        self.shared.id
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
        self.shared.driver.kick();
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

    /// One pass: everything makes progress by a bounded amount, without blocking. False if there
    /// was nothing to do.
    pub fn progress(&self) -> bool {
        self.shared.driver.progress()
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
            state.events.end();
        });
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interface({:?})", self.process())
    }
}
