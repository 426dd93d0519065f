//! A message is matched: the first entry that takes it, or refuses it.

use super::{
    List, Matched, Matching, Portal, Refusal, entry::Verdict, list::MatchList, pattern::Envelope,
    unexpected::Header,
};
use crate::{Quiet, message::Arrival};

impl Matching {
    /// Finds the entry that takes a message.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, arrival: &Arrival) -> Result<Matched, Refusal> {
        let portal = self.portals.get(usize::from(arrival.portal)).and_then(Option::as_ref);
        let portal = portal.ok_or(Refusal::NoPortal)?;
        if !portal.enabled {
            return Err(Refusal::Disabled);
        }
        let (list, (entry, verdict)) = match self.find(&portal.priority, arrival) {
            Some(found) => (List::Priority, found),
            None => {
                (List::Overflow, self.find_in_overflow(portal, arrival).ok_or(Refusal::NoMatch)?)
            }
        };
        match verdict {
            Verdict::Accept { offset, len } => self.take(arrival, entry, list, offset, len),
            Verdict::Refuse(refusal) => Err(refusal),
            Verdict::Skip => unreachable!("an entry that was found does not skip"),
        }
    }

    #[inline(never)]
    fn find_in_overflow(&self, portal: &Portal, arrival: &Arrival) -> Option<(u32, Verdict)> {
        self.find(&portal.overflow, arrival)
    }

    /// The first entry of a list that takes a message or refuses it, and which of both.
    #[inline(always)]
    fn find(&self, list: &MatchList, arrival: &Arrival) -> Option<(u32, Verdict)> {
        list.find(&self.entries, Envelope::of(arrival), |entry| match entry.judge(arrival) {
            Verdict::Skip => None,
            verdict => Some(verdict),
        })
    }

    /// The events that are not wanted of the entry that would take a message, if there is one.
    pub(crate) fn quiet_of_taker(&self, arrival: &Arrival) -> Quiet {
        let Some(portal) = self.portals.get(usize::from(arrival.portal)).and_then(Option::as_ref)
        else {
            return Quiet::NONE;
        };
        let found = self.find(&portal.priority, arrival);
        let found = found.or_else(|| self.find_in_overflow(portal, arrival));
        found.map_or(Quiet::NONE, |(slot, _)| self.entries[slot].spec.quiet)
    }

    #[inline(always)]
    fn take(
        &mut self,
        arrival: &Arrival,
        slot: u32,
        list: List,
        offset: u64,
        len: u64,
    ) -> Result<Matched, Refusal> {
        let mut header = None;
        if list == List::Overflow && self.entries[slot].spec.header {
            let new = Header::new(*arrival, slot, offset, len);
            let index = self.headers.insert::<Header>(new).ok_or(Refusal::NoHeader)?.index();
            let portal = self.portals[usize::from(arrival.portal)].as_mut();
            portal.expect("it was found there").unexpected.push(&mut self.headers, index);
            self.entries[slot].headers += 1;
            header = Some(index);
        }
        let entry = &mut self.entries[slot];
        entry.take(len);
        if !entry.is_active() {
            self.leave_if_used_up(slot);
        }
        Ok(Matched { entry: slot, list, header, offset, len })
    }
}
