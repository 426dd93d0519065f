//! Entries of match lists: what the program appends, and how an entry takes messages.

use super::List;
use crate::{
    Accepts, Counter, Counts, EventQueue, Handle, Memory, ProcessId, Quiet, event::NOWHERE,
    message::Arrival,
};
use petasos_match::{Envelope, Key, Pattern};

/// What a program appends to a list of a portal: which messages it wants, and where they go.
///
/// [`MatchEntry::new`] gives an entry for any number of puts with match bits 0, from any process;
/// set what differs:
///
/// ```
/// use petasos_portals::{Accepts, MatchEntry, ProcessId};
///
/// // A receive: one message with tag 7 in the upper half of the bits, from rank 3.
/// let receive = MatchEntry {
///     bits: 7 << 32,
///     ignore: u64::from(u32::MAX),
///     source: ProcessId::rank(3),
///     once: true,
///     ..MatchEntry::new(vec![0; 1024])
/// };
/// assert!(receive.accepts.has(Accepts::PUT) && receive.truncate && receive.acknowledge);
///
/// // A window: any process puts and gets at offsets that it names.
/// let accepts = Accepts::PUT.with(Accepts::GET);
/// let window = MatchEntry { bits: 1, accepts, ..MatchEntry::new(vec![0; 1 << 20]) };
///
/// // A block of an overflow list: all messages, one behind the other, up to the last 1 KiB.
/// let block = MatchEntry {
///     ignore: u64::MAX,
///     local_offset: true,
///     min_free: Some(1024),
///     unlink: true,
///     ..MatchEntry::new(vec![0; 1 << 20])
/// };
/// # let _ = (window, block);
/// ```
///
/// What the options of Portals 4 (`ptl_me_t`, section *Match list entries and matching lists*) are
/// called here:
///
/// | Portals 4 | here |
/// |---|---|
/// | `match_bits`, `ignore_bits`, `match_id` | `bits`, `ignore`, `source` |
/// | `uid` | `user` |
/// | `PTL_ME_OP_PUT`, `PTL_ME_OP_GET` | `accepts` |
/// | `PTL_ME_USE_ONCE` | `once` |
/// | `PTL_ME_MANAGE_LOCAL`, `min_free` | `local_offset`, `min_free` |
/// | `PTL_ME_LOCAL_INC_UH_RLENGTH` | `offset_counts_headers` |
/// | `PTL_ME_NO_TRUNCATE` | `truncate: false` |
/// | `PTL_ME_ACK_DISABLE` | `acknowledge: false` |
/// | `PTL_ME_UNEXPECTED_HDR_DISABLE` | `header: false` |
/// | `PTL_ME_EVENT_COMM_DISABLE` and the like | `quiet` |
/// | `ct_handle`, `PTL_ME_EVENT_CT_COMM` and the like | `counter`, `counts` |
/// | `user_ptr` | `user_data` |
///
/// `threshold`, `unlink` and `queue` are beyond Portals 4: Portals 3 needs them.
#[derive(Clone, Debug)]
pub struct MatchEntry {
    /// Where data goes, or comes from.
    pub memory: Memory,
    /// The match bits that a message must have. Default: 0.
    pub bits: u64,
    /// Match bits that do not count, as a mask. Default: none.
    pub ignore: u64,
    /// The process that a message must come from; parts of it may be any. Default: any.
    pub source: ProcessId,
    /// The user that may use it; `None` for all. A message of another user is refused. Default:
    /// all.
    pub user: Option<u32>,
    /// The operations that it lets other processes do. Default: put.
    pub accepts: Accepts,
    /// It is for one message, and then unlinked. The same as a threshold of 1. Default: no.
    pub once: bool,
    /// It is for so many messages, and then inactive; `None` for any number, which is the default.
    pub threshold: Option<u64>,
    /// Whether it is unlinked when it has become inactive. `once` implies it. Default: no.
    pub unlink: bool,
    /// The target decides where data goes: each message behind the one before. Default: no, the
    /// initiator names the offset.
    pub local_offset: bool,
    /// With `local_offset`: inactive as soon as less than so many bytes are left. Default: none.
    pub min_free: Option<u64>,
    /// With `local_offset`: a message that came before the entry moves the offset on, too, by the
    /// length that was asked for. Its data stays where it is. Default: no.
    pub offset_counts_headers: bool,
    /// A message that does not fit is truncated; else it goes on to the next entry. Default: yes.
    pub truncate: bool,
    /// Whether acknowledgements are sent to initiators that ask for them. Default: yes.
    pub acknowledge: bool,
    /// In an overflow list: whether messages leave a header for entries that are appended later.
    /// Default: yes.
    pub header: bool,
    /// Comes back in events. Default: 0.
    pub user_data: u64,
    /// Events that are not wanted. Default: none.
    pub quiet: Quiet,
    /// The event queue, if not that of the portal, which is the default.
    pub queue: Option<Handle<EventQueue>>,
    /// The counter. Default: none.
    pub counter: Option<Handle<Counter>>,
    /// What the counter counts. Default: nothing.
    pub counts: Counts,
}

