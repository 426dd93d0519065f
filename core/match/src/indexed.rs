//! A long list of patterns, indexed by classes.
//!
//! A look-up probes each class once, and of the first patterns of the chains it takes the one that
//! comes first in the list, by its *label*: a number that grows along the list, with gaps, so that
//! patterns can come in anywhere. Classes are few, one to four under MPI. Where they are as many as
//! a quarter of the patterns, the list is walked.

use crate::{
    classes::{Classes, Heads, Position},
    nodes::{Chain, Key, NIL, Node, Nodes, ORDER},
    pattern::{Envelope, Pattern},
    rows::Row,
};
use std::num::NonZeroU32;

/// The distance of labels at the ends of the list.
const STEP: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct IndexedList<T> {
    nodes: Nodes<Position, T>,
    order: Chain<ORDER>,
    classes: Classes,
}

impl<T> Default for IndexedList<T> {
    fn default() -> IndexedList<T> {
        let (nodes, order) = (Nodes::default(), Chain::default());
        IndexedList { nodes, order, classes: Classes::default() }
    }
}

impl<T> IndexedList<T> {
    /// With these patterns, in order.
    pub(crate) fn new(rows: impl Iterator<Item = Row<Pattern, T>>) -> IndexedList<T> {
        let mut list = IndexedList::default();
        for Row { matched, key, value } in rows {
            let slot = list.nodes.move_in(key, Position::new(matched), value);
            list.link(list.order.tail, slot);
        }
        list
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    #[inline]
    pub(crate) fn slot(&self, key: Key) -> Option<u32> {
        self.nodes.slot(key)
    }

    pub(crate) fn key(&self, slot: u32) -> Key {
        self.nodes.key(slot)
    }

    pub(crate) fn value(&self, slot: u32) -> &T {
        &self.nodes[slot].value
    }

    /// The last pattern, or [`NIL`].
    pub(crate) fn last(&self) -> u32 {
        self.order.tail
    }

    /// The pattern before this one, or [`NIL`].
    pub(crate) fn before(&self, slot: u32) -> u32 {
        self.nodes.prev(ORDER, slot)
    }

    /// All patterns, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Pattern, &T)> {
        self.order.iter(&self.nodes).map(|slot| {
            let node = &self.nodes[slot];
            (node.key, &node.indexed.pattern, &node.value)
        })
    }

    /// Inserts a pattern behind another, or at the front if that is [`NIL`].
    pub(crate) fn insert_after(
        &mut self,
        prev: u32,
        stamp: NonZeroU32,
        pattern: Pattern,
        value: T,
    ) -> Key {
        let slot = self.nodes.insert(stamp, Position::new(pattern), value);
        self.link(prev, slot);
        self.nodes.key(slot)
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Row<Pattern, T> {
        self.classes.remove(&mut self.nodes, slot);
        self.unlink(slot)
    }

    /// Takes a pattern that is in no class any more out of the list.
    fn unlink(&mut self, slot: u32) -> Row<Pattern, T> {
        self.order.remove(&mut self.nodes, slot);
        let Node { key, indexed, value, .. } = self.nodes.remove(slot);
        Row { matched: indexed.pattern, key, value }
    }

    /// Removes the first pattern that takes the envelope.
    pub(crate) fn take(&mut self, envelope: Envelope) -> Option<Row<Pattern, T>> {
        if self.is_walked() {
            return self.first(envelope).map(|slot| self.remove(slot));
        }
        match self.classes.take_only(&mut self.nodes, envelope) {
            Some(slot) => slot.map(|slot| self.unlink(slot)),
            None => self.first(envelope).map(|slot| self.remove(slot)),
        }
    }

    /// Removes the first pattern.
    pub(crate) fn pop_front(&mut self) -> Option<Row<Pattern, T>> {
        let head = self.order.head;
        (head != NIL).then(|| self.remove(head))
    }

    /// The first pattern that takes the envelope.
    pub(crate) fn first(&self, envelope: Envelope) -> Option<u32> {
        if self.is_walked() {
            let mut slots = self.order.iter(&self.nodes);
            return slots.find(|slot| self.nodes[*slot].indexed.pattern.matches(envelope));
        }
        self.classes.first(&self.nodes, envelope)
    }

    /// The values of the patterns that take the envelope, in order.
    pub(crate) fn takers(&self, envelope: Envelope) -> Takers<'_, T> {
        let search = match self.is_walked() {
            true => Search::Walked { at: self.order.head },
            false => Search::Chains(self.classes.heads(envelope)),
        };
        Takers { nodes: &self.nodes, envelope, search }
    }

    /// Whether classes are so many that to probe them all would cost more.
    fn is_walked(&self) -> bool {
        self.classes.len() * 4 > self.len()
    }

    /// Links a pattern that is on no list yet.
    fn link(&mut self, prev: u32, slot: u32) {
        self.order.insert_after(&mut self.nodes, prev, slot);
        self.label(slot);
        self.classes.insert(&mut self.nodes, slot);
    }

    /// Gives a pattern that was just linked a label between those of its neighbours.
    fn label(&mut self, slot: u32) {
        let nodes = &mut self.nodes;
        let label_of = |slot: u32| (slot != NIL).then(|| nodes[slot].indexed.label);
        let low = label_of(nodes.prev(ORDER, slot));
        let high = label_of(nodes.next(ORDER, slot));
        let label = match (low, high) {
            (None, None) => Some(1 << 63),
            (Some(low), None) => low.checked_add(STEP),
            (None, Some(high)) => high.checked_sub(STEP),
            (Some(low), Some(high)) => Some(low + (high - low) / 2).filter(|label| *label != low),
        };
        match label {
            Some(label) => nodes[slot].indexed.label = label,
            None => self.label_all(),
        }
    }

