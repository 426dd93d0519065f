//! The matching core: portals, their lists, and what becomes of a message. No I/O, no clock, no
//! events; what the program has to know of it is given as [`Notice`]s.
//!
//! A message goes to the first entry of its portal's priority list that matches it, is active and
//! has room; without one, to the first such entry of the overflow list. It is refused if that entry
//! is for another user, or does not allow the operation. A message that an overflow entry took
//! leaves a header. An entry that is appended to the priority list claims the headers that it
//! matches before it is linked, in one step. Both directions cost a few look-ups however long the
//! lists are ([`petasos_match`]), unless an entry with wildcards has to search headers.

mod claims;
mod deliver;
mod entry;
mod portals3;
#[cfg(test)]
mod tests;
mod unexpected;

pub(crate) use entry::Entry;
pub use entry::MatchEntry;

use crate::{
    Counter, Counts, Error, EventQueue, Failure, Handle, InterfaceId, Limits, Memory, Quiet,
    handle::Table, message::Arrival,
};
use claims::PendingClaim;
use petasos_match::{MessageQueue, PatternList};
use unexpected::Header;

/// Which list of a portal an entry is in (section *Match list entries and matching lists*).
///
/// ```
/// # use petasos_portals::{Config, Interface, ProcessMap};
/// # use petasos_fabric::Endpoint;
/// # use std::sync::Arc;
/// use petasos_portals::{
///     Descriptor, Event, List, MatchEntry, Operation, Part, PortalOptions, ProcessId, Target,
/// };
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// let queue = interface.queue(64)?;
/// let portal = interface.portal(PortalOptions { queue: Some(queue), ..Default::default() })?;
/// // A message comes before the entry that wants it: a block of memory takes it.
/// let block = MatchEntry { ignore: !0, local_offset: true, ..MatchEntry::new(vec![0; 4096]) };
/// interface.append(portal, List::Overflow, block)?;
/// let data = Part::of(interface.bind(Descriptor::new(b"early".to_vec()))?, 5);
/// let target = Target { bits: 7, ..Target::new(ProcessId::rank(0), portal) };
/// interface.start(Operation::put(data, target))?;
/// while interface.progress() {}
/// while interface.take_event(queue).is_ok() {}
///
/// // The entry gets it at once, with the memory where its data is.
/// let entry = MatchEntry { bits: 7, once: true, ..MatchEntry::new(vec![0; 64]) };
/// interface.append(portal, List::Priority, entry)?;
/// let Event::Overflow(early) = interface.take_event(queue)?.event else { panic!() };
/// let mut bytes = [0; 5];
/// early.memory.expect("that of the block").read(early.offset, &mut bytes);
/// assert_eq!(&bytes, b"early");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Entries for messages that the program expects. It is searched first.
    Priority,
    /// Entries for unexpected messages: those that nothing in the priority list matches.
    Overflow,
}

/// Where an entry is inserted: at an end of the list, or beside the entry in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    First,
    Last,
    Before(u32),
    After(u32),
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

/// A message that an entry has taken: call [`Matching::finish`] when its data is there, or has
/// left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    /// The slot of the entry, which stays until then.
    pub(crate) entry: u32,
    pub(crate) list: List,
    header: Option<u32>,
    /// The offset in the entry's memory, and how many bytes.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Matched {
    /// Offset and length.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.offset, self.len)
    }
}

/// How much an entry still took when an event was raised: with the memory, what Portals 3 says of a
/// descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many operations it still takes; `None` for any number.
    pub operations: Option<u64>,
    /// Its own offset in bytes, where the next message goes with `local_offset`.
    pub offset: u64,
}

/// What events say of an entry, also when that is gone already.
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
    /// The address of the first byte of its memory, or [`NOWHERE`](crate::event::NOWHERE).
    pub(crate) start: u64,
}

impl EntryInfo {
    /// For a search, which has no entry.
    pub(crate) fn search(portal: u16, user_data: u64) -> EntryInfo {
        let (entry, quiet, counts) = (Handle::none(), Quiet::NONE, Counts::NONE);
        let (queue, counter, left, serial) = (None, None, Left::default(), 0);
        let start = crate::event::NOWHERE;
        EntryInfo { entry, portal, user_data, quiet, queue, counter, counts, left, serial, start }
    }
}

/// A message that came before the entry that wants it.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) arrival: Arrival,
    /// The memory of the overflow entry, where its data lies.
    pub(crate) memory: Memory,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) result: Result<(), Failure>,
}

/// Something that the program has to know.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Linked(EntryInfo),
    /// An entry was used up, and is unlinked.
    Unlinked(EntryInfo),
    /// No header refers to the memory of an overflow entry that was unlinked.
    Freed(EntryInfo),
    Claimed(EntryInfo, Claim),
}

/// Why a call about an entry did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryError {
    Stale,
    NoPortal,
    InUse,
    Full,
    /// The list has as many entries as it may have.
    ListFull,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal {
            Refusal::NoMatch | Refusal::NoPortal | Refusal::NoHeader => Failure::Dropped,
            Refusal::Disabled => Failure::PortalDisabled,
            Refusal::Permission => Failure::Permission,
            Refusal::Operation => Failure::Operation,
        }
    }
}

