//! What Portals 3 needs beyond its successor: entries without memory, which is attached, used up,
//! and exchanged while the entry stays where it is.

use super::{At, Entry, EntryError, List, MatchEntry, Matching, Notice};
use crate::{Handle, Memory};

impl Matching {
    /// Puts an entry without memory into the priority list of a portal. Messages pass it over.
    /// `goes`: with its memory, when that is used up.
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
            portal.as_ref().is_some_and(|portal| portal.priority.len() == 0)
        };
        self.portals.iter().position(unused).map(|portal| portal as u16)
    }

    /// The portal of an entry that is in a list, and its slot, for insertions beside it.
    pub(crate) fn beside(&self, handle: Handle<MatchEntry>) -> Result<(u16, u32), EntryError> {
        let entry = self.entries.get(handle).filter(|entry| entry.listed);
        entry.map(|entry| (entry.portal, handle.index())).ok_or(EntryError::Stale)
    }

    /// Gives memory to an entry without it, and with that all but what it matches: its number.
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

    /// Gives other memory to an entry, if nothing is under way in it: what was there before, and
    /// what that might still do.
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

    /// What memory an entry has, and what it still takes.
    pub(crate) fn inspect(
        &self,
        handle: Handle<MatchEntry>,
        serial: u32,
    ) -> Result<(&MatchEntry, Option<u64>, u64), EntryError> {
        let entry = self.entries.get(handle);
        let entry = entry.filter(|entry| entry.attached && entry.serial == serial);
        entry.map(|entry| (&entry.spec, entry.remaining(), entry.offset)).ok_or(EntryError::Stale)
    }

    /// Memory of an entry is used for an operation of one's own, and stays until
    /// [`Matching::let_go`].
    pub(crate) fn hold(&mut self, handle: Handle<MatchEntry>) {
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.pending += 1;
        }
    }

    pub(crate) fn let_go(&mut self, handle: Handle<MatchEntry>, notices: &mut Vec<Notice>) {
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.pending -= 1;
            self.settle(handle.index(), notices);
        }
    }

    /// Takes one off what memory may do that serves both ways, for something that is to come; false
    /// if nothing is left. While it is kept the entry stays, and the memory is not exchanged.
    pub(crate) fn reserve(&mut self, handle: Handle<MatchEntry>, serial: u32) -> bool {
        let entry = self.entries.get_mut(handle);
        let entry = entry.filter(|entry| entry.is_active() && entry.serial == serial);
        let Some(entry) = entry else { return false };
        entry.left = entry.left.map(|left| left - 1);
        entry.reserved += 1;
        true
    }

    /// What was kept is spent.
    pub(crate) fn spend(&mut self, handle: Handle<MatchEntry>) {
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.reserved -= 1;
            self.leave_if_used_up(handle.index());
        }
    }

    /// What was kept is not needed.
    pub(crate) fn unreserve(&mut self, handle: Handle<MatchEntry>) {
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.reserved -= 1;
            // Without room it stays inactive, however much it may still do.
            if !entry.is_full() {
                entry.left = entry.left.map(|left| left + 1);
            }
            self.leave_if_used_up(handle.index());
        }
    }

    /// Takes the memory of an entry back; the entry goes with it if it was made so.
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
    /// Takes over what was given to the memory, and gives what there was before. Memory that is too
    /// short from the beginning is inactive.
    fn fill(&mut self, spec: MatchEntry) -> MatchEntry {
        (self.left, self.offset) = (spec.threshold, 0);
        let MatchEntry { bits, ignore, source, .. } = self.spec;
        let before = std::mem::replace(&mut self.spec, MatchEntry { bits, ignore, source, ..spec });
        if self.is_full() {
            self.left = Some(0);
        }
        before
    }
}
