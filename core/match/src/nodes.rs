//! Values in numbered slots, and doubly linked lists through them. A value is on two lists, one of
//! each *sort*.

use slab::Slab;
use std::{fmt, num::NonZeroU32, ops};

/// The sort of the list of all values.
pub(crate) const ORDER: usize = 0;
/// The sort of the list of those with one hash key.
pub(crate) const CHAIN: usize = 1;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// Names a pattern in its list, or a message in its queue, as long as it is there.
///
/// A key that outlived what it names is recognised. Keys of one list mean nothing in another.
///
/// ```
/// use petasos_match::{Pattern, PatternList};
///
/// let mut list = PatternList::default();
/// let first = list.push_back(Pattern::new(None, 1, 0), "first");
/// assert_eq!(list.remove(first), Some("first"));
/// let second = list.push_back(Pattern::new(None, 1, 0), "second");
/// assert_eq!((list.remove(first), list.get(second)), (None, Some(&"second")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Where its value is when the list is long; a list that was short meanwhile has it elsewhere.
    slot: u32,
    /// Differs from one value to the next, for thousands of millions of them.
    stamp: NonZeroU32,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.slot, self.stamp)
    }
}

impl Key {
    /// Of a value that has no slot.
    #[inline]
    pub(crate) fn without_slot(stamp: NonZeroU32) -> Key {
        Key { slot: NIL, stamp }
    }
}

/// Gives stamps: each value of a list has another one.
#[derive(Debug)]
pub(crate) struct Stamps {
    latest: NonZeroU32,
}

impl Default for Stamps {
    fn default() -> Stamps {
        Stamps { latest: NonZeroU32::MAX }
    }
}

impl Stamps {
    #[inline]
    pub(crate) fn next(&mut self) -> NonZeroU32 {
        self.latest = self.latest.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.latest
    }
}

/// A value, and what the index keeps of it.
#[derive(Debug)]
pub(crate) struct Node<K, T> {
    links: [Links; 2],
    pub(crate) key: Key,
    pub(crate) indexed: K,
    pub(crate) value: T,
}

/// The neighbours in one list.
#[derive(Clone, Copy, Debug)]
struct Links {
    prev: u32,
    next: u32,
}

const UNLINKED: Links = Links { prev: NIL, next: NIL };

#[derive(Debug)]
pub(crate) struct Nodes<K, T> {
    slots: Slab<Node<K, T>>,
    /// The slots of values that were inserted with a key that has another slot, or none. They are
    /// as many as a short list has, and stay here when they are removed.
    moved: Vec<u32>,
}

impl<K, T> Default for Nodes<K, T> {
    fn default() -> Nodes<K, T> {
        Nodes { slots: Slab::new(), moved: Vec::new() }
    }
}

impl<K, T> Nodes<K, T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Inserts a value that is on no list yet: its slot.
    ///
    /// # Panics
    /// If there are four thousand million.
    pub(crate) fn insert(&mut self, stamp: NonZeroU32, indexed: K, value: T) -> u32 {
        let entry = self.slots.vacant_entry();
        let slot = entry.key();
        assert!(slot < NIL as usize, "more values than can be numbered");
        let key = Key { slot: slot as u32, stamp };
        entry.insert(Node { links: [UNLINKED; 2], key, indexed, value });
        key.slot
    }

    /// Inserts a value that has a key already.
    pub(crate) fn move_in(&mut self, key: Key, indexed: K, value: T) -> u32 {
        let slot = self.slots.insert(Node { links: [UNLINKED; 2], key, indexed, value }) as u32;
        if key.slot != slot {
            self.moved.push(slot);
        }
        slot
    }

    /// Removes a value that is on no list any more.
    pub(crate) fn remove(&mut self, slot: u32) -> Node<K, T> {
        self.slots.remove(slot as usize)
    }

    /// The slot of a key whose value is there.
    #[inline]
    pub(crate) fn slot(&self, key: Key) -> Option<u32> {
        let has = |slot: u32| self.slots.get(slot as usize).is_some_and(|node| node.key == key);
        if has(key.slot) {
            return Some(key.slot);
        }
        self.moved.iter().copied().find(|slot| has(*slot))
    }

    #[inline]
    pub(crate) fn key(&self, slot: u32) -> Key {
        self[slot].key
    }

    #[inline]
    pub(crate) fn prev(&self, sort: usize, slot: u32) -> u32 {
        self[slot].links[sort].prev
    }

    #[inline]
    pub(crate) fn next(&self, sort: usize, slot: u32) -> u32 {
        self[slot].links[sort].next
    }
}

impl<K, T> ops::Index<u32> for Nodes<K, T> {
    type Output = Node<K, T>;
    #[inline(always)]
    fn index(&self, slot: u32) -> &Node<K, T> {
        &self.slots[slot as usize]
    }
}

