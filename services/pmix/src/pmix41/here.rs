//! What a client is told of the node that it is on, and of who shares what with it there.
//!
//! A locality is a text in the form of OpenPMIx's: for each level of the machine two letters, and the numbers of what a process
//! may use there. Clients compare those of two processes of a node, so the numbers only have to be the same for both.

use crate::inventory::Place;

/// What clients of a node are told of it, beside the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// Where each rank of the node keeps to, in order; empty: they are not bound.
    pub(crate) places: Vec<Option<Place>>,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// There are more ranks than processors.
    pub(crate) crowded: bool,
    /// The directory that programs start in.
    pub(crate) directory: String,
    /// The program and its arguments.
    pub(crate) command: String,
}

impl Surroundings {
    /// Where a rank of this node is, by its number there, if it is bound to one place.
    pub(super) fn place(&self, local: u32) -> Option<&Place> {
        self.places.get(local as usize)?.as_ref()
    }

    /// `PMIX_PACKAGE_RANK`: the how manieth it is of those ranks of the node that are on its package.
    pub(super) fn package_rank(&self, local: u32) -> u16 {
        let Some(own) = self.place(local) else { return 0 };
        let before = self.places.iter().take(local as usize).flatten();
        before.filter(|place| place.package == own.package).count() as u16
    }

    /// The processors of all ranks of the node, in order; nothing if one of them is not bound.
    pub(super) fn cpu_sets(&self) -> Option<Vec<String>> {
        let all: Option<Vec<String>> =
            self.places.iter().map(|place| place.as_ref().map(cpu_set)).collect();
        all.filter(|all| !all.is_empty())
    }
}

/// `PMIX_CPUSET` of a process that keeps to one processor.
pub(super) fn cpu_set(place: &Place) -> String {
    format!("hwloc:{}", place.cpu)
}

/// `PMIX_LOCALITY_STRING` of it.
pub(super) fn locality(place: &Place) -> String {
    let [first, second, third] = place.caches;
    let levels = [
        ("NM", Some(place.numa)),
        ("SK", Some(place.package)),
        ("L3", third),
        ("L2", second),
        ("L1", first),
        ("CR", Some(place.core)),
        ("HT", Some(place.cpu)),
    ];
    let known = levels.iter().filter_map(|(level, number)| Some(format!("{level}{}", (*number)?)));
    format!("hwloc:{}", known.collect::<Vec<_>>().join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_by_package() {
        let place = |cpu, package| Place { cpu, core: cpu, package, ..Place::default() };
        let places = [place(0, 0), place(4, 1), place(1, 0), place(5, 1)].map(Some).to_vec();
        let here = Surroundings { places, ..Surroundings::default() };
        assert_eq!([0, 1, 2, 3].map(|local| here.package_rank(local)), [0, 0, 1, 1]);
        let sets = ["hwloc:0", "hwloc:4", "hwloc:1", "hwloc:5"].map(str::to_owned).to_vec();
        assert_eq!(here.cpu_sets(), Some(sets));
        assert_eq!(Surroundings::default().cpu_sets(), None);
    }

    #[test]
    fn a_locality_has_what_is_known() {
        let caches = [Some(2), Some(2), None];
        let place = Place { cpu: 3, core: 2, caches, numa: 1, package: 0 };
        assert_eq!(locality(&place), "hwloc:NM1:SK0:L22:L12:CR2:HT3");
    }
}
