//! The registered regions of one endpoint, and the keys to parts of them, which initiators reach
//! directly.
//!
//! An access pins its region, copies outside of the lock, and unpins it. A region that is closed
//! takes no new pins, and is gone when the last pin is. A key to a part has a slot of the same
//! table; what pins it pins its region as well.

use crate::access::Target;
use petasos_fabric::{Access, Doorbell, ExportError, RegionId, Slice};
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(crate) struct Regions {
    table: Mutex<Table>,
    /// The owner's: rung when the last access to a closed region ends.
    doorbell: Arc<Doorbell>,
}

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// How many slots are regions, and how many are keys to parts.
    regions: usize,
    keys: usize,
    /// The slots of the keys that have a number.
    numbers: HashMap<u64, RegionId>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    memory: Option<(Slice, Access)>,
    pins: usize,
    closing: bool,
    /// For a key to a part: the region, and where in it the part begins.
    part_of: Option<(RegionId, u64)>,
    number: Option<u64>,
    /// For a region: the slots of the keys to its parts.
    parts: HashSet<u32>,
}

impl Table {
    fn get(&self, id: RegionId) -> Option<&Slot> {
        let slot = self.slots.get(id.index as usize)?;
        (slot.generation == id.generation && slot.memory.is_some()).then_some(slot)
    }

    /// A slot in which accesses may begin.
    fn open(&self, id: RegionId) -> Option<&Slot> {
        let slot = self.get(id).filter(|slot| !slot.closing)?;
        let whole = slot.part_of.map(|(region, _)| self.get(region));
        whole.is_none_or(|whole| whole.is_some_and(|whole| !whole.closing)).then_some(slot)
    }

    fn add(&mut self, slot: Slot) -> RegionId {
        match slot.part_of {
            None => self.regions += 1,
            Some(_) => self.keys += 1,
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let generation = self.slots[index as usize].generation;
        self.slots[index as usize] = Slot { generation, ..slot };
        RegionId { index, generation }
    }

    /// Frees a slot, and those of the keys to its parts.
    fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation.wrapping_add(1);
        let slot = std::mem::replace(slot, Slot { generation, ..Slot::default() });
        self.free.push(index);
        if let Some(number) = slot.number {
            self.numbers.remove(&number);
        }
        match slot.part_of {
            None => self.regions -= 1,
            Some((region, _)) => {
                self.keys -= 1;
                self.slots[region.index as usize].parts.remove(&index);
            }
        }
        for part in slot.parts {
            self.remove(part);
        }
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
        if table.regions >= limit {
            return None;
        }
        let memory = Some((memory.clone(), access));
        Some(table.add(Slot { memory, ..Slot::default() }))
    }

    /// Adds a key to a part of a region, if there are fewer than `limit`, with a number if it has
    /// one: its slot.
    pub(crate) fn add_part(
        &self,
        region: RegionId,
        range: Range<u64>,
        wanted: Access,
        number: Option<u64>,
        limit: usize,
    ) -> Result<RegionId, ExportError> {
        let mut table = self.lock();
        let whole = table.open(region).filter(|slot| slot.part_of.is_none());
        let (memory, allowed) =
            whole.and_then(|slot| slot.memory.as_ref()).ok_or(ExportError::UnknownRegion)?;
        if !allowed.allows(wanted) {
            return Err(ExportError::Denied { allowed: *allowed, wanted });
        }
        let Range { start, end } = range;
        let bound = memory.len() as u64;
        let within = start <= end && end <= bound;
        let part = within.then(|| memory.part(start as usize, (end - start) as usize)).flatten();
        let part = part.ok_or(ExportError::OutOfBounds { start, end, bound })?;
        if let Some(number) = number.filter(|number| table.numbers.contains_key(number)) {
            return Err(ExportError::Taken { number });
        }
        if table.keys >= limit {
            return Err(ExportError::TooMany { limit });
        }
        let (memory, part_of) = (Some((part, wanted)), Some((region, start)));
        let slot = table.add(Slot { memory, part_of, number, ..Slot::default() });
        table.numbers.extend(number.map(|number| (number, slot)));
        table.slots[region.index as usize].parts.insert(slot.index);
        Ok(slot)
    }

    /// Length and rights of a region that is open.
    pub(crate) fn get(&self, id: RegionId) -> Option<(u64, Access)> {
        let table = self.lock();
        let region = table.open(id).filter(|slot| slot.part_of.is_none())?;
        let (memory, access) = region.memory.as_ref()?;
        Some((memory.len() as u64, *access))
    }

    /// Whether a region that is open, or not closed yet, has some of this memory.
    pub(crate) fn have(&self, memory: &Slice) -> bool {
        let table = self.lock();
        let mut slots = table.slots.iter().filter_map(|slot| slot.memory.as_ref());
        slots.any(|(region, _)| region.overlaps(memory))
    }

    /// Whether this is the slot of a key to a part.
    pub(crate) fn is_part(&self, id: RegionId) -> bool {
        self.lock().get(id).is_some_and(|slot| slot.part_of.is_some())
    }

    /// Whether there is such a slot, open or not.
    pub(crate) fn is_known(&self, id: RegionId) -> bool {
        self.lock().get(id).is_some()
    }

    /// Begins an access. `None` if the region is not open.
    pub(crate) fn pin(&self, target: Target) -> Option<Pin<'_>> {
        let mut table = self.lock();
        let id = match target {
            Target::Slot(id) => id,
            Target::Number(number) => *table.numbers.get(&number)?,
        };
        let slot = table.open(id)?;
        let (memory, access) = slot.memory.clone()?;
        let place = slot.part_of.unwrap_or((id, 0));
        table.slots[id.index as usize].pins += 1;
        if place.0 != id {
            table.slots[place.0.index as usize].pins += 1;
        }
        Some(Pin { regions: self, index: id.index, place, memory, access })
    }

    /// No access can begin any more. False if the slot is not open.
    pub(crate) fn close(&self, id: RegionId) -> bool {
        let mut table = self.lock();
        // A key can be revoked while its region is being closed.
        if table.get(id).is_none_or(|slot| slot.closing) {
            return false;
        }
        table.slots[id.index as usize].closing = true;
        true
    }

    /// Whether the last access to a closed region, or by a revoked key, has ended; then its slot is
    /// free again. A key may have ended with its region before.
    pub(crate) fn collect(&self, id: RegionId) -> bool {
        let mut table = self.lock();
        match table.get(id) {
            Some(slot) if slot.pins > 0 => return false,
            Some(_) => table.remove(id.index),
            None => {}
        }
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
    /// The region, and where in it the memory begins.
    pub(crate) place: (RegionId, u64),
    pub(crate) memory: Slice,
    pub(crate) access: Access,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut table = self.regions.lock();
        let mut last = false;
        let mut unpin = |index: u32| {
            let slot = &mut table.slots[index as usize];
            slot.pins -= 1;
            last |= slot.closing && slot.pins == 0;
        };
        unpin(self.index);
        if self.place.0.index != self.index {
            unpin(self.place.0.index);
        }
        drop(table);
        if last {
            self.regions.doorbell.ring();
        }
    }
}