impl<K, T> ops::IndexMut<u32> for Nodes<K, T> {
    #[inline(always)]
    fn index_mut(&mut self, slot: u32) -> &mut Node<K, T> {
        &mut self.slots[slot as usize]
    }
}

/// A list of sort `S`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<const S: usize> {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl<const S: usize> Default for Chain<S> {
    fn default() -> Chain<S> {
        Chain { head: NIL, tail: NIL }
    }
}

impl<const S: usize> Chain<S> {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Inserts `slot` behind `prev`, or at the front if that is [`NIL`].
    pub(crate) fn insert_after<K, T>(&mut self, nodes: &mut Nodes<K, T>, prev: u32, slot: u32) {
        let next = match prev {
            NIL => std::mem::replace(&mut self.head, slot),
            prev => std::mem::replace(&mut nodes[prev].links[S].next, slot),
        };
        match next {
            NIL => self.tail = slot,
            next => nodes[next].links[S].prev = slot,
        }
        nodes[slot].links[S] = Links { prev, next };
    }

    pub(crate) fn push_back<K, T>(&mut self, nodes: &mut Nodes<K, T>, slot: u32) {
        self.insert_after(nodes, self.tail, slot);
    }

    pub(crate) fn remove<K, T>(&mut self, nodes: &mut Nodes<K, T>, slot: u32) {
        let Links { prev, next } = std::mem::replace(&mut nodes[slot].links[S], UNLINKED);
        match prev {
            NIL => self.head = next,
            prev => nodes[prev].links[S].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => nodes[next].links[S].prev = prev,
        }
    }

    /// The slots, in order.
    pub(crate) fn iter<K, T>(self, nodes: &Nodes<K, T>) -> impl Iterator<Item = u32> {
        let some = |slot: u32| (slot != NIL).then_some(slot);
        std::iter::successors(some(self.head), move |slot| some(nodes.next(S, *slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_and_out_anywhere() {
        let (mut nodes, mut stamps) = (Nodes::default(), Stamps::default());
        for value in 0..4 {
            assert_eq!(nodes.insert(stamps.next(), (), value), value);
        }
        let mut chain = Chain::<CHAIN>::default();
        chain.push_back(&mut nodes, 0);
        chain.push_back(&mut nodes, 1);
        chain.insert_after(&mut nodes, 0, 2);
        chain.insert_after(&mut nodes, NIL, 3);
        assert_eq!(chain.iter(&nodes).collect::<Vec<_>>(), [3, 0, 2, 1]);
        for (gone, left) in [(0, vec![3, 2, 1]), (1, vec![3, 2]), (3, vec![2]), (2, vec![])] {
            chain.remove(&mut nodes, gone);
            assert_eq!(chain.iter(&nodes).collect::<Vec<_>>(), left);
        }
        assert!(chain.is_empty() && chain.tail == NIL);
    }

    #[test]
    fn a_stale_key_has_no_slot() {
        let (mut nodes, mut stamps) = (Nodes::default(), Stamps::default());
        let slot = nodes.insert(stamps.next(), (), 'a');
        let stale = nodes.key(slot);
        nodes.remove(slot);
        assert_eq!(nodes.slot(stale), None);
        assert_eq!(nodes.insert(stamps.next(), (), 'b'), slot);
        assert_eq!((nodes.slot(stale), nodes.slot(nodes.key(slot))), (None, Some(slot)));
        // Stamps that come round are never zero.
        stamps.latest = NonZeroU32::MAX;
        assert_eq!(stamps.next(), NonZeroU32::MIN);
    }

    /// Values that come with keys are found by them, whichever slot is in these, until they go.
    #[test]
    fn keys_that_were_moved_in() {
        let (mut nodes, mut stamps) = (Nodes::default(), Stamps::default());
        let keys = [NIL, 1, 0, 7].map(|slot| Key { slot, stamp: stamps.next() });
        let slots = keys.map(|key| nodes.move_in(key, (), key));
        assert_eq!(slots, [0, 1, 2, 3]);
        assert_eq!(nodes.moved, [0, 2, 3]);
        for (key, slot) in keys.into_iter().zip(slots) {
            assert_eq!((nodes.slot(key), nodes.key(slot)), (Some(slot), key));
        }
        for (key, slot) in keys.into_iter().zip(slots) {
            nodes.remove(slot);
            assert_eq!(nodes.slot(key), None);
            let next = nodes.insert(stamps.next(), (), key);
            assert_eq!(
                (next, nodes.slot(key), nodes.slot(nodes.key(next))),
                (slot, None, Some(slot))
            );
        }
    }
}
