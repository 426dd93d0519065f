//! The portal table: what an interface offers to other processes, and what it says about that to
//! its program.

use crate::{
    Counts, Error, Event, EventQueue, Failure, Handle, InterfaceId, Limits, List, Listed,
    MatchEntry, Quiet, Served,
    access::AccessList,
    counter::Count,
    event::NOWHERE,
    events::Events,
    matching::{Claim, EntryError, EntryInfo, Matched, Matching, Notice},
    message::Arrival,
};

/// Options of a portal that is opened ([`Interface::portal`](crate::Interface::portal)): those of
/// `PtlPTAlloc` (section *Portal table entries*).
///
/// ```
/// # use petasos_portals::{Config, Interface, ProcessMap};
/// # use petasos_fabric::Endpoint;
/// # use std::sync::Arc;
/// use petasos_portals::{Error, PortalOptions};
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// // Portal 4, which is disabled rather than lose a message or an event.
/// let options = PortalOptions {
///     index: Some(4),
///     queue: Some(interface.queue(64)?),
///     flow_control: true,
///     ..PortalOptions::default()
/// };
/// assert_eq!(interface.portal(options)?, 4);
/// assert_eq!(interface.portal(options), Err(Error::PortalTaken(4)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PortalOptions {
    /// The index, below [`Limits::portals`]; `None` for any. Default: any.
    pub index: Option<u16>,
    /// The event queue. Default: none.
    pub queue: Option<Handle<EventQueue>>,
    /// When there is no room for a message (no entry, no header, or no three slots in the queue),
    /// the portal is disabled, and senders get [`Failure::PortalDisabled`](crate::Failure). Without
    /// flow control messages are dropped, and the oldest events overwritten. Sets aside a slot of
    /// the queue. Default: no.
    pub flow_control: bool,
    /// It refuses messages until it is enabled ([`Interface::enable`](crate::Interface::enable)).
    /// Default: no.
    pub disabled: bool,
}

/// Portals with their match lists, event queues and access control.
#[derive(Debug)]
pub(crate) struct PortalTable {
    pub(crate) matching: Matching,
    /// By index; the default where a portal is not open.
    settings: Vec<Settings>,
    /// Which process may do what (Portals 3); all may where there is no list.
    access: Option<AccessList>,
    /// What the matching core has to say: a vector that is used again, and empty between calls.
    notices: Vec<Notice>,
}

/// What a portal was given when it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    queue: Option<Handle<EventQueue>>,
    flow_control: bool,
}

impl PortalTable {
    pub(crate) fn new(id: InterfaceId, limits: &Limits) -> PortalTable {
        PortalTable {
            matching: Matching::of(id, limits),
            settings: vec![Settings::default(); limits.portals.into()],
            access: None,
            notices: Vec::new(),
        }
    }

    pub(crate) fn open(
        &mut self,
        options: PortalOptions,
        events: &mut Events,
    ) -> Result<u16, Error> {
        let PortalOptions { index, queue, flow_control, disabled } = options;
        events.check(queue, None)?;
        let portal = self.matching.open(index).ok_or(match index {
            None => Error::NoPortal,
            Some(index) if self.matching.has_index(index) => Error::PortalTaken(index),
            Some(index) => Error::Portal(index),
        })?;
        if let Some(queue) = queue.filter(|_| flow_control)
            && !events.queue_mut(queue)?.add_flow_control()
        {
            // Nothing is in it yet.
            let _ = self.matching.close(portal);
            return Err(Error::Argument("a queue for flow control holds two events at least"));
        }
        self.settings[usize::from(portal)] = Settings { queue, flow_control };
        self.matching.enable(portal, !disabled);
        Ok(portal)
    }

    pub(crate) fn close(&mut self, portal: u16, events: &mut Events) -> Result<(), EntryError> {
        self.matching.close(portal)?;
        let closed = std::mem::take(&mut self.settings[usize::from(portal)]);
        if closed.flow_control
            && let Some(Ok(queue)) = closed.queue.map(|queue| events.queue_mut(queue))
        {
            queue.remove_flow_control();
        }
        Ok(())
    }

    /// The event queue of a portal.
    #[inline]
    pub(crate) fn queue(&self, portal: u16) -> Option<Handle<EventQueue>> {
        self.settings[usize::from(portal)].queue
    }

    /// Where the events of an entry go: to its own queue, or that of its portal.
    #[inline]
    fn queue_of(&self, entry: &EntryInfo) -> Option<Handle<EventQueue>> {
        entry.queue.or(self.queue(entry.portal))
    }

    #[inline]
    pub(crate) fn has_flow_control(&self, portal: u16) -> bool {
        self.settings.get(usize::from(portal)).is_some_and(|settings| settings.flow_control)
    }

    /// Whether a portal has no room for the events of one more message, and flow control.
    #[inline]
    pub(crate) fn is_overrun(&self, portal: u16, events: &Events) -> bool {
        let Some(settings) = self.settings.get(usize::from(portal)) else { return false };
        settings.flow_control
            && settings.queue.is_some_and(|queue| events.queue(queue).is_ok_and(|q| !q.has_room()))
    }

    // Access control.

    pub(crate) fn set_access(&mut self, access: AccessList) {
        self.access = Some(access);
    }

