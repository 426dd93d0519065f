//! A list of patterns, in an order that the program chose.
//!
//! A short list is scanned: its patterns lie in one array, with their values. A longer one is
//! indexed.

use crate::{
    indexed::IndexedList,
    nodes::{Key, NIL, Stamps},
    pattern::{Envelope, Pattern},
    rows::{Row, RowScan, Rows},
};

/// A list of up to so many patterns is scanned.
const SCAN: usize = 32;
/// A longer list that shrinks to so many is scanned again.
const SCAN_AGAIN: usize = 12;

/// Where a pattern is inserted.
///
/// ```
/// use petasos_match::{At, Pattern, PatternList};
///
/// let mut list = PatternList::default();
/// let pattern = Pattern::new(None, 7, 0);
/// let b = list.insert(At::Last, pattern, 'b').expect("an end is always there");
/// list.insert(At::First, pattern, 'a');
/// list.insert(At::After(b), pattern, 'd');
/// list.insert(At::Before(b), pattern, '.');
/// let order: String = list.iter().map(|(_, _, letter)| *letter).collect();
/// assert_eq!(order, "a.bd");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At the front.
    First,
    /// At the end.
    Last,
    /// Immediately before this one.
    Before(Key),
    /// Immediately behind this one.
    After(Key),
}

/// Patterns in order: gives the first that takes an envelope.
///
/// It costs a few look-ups, however many patterns there are (see the [front page](crate#cost)).
///
/// ```
/// use petasos_match::{Envelope, Pattern, PatternList};
///
/// let mut posted = PatternList::default();
/// let any = posted.push_back(Pattern::new(None, 0, u64::MAX), "any message");
/// for tag in 0..1000 {
///     posted.push_back(Pattern::new(Some(3), tag, 0), "one tag");
/// }
/// // The order decides, not how much of the envelope a pattern names.
/// let envelope = Envelope::new(3, 17);
/// assert_eq!(posted.first(envelope), Some(any));
/// assert_eq!(posted.take(envelope), Some((any, "any message")));
/// assert_eq!(posted.take(envelope).map(|(_, receive)| receive), Some("one tag"));
/// assert!(posted.take(envelope).is_none());
/// assert_eq!(posted.len(), 999);
/// ```
#[derive(Debug)]
pub struct PatternList<T> {
    /// All patterns, while the list is short.
    rows: Rows<Pattern, T>,
    /// All patterns, when it is not.
    indexed: Option<Box<IndexedList<T>>>,
    stamps: Stamps,
}

impl<T> Default for PatternList<T> {
    fn default() -> PatternList<T> {
        PatternList { rows: Rows::default(), indexed: None, stamps: Stamps::default() }
    }
}

impl<T> PatternList<T> {
    /// How many patterns there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match &self.indexed {
            None => self.rows.len(),
            Some(list) => list.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a pattern.
    #[inline]
    pub fn push_back(&mut self, pattern: Pattern, value: T) -> Key {
        let stamp = self.stamps.next();
        if self.is_scanned_with_one_more() {
            let key = Key::without_slot(stamp);
            self.rows.push_back(Row { matched: pattern, key, value });
            return key;
        }
        let list = self.index();
        list.insert_after(list.last(), stamp, pattern, value)
    }

    /// Inserts a pattern; `None`, and nothing is inserted, if the one beside which it belongs is
    /// not in the list.
    pub fn insert(&mut self, at: At, pattern: Pattern, value: T) -> Option<Key> {
        if self.is_scanned_with_one_more() {
            let at = match at {
                At::First => 0,
                At::Last => self.rows.len(),
                At::Before(next) => self.rows.position_of(next)?,
                At::After(prev) => self.rows.position_of(prev)? + 1,
            };
            let key = Key::without_slot(self.stamps.next());
            self.rows.insert(at, Row { matched: pattern, key, value });
            return Some(key);
        }
        let list = self.index();
        let prev = match at {
            At::First => NIL,
            At::Last => list.last(),
            At::Before(next) => list.before(list.slot(next)?),
            At::After(prev) => list.slot(prev)?,
        };
        let stamp = self.stamps.next();
        Some(self.index().insert_after(prev, stamp, pattern, value))
    }

