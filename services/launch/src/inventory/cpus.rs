//! The processors of this node: which are online, and which are threads of one core.

use super::{Cpu, numbers, sample::System};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::{BTreeMap, BTreeSet};

/// The processors that this process may use, in the order in which ranks are bound to them: first
/// one thread of each core, then the second ones, and so on.
#[must_use]
pub fn binding() -> Vec<u32> {
    in_turn(System::default().cpus(), &allowed())
}

fn allowed() -> BTreeSet<u32> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

fn in_turn(cpus: Vec<Cpu>, allowed: &BTreeSet<u32>) -> Vec<u32> {
    let mut threads: BTreeMap<u32, u32> = BTreeMap::new();
    let mut order: Vec<(u32, u32)> = Vec::new();
    let known: BTreeMap<u32, u32> = cpus.iter().map(|cpu| (cpu.number, cpu.core)).collect();
    for number in allowed {
        let nth = threads.entry(known.get(number).copied().unwrap_or(*number)).or_default();
        order.push((*nth, *number));
        *nth += 1;
    }
    order.sort_unstable();
    order.into_iter().map(|(_, number)| number).collect()
}

impl System {
    /// Those that are online, in order.
    pub(super) fn cpus(&self) -> Vec<Cpu> {
        let online = match self.read("devices/system/cpu/online") {
            Some(text) => numbers::parse(&text),
            None => allowed().into_iter().collect(),
        };
        let mut numa_of = BTreeMap::new();
        for node in self.numa_numbers() {
            let cpus = self.read(&format!("devices/system/node/node{node}/cpulist"));
            for cpu in cpus.map_or_else(Vec::new, |text| numbers::parse(&text)) {
                numa_of.insert(cpu, node);
            }
        }
        let mut known: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for cpu in &online {
            if known.contains_key(cpu) {
                continue;
            }
            let at = format!("devices/system/cpu/cpu{cpu}/topology");
            // The second name is that of kernels before 5.4.
            let threads = self.read(&format!("{at}/core_cpus_list"));
            let threads = threads.or_else(|| self.read(&format!("{at}/thread_siblings_list")));
            let threads = threads.map_or_else(Vec::new, |text| numbers::parse(&text));
            let package = self.number(&format!("{at}/physical_package_id")).unwrap_or_default();
            for thread in threads.into_iter().chain([*cpu]) {
                known.entry(thread).or_insert((*cpu, package));
            }
        }
        let cpu = |number: &u32| {
            let (core, package) = known.get(number).copied().unwrap_or((*number, 0));
            let numa = numa_of.get(number).copied().unwrap_or_default();
            Cpu { number: *number, core, package, numa }
        };
        online.iter().map(cpu).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_get_cores_before_threads() {
        let cpu = |(number, core)| Cpu { number, core, ..Cpu::default() };
        let all = |cpus: &[(u32, u32)]| cpus.iter().copied().map(cpu).collect::<Vec<_>>();
        let allowed = |cpus: &[u32]| cpus.iter().copied().collect::<BTreeSet<u32>>();
        let neighbours = all(&[(0, 0), (1, 0), (2, 2), (3, 2)]);
        assert_eq!(in_turn(neighbours.clone(), &allowed(&[0, 1, 2, 3])), [0, 2, 1, 3]);
        assert_eq!(in_turn(neighbours, &allowed(&[1, 2, 3, 9])), [1, 2, 9, 3]);
        let apart = all(&[(0, 0), (1, 1), (2, 0), (3, 1)]);
        assert_eq!(in_turn(apart, &allowed(&[0, 1, 2, 3])), [0, 1, 2, 3]);
        assert_eq!(in_turn(Vec::new(), &allowed(&[5, 4])), [4, 5]);
    }

    #[test]
    fn this_process_is_bound_to_what_it_may_use() {
        let mut order = binding();
        order.sort_unstable();
        assert_eq!(order, allowed().into_iter().collect::<Vec<_>>());
    }
}