impl MatchEntry {
    /// An entry for any number of puts with match bits 0, from any process.
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

    /// What it matches. See [`ProcessId::to_bits`].
    pub(super) fn pattern(&self) -> Pattern {
        Pattern::of_parts(self.source.to_bits(), self.source.mask(), self.bits, self.ignore)
    }
}

impl Arrival {
    /// What of a message is matched.
    #[inline]
    pub(super) fn envelope(&self) -> Envelope {
        Envelope::new(self.initiator.to_bits(), self.bits)
    }
}

/// An entry that was appended.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) portal: u16,
    pub(super) list: List,
    /// Where it is in the list, as long as it is in it.
    pub(super) key: Option<Key>,
    /// Whether it is removed when nothing needs it any more.
    pub(super) leaving: bool,
    /// Whether the event that it was unlinked has been raised.
    pub(super) unlink_raised: bool,
    /// Whether a message that matches, and asks for an operation that the entry does not allow,
    /// goes on to the next entry (Portals 3). Else it is refused.
    pub(super) skips: bool,
    /// Whether it stays, inactive, when it is used up, and only its memory goes (Portals 3).
    pub(super) stays: bool,
    /// How often memory was attached to it (Portals 3).
    pub(super) serial: u32,
    /// Whether it has memory: only then does it take messages.
    pub(super) attached: bool,
    /// Messages that it still takes.
    pub(super) left: Option<u64>,
    /// What was taken off that for answers to operations that were started from its memory
    /// (Portals 3).
    pub(super) reserved: u64,
    /// The offset of the next message, with `local_offset`.
    pub(crate) offset: u64,
    /// Operations under way.
    pub(crate) pending: u32,
    /// Unexpected headers whose data lies in its memory.
    pub(super) headers: u32,
    /// The address of the first byte of its memory, or [`NOWHERE`].
    pub(super) start: u64,
    pub(crate) spec: MatchEntry,
}

/// What becomes of a message at an entry that it matches.
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
        let left = if spec.once { Some(1) } else { spec.threshold };
        Entry {
            portal,
            list,
            key: None,
            leaving: false,
            unlink_raised: false,
            skips: false,
            stays: false,
            serial: 0,
            attached: true,
            left,
            reserved: 0,
            offset: 0,
            pending: 0,
            headers: 0,
            start: spec.memory.start().unwrap_or(NOWHERE),
            spec,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.attached && self.left != Some(0)
    }

    /// What it may still do, with what is reserved for answers; `None`: any number.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.left.map(|left| left + self.reserved)
    }

    /// Whether less than `min_free` bytes are left behind its own offset.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let room = self.spec.memory.len().saturating_sub(self.offset);
        self.spec.local_offset && self.spec.min_free.is_some_and(|least| room < least)
    }

    /// Checks that the entry is for the message's user and operation.
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
    pub(super) fn judge(&self, arrival: &Arrival) -> Verdict {
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
            // An element is not cut.
            if let Some(kind) = arrival.request.elements() {
                len -= len % kind.size() as u64;
            }
        }
        let offset = offset.min(self.spec.memory.len());
        Verdict::Accept { offset, len }
    }

    /// Takes a message.
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

    /// Moves its own offset on.
    #[inline]
    pub(super) fn advance(&mut self, len: u64) {
        self.offset = self.offset.saturating_add(len).min(self.spec.memory.len());
        if self.is_full() {
            self.left = Some(0);
        }
    }

    /// Whether it is unlinked when it is used up.
    pub(super) fn unlinks(&self) -> bool {
        self.spec.unlink || self.spec.once
    }
}
