//! Searches among unexpected messages: their events, and what they count.
//!
//! A search is for one message (`once`), for so many (`threshold`), or for all. If it finds fewer,
//! its counter counts one failure. If it finds none, an event says so.

use crate::{
    Count, Counts, Error, Event, Failure, List, MatchEntry, Quiet, Served, event::NOWHERE,
    matching::EntryInfo, portals::served, state::State,
};

/// The events that are not wanted if a search is to raise none.
const SEARCH: Quiet = Quiet::COMMUNICATION.with(Quiet::OVERFLOW);

/// How many messages an entry is for.
fn most(entry: &MatchEntry) -> u64 {
    if entry.once { 1 } else { entry.threshold.unwrap_or(u64::MAX) }
}

impl State {
    /// Raises the events of the messages that an entry would get, and leaves them.
    pub(crate) fn search(&mut self, portal: u16, entry: &MatchEntry) -> Result<(), Error> {
        self.events.check(entry.queue, entry.counter)?;
        let MatchEntry { quiet, counts, counter, user_data, .. } = *entry;
        let silent = quiet.any(SEARCH);
        let (mut found, mut behind) = (0, None);
        while found < most(entry) {
            let claim = self.portals.matching.search(portal, entry, behind);
            let claim = claim.map_err(|e| e.explain(portal, &self.config.limits))?;
            let Some((header, claim)) = claim else { break };
            (found, behind) = (found + 1, Some(header));
            if counts.has(Counts::OVERFLOW) {
                self.events.count(counter, Count::of_operation(counts, claim.len, Ok(())));
            }
            if !silent && !quiet.has(Quiet::SUCCESS) {
                let info = EntryInfo::search(portal, user_data);
                let place = (claim.offset, claim.len);
                let served = served(&info, claim.arrival, place, List::Overflow, 0, claim.result);
                let start = claim.memory.start().unwrap_or(NOWHERE);
                let served = Served { memory: Some(Box::new(claim.memory)), start, ..served };
                let found = Ok(Box::new(served));
                self.raise_search(portal, entry, Event::Search { user_data, found });
            }
        }
        self.end_search(portal, entry, found, silent);
        Ok(())
    }

    /// Takes the messages that an entry would get, and raises their events.
    pub(crate) fn search_and_delete(
        &mut self,
        portal: u16,
        mut entry: MatchEntry,
    ) -> Result<(), Error> {
        self.events.check(entry.queue, entry.counter)?;
        // What suppresses the events of a search suppresses these, which are of another kind.
        if entry.quiet.any(SEARCH) {
            entry.quiet = entry.quiet.with(Quiet::OVERFLOW);
        }
        let asked = MatchEntry { memory: crate::Memory::empty(), ..entry.clone() };
        let found = self.portals.search_and_delete(portal, entry, &mut self.events);
        let found = found.map_err(|e| e.explain(portal, &self.config.limits))?;
        self.end_search(portal, &asked, found, asked.quiet.has(Quiet::OVERFLOW));
        Ok(())
    }

    /// Ends a search that has found so many.
    fn end_search(&mut self, portal: u16, entry: &MatchEntry, found: u64, silent: bool) {
        if entry.counts.has(Counts::OVERFLOW) && found < most(entry) {
            self.events.count(entry.counter, Count { success: 0, failure: 1 });
        }
        if found == 0 && !silent {
            let none = Event::Search { user_data: entry.user_data, found: Err(Failure::NoMatch) };
            self.raise_search(portal, entry, none);
        }
    }

    /// Raises an event at the queue of the entry, or else at that of the portal.
    fn raise_search(&mut self, portal: u16, entry: &MatchEntry, event: Event) {
        self.events.push(entry.queue.or(self.portals.queue(portal)), event);
    }
}
