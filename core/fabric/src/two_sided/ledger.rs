//! What is common to all peers: events, the names of operations, counters, and which peers have
//! output.

use super::{Counters, registry::Exposed};
use crate::{Completion, Done, Event, OpError, Peer, Streak, Token};
use petasos_match::Key;
use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) events: VecDeque<Event>,
    /// Completions that were polled since the last pass.
    pub(super) streak: Streak,
    /// Where each operation with a peer is, so that it can be cancelled.
    pub(super) tokens: HashMap<Token, Location, BuildHasherDefault<TokenHasher>>,
    /// Where the receives are that wait for a message. Few programs cancel any: so this is made
    /// when one is to be cancelled, and kept until none waits.
    pub(super) posted: Option<HashMap<Token, Key, BuildHasherDefault<TokenHasher>>>,
    /// Operations, those included that completed and wait for a late answer, and those that the
    /// transport carries out.
    pub(super) live: usize,
    pub(super) counters: Counters,
    /// Peers with output that is not being served.
    pub(super) ready: VecDeque<u32>,
    /// Peers that asked for credit and have got none yet, in the order of their turns.
    pub(super) waiting: VecDeque<Peer>,
    pub(super) seldom: Seldom,
    /// So many peers have a fence behind which operations wait.
    pub(super) holding: usize,
    /// A thread drives this endpoint while its program does not, and the peers are told.
    pub(super) attended: bool,
    /// Peers that have credit, in the order in which they got it.
    pub(super) credited: VecDeque<Peer>,
}

/// Peers with which there is something to do that seldom is: one test tells that there is nothing.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    /// Peers of operations that were refused.
    refused: Vec<Peer>,
    /// Peers with operations that may go on, which waited for a fence.
    released: VecDeque<Peer>,
    count: usize,
}

impl Seldom {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn refuse(&mut self, peer: Peer) {
        self.refused.push(peer);
        self.count += 1;
    }

    pub(super) fn refused(&self) -> &[Peer] {
        &self.refused
    }

    /// Takes all refused ones out, of which some may be put back.
    pub(super) fn take_refused(&mut self) -> Vec<Peer> {
        self.count -= self.refused.len();
        std::mem::take(&mut self.refused)
    }

    pub(super) fn put_refused_back(&mut self, refused: Vec<Peer>) {
        self.count += refused.len();
        self.refused = refused;
    }

    pub(super) fn release(&mut self, peer: Peer) {
        self.released.push_back(peer);
        self.count += 1;
    }

    /// The first that may go on.
    #[inline]
    pub(super) fn released(&self) -> Option<Peer> {
        self.released.front().copied()
    }

    /// The first has gone on as far as it may.
    pub(super) fn end_released(&mut self) {
        self.count -= usize::from(self.released.pop_front().is_some());
    }
}

/// Where an operation is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// With the peer in this slot, under this id.
    Op { peer: u32, id: u64 },
    /// Among the posted receives, under this key.
    Posted(Key),
    /// Behind a fence of this peer.
    Deferred { peer: Peer },
}

impl Ledger {
    /// Raises the one completion of an operation.
    pub(super) fn finish(
        &mut self,
        token: Token,
        place: Option<Location>,
        result: Result<Done, OpError>,
    ) {
        self.finished(token, place);
        match result {
            Ok(_) => self.counters.succeeded += 1,
            Err(_) => self.counters.failed += 1,
        }
        self.events.push_back(Event::Done { token, result });
    }

    /// The next event, if it is a completion.
    pub(super) fn poll_completion(&mut self) -> Option<Completion> {
        let Some(Event::Done { .. }) = self.events.front().filter(|_| self.streak.goes_on()) else {
            return None;
        };
        self.streak.count();
        self.events.pop_front().and_then(|event| Completion::from_event(event).ok())
    }

    /// An operation that was here is over, and cannot be cancelled any more.
    #[inline]
    pub(super) fn finished(&mut self, token: Token, place: Option<Location>) {
        match (place, &mut self.posted) {
            (Some(Location::Posted(key)), Some(posted)) if posted.get(&token) == Some(&key) => {
                posted.remove(&token);
            }
            (Some(place @ (Location::Op { .. } | Location::Deferred { .. })), _)
                if self.tokens.get(&token) == Some(&place) =>
            {
                self.tokens.remove(&token);
            }
            _ => {}
        }
    }

    /// An access to a region ended; completes its deregistration if that was the last, and the
    /// revocation of the key.
    pub(super) fn unhold(&mut self, regions: &mut super::registry::Regions, at: Exposed) {
        regions.unhold(at, |token, done| {
            self.live -= 1;
            self.finish(token, None, Ok(done));
        });
    }
}

/// Tokens are the program's own numbers: a multiplication spreads them well enough.
#[derive(Default)]
pub(super) struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}
