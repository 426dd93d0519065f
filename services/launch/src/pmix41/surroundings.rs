//! What a client is told of its node, and of what it shares with other processes there.
//!
//! A locality is a text in OpenPMIx's form: for each level of the machine two letters, and the
//! numbers that a process may use there. Clients compare the localities of two processes of a node,
//! so the numbers only have to be the same for both.

use crate::inventory::Topology;

/// What clients are told of their node, beside the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// The topology around the processor of each rank of the node, in order; empty: they are not
    /// bound.
    pub(crate) topologies: Vec<Option<Topology>>,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Whether there are more ranks than processors.
    pub(crate) crowded: bool,
    /// The working directory of the ranks.
    pub(crate) directory: String,
    /// The program and its arguments.
    pub(crate) command: String,
}

impl Surroundings {
    /// The topology of a rank of this node, by its local rank, if it is bound to one processor.
    pub(super) fn topology(&self, local: u32) -> Option<&Topology> {
        self.topologies.get(local as usize)?.as_ref()
    }

    /// `PMIX_PACKAGE_RANK`: the index of a rank among the ranks of the node on its package.
    pub(super) fn package_rank(&self, local: u32) -> u16 {
        let Some(own) = self.topology(local) else { return 0 };
        let before = self.topologies.iter().take(local as usize).flatten();
        before.filter(|topology| topology.package == own.package).count() as u16
    }

    /// The processors of all ranks of the node, in order; `None` if one of them is not bound.
    pub(super) fn cpu_sets(&self) -> Option<Vec<String>> {
        let all: Option<Vec<String>> =
            self.topologies.iter().map(|topology| topology.as_ref().map(cpu_set)).collect();
        all.filter(|all| !all.is_empty())
    }
}

/// `PMIX_CPUSET` of a process that is bound to one processor.
pub(super) fn cpu_set(topology: &Topology) -> String {
    format!("hwloc:{}", topology.cpu)
}

/// `PMIX_LOCALITY_STRING` of such a process.
pub(super) fn locality(topology: &Topology) -> String {
    let [first, second, third] = topology.caches;
    let levels = [
        ("NM", Some(topology.numa)),
        ("SK", Some(topology.package)),
        ("L3", third),
        ("L2", second),
        ("L1", first),
        ("CR", Some(topology.core)),
        ("HT", Some(topology.cpu)),
    ];
    let known = levels.iter().filter_map(|(level, number)| Some(format!("{level}{}", (*number)?)));
    format!("hwloc:{}", known.collect::<Vec<_>>().join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_by_package() {
        let topology = |cpu, package| Topology { cpu, core: cpu, package, ..Topology::default() };
        let topologies =
            [topology(0, 0), topology(4, 1), topology(1, 0), topology(5, 1)].map(Some).to_vec();
        let node = Surroundings { topologies, ..Surroundings::default() };
        assert_eq!([0, 1, 2, 3].map(|local| node.package_rank(local)), [0, 0, 1, 1]);
        let sets = ["hwloc:0", "hwloc:4", "hwloc:1", "hwloc:5"].map(str::to_owned).to_vec();
        assert_eq!(node.cpu_sets(), Some(sets));
        assert_eq!(Surroundings::default().cpu_sets(), None);
    }

    #[test]
    fn a_locality_has_what_is_known() {
        let caches = [Some(2), Some(2), None];
        let topology = Topology { cpu: 3, core: 2, caches, numa: 1, package: 0 };
        assert_eq!(locality(&topology), "hwloc:NM1:SK0:L22:L12:CR2:HT3");
    }
}
