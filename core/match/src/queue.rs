//! Messages that wait for a pattern, in the order of their arrival.
//!
//! A short queue is scanned: its messages lie in one array. In a longer one those with the same
//! envelope are chained.

use crate::{
    hash::SeededState,
    nodes::{CHAIN, Chain, Key, NIL, Node, Nodes, ORDER, Stamps},
    pattern::{Envelope, Pattern},
    rows::{Row, Rows},
};
use std::{
    collections::{HashMap, hash_map},
    num::NonZeroU32,
};

/// A queue of up to so many messages is scanned.
const SCAN: usize = 32;
/// A longer queue that shrinks to so many is scanned again.
const SCAN_AGAIN: usize = 12;

/// Messages in the order of their arrival: gives the oldest that a pattern takes.
///
/// It costs one look-up, however many messages there are, if the pattern has no wildcards; else the
/// queue is walked.
///
/// ```
/// use petasos_match::{Envelope, MessageQueue, Pattern};
///
/// let mut unexpected = MessageQueue::default();
/// for (source, tag) in [(1, 7), (2, 7), (1, 7)] {
///     unexpected.push(Envelope::new(source, tag), format!("{tag} from {source}"));
/// }
/// let from_two = Pattern::new(Some(2), 7, 0);
/// assert_eq!(unexpected.take(&from_two), Some((Envelope::new(2, 7), "7 from 2".to_owned())));
/// assert!(unexpected.take(&from_two).is_none());
///
/// // Source 1 is lost.
/// unexpected.retain(|envelope, _| envelope.source != 1);
/// assert!(unexpected.is_empty());
/// ```
#[derive(Debug)]
pub struct MessageQueue<T> {
    /// All messages, while the queue is short.
    rows: Rows<Envelope, T>,
    /// All messages, when it is not.
    indexed: Option<Box<IndexedQueue<T>>>,
    stamps: Stamps,
}

impl<T> Default for MessageQueue<T> {
    fn default() -> MessageQueue<T> {
        MessageQueue { rows: Rows::default(), indexed: None, stamps: Stamps::default() }
    }
}

impl<T> MessageQueue<T> {
    /// How many messages there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match &self.indexed {
            None => self.rows.len(),
            Some(queue) => queue.nodes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a message.
    #[inline]
    pub fn push(&mut self, envelope: Envelope, value: T) -> Key {
        let stamp = self.stamps.next();
        if self.indexed.is_none() && self.rows.len() < SCAN {
            let key = Key::without_slot(stamp);
            self.rows.push_back(Row { matched: envelope, key, value });
            return key;
        }
        let rows = &mut self.rows;
        let indexed = self.indexed.get_or_insert_with(|| Box::new(IndexedQueue::new(rows.drain())));
        indexed.push(stamp, envelope, value)
    }

    /// Removes a message, if it is still in the queue.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let row = match &self.indexed {
            None => self.rows.remove(self.rows.position_of(key)?)?,
            Some(queue) => self.remove_indexed(queue.nodes.slot(key)?)?,
        };
        Some(row.value)
    }

    /// What was appended under this key, if it is still in the queue.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        match &self.indexed {
            None => self.rows.get(self.rows.position_of(key)?).map(|(_, value)| value),
            Some(queue) => Some(&queue.nodes[queue.nodes.slot(key)?].value),
        }
    }

    /// All messages, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Envelope, &T)> {
        let rows = self.rows.iter().map(|(key, envelope, value)| (key, *envelope, value));
        rows.chain(self.indexed.iter().flat_map(|queue| queue.iter()))
    }

    /// Removes the oldest message that the pattern takes.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Envelope, T)> {
        let row = match &self.indexed {
            None => {
                let at = self.rows.position(|envelope| pattern.matches(*envelope))?;
                self.rows.remove(at)?
            }
            Some(queue) => self.remove_indexed(queue.find(pattern, None, |_| true)?)?,
        };
        Some((row.matched, row.value))
    }

    /// The oldest message that the pattern takes and that `accept` takes, of those behind another
    /// that the pattern takes, or of all. There is none behind one that is not in the queue.
    ///
    /// ```
    /// use petasos_match::{Envelope, MessageQueue, Pattern};
    ///
    /// let mut queue = MessageQueue::default();
    /// for len in [100, 2000, 50, 3000] {
    ///     queue.push(Envelope::new(1, 7), len);
    /// }
    /// // Short messages alone, one after the other, and they stay.
    /// let (pattern, mut found, mut behind) = (Pattern::new(None, 7, 0), Vec::new(), None);
    /// while let Some(key) = queue.find(&pattern, behind, |len| *len <= 1000) {
    ///     found.extend(queue.get(key));
    ///     behind = Some(key);
    /// }
    /// assert_eq!((found, queue.len()), (vec![100, 50], 4));
    /// ```
    #[must_use]
    pub fn find(
        &self,
        pattern: &Pattern,
        behind: Option<Key>,
        accept: impl Fn(&T) -> bool,
    ) -> Option<Key> {
        match &self.indexed {
            None => {
                let begin = match behind {
                    Some(key) => self.rows.position_of(key)? + 1,
                    None => 0,
                };
                let mut rows = self.rows.iter().skip(begin);
                let found =
                    rows.find(|(_, envelope, value)| pattern.matches(**envelope) && accept(value));
                found.map(|(key, ..)| key)
            }
            Some(queue) => {
                let behind = match behind {
                    Some(key) => Some(queue.nodes.slot(key)?),
                    None => None,
                };
                queue.find(pattern, behind, accept).map(|slot| queue.nodes.key(slot))
            }
        }
    }

    /// Removes the messages for which `keep` says no. It is asked about all, the oldest first.
    pub fn retain(&mut self, mut keep: impl FnMut(Envelope, &mut T) -> bool) {
        self.rows.retain(&mut keep);
        if let Some(queue) = &mut self.indexed {
            queue.retain(keep);
            self.scan_if_short();
        }
    }

    #[inline(never)]
    fn remove_indexed(&mut self, slot: u32) -> Option<Row<Envelope, T>> {
        let row = self.indexed.as_mut()?.remove(slot);
        self.scan_if_short();
        Some(row)
    }

    /// If few messages are left in a long queue, they are scanned again.
    fn scan_if_short(&mut self) {
        if let Some(queue) = self.indexed.take_if(|queue| queue.nodes.len() <= SCAN_AGAIN) {
            queue.into_rows(|row| self.rows.push_back(row));
        }
    }
}

