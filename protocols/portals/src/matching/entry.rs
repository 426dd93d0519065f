//! Entries of match lists: what the program gives, and what becomes of it.

use super::{
    At, List,
    chain::{Linked, Links},
    pattern::Pattern,
};
use crate::{
    Accepts, Counts, EventQueue, Handle, Memory, ProcessId, Quiet, counter::Counter,
    message::Arrival,
};

/// The sort of links of the list.
pub(super) const ORDER: usize = 0;
/// The sort of links of a hash chain.
pub(super) const CHAIN: usize = 1;

/// What a program appends to a portal: which messages it wants, and where they go.
///
/// ```
/// use petasos_portals::{Accepts, MatchEntry};
/// let entry = MatchEntry { bits: 7, once: true, ..MatchEntry::new(vec![0; 1024]) };
/// assert!(entry.accepts.has(Accepts::PUT) && entry.truncate);
/// ```
#[derive(Clone, Debug)]
pub struct MatchEntry {
    /// Where data goes, or comes from.
    pub memory: Memory,
    /// The bits that a message must show.
    pub bits: u64,
    /// Bits that do not count.
    pub ignore: u64,
    /// From which process; parts of it may be any.
    pub source: ProcessId,
    /// The user that may use it, or all.
    pub user: Option<u32>,
    /// What it lets others do. Default: put.
    pub accepts: Accepts,
    /// It is for one message, and then unlinked. The same as a threshold of 1.
    pub once: bool,
    /// It is for so many messages, and then inactive; `None` for any number.
    pub threshold: Option<u64>,
    /// Whether it is unlinked when it has become inactive. `once` implies it.
    pub unlink: bool,
    /// The target says where data goes: each message behind the one before.
    pub local_offset: bool,
    /// With `local_offset`: inactive as soon as less than so many bytes are left.
    pub min_free: Option<u64>,
    /// With `local_offset`: a message that came before the entry moves the offset on, too, by the
    /// length that was asked for. Its data stays where it is. Default: no.
    pub offset_counts_headers: bool,
    /// A message that does not fit is cut; else it goes on to the next entry. Default: yes.
    pub truncate: bool,
    /// Whether acknowledgements are sent to initiators that ask for them. Default: yes.
    pub acknowledge: bool,
    /// In an overflow list: whether messages leave a header, for later. Default: yes.
    pub header: bool,
    /// Comes back in events.
    pub user_data: u64,
    /// Events that are not wanted.
    pub quiet: Quiet,
    /// Where its events go, if not to the queue of its portal.
    pub queue: Option<Handle<EventQueue>>,
    /// Counts what happens.
    pub counter: Option<Handle<Counter>>,
    /// What it counts.
    pub counts: Counts,
}

impl MatchEntry {
    /// An entry that takes puts of any process with bits 0, any number of them.
    #[must_use]
    pub fn new(memory: impl Into<Memory>) -> MatchEntry {
        MatchEntry {
            memory: memory.into(),
            bits: 0,
            ignore: 0,
            source: ProcessId::ANY,
            user: None,
            accepts: Accepts::PUT,
            once: false,
            threshold: None,
            unlink: false,
            local_offset: false,
            min_free: None,
            offset_counts_headers: false,
            truncate: true,
            acknowledge: true,
            header: true,
            user_data: 0,
            quiet: Quiet::NONE,
            queue: None,
            counter: None,
            counts: Counts::NONE,
        }
    }
}

/// Where an entry stands in its list.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(super) pattern: Pattern,
    pub(super) label: u64,
    pub(super) class: u32,
    pub(super) links: [Links; 2],
}

/// An entry that was appended.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) spot: Spot,
    pub(super) portal: u16,
    pub(super) list: List,
    /// Whether it is in the list.
    pub(super) listed: bool,
    /// Whether it is to go when nothing needs it any more.
    pub(super) leaving: bool,
    /// Whether it was told that it was unlinked.
    pub(super) told: bool,
    /// Operations that match may differ in this from those that the entry allows: they go on to the
    /// next entry (Portals 3), or are refused.
    pub(super) skips: bool,
    /// When it is used up it stays, inactive, and only its memory goes (Portals 3).
    pub(super) stays: bool,
    /// How often it was given memory; only then does it take anything (Portals 3).
    pub(super) serial: u32,
    pub(super) attached: bool,
    /// Messages that it still takes.
    pub(super) left: Option<u64>,
    /// What was taken off that for answers to operations that were started from its memory (Portals
    /// 3).
    pub(super) reserved: u64,
    /// Where the next message goes, if the target says so.
    pub(crate) offset: u64,
    /// Operations under way.
    pub(crate) pending: u32,
    /// Unexpected headers whose data lies in its memory.
    pub(super) headers: u32,
    pub(crate) spec: MatchEntry,
}

