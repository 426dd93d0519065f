//! Processes that take part, and where they are reached.

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

    /// Whether it names one process rather than some.
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

/// Says which process is reached where, and which is at an address. A process that is not in it is
/// a stranger: its messages are dropped and counted.
///
/// Shared by all interfaces of a process. Implement it to compute addresses rather than to keep
/// them: then nothing at all grows with the job.
pub trait Directory: Send + Sync {
    /// Where a process is reached; `None` if there is no such process.
    fn address(&self, process: ProcessId) -> Option<Address>;

    /// The process that is reached there; `None` if that is none of the job.
    fn process(&self, address: &Address) -> Option<ProcessId>;

    /// How far it is from one process to another: less is nearer, and 0 is the process itself. If
    /// not told otherwise, 1 on the same node, 2 elsewhere, and ranks are all on one node.
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
