//! The matching core: portals, their lists, and what becomes of a message. No I/O, no clock, no
//! events; what it has to say it says in [`Verdict`]s and [`Notice`]s.
//!
//! A message walks the priority list of its portal, then the overflow list, in order; what it finds
//! first, and what has the right, the operation and the room, takes it. What was taken from the
//! overflow list leaves a header. Appending to the priority list looks through the headers first:
//! that, and the link, are one step. Both directions cost a few look-ups however long the lists are
//! ([`list`]), unless an entry with wildcards has to look through headers.

mod chain;
mod entry;
mod list;
mod pattern;
mod portals3;
#[cfg(test)]
mod tests;
mod unexpected;

pub(crate) use entry::Entry;
pub use entry::MatchEntry;
pub(crate) use list::At;
pub(crate) use pattern::{Envelope, Fold};

use crate::{
    Counts, EventQueue, Failure, Handle, InterfaceId, Left, Limits, Memory, Quiet,
    counter::Counter, handle::Table, message::Arrival,
};
use entry::Verdict;
use list::MatchList;
use pattern::Pattern;
use unexpected::{Header, Unexpected};

/// Which list of a portal an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// What the program waits for.
    Priority,
    /// Where unexpected messages go.
    Overflow,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No entry takes it.
    NoMatch,
    /// No such portal, or one that is disabled.
    NoPortal,
    Disabled,
    /// The entry that it matched is for another user.
    Permission,
    /// The entry that it matched does not let that be done.
    Operation,
    /// No more headers can be kept.
    NoHeader,
}

/// A message that was taken: say [`Matching::finish`] when its data is there, or has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    /// By which entry, by slot; it stays until then.
    pub(crate) entry: u32,
    pub(crate) list: List,
    header: Option<u32>,
    /// Where in the entry's memory, and how much of it.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Matched {
    /// Where, and how much.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.offset, self.len)
    }
}

/// The entry that an event is about, also when that is gone already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryInfo {
    pub(crate) entry: Handle<MatchEntry>,
    pub(crate) portal: u16,
    pub(crate) user_data: u64,
    pub(crate) quiet: Quiet,
    pub(crate) queue: Option<Handle<EventQueue>>,
    pub(crate) counter: Option<Handle<Counter>>,
    pub(crate) counts: Counts,
    pub(crate) left: Left,
    /// Which memory of the entry (Portals 3).
    pub(crate) serial: u32,
}

impl EntryInfo {
    /// A search: an entry that there never is.
    pub(crate) fn search(portal: u16, user_data: u64) -> EntryInfo {
        let (entry, quiet, counts) = (Handle::none(), Quiet::NONE, Counts::NONE);
        let (queue, counter, left, serial) = (None, None, Left::default(), 0);
        EntryInfo { entry, portal, user_data, quiet, queue, counter, counts, left, serial }
    }
}

/// A message that came before the entry that wants it.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) arrival: Arrival,
    /// The memory of the overflow list's entry, where its data lies.
    pub(crate) memory: Memory,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) result: Result<(), Failure>,
}

/// What has to be told.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Linked(EntryInfo),
    /// An entry went by itself.
    Unlinked(EntryInfo),
    /// The memory of an entry of an overflow list, which went, is free.
    Freed(EntryInfo),
    Claimed(EntryInfo, Claim),
}

/// Why something was not done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryError {
    Stale,
    NoPortal,
    InUse,
    Full,
    /// The list has as many as it may have.
    ListFull,
}

#[derive(Debug, Default)]
struct Portal {
    priority: MatchList,
    overflow: MatchList,
    unexpected: Unexpected,
    enabled: bool,
}

/// All portals of an interface, with their entries.
#[derive(Debug)]
pub(crate) struct Matching {
    entries: Table<Entry>,
    headers: Table<Header>,
    waiting: Vec<Waiting>,
    portals: Vec<Option<Portal>>,
    /// Entries that a list may have.
    longest: usize,
}

/// Who has claimed a header whose data is not there yet.
#[derive(Debug)]
struct Waiting {
    header: u32,
    owner: EntryInfo,
    /// Whether the claimant has the right to it.
    result: Result<(), Failure>,
    /// Whether the claimant's entry went with it.
    unlinks: bool,
}

impl Portal {
    fn list(&mut self, list: List) -> &mut MatchList {
        match list {
            List::Priority => &mut self.priority,
            List::Overflow => &mut self.overflow,
        }
    }
}

impl Matching {
    /// With room for so many portals, entries and headers; by itself, as for tests.
    pub(crate) fn new(portals: usize, entries: usize, headers: usize) -> Matching {
        Matching {
            entries: Table::new(entries),
            headers: Table::new(headers),
            waiting: Vec::new(),
            portals: (0..portals).map(|_| None).collect(),
            longest: usize::MAX,
        }
    }

