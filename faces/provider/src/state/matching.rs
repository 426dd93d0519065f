//! Receives that are posted, and messages for which none was.

use super::{
    Endpoint, Shared,
    endpoint::{Op, failure, list_flag, told},
    queue::{Entry, Failure},
    wire::{Header, List},
};
use crate::limits::UNEXPECTED;
use petasos_fabric::{
    Body, Done, Lease, OpError, OpErrorKind, Operation, Peer, Region, Slice, operation::Slices,
};
use petasos_match::{Envelope, Key, MessageQueue, Pattern, PatternList};
use petasos_ofi_sys::*;
use slab::Slab;
use std::{collections::HashMap, mem};

/// What a program posts for a message.
pub(crate) struct Receive {
    pub(crate) context: usize,
    pub(crate) into: Slices,
    pub(crate) report: bool,
    /// `FI_MULTI_RECV`: one buffer for several messages.
    pub(crate) multi: bool,
}

/// What a program asks of the messages that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peek {
    pub(crate) context: usize,
    pub(crate) claim: bool,
    pub(crate) discard: bool,
}

enum Posted {
    One(Receive),
    Several(usize),
}

/// A buffer for several messages.
struct Several {
    memory: Slice,
    used: usize,
    /// Less room than this, and the program gets it back.
    least: usize,
    context: usize,
    report: bool,
    /// Messages that are still coming into it.
    coming: usize,
    /// No message is put into it any more.
    retired: bool,
}

/// Where a message goes.
pub(super) struct Place {
    into: Slices,
    room: usize,
    context: usize,
    report: bool,
    several: Option<usize>,
}

/// A message that has come.
pub(super) struct Message {
    pub(super) source: u64,
    tag: u64,
    data: Option<u64>,
    content: Content,
}

enum Content {
    /// In a lease of the fabric's, from this byte on.
    Lent(Lease, usize),
    Copied(Vec<u8>),
    Long {
        body: Body,
        len: u64,
    },
}

/// A message that is on its way into the program's memory.
pub(super) struct Landing {
    entry: Entry,
    report: bool,
    beyond: usize,
    several: Option<usize>,
}

impl Message {
    pub(super) fn short(source: u64, of: Header, lease: Lease, at: usize) -> Message {
        Message { source, tag: of.tag, data: of.data, content: Content::Lent(lease, at) }
    }

    pub(super) fn long(source: u64, of: Header, body: Body, len: u64) -> Message {
        Message { source, tag: of.tag, data: of.data, content: Content::Long { body, len } }
    }

    fn len(&self) -> usize {
        match &self.content {
            Content::Lent(lease, at) => lease.len() - at,
            Content::Copied(bytes) => bytes.len(),
            Content::Long { len, .. } => usize::try_from(*len).unwrap_or(usize::MAX),
        }
    }

    /// What it takes of the memory for messages that wait.
    fn cost(&self) -> usize {
        size_of::<Message>() + if let Content::Long { .. } = self.content { 0 } else { self.len() }
    }

    fn entry(&self, list: List, context: usize, len: usize) -> Entry {
        let data = if self.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        Entry {
            context,
            flags: FI_RECV | list_flag(list) | data,
            len,
            buffer: 0,
            data: self.data.unwrap_or(0),
            tag: self.tag,
            source: told(self.source),
        }
    }
}

/// Both lists of an endpoint.
#[derive(Default)]
pub(super) struct Lists {
    posted: [PatternList<Posted>; 2],
    unexpected: [MessageQueue<Message>; 2],
    claimed: HashMap<usize, (List, Message)>,
    several: Slab<Several>,
    /// What `unexpected` and `claimed` hold.
    bytes: usize,
}

