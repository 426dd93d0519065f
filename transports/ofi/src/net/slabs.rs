//! Memory into which the library receives.

use petasos_fabric::Region;

struct Slab {
    region: Region,
    /// The library has it.
    posted: bool,
}

/// All slabs. They stay where they are for the life of the endpoint.
pub(super) struct Slabs {
    slabs: Vec<Slab>,
    /// Slabs that are to be given to the library (again).
    unposted: Vec<u32>,
}

impl Slabs {
    /// This many slabs of this many bytes, none of which is posted.
    pub(super) fn new(count: usize, len: usize) -> Slabs {
        let slab = |_| Slab { region: Region::zeroed(len), posted: false };
        let slabs = (0..count).map(slab).collect();
        Slabs { slabs, unposted: (0..count as u32).rev().collect() }
    }

    /// The memory of all slabs.
    pub(super) fn memory(&self) -> impl Iterator<Item = Region> {
        self.slabs.iter().map(|slab| slab.region.clone())
    }

    pub(super) fn region(&self, slab: u32) -> &Region {
        &self.slabs[slab as usize].region
    }

    #[inline]
    pub(super) fn has_unposted(&self) -> bool {
        !self.unposted.is_empty()
    }

    /// A slab that is to be given to the library; one that the library has is never returned.
    pub(super) fn next_unposted(&self) -> Option<u32> {
        self.unposted.last().copied()
    }

    /// The slab that [`Slabs::next_unposted`] returned was given to the library.
    pub(super) fn posted(&mut self) {
        if let Some(slab) = self.unposted.pop() {
            self.slabs[slab as usize].posted = true;
        }
    }

    /// The library has let go of a slab.
    pub(super) fn release(&mut self, slab: u32) {
        let entry = &mut self.slabs[slab as usize];
        if entry.posted {
            entry.posted = false;
            self.unposted.push(slab);
        }
    }
}