    /// Of an interface.
    pub(crate) fn of(owner: InterfaceId, limits: &Limits) -> Matching {
        Matching {
            entries: Table::of(owner, limits.entries),
            longest: limits.list,
            ..Matching::new(limits.portals.into(), limits.entries, limits.headers)
        }
    }

    /// Whether there can be a portal with this index.
    pub(crate) fn has_index(&self, portal: u16) -> bool {
        usize::from(portal) < self.portals.len()
    }

    /// Opens a portal, one that is wanted, or any; `None` if there is none.
    pub(crate) fn open(&mut self, wanted: Option<u16>) -> Option<u16> {
        let portal = match wanted {
            Some(portal) => usize::from(portal),
            None => self.portals.iter().position(Option::is_none)?,
        };
        let slot = self.portals.get_mut(portal).filter(|slot| slot.is_none())?;
        *slot = Some(Portal { enabled: true, ..Portal::default() });
        Some(portal as u16)
    }

    /// Closes a portal without entries. Its headers go.
    pub(crate) fn close(&mut self, portal: u16) -> Result<(), EntryError> {
        let slot = self.portals.get_mut(usize::from(portal)).ok_or(EntryError::NoPortal)?;
        let open = slot.as_ref().ok_or(EntryError::NoPortal)?;
        if open.priority.len() + open.overflow.len() + open.unexpected.len > 0 {
            return Err(EntryError::InUse);
        }
        *slot = None;
        Ok(())
    }

    /// Lets messages in, or not; false if there is no such portal.
    pub(crate) fn enable(&mut self, portal: u16, enabled: bool) -> bool {
        let portal = self.portals.get_mut(usize::from(portal)).and_then(Option::as_mut);
        portal.map(|portal| portal.enabled = enabled).is_some()
    }

    /// Lets no more messages in; false if that was so already.
    pub(crate) fn disable(&mut self, portal: u16) -> bool {
        let portal = self.portals.get_mut(usize::from(portal)).and_then(Option::as_mut);
        portal.is_some_and(|portal| std::mem::replace(&mut portal.enabled, false))
    }

    /// The entry that has taken a message.
    #[inline(always)]
    pub(crate) fn at(&self, slot: u32) -> &Entry {
        &self.entries[slot]
    }

    pub(crate) fn info(&self, slot: u32) -> EntryInfo {
        let entry = &self.entries[slot];
        EntryInfo {
            entry: self.entries.handle(slot),
            portal: entry.portal,
            user_data: entry.spec.user_data,
            quiet: entry.spec.quiet,
            queue: entry.spec.queue,
            counter: entry.spec.counter,
            counts: entry.spec.counts,
            left: Left { operations: entry.remaining(), offset: entry.offset },
            serial: entry.serial,
        }
    }

    /// Appends an entry. In the priority list it claims the headers that it matches first, the
    /// oldest first; what is for one message and got it is not linked at all.
    pub(crate) fn append(
        &mut self,
        portal: u16,
        list: List,
        spec: MatchEntry,
        notices: &mut Vec<Notice>,
    ) -> Result<Handle<MatchEntry>, EntryError> {
        self.insert(portal, list, spec, At::Last, notices)
    }

    /// The same anywhere in the list.
    pub(crate) fn insert(
        &mut self,
        portal: u16,
        list: List,
        spec: MatchEntry,
        at: At,
        notices: &mut Vec<Notice>,
    ) -> Result<Handle<MatchEntry>, EntryError> {
        let open = self.portals.get(usize::from(portal)).and_then(Option::as_ref);
        let waiting = open.ok_or(EntryError::NoPortal)?.unexpected.len > 0;
        let beside = at.base().is_none_or(|base| {
            let base = &self.entries[base];
            base.listed && base.list == list && base.portal == portal
        });
        if !beside {
            return Err(EntryError::Stale);
        }
        let open = self.portals[usize::from(portal)].as_mut().expect("looked at before");
        if open.list(list).len() >= self.longest {
            return Err(EntryError::ListFull);
        }
        let entry = Entry::new(spec, portal, list);
        let handle = self.entries.insert(entry).ok_or(EntryError::Full)?;
        let slot = handle.index();
        if waiting && list == List::Priority {
            self.claim(slot, notices);
            if !self.entries[slot].is_active() && self.entries[slot].unlinks() {
                let owner = self.info(slot);
                self.entries.take(slot);
                // When a header's data is still on its way, its end is told after it.
                match self.waiting.iter_mut().rfind(|waiting| waiting.owner.entry == handle) {
                    Some(waiting) => waiting.unlinks = true,
                    None => notices.push(Notice::Unlinked(owner)),
                }
                return Ok(handle);
            }
        }
        let portal = self.portals[usize::from(portal)].as_mut().expect("looked at before");
        portal.list(list).insert(&mut self.entries, slot, at);
        self.entries[slot].listed = true;
        notices.push(Notice::Linked(self.info(slot)));
        Ok(handle)
    }

