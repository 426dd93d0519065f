//! The processes of one interface: by node and number, or by rank, once the map is set.

use crate::{
    abi::{ANY, PART_ANY, ptl_process_t},
    place::Place,
};
use petasos_fabric::Address;
use petasos_portals::{ANY_PART, Directory, ProcessId};
use std::{
    collections::HashMap,
    sync::{OnceLock, RwLock},
};

/// The map of a logical interface.
#[derive(Debug)]
struct Map {
    processes: Vec<ptl_process_t>,
    ranks: HashMap<ptl_process_t, u32>,
}

/// Says which process is at which address.
#[derive(Debug)]
pub(crate) struct Processes {
    place: Place,
    /// The number of the interface.
    interface: u32,
    pub(crate) logical: bool,
    /// This process.
    pub(crate) own: ptl_process_t,
    map: RwLock<Option<Map>>,
    /// The size of the map, and the rank of this process, once it is set.
    known: OnceLock<(u32, u32)>,
}

impl Processes {
    pub(crate) fn new(
        place: Place,
        interface: u32,
        logical: bool,
        own: ptl_process_t,
    ) -> Processes {
        let (map, known) = (RwLock::default(), OnceLock::new());
        Processes { place, interface, logical, own, map, known }
    }

    fn with_map<T>(&self, read: impl FnOnce(&Map) -> Option<T>) -> Option<T> {
        let map = self.map.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        read(map.as_ref()?)
    }

    /// Sets the map, in which this process is; false if it was set.
    pub(crate) fn set_map(&self, processes: Vec<ptl_process_t>) -> bool {
        let pairs = (0..).zip(&processes).map(|(rank, process)| (*process, rank));
        let ranks: HashMap<_, _> = pairs.collect();
        let known = (processes.len() as u32, ranks.get(&self.own).copied().unwrap_or(ANY));
        let mut map = self.map.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if map.is_some() {
            return false;
        }
        *map = Some(Map { processes, ranks });
        self.known.set(known).is_ok()
    }

    /// The map, if it is set.
    pub(crate) fn map(&self) -> Option<Vec<ptl_process_t>> {
        self.with_map(|map| Some(map.processes.clone()))
    }

    /// The rank of this process, if the map is set.
    pub(crate) fn own_rank(&self) -> Option<u32> {
        self.known.get().map(|(_, rank)| *rank)
    }

    /// Whether it is this process.
    #[inline]
    pub(crate) fn is_own(&self, process: ProcessId) -> bool {
        match self.logical {
            true => self.own_rank() == Some(process.process),
            false => (process.node, process.process) == (self.own.nid, self.own.pid),
        }
    }

    /// A process as an operation names it: exactly one. `None` if it is none of the map.
    #[inline]
    pub(crate) fn target(&self, id: ptl_process_t) -> Option<ProcessId> {
        if self.logical {
            let known = self.known.get().is_some_and(|(size, _)| id.nid < *size);
            return known.then_some(ProcessId::rank(id.nid));
        }
        (id.pid < crate::abi::PID_MAX).then_some(ProcessId::physical(id.nid, id.pid))
    }

    /// A process as an entry names it, with wildcards.
    pub(crate) fn source(&self, id: ptl_process_t) -> ProcessId {
        if self.logical {
            return if id.nid == ANY { ProcessId::ANY } else { ProcessId::rank(id.nid) };
        }
        let part = |part| if part == PART_ANY || part == ANY { ANY_PART } else { part };
        ProcessId { node: part(id.nid), process: part(id.pid) }
    }

    /// A process as C names it.
    #[inline]
    pub(crate) fn name(&self, process: ProcessId) -> ptl_process_t {
        match self.logical {
            true => ptl_process_t { nid: process.process, pid: 0 },
            false => ptl_process_t { nid: process.node, pid: process.process },
        }
    }
}

impl Directory for Processes {
    fn address(&self, process: ProcessId) -> Option<Address> {
        let id = match self.logical {
            true => self.with_map(|map| map.processes.get(process.process as usize).copied())?,
            false => ptl_process_t { nid: process.node, pid: process.process },
        };
        self.place.address(self.interface, id)
    }

    fn process(&self, address: &Address) -> Option<ProcessId> {
        let id = self.place.process(self.interface, address)?;
        match self.logical {
            true => self.with_map(|map| map.ranks.get(&id).copied()).map(ProcessId::rank),
            false => Some(ProcessId::physical(id.nid, id.pid)),
        }
    }
}
