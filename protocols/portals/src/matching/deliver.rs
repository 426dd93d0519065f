//! A message is matched: the first entry that takes it, or refuses it.

use super::{List, Matched, Matching, Portal, Refusal, entry::Verdict};
use crate::{Quiet, message::Arrival};
use petasos_match::PatternList;

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
    fn find(&self, list: &PatternList<u32>, arrival: &Arrival) -> Option<(u32, Verdict)> {
        let Some(scan) = list.scan(arrival.envelope()) else {
            return self.find_by_index(list, arrival);
        };
        for slot in scan {
            match self.entries[*slot].judge(arrival) {
                Verdict::Skip => {}
                verdict => return Some((*slot, verdict)),
            }
        }
        None
    }

    /// The same in a list that is not short.
    #[inline(never)]
    fn find_by_index(&self, list: &PatternList<u32>, arrival: &Arrival) -> Option<(u32, Verdict)> {
        let judged = |slot: &u32| (*slot, self.entries[*slot].judge(arrival));
        let mut takers = list.takers(arrival.envelope()).map(judged);
        takers.find(|(_, verdict)| *verdict != Verdict::Skip)
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
            let kept = self.keep_header(arrival, slot, (offset, len));
            header = Some(kept.ok_or(Refusal::NoHeader)?);
            self.entries[slot].headers += 1;
        }
        let entry = &mut self.entries[slot];
        entry.take(len);
        if !entry.is_active() {
            self.leave_if_used_up(slot);
        }
        Ok(Matched { entry: slot, list, header, offset, len })
    }
}
