//! What Portals 3 needs beyond Portals 4: entries without memory. Memory is attached to them, used
//! up, and exchanged while the entry stays in its list.

use super::{At, Entry, EntryError, List, MatchEntry, Matching, Notice};
use crate::{Handle, Memory, event::NOWHERE};

impl Matching {
    /// Inserts an entry without memory into the priority list of a portal. Messages skip it.
    /// `goes`: it is unlinked with its memory, when that is used up.
    pub(crate) fn insert_empty(
        &mut self,
        portal: u16,
        spec: MatchEntry,
        at: At,
        goes: bool,
    ) -> Result<Handle<MatchEntry>, EntryError> {
        // There are no headers: nothing is in the overflow list.
        let mut notices = Vec::new();
        let handle = self.insert(portal, List::Priority, spec, at, &mut notices)?;
        let entry = &mut self.entries[handle.index()];
        (entry.skips, entry.stays, entry.attached) = (true, !goes, false);
        Ok(handle)
    }

    /// A portal without entries.
    pub(crate) fn unused_portal(&self) -> Option<u16> {
        let unused = |portal: &Option<super::Portal>| {
            portal.as_ref().is_some_and(|portal| portal.priority.is_empty())
        };
        self.portals.iter().position(unused).map(|portal| portal as u16)
    }

    /// The portal of an entry that is in a list, and its slot, for insertions beside it.
    pub(crate) fn beside(&self, handle: Handle<MatchEntry>) -> Result<(u16, u32), EntryError> {
        let entry = self.entries.get(handle).filter(|entry| entry.key.is_some());
        entry.map(|entry| (entry.portal, handle.index())).ok_or(EntryError::Stale)
    }

    /// Attaches memory to an entry without it, and with that all settings but what it matches.
    /// Gives the number of the memory.
    pub(crate) fn attach(
        &mut self,
        handle: Handle<MatchEntry>,
        spec: MatchEntry,
    ) -> Result<u32, EntryError> {
        let entry = self.entries.get_mut(handle).ok_or(EntryError::Stale)?;
        if entry.attached {
            return Err(EntryError::InUse);
        }
        entry.serial += 1;
        entry.attached = true;
        entry.fill(spec);
        Ok(entry.serial)
    }

    /// The entry that has this memory, if nothing is under way in it.
    fn attached(
        &mut self,
        handle: Handle<MatchEntry>,
        serial: u32,
    ) -> Result<&mut Entry, EntryError> {
        let entry = self.entries.get_mut(handle);
        let entry = entry.filter(|entry| entry.attached && entry.serial == serial);
        let entry = entry.ok_or(EntryError::Stale)?;
        if entry.pending > 0 { Err(EntryError::InUse) } else { Ok(entry) }
    }

    /// Exchanges the memory of an entry, if nothing is under way in it. Gives what was there
    /// before, with what that might still do as its threshold.
    pub(crate) fn exchange(
        &mut self,
        handle: Handle<MatchEntry>,
        serial: u32,
        spec: MatchEntry,
    ) -> Result<MatchEntry, EntryError> {
        let entry = self.attached(handle, serial)?;
        let threshold = entry.remaining();
        Ok(MatchEntry { threshold, ..entry.fill(spec) })
    }

    /// What an entry has, what it may still do, and its own offset.
    pub(crate) fn inspect(
        &self,
        handle: Handle<MatchEntry>,
        serial: u32,
    ) -> Result<(&MatchEntry, Option<u64>, u64), EntryError> {
        let entry = self.entries.get(handle);
        let entry = entry.filter(|entry| entry.attached && entry.serial == serial);
        entry.map(|entry| (&entry.spec, entry.remaining(), entry.offset)).ok_or(EntryError::Stale)
    }

    /// The memory of an entry is used for an operation of this process, and stays until
    /// [`Matching::let_go`].
    pub(crate) fn hold(&mut self, handle: Handle<MatchEntry>) {
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.pending += 1;
        }
    }

    /// An operation of this process does not need the memory of an entry any more.
    pub(crate) fn let_go(&mut self, handle: Handle<MatchEntry>, notices: &mut Vec<Notice>) {
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.pending -= 1;
            self.settle(handle.index(), notices);
        }
    }

    /// Takes one off what the memory of an entry may do, for an answer that is to come; false if
    /// nothing is left. While it is reserved the entry stays, and the memory is not exchanged.
    pub(crate) fn reserve(&mut self, handle: Handle<MatchEntry>, serial: u32) -> bool {
        let entry = self.entries.get_mut(handle);
        let entry = entry.filter(|entry| entry.is_active() && entry.serial == serial);
        let Some(entry) = entry else { return false };
        entry.left = entry.left.map(|left| left - 1);
        entry.reserved += 1;
        true
    }

    /// What was reserved is spent.
    pub(crate) fn spend(&mut self, handle: Handle<MatchEntry>) {
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.reserved -= 1;
            self.leave_if_used_up(handle.index());
        }
    }

    /// What was reserved is not needed, and may be used for something else.
    pub(crate) fn unreserve(&mut self, handle: Handle<MatchEntry>) {
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.reserved -= 1;
            // Without room it stays inactive, whatever its threshold.
            if !entry.is_full() {
                entry.left = entry.left.map(|left| left + 1);
            }
            self.leave_if_used_up(handle.index());
        }
    }

    /// Detaches the memory of an entry; the entry goes with it if it was inserted so.
    pub(crate) fn detach(
        &mut self,
        handle: Handle<MatchEntry>,
        serial: u32,
    ) -> Result<MatchEntry, EntryError> {
        let entry = self.attached(handle, serial)?;
        if !entry.stays {
            return self.unlink(handle);
        }
        entry.attached = false;
        let empty = MatchEntry { memory: Memory::empty(), ..entry.spec.clone() };
        Ok(std::mem::replace(&mut entry.spec, empty))
    }
}

impl Entry {
    /// Takes the settings of new memory, and gives those of before. Memory that is too short from
    /// the beginning is inactive.
    fn fill(&mut self, spec: MatchEntry) -> MatchEntry {
        (self.left, self.offset) = (spec.threshold, 0);
        self.start = spec.memory.start().unwrap_or(NOWHERE);
        let MatchEntry { bits, ignore, source, .. } = self.spec;
        let before = std::mem::replace(&mut self.spec, MatchEntry { bits, ignore, source, ..spec });
        if self.is_full() {
            self.left = Some(0);
        }
        before
    }
}