impl Lists {
    /// The place for a message of this length, if a receive was posted for it.
    pub(super) fn take(&mut self, list: List, message: &Message) -> Option<Place> {
        let posted = &mut self.posted[list as usize];
        let key = posted.first(Envelope::new(message.source, message.tag))?;
        if let Some(&Posted::Several(at)) = posted.get(key) {
            return Some(self.reserve(list, key, at, message.len()));
        }
        match posted.remove(key)? {
            Posted::One(Receive { context, into, report, .. }) => {
                let room = into.iter().map(Slice::len).sum();
                Some(Place { into, room, context, report, several: None })
            }
            Posted::Several(_) => None,
        }
    }

    /// A part of a buffer for several messages.
    fn reserve(&mut self, list: List, key: Key, at: usize, len: usize) -> Place {
        let several = &mut self.several[at];
        let room = several.memory.len() - several.used;
        let taken = len.min(room);
        let into = several.memory.part(several.used, taken).into_iter().collect();
        // The next one begins at a word.
        several.used = (several.used + taken).next_multiple_of(8).min(several.memory.len());
        several.coming += 1;
        if several.memory.len() - several.used < several.least {
            several.retired = true;
            self.posted[list as usize].remove(key);
        }
        let Several { context, report, .. } = *several;
        Place { into, room: taken, context, report, several: Some(at) }
    }

    /// A message has come into a buffer for several. True: that was the last one.
    fn came(&mut self, at: usize) -> bool {
        let several = &mut self.several[at];
        several.coming -= 1;
        let last = several.retired && several.coming == 0;
        if last {
            self.several.remove(at);
        }
        last
    }

    /// Keeps a message until a receive for it is posted.
    pub(super) fn keep(&mut self, list: List, mut message: Message) {
        self.bytes += message.cost();
        if let Content::Lent(lease, at) = &message.content
            && !lease.is_plain()
            && self.bytes <= UNEXPECTED
        {
            // Leases are few.
            message.content = Content::Copied(lease[*at..].to_vec());
        }
        let envelope = Envelope::new(message.source, message.tag);
        self.unexpected[list as usize].push(envelope, message);
    }

    /// Whether no more messages without a receive should come.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > UNEXPECTED
    }

    /// Whether there is much room again.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < UNEXPECTED / 2
    }

    fn unexpected(&mut self, list: List, pattern: &Pattern) -> Option<Message> {
        let (_, message) = self.unexpected[list as usize].take(pattern)?;
        self.bytes -= message.cost();
        Some(message)
    }

    /// Sources have other numbers now.
    pub(super) fn renumber(&mut self, changed: &[(u64, u64, Peer)]) {
        let all = Pattern::new(None, 0, u64::MAX);
        for queue in &mut self.unexpected {
            let mut before = mem::take(queue);
            while let Some((envelope, mut message)) = before.take(&all) {
                let new = changed.iter().find(|(was, ..)| *was == message.source);
                message.source = new.map_or(message.source, |(_, new, _)| *new);
                queue.push(Envelope::new(message.source, envelope.bits), message);
            }
        }
    }

    /// Removes the receives that only a message of this source would have ended.
    pub(super) fn of_lost(&mut self, source: u64) -> Vec<Entry> {
        let mut ended = Vec::new();
        for list in [List::Plain, List::Tagged] {
            let posted = &self.posted[list as usize];
            let of = |(key, pattern, _): (Key, &Pattern, &Posted)| {
                (pattern.source() == Some(source)).then_some(key)
            };
            let keys: Vec<Key> = posted.iter().filter_map(of).collect();
            ended.extend(keys.into_iter().filter_map(|key| self.end(list, key)));
        }
        ended
    }

    /// Removes the receive with this context.
    pub(super) fn cancel(&mut self, context: usize) -> Option<Entry> {
        [List::Plain, List::Tagged].into_iter().find_map(|list| {
            let of = |posted: &Posted| match posted {
                Posted::One(receive) => receive.context,
                Posted::Several(at) => self.several[*at].context,
            };
            let mut posted = self.posted[list as usize].iter();
            let (key, ..) = posted.find(|(.., posted)| of(posted) == context)?;
            drop(posted);
            self.end(list, key)
        })
    }

    /// Removes a receive: what is told of that.
    fn end(&mut self, list: List, key: Key) -> Option<Entry> {
        let flags = FI_RECV | list_flag(list);
        match self.posted[list as usize].remove(key)? {
            Posted::One(Receive { context, .. }) => {
                Some(Entry { context, flags, ..Entry::default() })
            }
            Posted::Several(at) => {
                let several = &mut self.several[at];
                several.retired = true;
                let context = several.context;
                let mut entry = Entry { context, flags, ..Entry::default() };
                // The last message that is still coming says it otherwise.
                if several.coming == 0 {
                    self.several.remove(at);
                    entry.flags |= FI_MULTI_RECV;
                }
                Some(entry)
            }
        }
    }

    /// Nothing is received any more.
    pub(super) fn clear(&mut self) {
        self.posted = Default::default();
        self.unexpected = Default::default();
        self.claimed.clear();
        self.bytes = 0;
        for (_, several) in &mut self.several {
            several.retired = true;
        }
    }
}

