//! Keys to parts of regions: each with a secret, a range and rights of its own.

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
}

/// All of them.
#[derive(Debug)]
pub(super) struct Parts {
    table: Table<Part>,
    /// The keys to parts of a region, of those that have some.
    of: HashMap<RegionId, Vec<KeyId>>,
}

impl Parts {
    pub(super) fn new(limit: usize) -> Parts {
        Parts { table: Table::new(limit), of: HashMap::new() }
    }

    pub(super) fn insert(
        &mut self,
        region: RegionId,
        offset: u64,
        entry: Registered,
    ) -> Result<KeyId, ExportError> {
        let nth = self.of.get(&region).map_or(0, Vec::len);
        let limit = self.table.limit();
        let added = self.table.insert(Part { entry, region, offset, nth });
        let (index, generation) = added.ok_or(ExportError::TooMany { limit })?;
        let key = KeyId { index, generation };
        self.of.entry(region).or_default().push(key);
        Ok(key)
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
        let Some(Part { region, nth, .. }) = self.table.remove(key.index, key.generation) else {
            return;
        };
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

    /// Removes the keys to parts of a region that ends.
    pub(super) fn remove_all(&mut self, region: RegionId) {
        if self.of.is_empty() {
            return;
        }
        for key in self.of.remove(&region).unwrap_or_default() {
            self.table.remove(key.index, key.generation);
        }
    }
}
