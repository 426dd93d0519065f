//! The registered regions of one endpoint, which initiators reach directly.
//!
//! An access pins its region, copies outside of the lock, and unpins it. A region that is closed
//! takes no new pins, and is gone when the last pin is.

use petasos_fabric::{Access, Doorbell, RegionId, Slice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) struct Regions {
    table: Mutex<Table>,
    /// The owner's: rung when the last access to a closed region ends.
    doorbell: Arc<Doorbell>,
}

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    memory: Option<(Slice, Access)>,
    pins: usize,
    closing: bool,
}

impl Table {
    fn open(&self, id: RegionId) -> Option<&Slot> {
        let slot = self.slots.get(id.index as usize)?;
        (slot.generation == id.generation && slot.memory.is_some() && !slot.closing).then_some(slot)
    }
}

impl Regions {
    pub(crate) fn new(doorbell: Arc<Doorbell>) -> Regions {
        Regions { table: Mutex::default(), doorbell }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if there are `limit` already.
    pub(crate) fn add(&self, memory: &Slice, access: Access, limit: usize) -> Option<RegionId> {
        let mut table = self.lock();
        let index = match table.free.pop() {
            Some(index) => index,
            None if table.slots.len() < limit => {
                table.slots.push(Slot::default());
                table.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut table.slots[index as usize];
        slot.memory = Some((memory.clone(), access));
        Some(RegionId { index, generation: slot.generation })
    }

    pub(crate) fn get(&self, id: RegionId) -> Option<(u64, Access)> {
        let table = self.lock();
        let (memory, access) = table.open(id)?.memory.as_ref()?;
        Some((memory.len() as u64, *access))
    }

    /// Begins an access. `None` if the region is not open.
    pub(crate) fn pin(&self, id: RegionId) -> Option<Pin<'_>> {
        let mut table = self.lock();
        let (memory, access) = table.open(id)?.memory.clone()?;
        table.slots[id.index as usize].pins += 1;
        Some(Pin { regions: self, index: id.index, memory, access })
    }

    /// No access can begin any more. False if the region is not open.
    pub(crate) fn close(&self, id: RegionId) -> bool {
        let mut table = self.lock();
        if table.open(id).is_none() {
            return false;
        }
        table.slots[id.index as usize].closing = true;
        true
    }

    /// Whether the last access to a closed region has ended; then its slot is free again.
    pub(crate) fn collect(&self, id: RegionId) -> bool {
        let mut table = self.lock();
        let slot = &mut table.slots[id.index as usize];
        if slot.pins > 0 {
            return false;
        }
        let generation = slot.generation.wrapping_add(1);
        *slot = Slot { generation, ..Slot::default() };
        table.free.push(id.index);
        true
    }

    /// Closes all, at the end of the endpoint. The table stays unusable.
    pub(crate) fn close_all(&self) {
        let mut table = self.lock();
        for slot in &mut table.slots {
            slot.closing = true;
            slot.memory = None;
        }
    }
}

/// Access to a region that is under way.
pub(crate) struct Pin<'a> {
    regions: &'a Regions,
    index: u32,
    pub(crate) memory: Slice,
    pub(crate) access: Access,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut table = self.regions.lock();
        let slot = &mut table.slots[self.index as usize];
        slot.pins -= 1;
        let last = slot.closing && slot.pins == 0;
        drop(table);
        if last {
            self.regions.doorbell.ring();
        }
    }
}
