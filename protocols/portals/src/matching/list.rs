//! A match list: entries in an order that the program chose, found without walking.
//!
//! A short list is scanned: what each entry asks for lies in one array. A longer one keeps its
//! entries in *classes*, by which bits they ignore and which parts of the source count; within a
//! class a request can match only entries of one hash chain. So a look-up probes each class once,
//! and of the first entries of the chains it takes the one that comes first in the list, by its
//! *label*: a number that grows along the list, with gaps, so that entries can come in anywhere.
//! Classes are few, one to four under MPI. Where they are as many as a quarter of the entries, the
//! list is walked.

use super::{
    chain::{Chain, NIL},
    entry::{CHAIN, Entry, ORDER},
    pattern::{Envelope, Fold, Pattern},
};
use crate::handle::Table;
use smallvec::SmallVec;
use std::collections::{HashMap, hash_map};

/// A list of up to so many entries is scanned.
const SCAN: usize = 32;
/// A longer list that shrinks to so many is scanned again.
const SCAN_AGAIN: usize = 12;
/// The distance of labels at the ends of the list.
const STEP: u64 = 1 << 32;

/// Where an entry is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    First,
    Last,
    Before(u32),
    After(u32),
}

impl At {
    /// The entry beside which another one is inserted.
    pub(super) fn base(self) -> Option<u32> {
        match self {
            At::Before(base) | At::After(base) => Some(base),
            At::First | At::Last => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct MatchList {
    order: Chain<ORDER>,
    len: usize,
    /// All entries in order, while the list is short.
    rows: Vec<(Pattern, u32)>,
    /// All entries, when it is not.
    classes: Option<Classes>,
}

/// The entries that ignore the same bits, and look at the same parts of the source.
#[derive(Debug, Default)]
struct Class {
    ignore: u64,
    mask: u64,
    len: usize,
    chains: HashMap<(u64, u64), Chain<CHAIN>, Fold>,
}

#[derive(Debug, Default)]
struct Classes {
    /// Empty ones are used again.
    all: Vec<Class>,
    by_mask: HashMap<(u64, u64), u32, Fold>,
    hash: Fold,
}

impl MatchList {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The entries, in order.
    #[cfg(test)]
    pub(crate) fn iter(&self, nodes: &Table<Entry>) -> impl Iterator<Item = u32> {
        self.order.iter(nodes)
    }

    /// The first entry that matches and for which `accept` gives something, and that.
    #[inline(always)]
    pub(crate) fn find<A>(
        &self,
        nodes: &Table<Entry>,
        envelope: Envelope,
        accept: impl Fn(&Entry) -> Option<A>,
    ) -> Option<(u32, A)> {
        match &self.classes {
            None => {
                for (pattern, index) in &self.rows {
                    if pattern.matches(envelope)
                        && let Some(answer) = accept(&nodes[*index])
                    {
                        return Some((*index, answer));
                    }
                }
                None
            }
            Some(classes) => self.find_by_class(classes, nodes, envelope, accept),
        }
    }

    /// The same in a list that is not short.
    #[inline(never)]
    fn find_by_class<A>(
        &self,
        classes: &Classes,
        nodes: &Table<Entry>,
        envelope: Envelope,
        accept: impl Fn(&Entry) -> Option<A>,
    ) -> Option<(u32, A)> {
        if classes.by_mask.len() * 4 > self.len {
            let mut all = self.order.iter(nodes);
            return all.find_map(|index| {
                let entry = &nodes[index];
                let matches = entry.position.pattern.matches(envelope);
                if matches { Some((index, accept(entry)?)) } else { None }
            });
        }
        classes.find(nodes, envelope, accept)
    }

    /// Inserts an entry.
    pub(crate) fn insert(&mut self, nodes: &mut Table<Entry>, index: u32, at: At) {
        let prev = match at {
            At::First => NIL,
            At::Last => self.order.tail,
            At::Before(next) => nodes[next].position.links[ORDER].prev,
            At::After(prev) => prev,
        };
        self.order.insert_after(nodes, prev, index);
        self.len += 1;
        self.label(nodes, index);
        if let Some(classes) = &mut self.classes {
            return classes.insert(nodes, index);
        }
        if self.len > SCAN {
            self.rows.clear();
            let classes = self.classes.insert(Classes::default());
            let all: Vec<u32> = self.order.iter(nodes).collect();
            all.into_iter().for_each(|index| classes.insert(nodes, index));
            return;
        }
        let row = (nodes[index].position.pattern, index);
        match prev {
            prev if prev == NIL => self.rows.insert(0, row),
            prev => {
                let before = self.rows.iter().rposition(|(_, index)| *index == prev);
                self.rows.insert(before.expect("all entries have a row") + 1, row);
            }
        }
    }

    pub(crate) fn remove(&mut self, nodes: &mut Table<Entry>, index: u32) {
        self.len -= 1;
        match &mut self.classes {
            None => {
                let row = self.rows.iter().position(|(_, other)| *other == index);
                self.rows.remove(row.expect("all entries have a row"));
            }
            Some(classes) => classes.remove(nodes, index),
        }
        self.order.remove(nodes, index);
        if self.len <= SCAN_AGAIN && self.classes.take().is_some() {
            self.rows.extend(self.order.iter(nodes).map(|i| (nodes[i].position.pattern, i)));
        }
    }

    /// Gives an entry that was just linked a label between those of its neighbours.
    fn label(&mut self, nodes: &mut Table<Entry>, index: u32) {
        let links = nodes[index].position.links[ORDER];
        let low = (links.prev != NIL).then(|| nodes[links.prev].position.label);
        let high = (links.next != NIL).then(|| nodes[links.next].position.label);
        let label = match (low, high) {
            (None, None) => Some(1 << 63),
            (Some(low), None) => low.checked_add(STEP),
            (None, Some(high)) => high.checked_sub(STEP),
            (Some(low), Some(high)) => Some(low + (high - low) / 2).filter(|label| *label != low),
        };
        match label {
            Some(label) => nodes[index].position.label = label,
            None => {
                // No number is left between the neighbours: all entries get new labels. Their order
                // stays, and so do the chains.
                let step = u64::MAX / (self.len as u64 + 1);
                let mut at = self.order.head;
                let mut label = 0;
                while at != NIL {
                    label += step;
                    nodes[at].position.label = label;
                    at = nodes[at].position.links[ORDER].next;
                }
            }
        }
    }
}

impl Classes {
    fn insert(&mut self, nodes: &mut Table<Entry>, index: u32) {
        let pattern = nodes[index].position.pattern;
        let looked_at = (pattern.ignore, pattern.mask);
        let in_use = self.by_mask.len();
        let class = match self.by_mask.entry(looked_at) {
            hash_map::Entry::Occupied(entry) => *entry.get(),
            hash_map::Entry::Vacant(entry) => {
                let at = match self.all.len() > in_use {
                    true => self.all.iter().position(|class| class.len == 0),
                    false => None,
                };
                let at = at.unwrap_or(self.all.len());
                let chains = HashMap::with_hasher(self.hash.clone());
                let class = Class { ignore: pattern.ignore, mask: pattern.mask, len: 0, chains };
                if at == self.all.len() {
                    self.all.push(class);
                } else {
                    self.all[at] = class;
                }
                *entry.insert(at as u32)
            }
        };
        nodes[index].position.class = class;
        let label = nodes[index].position.label;
        let class = &mut self.all[class as usize];
        class.len += 1;
        let chain = class.chains.entry((pattern.bits, pattern.source)).or_default();
        // Mostly it is inserted as the last of its chain, sometimes as the first.
        let mut prev = chain.tail;
        if prev != NIL && nodes[chain.head].position.label > label {
            prev = NIL;
        }
        while prev != NIL && nodes[prev].position.label > label {
            prev = nodes[prev].position.links[CHAIN].prev;
        }
        chain.insert_after(nodes, prev, index);
    }

    fn remove(&mut self, nodes: &mut Table<Entry>, index: u32) {
        let position = &nodes[index].position;
        let (class, pattern) = (position.class as usize, position.pattern);
        let class = &mut self.all[class];
        class.len -= 1;
        if let hash_map::Entry::Occupied(mut chain) =
            class.chains.entry((pattern.bits, pattern.source))
        {
            chain.get_mut().remove(nodes, index);
            if chain.get().is_empty() {
                chain.remove();
            }
        }
        if class.len == 0 {
            class.chains = HashMap::default();
            self.by_mask.remove(&(pattern.ignore, pattern.mask));
            while self.all.pop_if(|last| last.len == 0).is_some() {}
        }
    }

    fn find<A>(
        &self,
        nodes: &Table<Entry>,
        envelope: Envelope,
        accept: impl Fn(&Entry) -> Option<A>,
    ) -> Option<(u32, A)> {
        let full = self.all.iter().filter(|class| class.len > 0);
        let chains = full.filter_map(|class| {
            class.chains.get(&(envelope.bits & !class.ignore, envelope.source & class.mask))
        });
        let mut heads: SmallVec<[u32; 8]> = chains.map(|chain| chain.head).collect();
        loop {
            let first = heads.iter_mut().min_by_key(|head| nodes[**head].position.label)?;
            let entry = &nodes[*first];
            if let Some(answer) = accept(entry) {
                return Some((*first, answer));
            }
            match entry.position.links[CHAIN].next {
                NIL => {
                    let gone = *first;
                    heads.retain(|head| *head != gone);
                }
                next => *first = next,
            }
        }
    }
}