    /// Gives an entry that comes the headers that it matches.
    fn claim(&mut self, slot: u32, notices: &mut Vec<Notice>) {
        while self.entries[slot].is_active() {
            let Some(header) = self.first_header(&self.entries[slot]) else { return };
            let owner = self.info(slot);
            let entry = &mut self.entries[slot];
            entry.left = entry.left.map(|left| left - 1);
            if entry.spec.local_offset && entry.spec.offset_counts_headers {
                entry.advance(self.headers[header].arrival.len);
            }
            let result = entry.admits(&self.headers[header].arrival).map_err(Failure::from);
            self.give(header, owner, result, notices);
        }
    }

    /// The oldest header that an entry takes.
    fn first_header(&self, entry: &Entry) -> Option<u32> {
        let portal = self.portals[usize::from(entry.portal)].as_ref()?;
        let fits =
            |header: &Header| entry.spec.truncate || header.arrival.len <= entry.spec.memory.len();
        portal.unexpected.find(&self.headers, &entry.spot.pattern, None, fits)
    }

    /// Gives a header to its claimant, now or when its data is there.
    fn give(
        &mut self,
        header: u32,
        owner: EntryInfo,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        let portal = self.portals[usize::from(owner.portal)].as_mut();
        portal.expect("of an open portal").unexpected.remove(&mut self.headers, header);
        match self.headers[header].landed {
            true => self.tell(header, owner, result, notices),
            false => self.waiting.push(Waiting { header, owner, result, unlinks: false }),
        }
    }

    /// Tells the claimant about a header, which goes.
    fn tell(
        &mut self,
        header: u32,
        owner: EntryInfo,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        let Some(header) = self.headers.take(header) else { return };
        let Header { arrival, offset, len, entry, .. } = header;
        let memory = self.entries[entry].spec.memory.clone();
        notices.push(Notice::Claimed(owner, Claim { arrival, memory, offset, len, result }));
        self.entries[entry].headers -= 1;
        self.settle(entry, notices);
    }

    /// The oldest header behind another, or of all, that an entry would get if it were appended
    /// now: its slot, and what it says.
    pub(crate) fn search(
        &self,
        portal: u16,
        spec: &MatchEntry,
        behind: Option<u32>,
    ) -> Result<Option<(u32, Claim)>, EntryError> {
        let open = self.portals.get(usize::from(portal)).and_then(Option::as_ref);
        let open = open.ok_or(EntryError::NoPortal)?;
        let pattern = Pattern::new(spec.bits, spec.ignore, spec.source);
        let fits = |header: &Header| spec.truncate || header.arrival.len <= spec.memory.len();
        let header = open.unexpected.find(&self.headers, &pattern, behind, fits);
        Ok(header.map(|header| {
            let Header { arrival, entry, offset, len, .. } = self.headers[header];
            let memory = self.entries[entry].spec.memory.clone();
            (header, Claim { arrival, memory, offset, len, result: Ok(()) })
        }))
    }

