//! Entries claim the headers of messages that came before them, when they are appended, or by a
//! search.

use super::{
    Claim, Entry, EntryError, EntryInfo, List, MatchEntry, Matched, Matching, Notice,
    unexpected::Header,
};
use crate::Failure;

/// A header that was claimed before its data was there.
#[derive(Debug)]
pub(super) struct PendingClaim {
    header: u32,
    claimant: EntryInfo,
    /// Whether the header's user and operation are those that the claimant is for.
    result: Result<(), Failure>,
    /// Whether the claimant was used up by it.
    unlinks: bool,
}

impl Matching {
    /// Claims the headers that an entry matches.
    pub(super) fn claim(&mut self, slot: u32, notices: &mut Vec<Notice>) {
        while self.entries[slot].is_active() {
            let Some(header) = self.first_header(&self.entries[slot]) else { return };
            let claimant = self.info(slot);
            let entry = &mut self.entries[slot];
            entry.left = entry.left.map(|left| left - 1);
            if entry.spec.local_offset && entry.spec.offset_counts_headers {
                entry.advance(self.headers[header].arrival.len);
            }
            let result = entry.admits(&self.headers[header].arrival).map_err(Failure::from);
            self.claim_one(header, claimant, result, notices);
        }
    }

    /// An entry was used up by the headers that it claimed, and is unlinked: with the last of them
    /// whose data is still on its way, or else now.
    pub(super) fn unlink_after_claims(&mut self, entry: EntryInfo, notices: &mut Vec<Notice>) {
        match self.pending.iter_mut().rfind(|claim| claim.claimant.entry == entry.entry) {
            Some(claim) => claim.unlinks = true,
            None => notices.push(Notice::Unlinked(entry)),
        }
    }

    /// The oldest header that an entry takes.
    fn first_header(&self, entry: &Entry) -> Option<u32> {
        let portal = self.portals[usize::from(entry.portal)].as_ref()?;
        self.find_header(portal, &entry.spec, None)
    }

    /// Claims a header, now or when its data is there.
    fn claim_one(
        &mut self,
        header: u32,
        claimant: EntryInfo,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        self.claim_header(claimant.portal, header);
        match self.headers[header].landed {
            true => self.end_claim(header, claimant, result, notices),
            false => self.pending.push(PendingClaim { header, claimant, result, unlinks: false }),
        }
    }

    /// Removes a header that was claimed, and whose data is there.
    fn end_claim(
        &mut self,
        header: u32,
        claimant: EntryInfo,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        let Some(header) = self.headers.take(header) else { return };
        let Header { arrival, offset, len, entry, .. } = header;
        let memory = self.entries[entry].spec.memory.clone();
        notices.push(Notice::Claimed(claimant, Claim { arrival, memory, offset, len, result }));
        self.entries[entry].headers -= 1;
        self.settle(entry, notices);
    }

    /// The data of a message with a header is there, or never will be.
    pub(super) fn land(
        &mut self,
        matched: &Matched,
        header: u32,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        self.headers[header].landed = true;
        if let Some(at) = self.pending.iter().position(|claim| claim.header == header) {
            let claim = self.pending.remove(at);
            self.end_claim(header, claim.claimant, result.and(claim.result), notices);
            if claim.unlinks {
                notices.push(Notice::Unlinked(claim.claimant));
            }
        } else if result.is_err() {
            // No entry will ever take it.
            self.claim_header(self.entries[matched.entry].portal, header);
            self.headers.take(header);
            self.entries[matched.entry].headers -= 1;
        }
    }

    /// The oldest header that an entry would claim if it were appended now, of those behind another
    /// one, or of all: its slot, and its message.
    pub(crate) fn search(
        &self,
        portal: u16,
        spec: &MatchEntry,
        behind: Option<u32>,
    ) -> Result<Option<(u32, Claim)>, EntryError> {
        let open = self.portals.get(usize::from(portal)).and_then(Option::as_ref);
        let open = open.ok_or(EntryError::NoPortal)?;
        let header = self.find_header(open, spec, behind);
        Ok(header.map(|header| {
            let Header { arrival, entry, offset, len, .. } = self.headers[header];
            let memory = self.entries[entry].spec.memory.clone();
            (header, Claim { arrival, memory, offset, len, result: Ok(()) })
        }))
    }

    /// Claims the headers that an entry would claim if it were appended now: how many.
    pub(crate) fn search_and_delete(
        &mut self,
        portal: u16,
        spec: MatchEntry,
        notices: &mut Vec<Notice>,
    ) -> Result<u64, EntryError> {
        let open = self.portals.get(usize::from(portal)).and_then(Option::as_ref);
        open.ok_or(EntryError::NoPortal)?;
        let entry = Entry::new(spec, portal, List::Priority);
        let slot = self.entries.insert::<MatchEntry>(entry).ok_or(EntryError::Full)?.index();
        let headers = |m: &Matching| {
            m.portals[usize::from(portal)].as_ref().map_or(0, |portal| portal.unexpected.len())
        };
        let before = headers(self);
        self.claim(slot, notices);
        self.entries.take(slot);
        Ok((before - headers(self)) as u64)
    }
}
