//! Headers of messages that matched only in an overflow list. They are kept in the order of their
//! arrival until an entry that matches them is appended, or a search takes them.

use super::{MatchEntry, Matching, Portal};
use crate::message::Arrival;
use petasos_match::Key;

/// A message that no entry has claimed yet.
#[derive(Debug)]
pub(crate) struct Header {
    /// Where it is among the headers of its portal, until it is claimed.
    key: Key,
    pub(crate) arrival: Arrival,
    /// The slot of the overflow entry that took it.
    pub(crate) entry: u32,
    /// The offset of its data in that entry's memory, and the length.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Whether all of its data is there.
    pub(crate) landed: bool,
}

impl Matching {
    /// Keeps the header of a message that an overflow entry of an open portal has taken: its slot.
    /// `None` if no more can be kept.
    pub(super) fn keep_header(
        &mut self,
        arrival: &Arrival,
        entry: u32,
        (offset, len): (u64, u64),
    ) -> Option<u32> {
        let slot = self.headers.next::<Header>()?.index();
        let portal = self.portals[usize::from(arrival.portal)].as_mut();
        let key = portal.expect("an entry keeps it open").unexpected.push(arrival.envelope(), slot);
        let header = Header { key, arrival: *arrival, entry, offset, len, landed: false };
        self.headers.insert::<Header>(header).map(|handle| handle.index())
    }

    /// Removes a header from those that an entry may claim.
    pub(super) fn claim_header(&mut self, portal: u16, header: u32) {
        let portal = self.portals[usize::from(portal)].as_mut();
        portal.expect("headers keep it open").unexpected.remove(self.headers[header].key);
    }

    /// The oldest header of a portal that an entry with these settings matches, and that fits it:
    /// of those behind another one, or of all.
    pub(super) fn find_header(
        &self,
        portal: &Portal,
        spec: &MatchEntry,
        behind: Option<u32>,
    ) -> Option<u32> {
        let behind = behind.map(|header| self.headers[header].key);
        let found = portal.unexpected.find(&spec.pattern(), behind, |header| {
            spec.truncate || self.headers[*header].arrival.len <= spec.memory.len()
        })?;
        portal.unexpected.get(found).copied()
    }
}