    pub(crate) fn access_mut(&mut self) -> Option<&mut AccessList> {
        self.access.as_mut()
    }

    #[inline]
    pub(crate) fn has_access_list(&self) -> bool {
        self.access.is_some()
    }

    /// Whether access control admits a request, which names this entry of the list.
    #[inline]
    pub(crate) fn admits(&self, index: u32, arrival: &Arrival) -> bool {
        self.access.as_ref().is_none_or(|access| access.admits(index, arrival))
    }

    // Entries. What the matching core has to say about them is said here.

    pub(crate) fn append(
        &mut self,
        portal: u16,
        list: List,
        entry: MatchEntry,
        events: &mut Events,
    ) -> Result<Handle<MatchEntry>, EntryError> {
        let appended = self.matching.append(portal, list, entry, &mut self.notices);
        self.raise_notices(0, events);
        appended
    }

    /// Takes the headers that an entry would get, and raises their events: how many.
    pub(crate) fn search_and_delete(
        &mut self,
        portal: u16,
        entry: MatchEntry,
        events: &mut Events,
    ) -> Result<u64, EntryError> {
        let found = self.matching.search_and_delete(portal, entry, &mut self.notices);
        self.raise_notices(0, events);
        found
    }

    /// The data of a message that was matched is there, or has left; or never will.
    #[inline(always)]
    pub(crate) fn finish(
        &mut self,
        matched: &Matched,
        result: Result<(), Failure>,
        link: u64,
        events: &mut Events,
    ) {
        self.matching.finish(matched, result, &mut self.notices);
        self.raise_notices(link, events);
    }

    /// An operation from the memory of an entry has ended (Portals 3).
    pub(crate) fn let_go(&mut self, entry: Handle<MatchEntry>, link: u64, events: &mut Events) {
        self.matching.let_go(entry, &mut self.notices);
        self.raise_notices(link, events);
    }

    /// Raises the event of an operation's beginning at an entry, or of its end.
    #[inline(never)]
    pub(crate) fn raise_served(
        &self,
        event: fn(Served) -> Event,
        arrival: &Arrival,
        matched: &Matched,
        link: u64,
        result: Result<(), Failure>,
        events: &mut Events,
    ) {
        let entry = self.matching.info(matched.entry);
        let served = || served(&entry, *arrival, matched.place(), matched.list, link, result);
        events.push_with(self.queue_of(&entry), || event(served()));
    }

    /// Raises the events of what the matching core has to say. `link`: of which operation, or 0.
    #[inline]
    fn raise_notices(&mut self, link: u64, events: &mut Events) {
        if !self.notices.is_empty() {
            self.raise_all_notices(link, events);
        }
    }

    #[inline(never)]
    fn raise_all_notices(&mut self, link: u64, events: &mut Events) {
        let mut notices = std::mem::take(&mut self.notices);
        for notice in notices.drain(..) {
            match notice {
                Notice::Linked(entry) => {
                    self.raise_listed(&entry, Quiet::LINK, link, Event::Link, events);
                }
                Notice::Unlinked(entry) => {
                    self.raise_listed(&entry, Quiet::UNLINK, link, Event::AutoUnlink, events);
                }
                Notice::Freed(entry) => {
                    self.raise_listed(&entry, Quiet::UNLINK, link, Event::AutoFree, events);
                }
                Notice::Claimed(entry, claim) => self.raise_claimed(&entry, claim, link, events),
            }
        }
        self.notices = notices;
    }

    fn raise_listed(
        &self,
        entry: &EntryInfo,
        kind: Quiet,
        link: u64,
        event: fn(Listed) -> Event,
        events: &mut Events,
    ) {
        if !entry.quiet.has(kind) {
            let EntryInfo { entry: handle, portal, user_data, left, serial, .. } = *entry;
            let listed = Listed { entry: handle, portal, user_data, link, left, serial };
            events.push(self.queue_of(entry), event(listed));
        }
    }

    /// Counts a message that came before the entry that claimed it, and raises its event.
    fn raise_claimed(&self, entry: &EntryInfo, claim: Claim, link: u64, events: &mut Events) {
        let result = claim.result;
        if entry.counts.has(Counts::OVERFLOW) {
            events.count(entry.counter, Count::of_operation(entry.counts, claim.len, result));
        }
        let silent =
            entry.quiet.has(Quiet::OVERFLOW) || (result.is_ok() && entry.quiet.has(Quiet::SUCCESS));
        if !silent {
            let place = (claim.offset, claim.len);
            let served = served(entry, claim.arrival, place, List::Overflow, link, result);
            let start = claim.memory.start().unwrap_or(NOWHERE);
            let served = Served { memory: Some(Box::new(claim.memory)), start, ..served };
            events.push(self.queue_of(entry), Event::Overflow(served));
        }
    }
}

/// What an event at an entry says: how many bytes, and at which offset.
pub(crate) fn served(
    entry: &EntryInfo,
    arrival: Arrival,
    (offset, len): (u64, u64),
    list: List,
    link: u64,
    result: Result<(), Failure>,
) -> Served {
    let EntryInfo { entry, user_data, left, serial, start, .. } = *entry;
    Served {
        arrival,
        entry,
        user_data,
        len,
        offset,
        memory: None,
        list,
        link,
        left,
        result,
        serial,
        start,
    }
}