    /// Gives all patterns new labels, where no number is left for one. They fill the middle half of
    /// the numbers, so that there is room at both ends. The order stays, and so do the chains.
    #[cold]
    fn label_all(&mut self) {
        let step = (1 << 63) / (self.len() as u64 + 1);
        let (mut at, mut label) = (self.order.head, 1 << 62);
        while at != NIL {
            label += step;
            self.nodes[at].indexed.label = label;
            at = self.nodes.next(ORDER, at);
        }
    }
}

/// See [`IndexedList::takers`].
#[derive(Debug)]
pub(crate) struct Takers<'a, T> {
    nodes: &'a Nodes<Position, T>,
    envelope: Envelope,
    search: Search,
}

#[derive(Debug)]
enum Search {
    /// Pattern by pattern, from this one on.
    Walked {
        at: u32,
    },
    Chains(Heads),
}

impl<'a, T> Iterator for Takers<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        let envelope = self.envelope;
        let slot = match &mut self.search {
            Search::Chains(heads) => heads.next(self.nodes)?,
            Search::Walked { at } => {
                while *at != NIL && !self.nodes[*at].indexed.pattern.matches(envelope) {
                    *at = self.nodes.next(ORDER, *at);
                }
                let found = *at;
                if found == NIL {
                    return None;
                }
                *at = self.nodes.next(ORDER, found);
                found
            }
        };
        Some(&self.nodes[slot].value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Stamps;

    /// A list, and what stamps its patterns.
    #[derive(Default)]
    struct Stamped {
        list: IndexedList<u32>,
        stamps: Stamps,
    }

    impl Stamped {
        /// Inserts a pattern that takes the envelope of zeros: its slot.
        fn insert(&mut self, prev: u32, value: u32) -> u32 {
            let pattern = Pattern::new(None, 0, 0);
            let key = self.list.insert_after(prev, self.stamps.next(), pattern, value);
            self.list.slot(key).expect("it is there")
        }

        /// All in order, by what takes one envelope after the other.
        fn drain(mut self) -> Vec<u32> {
            let list = &mut self.list;
            let first = || list.first(Envelope::new(0, 0)).map(|slot| list.remove(slot).value);
            std::iter::from_fn(first).collect()
        }
    }

    /// Patterns inserted at one place until no label is left between two.
    #[test]
    fn labels_that_run_out_are_made_anew() {
        let mut stamped = Stamped::default();
        stamped.insert(NIL, 0);
        let last = stamped.insert(stamped.list.last(), 1);
        let mut next = last;
        for value in 2..200 {
            let base = if value % 2 == 0 { next } else { last };
            next = stamped.insert(stamped.list.before(base), value);
        }
        let order: Vec<u32> = stamped.list.iter().map(|(_, _, value)| *value).collect();
        assert_eq!(stamped.drain(), order);
    }

    /// Labels that end at either end of the numbers are made anew, too.
    #[test]
    fn labels_reach_the_ends() {
        for (at_front, edge) in [(false, u64::MAX - 1), (true, 1)] {
            let mut stamped = Stamped::default();
            stamped.insert(NIL, 0);
            stamped.list.nodes[0].indexed.label = edge;
            for value in 1..100 {
                let prev = if at_front { NIL } else { stamped.list.last() };
                stamped.insert(prev, value);
            }
            let mut expected: Vec<u32> = (0..100).collect();
            if at_front {
                expected.reverse();
            }
            assert_eq!(stamped.drain(), expected);
        }
    }

    /// Taken in the order of the list, whether there is one class or there are several; and nothing
    /// is left.
    #[test]
    fn all_are_taken_in_order() {
        for classes in [1, 2] {
            let (mut list, mut stamps) = (IndexedList::default(), Stamps::default());
            for _ in 0..2 {
                for value in 0..100_u64 {
                    // The second class ignores a bit that no envelope has.
                    let pattern = Pattern::new(None, value % 10, value / 10 % classes * 16);
                    list.insert_after(list.last(), stamps.next(), pattern, value);
                }
                assert_eq!(list.classes.len() as u64, classes);
                for bits in 0..10 {
                    let take = || list.take(Envelope::new(3, bits)).map(|row| row.value);
                    let taken: Vec<u64> = std::iter::from_fn(take).collect();
                    let wanted: Vec<u64> = (0..100).filter(|value| value % 10 == bits).collect();
                    assert_eq!(taken, wanted);
                }
                assert!(list.classes.len() == 0 && list.len() == 0);
            }
        }
    }

    /// Nothing is left of classes that were used.
    #[test]
    fn empty_classes_go() {
        let (mut list, mut stamps) = (IndexedList::default(), Stamps::default());
        let mut insert = |bits: u64| {
            let pattern = Pattern::new(None, bits, bits % 3);
            list.insert_after(list.last(), stamps.next(), pattern, bits)
        };
        let keys: Vec<Key> = (0..300).map(&mut insert).collect();
        assert_eq!(list.classes.len(), 3);
        let slots: Vec<u32> = keys.iter().filter_map(|key| list.slot(*key)).collect();
        for slot in slots.iter().skip(2).step_by(3) {
            list.remove(*slot);
        }
        assert_eq!(list.classes.len(), 2);
        while list.pop_front().is_some() {}
        assert!(list.classes.len() == 0 && list.len() == 0 && list.iter().next().is_none());
    }
}
