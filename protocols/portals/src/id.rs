//! Processes of a job, and their addresses.

use petasos_fabric::Address;
use std::{collections::HashMap, fmt};

/// A process as a program names it: a rank of the job, or node and process number.
///
/// Sixty-four bits, so that matching compares one word. Wildcards are for match entries only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId {
    /// The node; 0 where processes are named by rank.
    pub node: u32,
    /// The process on its node, or the rank.
    pub process: u32,
}

/// Stands for any node, or any process of a node.
pub const ANY_PART: u32 = u32::MAX;

impl ProcessId {
    /// Any process.
    pub const ANY: ProcessId = ProcessId { node: ANY_PART, process: ANY_PART };

    /// The process with this rank (logical addressing).
    #[must_use]
    pub const fn rank(rank: u32) -> ProcessId {
        ProcessId { node: 0, process: rank }
    }

    /// The process with this number on this node (physical addressing).
    #[must_use]
    pub const fn physical(node: u32, process: u32) -> ProcessId {
        ProcessId { node, process }
    }

    /// Whether it names one process, without a wildcard.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.node != ANY_PART && self.process != ANY_PART
    }

    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.node) << 32 | u64::from(self.process)
    }

    /// The bits that count when it stands in a match entry.
    pub(crate) fn mask(self) -> u64 {
        let part = |part| if part == ANY_PART { 0 } else { u64::from(u32::MAX) };
        part(self.node) << 32 | part(self.process)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ProcessId::ANY => f.write_str("any process"),
            ProcessId { node: 0, process } => write!(f, "{process}"),
            ProcessId { node: ANY_PART, process } => write!(f, "*:{process}"),
            ProcessId { node, process: ANY_PART } => write!(f, "{node}:*"),
            ProcessId { node, process } => write!(f, "{node}:{process}"),
        }
    }
}

/// Says at which address a process is, and which process is at an address. Messages of an endpoint
/// that it does not know are dropped and counted ([`Status::unknown_endpoints`](crate::Status)).
///
/// Shared by all interfaces of a process. [`ProcessMap`] is one that keeps a list. Implement it to
/// compute addresses instead, so that nothing grows with the job:
///
/// ```
/// use petasos_fabric::Address;
/// use petasos_portals::{Directory, ProcessId};
///
/// /// Rank `i` is at `tcp://10.0.0.1`, port 9000 + `i`.
/// struct Ports;
///
/// impl Directory for Ports {
///     fn address(&self, process: ProcessId) -> Option<Address> {
///         format!("tcp://10.0.0.1:{}", 9000 + process.process).parse().ok()
///     }
///
///     fn process(&self, address: &Address) -> Option<ProcessId> {
///         let port: u32 = address.rest().rsplit_once(':')?.1.parse().ok()?;
///         Some(ProcessId::rank(port.checked_sub(9000)?))
///     }
/// }
///
/// let address = Ports.address(ProcessId::rank(3)).expect("a rank");
/// assert_eq!(Ports.process(&address), Some(ProcessId::rank(3)));
/// ```
pub trait Directory: Send + Sync {
    /// The address of a process; `None` if there is no such process.
    fn address(&self, process: ProcessId) -> Option<Address>;

    /// The process at an address; `None` if that is none of the job.
    fn process(&self, address: &Address) -> Option<ProcessId>;

    /// The distance between two processes: less is nearer, and 0 is the process itself. By default
    /// 1 on the same node, and 2 elsewhere; processes named by rank count as on one node.
    fn distance(&self, from: ProcessId, to: ProcessId) -> u32 {
        match (from == to, from.node == to.node) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        }
    }
}

/// Processes and their addresses, as a list: of ranks, or of nodes and numbers.
///
/// ```
/// use petasos_portals::{Directory, ProcessId, ProcessMap};
///
/// let map = ProcessMap::ranks(["shm://a".parse()?, "shm://b".parse()?]);
/// assert_eq!(map.process(&"shm://b".parse()?), Some(ProcessId::rank(1)));
/// assert!(map.address(ProcessId::rank(2)).is_none());
/// # Ok::<(), petasos_fabric::AddressError>(())
/// ```
#[derive(Debug, Default)]
pub struct ProcessMap {
    addresses: HashMap<ProcessId, Address>,
    processes: HashMap<Address, ProcessId>,
}

impl ProcessMap {
    /// Rank `i` is reached at the address number `i`: a rank map.
    #[must_use]
    pub fn ranks(addresses: impl IntoIterator<Item = Address>) -> ProcessMap {
        (0..).map(ProcessId::rank).zip(addresses).collect()
    }
}

impl FromIterator<(ProcessId, Address)> for ProcessMap {
    fn from_iter<I: IntoIterator<Item = (ProcessId, Address)>>(pairs: I) -> ProcessMap {
        let mut map = ProcessMap::default();
        for (process, address) in pairs {
            map.processes.insert(address.clone(), process);
            map.addresses.insert(process, address);
        }
        map
    }
}

impl Directory for ProcessMap {
    fn address(&self, process: ProcessId) -> Option<Address> {
        self.addresses.get(&process).cloned()
    }

    fn process(&self, address: &Address) -> Option<ProcessId> {
        self.processes.get(address).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_addresses() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let map = ProcessMap::ranks(["self://a", "self://b"].map(address));
        assert_eq!(map.address(ProcessId::rank(1)), Some(address("self://b")));
        assert_eq!(map.process(&address("self://a")), Some(ProcessId::rank(0)));
        assert_eq!(map.address(ProcessId::rank(2)), None);
        assert_eq!(map.process(&address("self://c")), None);
        assert_eq!(map.address(ProcessId::ANY), None);
    }
}
