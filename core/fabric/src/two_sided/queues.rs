//! What waits to be sent to one peer.

use super::{
    header::{self, Status},
    operations::Sort,
    registry::Exposed,
};
use bytes::Bytes;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Answers, and other packets that are never held back.
    pub(super) control: VecDeque<Control>,
    /// Unexpected messages, in the order in which they must arrive.
    messages: VecDeque<Message>,
    /// Expected messages.
    pub(super) tagged: VecDeque<u64>,
    /// Operations whose next packet needs a request.
    pub(super) asking: VecDeque<u64>,
    /// Puts with event, of which the peer takes none for now.
    held: VecDeque<u64>,
    /// Data in fragments, taken in turns.
    pub(super) bulk: VecDeque<Bulk>,
    /// Injected bytes in `messages`, with headers; and whether the program was told that it is
    /// full.
    injected: usize,
    full: bool,
}

#[derive(Debug)]
pub(super) enum Control {
    Reply { id: u64, status: Status, old: Bytes },
    BodyDone { body: u64, sort: Sort },
}

#[derive(Debug)]
pub(super) enum Message {
    Injected(Bytes),
    Op(u64),
}

#[derive(Debug)]
pub(super) enum Bulk {
    Put(u64),
    Serve(Serve),
}

/// The answer to a request for data.
#[derive(Debug)]
pub(super) struct Serve {
    /// The id of the peer's request.
    pub(super) id: u64,
    pub(super) what: Served,
    pub(super) len: u64,
    pub(super) done: u64,
}

#[derive(Debug)]
pub(super) enum Served {
    Memory { at: Exposed, offset: u64 },
    Body { op: u64, offset: u64 },
}

impl Queues {
    /// Whether nothing waits, and the program does not wait for room.
    pub(super) fn is_empty(&self) -> bool {
        let queued = self.control.len()
            + self.messages.len()
            + self.tagged.len()
            + self.asking.len()
            + self.held.len()
            + self.bulk.len();
        queued == 0 && !self.full && self.injected == 0
    }

    /// Keeps no memory for queues that are empty.
    pub(super) fn trim(&mut self) {
        trim(&mut self.control);
        trim(&mut self.messages);
        trim(&mut self.tagged);
        trim(&mut self.asking);
        trim(&mut self.held);
        trim(&mut self.bulk);
    }

    /// Puts an operation of `asking` aside, until [`Queues::release_held`].
    pub(super) fn hold(&mut self, id: u64) {
        self.held.push_back(id);
    }

    /// What was put aside is the first to be asked for.
    pub(super) fn release_held(&mut self) {
        while let Some(id) = self.held.pop_back() {
            self.asking.push_front(id);
        }
    }

    // Unexpected messages.

    /// How many unexpected messages wait.
    #[inline]
    pub(super) fn messages_len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn first_message(&self) -> Option<&Message> {
        self.messages.front()
    }

    /// Queues a message that is an operation.
    pub(super) fn push_message(&mut self, id: u64) {
        self.messages.push_back(Message::Op(id));
    }

    /// Queues a copy of a short message of `len` bytes. False if more than `limit` bytes would wait
    /// then; one message may always wait.
    pub(super) fn inject(&mut self, parts: &[&[u8]], len: usize, limit: usize) -> bool {
        let cost = len + header::PREFIX;
        if self.injected > 0 && self.injected + cost > limit {
            self.full = true;
            return false;
        }
        self.injected += cost;
        let mut bytes = Vec::with_capacity(len);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        self.messages.push_back(Message::Injected(Bytes::from(bytes)));
        true
    }

    /// The program is not to inject now, however few bytes wait.
    pub(super) fn refuse(&mut self) {
        self.full = true;
    }

    /// True if the program waits for room, and there is some now.
    pub(super) fn may_inject(&mut self, limit: usize) -> bool {
        let writable = self.full && self.injected <= limit / 2;
        self.full &= !writable;
        writable
    }

    /// The first message leaves. True if the program waits for room, and there is some now.
    pub(super) fn pop_message(&mut self, limit: usize) -> bool {
        let Some(Message::Injected(bytes)) = self.messages.pop_front() else { return false };
        self.injected -= bytes.len() + header::PREFIX;
        self.may_inject(limit)
    }
}

/// The queues of small packets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Class {
    Control,
    Message,
    Tagged,
    Asking,
}

/// So many small packets go before a fragment of bulk data has its turn.
const BURST: u32 = 16;

/// Which queue is next: those of small packets in turn, and bulk data after so many of them.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// The first queue of small packets to poll.
    next: usize,
    /// Small packets since bulk data had its turn.
    burst: u32,
}

impl Schedule {
    const CLASSES: [Class; 4] = [Class::Control, Class::Message, Class::Tagged, Class::Asking];

    /// Whether it is the turn of bulk data, though small packets may wait.
    pub(super) fn is_bulk_due(&self) -> bool {
        self.burst >= BURST
    }

    /// Bulk data had its turn.
    pub(super) fn bulk_went(&mut self) {
        self.burst = 0;
    }

    /// It is the turn of a small packet.
    pub(super) fn small_comes(&mut self) {
        self.burst = self.burst.saturating_add(1);
    }

    /// All queues of small packets, the next one first.
    pub(super) fn small(&self) -> impl Iterator<Item = Class> + use<> {
        let next = self.next;
        (next..next + 4).map(|class| Schedule::CLASSES[class % 4])
    }

    /// A packet of this queue goes: the one behind it is next.
    pub(super) fn small_went(&mut self, class: Class) {
        self.next = (class as usize + 1) % 4;
    }
}

/// Keeps no memory for a queue that is empty.
pub(super) fn trim<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() {
        *queue = VecDeque::new();
    }
}