impl Endpoint {
    /// Posts a receive, or takes a message that has come.
    pub(crate) fn post(
        &mut self,
        shared: &mut Shared,
        list: List,
        source: Option<u64>,
        (tag, ignore): (u64, u64),
        receive: Receive,
    ) {
        let pattern = Pattern::new(source, tag, ignore);
        if receive.multi {
            return self.post_several(shared, list, pattern, receive);
        }
        let Some(message) = self.lists.unexpected(list, &pattern) else {
            self.lists.posted[list as usize].push_back(pattern, Posted::One(receive));
            return;
        };
        let Receive { context, into, report, .. } = receive;
        let room = into.iter().map(Slice::len).sum();
        self.land(shared, list, message, Place { into, room, context, report, several: None });
        self.let_go();
    }

    fn post_several(
        &mut self,
        shared: &mut Shared,
        list: List,
        pattern: Pattern,
        receive: Receive,
    ) {
        let Receive { context, into, report, .. } = receive;
        let memory = joined(&into);
        let least = self.min_multi.max(1);
        let several =
            Several { memory, used: 0, least, context, report, coming: 0, retired: false };
        let at = self.lists.several.insert(several);
        let key = self.lists.posted[list as usize].push_back(pattern, Posted::Several(at));
        // What has come goes there, as long as there is room.
        while self.lists.posted[list as usize].get(key).is_some() {
            let Some(message) = self.lists.unexpected(list, &pattern) else { break };
            let place = self.lists.reserve(list, key, at, message.len());
            self.land(shared, list, message, place);
        }
        self.let_go();
    }

    /// Tells of the oldest message that waits and that a receive would take now.
    pub(crate) fn peek(
        &mut self,
        shared: &mut Shared,
        list: List,
        source: Option<u64>,
        (tag, ignore): (u64, u64),
        peek: Peek,
    ) {
        let pattern = Pattern::new(source, tag, ignore);
        let context = peek.context;
        let queue = &mut self.lists.unexpected[list as usize];
        let Some(key) = queue.find(&pattern, None, |_| true) else {
            let flags = FI_RECV | list_flag(list);
            let entry = Entry { context, flags, tag, ..Entry::default() };
            let text = "no such message has come".to_owned();
            let none = Failure { entry, beyond: 0, error: libc::ENOMSG, text };
            // To have found nothing is no error that is counted.
            return shared.failed(self.receive, None, none);
        };
        let Some(message) = queue.get(key) else { return };
        let entry = message.entry(list, context, message.len());
        if (peek.claim || peek.discard)
            && let Some(message) = queue.remove(key)
        {
            if peek.claim {
                self.lists.claimed.insert(context, (list, message));
            } else {
                self.throw_away(message);
            }
        }
        shared.done(self.receive, None, true, entry);
    }

