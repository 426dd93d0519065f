//! The state of an interface, all of it behind one lock.

use crate::{
    Config, Directory, Error, InterfaceId, ProcessId, Status,
    descriptor::Descriptors,
    events::{Boards, Events},
    fences::Fences,
    network::{HEADER, Network},
    outstanding::Operations,
    portals::PortalTable,
};
use petasos_fabric::{Clock, Endpoint, Time};
use std::sync::Arc;

/// Each part owns what it is about. What takes several of them is done by methods of this type: an
/// operation's way through its initiator (`initiator`), and through its target (`target`); a pass
/// over all (`drive`), a flush (`flush`), a search (`search`).
pub(crate) struct State {
    /// Which interface of this process it is.
    pub(crate) id: InterfaceId,
    /// This process, once the directory knows it.
    pub(crate) process: Option<ProcessId>,
    pub(crate) config: Config,
    pub(crate) status: Status,
    /// The endpoint, its peers, and what waits to be sent.
    pub(crate) network: Network,
    /// What is offered to other processes.
    pub(crate) portals: PortalTable,
    /// Memory for operations of this process.
    pub(crate) descriptors: Descriptors,
    /// Operations of this process that have not ended.
    pub(crate) operations: Operations,
    /// Event queues and counters.
    pub(crate) events: Events,
    /// What says that all has left.
    pub(crate) fences: Fences,
    /// Passes so far.
    pub(crate) passes: u32,
    /// Threads that wait for a flush.
    pub(crate) flushes: u32,
    /// Whether there is an engine.
    pub(crate) engine: bool,
    /// The number of the latest operation, of this process or served by it.
    link: u64,
}

impl State {
    pub(crate) fn new(
        endpoint: Box<dyn Endpoint>,
        directory: Arc<dyn Directory>,
        mut config: Config,
        time: Result<Clock, Time>,
        boards: &Arc<Boards>,
    ) -> Result<State, Error> {
        let address = endpoint.address();
        let process = directory.process(address);
        if process.is_none() && !config.named_later {
            return Err(Error::NotInDirectory(address.as_str().to_owned()));
        }
        let limit = u64::from(u32::MAX);
        let id = InterfaceId::new().ok_or(Error::NoSpace { what: "interfaces", limit })?;
        let limits = endpoint.capabilities().limits;
        let room = limits.max_inject.saturating_sub(HEADER);
        if room < 64 || limits.max_header < HEADER {
            return Err(Error::Argument("messages of this transport are too short"));
        }
        config.eager = config.eager.min(room);
        config.limits.atomic = config.limits.atomic.min(room);
        config.lend_above = config.lend_above.max(config.eager);
        Ok(State {
            id,
            process,
            status: Status::default(),
            network: Network::new(endpoint, directory, &config, time),
            portals: PortalTable::new(id, &config.limits),
            descriptors: Descriptors::new(id, config.limits.descriptors),
            operations: Operations::new(config.limits.operations),
            events: Events::new(id, &config.limits, Arc::clone(boards)),
            fences: Fences::default(),
            passes: 0,
            flushes: 0,
            engine: false,
            link: 0,
            config,
        })
    }

    /// A number for an operation.
    #[inline]
    pub(crate) fn next_link(&mut self) -> u64 {
        self.link += 1;
        self.link
    }

    /// The number of the latest operation.
    pub(crate) fn latest_link(&self) -> u64 {
        self.link
    }
}
