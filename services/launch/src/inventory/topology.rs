//! The topology around a processor: which core, caches, NUMA node and package are its own or
//! shared.

use super::{numbers, sample::System};

/// The levels of caches that are looked at.
const LEVELS: usize = 3;

/// The topology around a processor. Cores and caches are named by the number of their first
/// processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) cpu: u32,
    pub(crate) core: u32,
    /// From the first level on, without instruction caches.
    pub(crate) caches: [Option<u32>; LEVELS],
    pub(crate) numa: u32,
    pub(crate) package: u32,
}

/// The topology around these processors, in this order; `None` for one that is not online.
pub(crate) fn topologies(cpus: &[u32]) -> Vec<Option<Topology>> {
    System::default().topologies(cpus)
}

/// Bytes of memory of this node.
pub(crate) fn memory() -> u64 {
    System::default().memory()
}

impl System {
    fn topologies(&self, cpus: &[u32]) -> Vec<Option<Topology>> {
        let online = self.cpus();
        let topology = |number: &u32| {
            let cpu = online.iter().find(|cpu| cpu.number == *number)?;
            let (caches, core) = (self.caches(*number), cpu.core);
            Some(Topology { cpu: *number, core, caches, numa: cpu.numa, package: cpu.package })
        };
        cpus.iter().map(topology).collect()
    }

    fn caches(&self, cpu: u32) -> [Option<u32>; LEVELS] {
        let mut found = [None; LEVELS];
        // There are two of the first level, and one of each other.
        for index in 0..=LEVELS {
            let at = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
            let Some(level) = self.number(&format!("{at}/level")) else { continue };
            let kind = self.read(&format!("{at}/type")).unwrap_or_default();
            let shared = self.read(&format!("{at}/shared_cpu_list")).unwrap_or_default();
            let slot = (level as usize).checked_sub(1).and_then(|at| found.get_mut(at));
            if let (Some(slot), false) = (slot, kind.trim() == "Instruction") {
                *slot = numbers::parse(&shared).first().copied();
            }
        }
        found
    }
}
