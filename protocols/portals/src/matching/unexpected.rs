//! Headers of messages that matched only in an overflow list. They are kept in the order of their
//! arrival until an entry that matches them is appended, or a search takes them.

use super::{
    chain::{Chain, Linked, Links, NIL},
    pattern::{Envelope, Fold, Pattern},
};
use crate::{handle::Table, message::Arrival};
use std::collections::{HashMap, hash_map};

const ORDER: usize = 0;
const SAME: usize = 1;

/// A message that no entry has claimed yet.
#[derive(Debug)]
pub(crate) struct Header {
    links: [Links; 2],
    pub(crate) arrival: Arrival,
    /// The slot of the overflow entry that took it.
    pub(crate) entry: u32,
    /// The offset of its data in that entry's memory, and the length.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Whether all of its data is there.
    pub(crate) landed: bool,
}

impl Header {
    pub(crate) fn new(arrival: Arrival, entry: u32, offset: u64, len: u64) -> Header {
        Header { links: Default::default(), arrival, entry, offset, len, landed: false }
    }
}

impl Linked for Header {
    fn links(&self, sort: usize) -> &Links {
        &self.links[sort]
    }

    fn links_mut(&mut self, sort: usize) -> &mut Links {
        &mut self.links[sort]
    }
}

/// The headers of one portal.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    order: Chain<ORDER>,
    same: HashMap<(u64, u64), Chain<SAME>, Fold>,
    pub(crate) len: usize,
}

fn key(envelope: Envelope) -> (u64, u64) {
    (envelope.bits, envelope.source)
}

impl Unexpected {
    /// Appends a header that is in the table.
    pub(crate) fn push(&mut self, headers: &mut Table<Header>, index: u32) {
        let envelope = Envelope::of(&headers[index].arrival);
        self.order.push_back(headers, index);
        self.same.entry(key(envelope)).or_default().push_back(headers, index);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, headers: &mut Table<Header>, index: u32) {
        let envelope = Envelope::of(&headers[index].arrival);
        self.order.remove(headers, index);
        if let hash_map::Entry::Occupied(mut chain) = self.same.entry(key(envelope)) {
            chain.get_mut().remove(headers, index);
            if chain.get().is_empty() {
                chain.remove();
            }
        }
        self.len -= 1;
    }

    /// The oldest header that matches and that `accept` takes, of those behind another that
    /// matches, or of all. Found by its hash if the pattern has no wildcards, else by walking.
    pub(crate) fn find(
        &self,
        headers: &Table<Header>,
        pattern: &Pattern,
        behind: Option<u32>,
        accept: impl Fn(&Header) -> bool,
    ) -> Option<u32> {
        let (sort, first) = match pattern.exact() {
            Some(envelope) => (SAME, self.same.get(&key(envelope))?.head),
            None => (ORDER, self.order.head),
        };
        let mut at = behind.map_or(first, |header| headers[header].links[sort].next);
        while at != NIL {
            let header = &headers[at];
            if pattern.matches(Envelope::of(&header.arrival)) && accept(header) {
                return Some(at);
            }
            at = header.links[sort].next;
        }
        None
    }
}