/// A long queue. Those with the same envelope are found by one look-up.
#[derive(Debug)]
struct IndexedQueue<T> {
    nodes: Nodes<Envelope, T>,
    order: Chain<ORDER>,
    same: HashMap<(u64, u64), Chain<CHAIN>, SeededState>,
}

fn words(envelope: Envelope) -> (u64, u64) {
    (envelope.bits, envelope.source)
}

impl<T> IndexedQueue<T> {
    /// With these messages, the oldest first.
    fn new(rows: impl Iterator<Item = Row<Envelope, T>>) -> IndexedQueue<T> {
        let (nodes, order) = (Nodes::default(), Chain::default());
        let mut queue = IndexedQueue { nodes, order, same: HashMap::default() };
        for Row { matched, key, value } in rows {
            let slot = queue.nodes.move_in(key, matched, value);
            queue.link(slot);
        }
        queue
    }

    fn push(&mut self, stamp: NonZeroU32, envelope: Envelope, value: T) -> Key {
        let slot = self.nodes.insert(stamp, envelope, value);
        self.link(slot);
        self.nodes.key(slot)
    }

    /// Links a message that is on no list yet.
    fn link(&mut self, slot: u32) {
        self.order.push_back(&mut self.nodes, slot);
        let same = self.same.entry(words(self.nodes[slot].indexed)).or_default();
        same.push_back(&mut self.nodes, slot);
    }

    fn remove(&mut self, slot: u32) -> Row<Envelope, T> {
        self.order.remove(&mut self.nodes, slot);
        let envelope = self.nodes[slot].indexed;
        if let hash_map::Entry::Occupied(mut chain) = self.same.entry(words(envelope)) {
            chain.get_mut().remove(&mut self.nodes, slot);
            if chain.get().is_empty() {
                chain.remove();
            }
        }
        let Node { key, value, .. } = self.nodes.remove(slot);
        Row { matched: envelope, key, value }
    }

    /// The oldest message that the pattern takes and that `accept` takes, of those behind another
    /// that the pattern takes, or of all.
    fn find(
        &self,
        pattern: &Pattern,
        behind: Option<u32>,
        accept: impl Fn(&T) -> bool,
    ) -> Option<u32> {
        let (sort, first) = match pattern.exact() {
            Some(envelope) => (CHAIN, self.same.get(&words(envelope))?.head),
            None => (ORDER, self.order.head),
        };
        let mut at = behind.map_or(first, |slot| self.nodes.next(sort, slot));
        while at != NIL {
            let node = &self.nodes[at];
            if pattern.matches(node.indexed) && accept(&node.value) {
                return Some(at);
            }
            at = self.nodes.next(sort, at);
        }
        None
    }

    fn iter(&self) -> impl Iterator<Item = (Key, Envelope, &T)> {
        self.order.iter(&self.nodes).map(|slot| {
            let node = &self.nodes[slot];
            (node.key, node.indexed, &node.value)
        })
    }

    fn retain(&mut self, mut keep: impl FnMut(Envelope, &mut T) -> bool) {
        let mut at = self.order.head;
        while at != NIL {
            let next = self.nodes.next(ORDER, at);
            let node = &mut self.nodes[at];
            if !keep(node.indexed, &mut node.value) {
                self.remove(at);
            }
            at = next;
        }
    }

    /// Gives all messages away, the oldest first.
    fn into_rows(mut self, mut give: impl FnMut(Row<Envelope, T>)) {
        while self.order.head != NIL {
            let row = self.remove(self.order.head);
            give(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long queue that is short again has no index, and keys hold whatever it was meanwhile.
    #[test]
    fn short_long_and_short_again() {
        let (mut queue, mut keys) = (MessageQueue::default(), Vec::new());
        for round in 0..3 {
            for bits in 0..40 {
                keys.push((queue.push(Envelope::new(round, bits), bits), bits));
            }
            assert!(queue.indexed.is_some() && queue.rows.len() == 0);
            assert!(keys.iter().all(|(key, bits)| queue.get(*key) == Some(bits)));
            for (key, bits) in keys.drain(2..30) {
                assert_eq!((queue.remove(key), queue.remove(key)), (Some(bits), None));
            }
            for (key, bits) in keys.drain(2..) {
                assert_eq!(
                    queue.take(&Pattern::new(Some(round), bits, 0)).map(|m| m.1),
                    Some(bits)
                );
                assert_eq!(queue.get(key), None);
            }
            assert!(queue.indexed.is_none() && queue.rows.len() == 2);
        }
        assert!(queue.iter().map(|(key, _, bits)| (key, *bits)).eq(keys));
    }
}
