//! Expected messages: receives that wait for messages, and messages that wait for receives.

use super::{
    claims::Claims,
    ledger::{Ledger, Location},
};
use crate::{
    Buffer, Claimed, Done, Event, Offered, OpError, OpErrorKind, Peeked, Peer, Slice, Token,
    offer::Room,
};
use petasos_match::{Envelope, Key, MessageQueue, Pattern, PatternList};

/// Both are in order: receives match as they were posted, messages of one sender as they were sent.
/// The word of a source is [`Peer::to_bits`].
#[derive(Debug, Default)]
pub(super) struct Matching {
    posted: PatternList<Receive>,
    unexpected: MessageQueue<Unexpected>,
    claims: Claims,
    /// Bytes that messages without a receive may take, and how many were promised to peers.
    limit: usize,
    promised: usize,
    /// Bytes of messages whose peers are lost, and whose promises are over.
    orphans: usize,
}

/// A receive that waits.
#[derive(Debug)]
struct Receive {
    token: Token,
    into: Room,
}

/// A receive that a message was found for.
#[derive(Debug)]
pub(super) struct Posted {
    /// Where it was in the list, once it has matched a message.
    key: Option<Key>,
    pub(super) token: Token,
    pub(super) into: Slice,
}

/// A message that waits.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) peer: Peer,
    pub(super) tag: u64,
    pub(super) data: Waiting,
    /// Its peer is lost.
    orphan: bool,
}

#[derive(Debug)]
pub(super) enum Waiting {
    /// It came with its data.
    Buffered(Buffer),
    /// Its body is to be pulled.
    Body { body: u64, len: u64 },
}

/// What a message that waits costs beside its data.
pub(super) const ENVELOPE: usize = 64;

/// The same of an eager message that was promised room.
pub(super) const EAGER: usize = ENVELOPE + super::MAX_EAGER;

impl Unexpected {
    pub(super) fn new(peer: Peer, tag: u64, data: Waiting) -> Unexpected {
        Unexpected { peer, tag, data, orphan: false }
    }

    /// Its length in bytes.
    fn len(&self) -> u64 {
        match &self.data {
            Waiting::Buffered(buffer) => buffer.len() as u64,
            Waiting::Body { len, .. } => *len,
        }
    }

    /// Whether it stays when this peer is lost. Its data does, if it is here, and counts among the
    /// orphans; with `all` nothing of the peer does.
    fn outlives(&mut self, peer: Peer, all: bool, orphans: &mut usize) -> bool {
        if self.peer != peer {
            return true;
        }
        let stays = !all && matches!(self.data, Waiting::Buffered(_));
        let was = std::mem::replace(&mut self.orphan, stays);
        *orphans -= if was { self.cost() } else { 0 };
        *orphans += if stays { self.cost() } else { 0 };
        stays
    }

    fn cost(&self) -> usize {
        match &self.data {
            Waiting::Buffered(buffer) => ENVELOPE + buffer.len(),
            Waiting::Body { .. } => ENVELOPE,
        }
    }
}

impl Posted {
    /// A receive that is not in the list yet.
    pub(super) fn new(token: Token, into: Slice) -> Posted {
        Posted { key: None, token, into }
    }

    /// Its completion, which is raised elsewhere: a message has come.
    #[inline]
    pub(super) fn done(self, done: Done, ledger: &mut Ledger) -> Event {
        ledger.live -= 1;
        ledger.finished(self.token, self.key.map(Location::Posted));
        ledger.counters.succeeded += 1;
        Event::Done { token: self.token, result: Ok(done) }
    }

    /// Raises its completion.
    pub(super) fn finish(self, result: Result<Done, OpError>, ledger: &mut Ledger) {
        ledger.live -= 1;
        ledger.finish(self.token, self.key.map(Location::Posted), result);
    }
}

impl Matching {
    /// Nothing waits; messages without a receive may take so many bytes.
    pub(super) fn new(limit: usize) -> Matching {
        Matching { limit, ..Matching::default() }
    }

    /// Promises room for eager messages, so many at most, of half of all room; gives how many.
    pub(super) fn promise_eager(&mut self, most: u16) -> u16 {
        let left = (self.limit / 2).saturating_sub(self.promised + self.orphans) / EAGER;
        let count = left.min(most.into());
        self.promised += count * EAGER;
        count as u16
    }

    /// Promises room for messages of which only the headers are here.
    pub(super) fn promise_headers(&mut self, most: u16) -> u16 {
        let left = self.limit.saturating_sub(self.promised + self.orphans) / ENVELOPE;
        let count = left.min(most.into());
        self.promised += count * ENVELOPE;
        count as u16
    }

    /// What was promised to a peer is free again: so many eager messages, and so many headers.
    pub(super) fn withdraw(&mut self, eager: u16, headers: u16) {
        self.promised -= usize::from(eager) * EAGER + usize::from(headers) * ENVELOPE;
    }

    /// Whether any message waits for a receive.
    #[inline]
    pub(super) fn has_messages(&self) -> bool {
        !self.unexpected.is_empty()
    }

