//! What an interface offers to other processes: portals, with the entries of their lists.

use super::{Interface, PASSES};
use crate::{
    Accepts, Error, Handle, List, MatchEntry, PortalOptions, Quiet, matching::EntryError,
    state::State,
};

/// Portals and match entries.
impl Interface {
    /// Opens a portal.
    ///
    /// # Errors
    /// [`Error::PortalTaken`] or [`Error::Portal`] for the index that is wanted,
    /// [`Error::NoPortal`] if none is free, [`Error::Handle`] for a stale queue,
    /// [`Error::Argument`] for a queue of one event with flow control.
    pub fn portal(&self, options: PortalOptions) -> Result<u16, Error> {
        let state = &mut *self.lock();
        state.portals.open(options, &mut state.events)
    }

    /// Closes a portal without entries and headers.
    ///
    /// # Errors
    /// [`Error::Portal`] if it is not open, [`Error::InUse`] if it has entries or headers.
    pub fn close_portal(&self, portal: u16) -> Result<(), Error> {
        let state = &mut *self.lock();
        state.portals.close(portal, &mut state.events).map_err(|error| match error {
            EntryError::InUse => Error::InUse("the portal"),
            error => error.explain(portal, &state.config.limits),
        })
    }

    /// Enables a portal that was disabled.
    ///
    /// # Errors
    /// [`Error::Portal`] if it is not open.
    pub fn enable(&self, portal: u16) -> Result<(), Error> {
        let known = self.lock().portals.matching.enable(portal, true);
        if known { Ok(()) } else { Err(Error::Portal(portal)) }
    }

    /// Disables a portal: messages are refused with [`Failure::PortalDisabled`](crate::Failure).
    ///
    /// # Errors
    /// [`Error::Portal`] if it is not open.
    pub fn disable(&self, portal: u16) -> Result<(), Error> {
        let known = self.lock().portals.matching.enable(portal, false);
        if known { Ok(()) } else { Err(Error::Portal(portal)) }
    }

    /// Appends an entry to a list of a portal: [`Event::Link`](crate::Event::Link) follows. An
    /// entry of the priority list first gets the messages that came before it, in the order in
    /// which they came ([`Event::Overflow`]). If it is used up by that, and unlinks, it is not
    /// linked, and its handle is stale at once.
    ///
    /// [`Event::Overflow`]: crate::Event::Overflow
    ///
    /// # Errors
    /// [`Error::Portal`] if the portal is not open, [`Error::Handle`] for a stale queue or counter,
    /// [`Error::ListTooLong`] or [`Error::NoSpace`] at a limit, [`Error::ReadOnly`] or
    /// [`Error::Argument`] if the entry makes no sense. Nothing was appended.
    pub fn append(
        &self,
        portal: u16,
        list: List,
        entry: MatchEntry,
    ) -> Result<Handle<MatchEntry>, Error> {
        self.with_state(|state| {
            state.check_entry(&entry)?;
            let entry = MatchEntry { quiet: entry.quiet.with(Quiet::PORTALS_4), ..entry };
            let appended = state.portals.append(portal, list, entry, &mut state.events);
            appended.map_err(|error| error.explain(portal, &state.config.limits))
        })
    }

    /// Unlinks an entry, and gives back what was appended: its memory belongs to the caller alone.
    /// Takes in what has come first; refused while operations or headers need the entry. Raises no
    /// event.
    ///
    /// # Errors
    /// [`Error::Handle`] if the entry is gone, [`Error::InUse`] while something needs it: try
    /// again.
    pub fn unlink(&self, entry: Handle<MatchEntry>) -> Result<MatchEntry, Error> {
        self.with_state(|state| {
            let mut passes = 0;
            loop {
                match state.portals.matching.unlink(entry) {
                    Err(EntryError::InUse) if passes < PASSES && state.pass() => passes += 1,
                    result => {
                        let limits = &state.config.limits;
                        return result.map_err(|error| error.explain(0, limits));
                    }
                }
            }
        })
    }

    /// Searches the unexpected messages for those that an entry would get, and leaves them there:
    /// one with `once`, so many with `threshold`, else all. [`Event::Search`] comes for each, the
    /// oldest first, or says that there is none. Of the entry these count: what it matches, whether
    /// it truncates, its queue, its counter with [`Counts::OVERFLOW`], and the events that it does
    /// not want ([`Quiet::OVERFLOW`], [`Quiet::COMMUNICATION`], [`Quiet::SUCCESS`]). The counter
    /// counts each message, and one failure if fewer were found than were searched for; a search
    /// for all always counts that failure.
    ///
    /// [`Event::Search`]: crate::Event::Search
    /// [`Counts::OVERFLOW`]: crate::Counts::OVERFLOW
    ///
    /// # Errors
    /// As [`Interface::append`], but for the limits of lists.
    pub fn search(&self, portal: u16, entry: MatchEntry) -> Result<(), Error> {
        self.with_state(|state| state.search(portal, &entry))
    }

    /// Takes the unexpected messages that an entry would get: [`Event::Overflow`] comes for each,
    /// or [`Event::Search`] if there is none. Of the entry the same counts as for
    /// [`Interface::search`].
    ///
    /// [`Event::Overflow`]: crate::Event::Overflow
    /// [`Event::Search`]: crate::Event::Search
    ///
    /// # Errors
    /// As [`Interface::search`].
    pub fn search_and_delete(&self, portal: u16, entry: MatchEntry) -> Result<(), Error> {
        self.with_state(|state| state.search_and_delete(portal, entry))
    }
}

impl State {
    pub(crate) fn check_entry(&self, entry: &MatchEntry) -> Result<(), Error> {
        self.events.check(entry.queue, entry.counter)?;
        if entry.accepts.has(Accepts::PUT) && !entry.memory.is_writable() {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }
}
