//! Expected messages: receives that wait for messages, and messages that wait for receives.

use super::ledger::{Ledger, Place};
use crate::{Buffer, Done, OpError, Peer, Slice, Token};
use std::collections::VecDeque;

/// Both lists are searched in order: receives match as they were posted, messages of one sender as
/// they were sent.
#[derive(Debug, Default)]
pub(super) struct Matching {
    posted: VecDeque<Posted>,
    unexpected: VecDeque<Unexpected>,
    numbers: u64,
    /// Bytes in `unexpected`.
    bytes: usize,
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
}

#[derive(Debug)]
pub(super) enum Waiting {
    /// It came with its data.
    Here(Buffer),
    /// Its body is to be pulled.
    Body { body: u64, len: u64 },
}

/// What a message that waits costs beside its data.
const ENVELOPE: usize = 64;

impl Unexpected {
    fn cost(&self) -> usize {
        match &self.data {
            Waiting::Here(buffer) => ENVELOPE + buffer.len(),
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
        ledger.finish(self.token, Some(Place::Posted(self.number)), result);
    }
}

impl Matching {
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
        self.bytes -= message.cost();
        Some(message)
    }

    /// Puts a receive that found no message at the end of the list.
    pub(super) fn post(&mut self, posted: Posted, ledger: &mut Ledger) {
        let place = Place::Posted(posted.number);
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

    /// Whether a message that nobody waits for may come.
    pub(super) fn has_room(&self, len: usize, limit: usize) -> bool {
        self.unexpected.is_empty() || self.bytes + ENVELOPE + len <= limit
    }

    pub(super) fn keep(&mut self, message: Unexpected) {
        self.bytes += message.cost();
        self.unexpected.push_back(message);
    }

    /// Forgets what waits of a peer: bodies only, which cannot be had any more, or all.
    pub(super) fn drop_messages(&mut self, peer: Peer, all: bool) {
        let mut freed = 0;
        self.unexpected.retain(|message| {
            let body = matches!(message.data, Waiting::Body { .. });
            let goes = message.peer == peer && (all || body);
            freed += if goes { message.cost() } else { 0 };
            !goes
        });
        self.bytes -= freed;
    }

    /// Takes a receive that waits for this peer alone.
    pub(super) fn take_waiting_for(&mut self, peer: Peer) -> Option<Posted> {
        let at = self.posted.iter().position(|p| p.source == Some(peer))?;
        self.posted.remove(at)
    }
}
