//! The index of a long list: patterns that ignore the same bits, and look at the same parts of the
//! source, are one class. Within a class an envelope can match only the patterns of one hash chain.

use crate::{
    hash::SeededState,
    nodes::{CHAIN, Chain, NIL, Nodes},
    pattern::{Envelope, Pattern},
};
use smallvec::SmallVec;
use std::collections::{HashMap, hash_map};

/// What is kept of a pattern, beside its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) pattern: Pattern,
    /// Grows along the list.
    pub(crate) label: u64,
    /// Its class, if there are any.
    class: u32,
}

impl Position {
    /// Of a pattern that has no label yet.
    pub(crate) fn new(pattern: Pattern) -> Position {
        Position { pattern, label: 0, class: 0 }
    }
}

#[derive(Debug)]
struct Class {
    ignore: u64,
    mask: u64,
    len: usize,
    chains: HashMap<(u64, u64), Chain<CHAIN>, SeededState>,
}

#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// Empty ones are used again.
    all: Vec<Class>,
    /// The one that was used last.
    latest: usize,
    by_mask: HashMap<(u64, u64), u32, SeededState>,
}

impl Classes {
    /// How many classes have patterns.
    pub(crate) fn len(&self) -> usize {
        self.by_mask.len()
    }

    /// Inserts a pattern that is in the list, and has its label.
    pub(crate) fn insert<T>(&mut self, nodes: &mut Nodes<Position, T>, slot: u32) {
        let Position { pattern, label, .. } = nodes[slot].indexed;
        let at = self.class_of(pattern.ignore, pattern.mask);
        nodes[slot].indexed.class = at;
        let class = &mut self.all[at as usize];
        class.len += 1;
        let chain = class.chains.entry((pattern.bits, pattern.source)).or_default();
        // Mostly it is inserted as the last of its chain, sometimes as the first.
        let mut prev = chain.tail;
        if prev != NIL && nodes[chain.head].indexed.label > label {
            prev = NIL;
        }
        while prev != NIL && nodes[prev].indexed.label > label {
            prev = nodes.prev(CHAIN, prev);
        }
        chain.insert_after(nodes, prev, slot);
    }

    /// The class with these masks, which is made if there is none.
    fn class_of(&mut self, ignore: u64, mask: u64) -> u32 {
        // Most patterns are like the one before.
        if let Some(class) = self.all.get(self.latest)
            && (class.ignore, class.mask) == (ignore, mask)
            && class.len > 0
        {
            return self.latest as u32;
        }
        let at = self.find_class(ignore, mask);
        self.latest = at as usize;
        at
    }

    fn find_class(&mut self, ignore: u64, mask: u64) -> u32 {
        let in_use = self.by_mask.len();
        let hash = self.by_mask.hasher().clone();
        match self.by_mask.entry((ignore, mask)) {
            hash_map::Entry::Occupied(entry) => *entry.get(),
            hash_map::Entry::Vacant(entry) => {
                let empty = match self.all.len() > in_use {
                    true => self.all.iter().position(|class| class.len == 0),
                    false => None,
                };
                let at = empty.unwrap_or(self.all.len());
                let class = Class { ignore, mask, len: 0, chains: HashMap::with_hasher(hash) };
                if at == self.all.len() {
                    self.all.push(class);
                } else {
                    self.all[at] = class;
                }
                *entry.insert(at as u32)
            }
        }
    }

    /// Takes the first in the list that matches out, if there is one class only: then one look-up
    /// finds the chain, and changes it. `None` if there are several; inside of it, if none matches.
    pub(crate) fn take_only<T>(
        &mut self,
        nodes: &mut Nodes<Position, T>,
        envelope: Envelope,
    ) -> Option<Option<u32>> {
        let [class] = &mut self.all[..] else { return None };
        let key = (envelope.bits & !class.ignore, envelope.source & class.mask);
        let hash_map::Entry::Occupied(mut entry) = class.chains.entry(key) else {
            return Some(None);
        };
        let chain = entry.get_mut();
        let slot = chain.head;
        chain.remove(nodes, slot);
        if chain.is_empty() {
            entry.remove();
        }
        class.len -= 1;
        self.clean(nodes[slot].indexed);
        Some(Some(slot))
    }

    pub(crate) fn remove<T>(&mut self, nodes: &mut Nodes<Position, T>, slot: u32) {
        let position = nodes[slot].indexed;
        let Position { pattern, class, .. } = position;
        let class = &mut self.all[class as usize];
        class.len -= 1;
        if let hash_map::Entry::Occupied(mut chain) =
            class.chains.entry((pattern.bits, pattern.source))
        {
            chain.get_mut().remove(nodes, slot);
            if chain.get().is_empty() {
                chain.remove();
            }
        }
        self.clean(position);
    }

    /// A pattern was taken out: its class goes with the last one.
    #[inline]
    fn clean(&mut self, Position { pattern, class, .. }: Position) {
        let class = &mut self.all[class as usize];
        if class.len == 0 {
            class.chains = HashMap::with_hasher(self.by_mask.hasher().clone());
            self.by_mask.remove(&(pattern.ignore, pattern.mask));
            while self.all.pop_if(|last| last.len == 0).is_some() {}
        }
    }

    /// The first in the list that matches: of the first patterns of the chains, the one with the
    /// least label.
    pub(crate) fn first<T>(&self, nodes: &Nodes<Position, T>, envelope: Envelope) -> Option<u32> {
        self.chains(envelope).map(|chain| chain.head).min_by_key(|head| nodes[*head].indexed.label)
    }

    /// The chains of the patterns that match, one of each class that has some.
    fn chains(&self, envelope: Envelope) -> impl Iterator<Item = &Chain<CHAIN>> {
        self.all.iter().filter(|class| class.len > 0).filter_map(move |class| {
            class.chains.get(&(envelope.bits & !class.ignore, envelope.source & class.mask))
        })
    }

    /// The firsts of these chains.
    pub(crate) fn heads(&self, envelope: Envelope) -> Heads {
        Heads { heads: self.chains(envelope).map(|chain| chain.head).collect() }
    }
}

/// Where a search for all patterns that take an envelope is, in each chain that has some.
#[derive(Debug)]
pub(crate) struct Heads {
    heads: SmallVec<[u32; 8]>,
}

impl Heads {
    /// The next in the list: the one with the least label.
    pub(crate) fn next<T>(&mut self, nodes: &Nodes<Position, T>) -> Option<u32> {
        let label = |(_, head): &(usize, &u32)| nodes[**head].indexed.label;
        let (at, _) = self.heads.iter().enumerate().min_by_key(label)?;
        let first = self.heads[at];
        match nodes.next(CHAIN, first) {
            NIL => {
                self.heads.swap_remove(at);
            }
            next => self.heads[at] = next,
        }
        Some(first)
    }
}
