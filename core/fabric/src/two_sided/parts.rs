//! Keys to parts of regions: each with a secret, a range and rights of its own. In place of a
//! secret it may have a number that the program chose.

use super::registry::{Registered, Table};
use crate::{ExportError, KeyId, RegionId};
use std::collections::HashMap;

/// A key to a part of a region.
#[derive(Debug)]
pub(super) struct Part {
    /// Its memory, its rights, and what is under way by it.
    pub(super) entry: Registered,
    pub(super) region: RegionId,
    /// Where in the region it begins.
    pub(super) offset: u64,
    /// Its place in the list of the region's.
    nth: usize,
    number: Option<u64>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Parts {
    table: Table<Part>,
    /// The keys to parts of a region, of those that have some.
    of: HashMap<RegionId, Vec<KeyId>>,
    numbers: HashMap<u64, KeyId>,
}

impl Parts {
    pub(super) fn new(limit: usize) -> Parts {
        Parts { table: Table::new(limit), of: HashMap::new(), numbers: HashMap::new() }
    }

    pub(super) fn insert(
        &mut self,
        region: RegionId,
        offset: u64,
        entry: Registered,
    ) -> Result<KeyId, ExportError> {
        self.add(region, offset, entry, None)
    }

    pub(super) fn insert_numbered(
        &mut self,
        region: RegionId,
        offset: u64,
        entry: Registered,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        if self.numbers.contains_key(&number) {
            return Err(ExportError::Taken { number });
        }
        let key = self.add(region, offset, entry, Some(number))?;
        self.numbers.insert(number, key);
        Ok(key)
    }

    fn add(
        &mut self,
        region: RegionId,
        offset: u64,
        entry: Registered,
        number: Option<u64>,
    ) -> Result<KeyId, ExportError> {
        let nth = self.of.get(&region).map_or(0, Vec::len);
        let limit = self.table.limit();
        let added = self.table.insert(Part { entry, region, offset, nth, number });
        let (index, generation) = added.ok_or(ExportError::TooMany { limit })?;
        let key = KeyId { index, generation };
        self.of.entry(region).or_default().push(key);
        Ok(key)
    }

    /// What is open, or was, under a number.
    pub(super) fn numbered(&self, number: u64) -> Option<KeyId> {
        self.numbers.get(&number).copied()
    }

    #[inline]
    pub(super) fn get(&self, key: KeyId) -> Option<&Part> {
        self.table.get(key.index, key.generation)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: KeyId) -> Option<&mut Part> {
        self.table.get_mut(key.index, key.generation)
    }

    pub(super) fn remove(&mut self, key: KeyId) {
        let Some((region, nth)) = self.take(key) else { return };
        let Some(keys) = self.of.get_mut(&region) else { return };
        keys.swap_remove(nth);
        match keys.get(nth).copied() {
            Some(moved) => {
                if let Some(part) = self.get_mut(moved) {
                    part.nth = nth;
                }
            }
            None if keys.is_empty() => drop(self.of.remove(&region)),
            None => {}
        }
    }

    /// Removes a key from the table alone: its region, and its place in the list of that.
    fn take(&mut self, key: KeyId) -> Option<(RegionId, usize)> {
        let Part { region, nth, number, .. } = self.table.remove(key.index, key.generation)?;
        if let Some(number) = number {
            self.numbers.remove(&number);
        }
        Some((region, nth))
    }

    /// Removes the keys to parts of a region that ends.
    pub(super) fn remove_all(&mut self, region: RegionId) {
        if self.of.is_empty() {
            return;
        }
        for key in self.of.remove(&region).unwrap_or_default() {
            self.take(key);
        }
    }
}