    /// Takes the headers that an entry would get: how many.
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
            m.portals[usize::from(portal)].as_ref().map_or(0, |portal| portal.unexpected.len)
        };
        let before = headers(self);
        self.claim(slot, notices);
        self.entries.take(slot);
        Ok((before - headers(self)) as u64)
    }

    /// What an entry does not want to be told that would take a message, if one would.
    pub(crate) fn quiet_of_taker(&self, arrival: &Arrival) -> Quiet {
        let Some(portal) = self.portals.get(usize::from(arrival.portal)).and_then(Option::as_ref)
        else {
            return Quiet::NONE;
        };
        let found = self.ask(&portal.priority, arrival);
        let found = found.or_else(|| self.ask_overflow(portal, arrival));
        found.map_or(Quiet::NONE, |(slot, _)| self.entries[slot].spec.quiet)
    }

    /// Takes an entry out, and gives what was appended. Not while anything needs it.
    pub(crate) fn unlink(&mut self, handle: Handle<MatchEntry>) -> Result<MatchEntry, EntryError> {
        let entry = self.entries.get(handle).ok_or(EntryError::Stale)?;
        if entry.pending > 0 || entry.headers > 0 {
            return Err(EntryError::InUse);
        }
        self.unlist(handle.index());
        let entry = self.entries.remove(handle).expect("it was there");
        Ok(entry.spec)
    }

    fn unlist(&mut self, slot: u32) {
        let entry = &mut self.entries[slot];
        if !std::mem::take(&mut entry.listed) {
            return;
        }
        let (portal, list) = (entry.portal, entry.list);
        let portal = self.portals[usize::from(portal)].as_mut();
        portal.expect("entries keep it open").list(list).remove(&mut self.entries, slot);
    }

    /// Finds the entry that takes a message.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, arrival: &Arrival) -> Result<Matched, Refusal> {
        let portal = self.portals.get(usize::from(arrival.portal)).and_then(Option::as_ref);
        let portal = portal.ok_or(Refusal::NoPortal)?;
        if !portal.enabled {
            return Err(Refusal::Disabled);
        }
        let (list, (entry, answer)) = match self.ask(&portal.priority, arrival) {
            Some(found) => (List::Priority, found),
            None => (List::Overflow, self.ask_overflow(portal, arrival).ok_or(Refusal::NoMatch)?),
        };
        match answer {
            Verdict::Accept { offset, len } => self.take(arrival, entry, list, offset, len),
            Verdict::Refuse(refusal) => Err(refusal),
            Verdict::Skip => unreachable!("an entry that was found has answered"),
        }
    }

    #[inline(never)]
    fn ask_overflow(&self, portal: &Portal, arrival: &Arrival) -> Option<(u32, Verdict)> {
        self.ask(&portal.overflow, arrival)
    }

    /// The first entry of a list that has an answer for a message, and the answer.
    #[inline(always)]
    fn ask(&self, list: &MatchList, arrival: &Arrival) -> Option<(u32, Verdict)> {
        list.find(&self.entries, arrival.envelope(), |entry| match entry.answer(arrival) {
            Verdict::Skip => None,
            answer => Some(answer),
        })
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
        self.entries[slot].take(len);
        self.leave_if_used_up(slot);
        Ok(Matched { entry: slot, list, header, offset, len })
    }

    /// An entry that takes nothing any more goes, if it was made so, when nothing needs it.
    #[inline]
    fn leave_if_used_up(&mut self, slot: u32) {
        let entry = &mut self.entries[slot];
        if !entry.is_active() && entry.unlinks() && entry.reserved == 0 {
            entry.leaving = true;
            if !entry.stays {
                self.unlist(slot);
            }
        }
    }

    /// The data of a message that was taken is there, or has left; or never will.
    #[inline(always)]
    pub(crate) fn finish(
        &mut self,
        taken: &Matched,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        let entry = &mut self.entries[taken.entry];
        entry.pending -= 1;
        if taken.header.is_none() && !entry.leaving {
            return;
        }
        if let Some(header) = taken.header {
            self.land(taken, header, result, notices);
        }
        // With its last header it may have gone.
        if self.entries.at(taken.entry).is_some_and(|entry| entry.leaving) {
            self.settle(taken.entry, notices);
        }
    }

    fn land(
        &mut self,
        taken: &Matched,
        header: u32,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        self.headers[header].landed = true;
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.header == header) {
            let waiting = self.waiting.remove(at);
            self.tell(header, waiting.owner, result.and(waiting.result), notices);
            if waiting.unlinks {
                notices.push(Notice::Unlinked(waiting.owner));
            }
        } else if result.is_err() {
            // No entry will ever take it.
            let portal = self.entries[taken.entry].portal;
            let portal = self.portals[usize::from(portal)].as_mut();
            portal.expect("headers keep it open").unexpected.remove(&mut self.headers, header);
            self.headers.take(header);
            self.entries[taken.entry].headers -= 1;
        }
    }

    /// Lets an entry go that was used up, when nothing needs it any more.
    fn settle(&mut self, slot: u32, notices: &mut Vec<Notice>) {
        let entry = &mut self.entries[slot];
        if !entry.leaving || entry.pending > 0 {
            return;
        }
        if !std::mem::replace(&mut entry.told, true) {
            notices.push(Notice::Unlinked(self.info(slot)));
        }
        let entry = &mut self.entries[slot];
        if entry.stays {
            (entry.leaving, entry.told, entry.attached) = (false, false, false);
            entry.spec.memory = Memory::empty();
            return;
        }
        if entry.headers == 0 {
            if entry.list == List::Overflow {
                notices.push(Notice::Freed(self.info(slot)));
            }
            self.entries.take(slot);
        }
    }

    /// Entries, and headers that are kept.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.entries.len(), self.headers.len())
    }
}