    /// Removes a pattern, if it is still in the list.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let row = match &self.indexed {
            None => self.rows.remove(self.rows.position_of(key)?)?,
            Some(list) => self.remove_indexed(list.slot(key)?)?,
        };
        Some(row.value)
    }

    /// What was inserted under this key, if it is still in the list.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        match &self.indexed {
            None => self.rows.get(self.rows.position_of(key)?).map(|(_, value)| value),
            Some(list) => Some(list.value(list.slot(key)?)),
        }
    }

    /// All patterns, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Pattern, &T)> {
        self.rows.iter().chain(self.indexed.iter().flat_map(|list| list.iter()))
    }

    /// The first pattern that takes the envelope.
    #[must_use]
    pub fn first(&self, envelope: Envelope) -> Option<Key> {
        match &self.indexed {
            None => {
                let at = self.rows.position(|pattern| pattern.matches(envelope))?;
                self.rows.get(at).map(|(key, _)| key)
            }
            Some(list) => Some(list.key(list.first(envelope)?)),
        }
    }

    /// Removes the first pattern that takes the envelope.
    #[inline]
    pub fn take(&mut self, envelope: Envelope) -> Option<(Key, T)> {
        let row = match &self.indexed {
            None => {
                let at = self.rows.position(|pattern| pattern.matches(envelope))?;
                self.rows.remove(at)?
            }
            Some(_) => self.take_indexed(envelope)?,
        };
        Some((row.key, row.value))
    }

    /// The values of the patterns that take the envelope, in order.
    ///
    /// ```
    /// use petasos_match::{Envelope, Pattern, PatternList};
    ///
    /// // Memory of so many bytes; a message of 100 goes to the first where it fits.
    /// let mut list = PatternList::default();
    /// for (tag, len) in [(1, 500), (7, 10), (7, 200), (7, 1000)] {
    ///     list.push_back(Pattern::new(None, tag, 0), len);
    /// }
    /// let mut lens = list.takers(Envelope::new(0, 7));
    /// assert_eq!(lens.find(|len| **len >= 100), Some(&200));
    /// ```
    pub fn takers(&self, envelope: Envelope) -> impl Iterator<Item = &T> {
        let scan = self.scan(envelope).into_iter().flatten();
        scan.chain(self.indexed.iter().flat_map(move |list| list.takers(envelope)))
    }

    /// The same of a list that is short, and scanned; `None` of one that is not. For paths on which
    /// each instruction counts: nothing of the index is in the iterator.
    #[must_use]
    #[inline(always)]
    pub fn scan(&self, envelope: Envelope) -> Option<Scan<'_, T>> {
        match &self.indexed {
            None => Some(Scan { rows: self.rows.scan(), envelope }),
            Some(_) => None,
        }
    }

    /// Whether the list is short, and stays so when a pattern is added.
    #[inline]
    fn is_scanned_with_one_more(&self) -> bool {
        self.indexed.is_none() && self.rows.len() < SCAN
    }

    /// The list as one that is indexed.
    fn index(&mut self) -> &mut IndexedList<T> {
        self.indexed.get_or_insert_with(|| Box::new(IndexedList::new(self.rows.drain())))
    }

    /// Removes a pattern of a list that is indexed. If few are left, they are scanned again.
    #[inline(never)]
    fn remove_indexed(&mut self, slot: u32) -> Option<Row<Pattern, T>> {
        let row = self.indexed.as_mut()?.remove(slot);
        self.scan_again();
        Some(row)
    }

    /// The same of the first that takes the envelope.
    #[inline(never)]
    fn take_indexed(&mut self, envelope: Envelope) -> Option<Row<Pattern, T>> {
        let row = self.indexed.as_mut()?.take(envelope)?;
        self.scan_again();
        Some(row)
    }

    /// If few patterns are left in the index, they are scanned again.
    #[inline]
    fn scan_again(&mut self) {
        if let Some(list) = &mut self.indexed
            && list.len() <= SCAN_AGAIN
        {
            while let Some(row) = list.pop_front() {
                self.rows.push_back(row);
            }
            self.indexed = None;
        }
    }
}

/// The values of patterns that take an envelope: see [`PatternList::scan`].
#[derive(Debug)]
pub struct Scan<'a, T> {
    rows: RowScan<'a, Pattern, T>,
    envelope: Envelope,
}

impl<'a, T> Iterator for Scan<'a, T> {
    type Item = &'a T;

    #[inline(always)]
    fn next(&mut self) -> Option<&'a T> {
        self.rows.next(|pattern| pattern.matches(self.envelope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is left of a long list that became short, and keys hold whatever it was meanwhile.
    #[test]
    fn short_long_and_short_again() {
        let mut list = PatternList::default();
        let mut keys = Vec::new();
        for round in 0..3 {
            for bits in 0..40 {
                keys.push((
                    list.push_back(Pattern::new(None, bits, 0), (round, bits)),
                    round,
                    bits,
                ));
            }
            assert!(list.indexed.is_some() && list.rows.len() == 0);
            for (key, round, bits) in &keys {
                assert_eq!(list.get(*key), Some(&(*round, *bits)));
            }
            for (key, round, bits) in keys.drain(3..) {
                assert_eq!(list.remove(key), Some((round, bits)));
                assert_eq!(list.remove(key), None);
            }
            assert!(list.indexed.is_none() && list.rows.len() == 3);
        }
        assert_eq!(
            list.iter().map(|(key, ..)| key).collect::<Vec<_>>(),
            [keys[0].0, keys[1].0, keys[2].0]
        );
        for (key, round, bits) in keys {
            assert_eq!(list.take(Envelope::new(5, bits)), Some((key, (round, bits))));
        }
        assert!(list.is_empty());
    }
}