    /// The first message that a receive with this pattern takes.
    pub(super) fn take_message(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let (_, message) = self.unexpected.take(pattern)?;
        self.orphans -= if message.orphan { message.cost() } else { 0 };
        Some(message)
    }

    /// The first message that a receive with this pattern would take, which is set aside if the
    /// program claims it.
    pub(super) fn peek(&mut self, pattern: &Pattern, claim: bool) -> Option<Peeked> {
        let key = self.unexpected.find(pattern, None, |_| true)?;
        let message = self.unexpected.get(key)?;
        let mut peeked = Peeked::new(message.peer, message.tag, message.len());
        if claim {
            peeked.claimed = self.unexpected.remove(key).map(|message| self.claims.insert(message));
        }
        Some(peeked)
    }

    /// The claimed message with this handle.
    pub(super) fn take_claimed(&mut self, claimed: Claimed) -> Option<Unexpected> {
        let message = self.claims.take(claimed)?;
        self.orphans -= if message.orphan { message.cost() } else { 0 };
        Some(message)
    }

    /// Whether a message waits for a receive with this pattern.
    pub(super) fn has_message(&self, pattern: &Pattern) -> bool {
        self.unexpected.find(pattern, None, |_| true).is_some()
    }

    /// Puts a receive that found no message at the end of the list.
    pub(super) fn post(&mut self, pattern: Pattern, posted: Posted, ledger: &mut Ledger) {
        let Posted { token, into, .. } = posted;
        self.wait(pattern, Receive { token, into: Room::Own(into) }, ledger);
    }

    /// The same for one that other endpoints are offered, too.
    pub(super) fn post_offered(
        &mut self,
        pattern: Pattern,
        token: Token,
        offered: Offered,
        ledger: &mut Ledger,
    ) {
        self.wait(pattern, Receive { token, into: Room::Offered(offered) }, ledger);
    }

    fn wait(&mut self, pattern: Pattern, receive: Receive, ledger: &mut Ledger) {
        let token = receive.token;
        if self.posted.is_empty() {
            ledger.posted = None;
        }
        let key = self.posted.push_back(pattern, receive);
        if let Some(posted) = &mut ledger.posted {
            posted.insert(token, key);
        }
    }

    /// A receive that waits with this memory.
    pub(super) fn posted_into(&self, memory: &Slice) -> Option<Token> {
        let mut posted = self.posted.iter().map(|(.., receive)| receive);
        posted.find(|receive| receive.into.overlaps(memory)).map(|receive| receive.token)
    }

    /// The first receive that takes this message. Ends those before it of which the memory is gone
    /// to another endpoint.
    pub(super) fn take_posted(
        &mut self,
        peer: Peer,
        tag: u64,
        ledger: &mut Ledger,
    ) -> Option<Posted> {
        let envelope = Envelope::new(peer.to_bits(), tag);
        loop {
            let (key, Receive { token, into }) = self.posted.take(envelope)?;
            match into.take() {
                Some(into) => return Some(Posted { key: Some(key), token, into }),
                None => cancelled(token, key, ledger),
            }
        }
    }

    /// Ends a receive with this token, if one still waits.
    pub(super) fn cancel(&mut self, token: Token, ledger: &mut Ledger) {
        let all = || self.posted.iter().map(|(key, _, receive)| (receive.token, key)).collect();
        let posted = ledger.posted.get_or_insert_with(all);
        let Some(key) = posted.get(&token).copied() else { return };
        if let Some(receive) = self.posted.remove(key) {
            cancelled(receive.token, key, ledger);
        }
    }

    pub(super) fn keep(&mut self, message: Unexpected) {
        self.unexpected.push(Envelope::new(message.peer.to_bits(), message.tag), message);
    }

    /// Forgets what waits of a peer that is lost: bodies only, which cannot be had any more, or
    /// all.
    pub(super) fn drop_messages(&mut self, peer: Peer, all: bool) {
        let orphans = &mut self.orphans;
        self.unexpected.retain(|_, message| message.outlives(peer, all, orphans));
        self.claims.retain(|message| message.outlives(peer, all, orphans));
    }

    /// Ends the receives that wait for this peer alone, in order.
    pub(super) fn end_waiting_for(&mut self, peer: Peer, error: &OpError, ledger: &mut Ledger) {
        let source = Some(peer.to_bits());
        let waiting = self.posted.iter().filter(|(_, pattern, _)| pattern.source() == source);
        let keys: Vec<Key> = waiting.map(|(key, ..)| key).collect();
        for key in keys {
            if let Some(receive) = self.posted.remove(key) {
                end(receive.token, key, error.clone(), ledger);
            }
        }
    }
}

fn cancelled(token: Token, key: Key, ledger: &mut Ledger) {
    end(token, key, OpError::local(OpErrorKind::Cancelled), ledger);
}

/// Raises the completion of a receive that has no message.
fn end(token: Token, key: Key, error: OpError, ledger: &mut Ledger) {
    ledger.live -= 1;
    ledger.finish(token, Some(Location::Posted(key)), Err(error));
}
