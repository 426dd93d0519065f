//! Searches among the messages that came before an entry for them: what they tell, and what they
//! count.
//!
//! A search is for one message (`once`), for so many (`threshold`), or for all. It has failed to
//! find as many as it is for when it comes to the end: that is a failure for its counter. With none
//! at all an event says so.

use crate::{
    Count, Counts, Error, Event, Failure, List, MatchEntry, Quiet, Served,
    matching::EntryInfo,
    portals::served,
    state::{State, tally},
};

/// What leaves it untold what a search finds, and that it finds nothing.
const SEARCH: Quiet = Quiet::COMMUNICATION.with(Quiet::OVERFLOW);

/// How many messages an entry is for.
fn most(entry: &MatchEntry) -> u64 {
    if entry.once { 1 } else { entry.threshold.unwrap_or(u64::MAX) }
}

impl State {
    /// Tells of the messages that an entry would get, and leaves them.
    pub(crate) fn search(&mut self, portal: u16, entry: &MatchEntry) -> Result<(), Error> {
        self.events.check(entry.queue, entry.counter)?;
        let MatchEntry { quiet, counts, counter, user_data, .. } = *entry;
        let silent = quiet.any(SEARCH);
        let (mut found, mut behind) = (0, None);
        while found < most(entry) {
            let claim = self.portals.matching.search(portal, entry, behind);
            let claim = claim.map_err(|e| Error::of_entry(e, portal, &self.config.limits))?;
            let Some((header, claim)) = claim else { break };
            (found, behind) = (found + 1, Some(header));
            if counts.has(Counts::OVERFLOW) {
                self.events.count(counter, tally(counts, claim.len, Ok(())));
            }
            if !silent && !quiet.has(Quiet::SUCCESS) {
                let info = EntryInfo::search(portal, user_data);
                let place = (claim.offset, claim.len);
                let served = served(&info, claim.arrival, place, List::Overflow, 0, claim.result);
                let served = Served { memory: Some(Box::new(claim.memory)), ..served };
                let found = Ok(Box::new(served));
                self.raise_search(portal, entry, Event::Search { user_data, found });
            }
        }
        self.end_search(portal, entry, found, silent);
        Ok(())
    }

    /// Takes the messages that an entry would get, and tells of them.
    pub(crate) fn search_and_delete(
        &mut self,
        portal: u16,
        mut entry: MatchEntry,
    ) -> Result<(), Error> {
        self.events.check(entry.queue, entry.counter)?;
        // What silences a search silences this one, whatever its events are called.
        if entry.quiet.any(SEARCH) {
            entry.quiet = entry.quiet.with(Quiet::OVERFLOW);
        }
        let asked = MatchEntry { memory: crate::Memory::empty(), ..entry.clone() };
        let found = self.portals.search_and_delete(portal, entry, &mut self.events);
        let found = found.map_err(|e| Error::of_entry(e, portal, &self.config.limits))?;
        self.end_search(portal, &asked, found, asked.quiet.has(Quiet::OVERFLOW));
        Ok(())
    }

    /// A search has found so many.
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