impl Linked for Entry {
    fn links(&self, sort: usize) -> &Links {
        &self.spot.links[sort]
    }

    fn links_mut(&mut self, sort: usize) -> &mut Links {
        &mut self.spot.links[sort]
    }
}

/// What an entry says to a message that matches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The next entry is tried.
    Skip,
    /// The message is refused.
    Refuse(super::Refusal),
    /// So many bytes are taken, at this offset.
    Accept { offset: u64, len: u64 },
}

impl Entry {
    pub(super) fn new(spec: MatchEntry, portal: u16, list: List) -> Entry {
        let pattern = Pattern::new(spec.bits, spec.ignore, spec.source);
        let left = if spec.once { Some(1) } else { spec.threshold };
        Entry {
            spot: Spot { pattern, label: 0, class: 0, links: Default::default() },
            portal,
            list,
            listed: false,
            leaving: false,
            told: false,
            skips: false,
            stays: false,
            serial: 0,
            attached: true,
            left,
            reserved: 0,
            offset: 0,
            pending: 0,
            headers: 0,
            spec,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.attached && self.left != Some(0)
    }

    /// What it may still do, with what is kept for answers; `None`: any number.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.left.map(|left| left + self.reserved)
    }

    /// Whether less is left behind its own offset than there has to be.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let room = self.spec.memory.len().saturating_sub(self.offset);
        self.spec.local_offset && self.spec.min_free.is_some_and(|least| room < least)
    }

    /// Whether the message has the right to it.
    #[inline(always)]
    pub(super) fn admits(&self, arrival: &Arrival) -> Result<(), super::Refusal> {
        if self.spec.user.is_some_and(|user| user != arrival.user) {
            return Err(super::Refusal::Permission);
        }
        let request = arrival.request;
        let allowed = (!request.writes() || self.spec.accepts.has(Accepts::PUT))
            && (!request.reads() || self.spec.accepts.has(Accepts::GET));
        if allowed { Ok(()) } else { Err(super::Refusal::Operation) }
    }

    /// What becomes of a message that matches.
    #[inline(always)]
    pub(super) fn answer(&self, arrival: &Arrival) -> Verdict {
        if !self.is_active() {
            return Verdict::Skip;
        }
        if let Err(refusal) = self.admits(arrival) {
            return if self.skips { Verdict::Skip } else { Verdict::Refuse(refusal) };
        }
        let offset = if self.spec.local_offset { self.offset } else { arrival.offset };
        let room = self.spec.memory.len().saturating_sub(offset);
        let mut len = arrival.len;
        if len > room {
            if !self.spec.truncate {
                return Verdict::Skip;
            }
            len = room;
            // Elements are whole, or not there.
            if let Some(kind) = arrival.request.elements() {
                len -= len % kind.size() as u64;
            }
        }
        let offset = offset.min(self.spec.memory.len());
        Verdict::Accept { offset, len }
    }

    /// A message was taken.
    #[inline(always)]
    pub(super) fn take(&mut self, len: u64) {
        self.pending += 1;
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        if self.spec.local_offset {
            self.advance(len);
        }
    }

    /// The own offset moves on.
    #[inline]
    pub(super) fn advance(&mut self, len: u64) {
        self.offset = self.offset.saturating_add(len).min(self.spec.memory.len());
        if self.is_full() {
            self.left = Some(0);
        }
    }

    /// Whether it goes when it is used up.
    pub(super) fn unlinks(&self) -> bool {
        self.spec.unlink || self.spec.once
    }
}

/// Where an entry goes in.
impl At {
    pub(super) fn base(self) -> Option<u32> {
        match self {
            At::Before(base) | At::After(base) => Some(base),
            At::First | At::Last => None,
        }
    }
}