impl EntryError {
    /// What the program gets, of a call about an entry at this portal.
    pub(crate) fn explain(self, portal: u16, limits: &Limits) -> Error {
        match self {
            EntryError::Stale => Error::Handle("an entry"),
            EntryError::NoPortal => Error::Portal(portal),
            EntryError::InUse => Error::InUse("the entry"),
            EntryError::Full => Error::NoSpace { what: "entries", limit: limits.entries as u64 },
            EntryError::ListFull => Error::ListTooLong { limit: limits.list as u64 },
        }
    }
}

#[derive(Debug, Default)]
struct Portal {
    /// The slots of entries.
    priority: PatternList<u32>,
    overflow: PatternList<u32>,
    /// The slots of headers.
    unexpected: MessageQueue<u32>,
    enabled: bool,
}

/// All portals of an interface, with their entries.
#[derive(Debug)]
pub(crate) struct Matching {
    entries: Table<Entry>,
    headers: Table<Header>,
    pending: Vec<PendingClaim>,
    portals: Vec<Option<Portal>>,
    /// Entries that a list may have.
    longest: usize,
}

impl Portal {
    fn list(&mut self, list: List) -> &mut PatternList<u32> {
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
            pending: Vec::new(),
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

    /// Opens the portal that is wanted, or any; `None` if that is open, or none is free.
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
        if open.priority.len() + open.overflow.len() + open.unexpected.len() > 0 {
            return Err(EntryError::InUse);
        }
        *slot = None;
        Ok(())
    }

    /// Enables or disables a portal; false if it is not open.
    pub(crate) fn enable(&mut self, portal: u16, enabled: bool) -> bool {
        let portal = self.portals.get_mut(usize::from(portal)).and_then(Option::as_mut);
        portal.map(|portal| portal.enabled = enabled).is_some()
    }

    /// Disables a portal; false if it was disabled, or is not open.
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
            start: entry.start,
        }
    }

    /// Appends an entry. To the priority list: it first claims the headers that it matches, the
    /// oldest first. If it is used up by that, and unlinks, it is not linked at all.
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
        let waiting = !open.ok_or(EntryError::NoPortal)?.unexpected.is_empty();
        let at = self.resolve(portal, list, at).ok_or(EntryError::Stale)?;
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
                let info = self.info(slot);
                self.entries.take(slot);
                self.unlink_after_claims(info, notices);
                return Ok(handle);
            }
        }
        let pattern = self.entries[slot].spec.pattern();
        let portal = self.portals[usize::from(portal)].as_mut().expect("looked at before");
        let key = portal.list(list).insert(at, pattern, slot);
        self.entries[slot].key = Some(key.expect("what it is beside is in the list"));
        notices.push(Notice::Linked(self.info(slot)));
        Ok(handle)
    }

    /// The place in a list; `None` if what it is beside is not in that list.
    fn resolve(&self, portal: u16, list: List, at: At) -> Option<petasos_match::At> {
        let key = |base: u32| {
            let base = &self.entries[base];
            base.key.filter(|_| base.list == list && base.portal == portal)
        };
        Some(match at {
            At::First => petasos_match::At::First,
            At::Last => petasos_match::At::Last,
            At::Before(base) => petasos_match::At::Before(key(base)?),
            At::After(base) => petasos_match::At::After(key(base)?),
        })
    }

    /// Unlinks an entry, and gives what was appended. Not while operations or headers need it.
    pub(crate) fn unlink(&mut self, handle: Handle<MatchEntry>) -> Result<MatchEntry, EntryError> {
        let entry = self.entries.get(handle).ok_or(EntryError::Stale)?;
        if entry.pending > 0 || entry.headers > 0 {
            return Err(EntryError::InUse);
        }
        self.unlist(handle.index());
        let entry = self.entries.remove(handle).expect("it was there");
        Ok(entry.spec)
    }

    /// Removes an entry from its list.
    fn unlist(&mut self, slot: u32) {
        let entry = &mut self.entries[slot];
        let Some(key) = entry.key.take() else { return };
        let portal = self.portals[usize::from(entry.portal)].as_mut();
        portal.expect("entries keep it open").list(entry.list).remove(key);
    }

    /// Removes an entry that takes no more messages from its list, if it unlinks. What is left of
    /// it goes when nothing needs it any more ([`Matching::settle`]).
    #[inline(never)]
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
        matched: &Matched,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        let entry = &mut self.entries[matched.entry];
        entry.pending -= 1;
        if matched.header.is_none() && !entry.leaving {
            return;
        }
        if let Some(header) = matched.header {
            self.land(matched, header, result, notices);
        }
        // The entry may have gone with its last header.
        if self.entries.at(matched.entry).is_some_and(|entry| entry.leaving) {
            self.settle(matched.entry, notices);
        }
    }

    /// Removes an entry that was used up, once nothing needs it any more.
    fn settle(&mut self, slot: u32, notices: &mut Vec<Notice>) {
        let entry = &mut self.entries[slot];
        if !entry.leaving || entry.pending > 0 {
            return;
        }
        if !std::mem::replace(&mut entry.unlink_raised, true) {
            notices.push(Notice::Unlinked(self.info(slot)));
        }
        let entry = &mut self.entries[slot];
        if entry.stays {
            (entry.leaving, entry.unlink_raised, entry.attached) = (false, false, false);
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

    /// How many entries and headers there are.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.entries.len(), self.headers.len())
    }
}
