//! Expected messages: receives that wait for messages, and messages that wait for receives.

use super::ledger::{Ledger, Location};
use crate::{Buffer, Done, OpError, Peer, Slice, Token};
use std::collections::VecDeque;

/// Both lists are searched in order: receives match as they were posted, messages of one sender as
/// they were sent.
#[derive(Debug, Default)]
pub(super) struct Matching {
    posted: VecDeque<Posted>,
    unexpected: VecDeque<Unexpected>,
    numbers: u64,
    /// Bytes that messages without a receive may take, and how many were promised to peers.
    limit: usize,
    promised: usize,
    /// Bytes of messages whose peers are lost, and whose promises are over.
    orphans: usize,
}

/// A receive that waits.
#[derive(Debug)]
pub(super) struct Posted {
    number: u64,
    pub(super) token: Token,
    source: Option<Peer>,
    tag: u64,
    ignore: u64,
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
const ENVELOPE: usize = 64;

/// The same of an eager message that was promised room.
const EAGER: usize = ENVELOPE + super::MAX_EAGER;

impl Unexpected {
    pub(super) fn new(peer: Peer, tag: u64, data: Waiting) -> Unexpected {
        Unexpected { peer, tag, data, orphan: false }
    }

    fn cost(&self) -> usize {
        match &self.data {
            Waiting::Buffered(buffer) => ENVELOPE + buffer.len(),
            Waiting::Body { .. } => ENVELOPE,
        }
    }
}

impl Posted {
    fn takes(&self, peer: Peer, tag: u64) -> bool {
        self.source.is_none_or(|source| source == peer) && (self.tag ^ tag) & !self.ignore == 0
    }

    /// Raises its completion.
    pub(super) fn finish(self, result: Result<Done, OpError>, ledger: &mut Ledger) {
        ledger.live -= 1;
        ledger.finish(self.token, Some(Location::Posted(self.number)), result);
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

    /// A receive; not yet in the list.
    pub(super) fn receive(
        &mut self,
        token: Token,
        source: Option<Peer>,
        tag: u64,
        ignore: u64,
        into: Slice,
    ) -> Posted {
        self.numbers += 1;
        Posted { number: self.numbers, token, source, tag, ignore, into }
    }

    /// The first message that this receive takes.
    pub(super) fn take_message(&mut self, posted: &Posted) -> Option<Unexpected> {
        let at =
            self.unexpected.iter().position(|message| posted.takes(message.peer, message.tag))?;
        let message = self.unexpected.remove(at)?;
        self.orphans -= if message.orphan { message.cost() } else { 0 };
        Some(message)
    }

    /// Puts a receive that found no message at the end of the list.
    pub(super) fn post(&mut self, posted: Posted, ledger: &mut Ledger) {
        let place = Location::Posted(posted.number);
        ledger.tokens.insert(posted.token, place);
        self.posted.push_back(posted);
    }

    /// The first receive that takes this message.
    pub(super) fn take_posted(&mut self, peer: Peer, tag: u64) -> Option<Posted> {
        let at = self.posted.iter().position(|p| p.takes(peer, tag))?;
        self.posted.remove(at)
    }

    /// The receive with this number, if it still waits.
    pub(super) fn take_number(&mut self, number: u64) -> Option<Posted> {
        let at = self.posted.iter().position(|p| p.number == number)?;
        self.posted.remove(at)
    }

    pub(super) fn keep(&mut self, message: Unexpected) {
        self.unexpected.push_back(message);
    }

    /// Forgets what waits of a peer that is lost: bodies only, which cannot be had any more, or
    /// all.
    pub(super) fn drop_messages(&mut self, peer: Peer, all: bool) {
        let orphans = &mut self.orphans;
        self.unexpected.retain_mut(|message| {
            if message.peer != peer {
                return true;
            }
            let stays = !all && matches!(message.data, Waiting::Buffered(_));
            let was = std::mem::replace(&mut message.orphan, stays);
            *orphans -= if was { message.cost() } else { 0 };
            *orphans += if stays { message.cost() } else { 0 };
            stays
        });
    }

    /// Takes a receive that waits for this peer alone.
    pub(super) fn take_waiting_for(&mut self, peer: Peer) -> Option<Posted> {
        let at = self.posted.iter().position(|p| p.source == Some(peer))?;
        self.posted.remove(at)
    }
}