    /// Whether there is a message that was claimed with this context.
    pub(crate) fn has_claimed(&self, context: usize) -> bool {
        self.lists.claimed.contains_key(&context)
    }

    /// Receives the message that was claimed with the same context, or discards it. False: there is
    /// none.
    pub(crate) fn claimed(&mut self, shared: &mut Shared, receive: Receive, discard: bool) -> bool {
        let Receive { context, into, report, .. } = receive;
        let Some((list, message)) = self.lists.claimed.remove(&context) else { return false };
        if discard {
            let entry = message.entry(list, context, 0);
            self.throw_away(message);
            shared.done(self.receive, self.counts.receive, report, entry);
            return true;
        }
        self.lists.bytes -= message.cost();
        let room = into.iter().map(Slice::len).sum();
        self.land(shared, list, message, Place { into, room, context, report, several: None });
        self.let_go();
        true
    }

    fn throw_away(&mut self, message: Message) {
        self.lists.bytes -= message.cost();
        if let Content::Long { body, .. } = message.content {
            self.discard(body);
        }
        self.let_go();
    }

    /// Moves a message to its place.
    pub(super) fn land(&mut self, shared: &mut Shared, list: List, message: Message, place: Place) {
        let Place { into, room, context, report, several } = place;
        let (len, fits) = (message.len(), message.len().min(room));
        let mut entry = message.entry(list, context, fits);
        if let (Some(_), Some(at)) = (several, into.first().and_then(Slice::host_ptr)) {
            entry.buffer = at.addr().get();
        }
        let landing = Landing { entry, report, beyond: len - fits, several };
        match message.content {
            Content::Lent(lease, at) => write(&into, &lease[at..at + fits]),
            Content::Copied(bytes) => write(&into, &bytes[..fits]),
            Content::Long { body, .. } => {
                if let Some(into) = joined(&into).part(0, fits).filter(|_| fits > 0) {
                    let op = Op::Landed(Box::new(landing));
                    return self.submit_later(op, |token| Operation::Receive { token, body, into });
                }
                self.discard(body);
            }
        }
        self.finish(shared, landing);
    }

    /// A message is where it belongs.
    fn finish(&mut self, shared: &mut Shared, landing: Landing) {
        let Landing { mut entry, report, beyond, several } = landing;
        if several.is_some_and(|at| self.lists.came(at)) {
            entry.flags |= FI_MULTI_RECV;
        }
        if beyond == 0 {
            return shared.done(self.receive, self.counts.receive, report, entry);
        }
        let (sent, posted) = ((entry.len + beyond) as u64, entry.len as u64);
        let error = OpError::local(OpErrorKind::Truncated { sent, posted });
        shared.failed(self.receive, self.counts.receive, failure(entry, &error));
    }

    /// The body of a long message has been fetched, or could not be.
    pub(super) fn landed(
        &mut self,
        shared: &mut Shared,
        landing: Landing,
        result: Result<Done, OpError>,
    ) {
        let Err(error) = result else { return self.finish(shared, landing) };
        let Landing { mut entry, several, .. } = landing;
        if several.is_some_and(|at| self.lists.came(at)) {
            entry.flags |= FI_MULTI_RECV;
        }
        entry.len = 0;
        shared.failed(self.receive, self.counts.receive, failure(entry, &error));
    }
}

/// Pieces as one.
pub(super) fn joined(pieces: &Slices) -> Slice {
    match &pieces[..] {
        [one] => one.clone(),
        several => Region::of_pieces(several.iter().cloned()).whole(),
    }
}

/// Copies bytes to pieces that have room for them.
pub(super) fn write(pieces: &Slices, mut bytes: &[u8]) {
    for piece in pieces {
        let (now, later) = bytes.split_at(bytes.len().min(piece.len()));
        piece.write(0, now);
        bytes = later;
    }
}
