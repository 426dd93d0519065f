//! A short list: everything lies in one array, in order, and is scanned.

use crate::nodes::Key;
use std::slice;

/// A pattern or an envelope, and the value that belongs to it.
#[derive(Debug)]
pub(crate) struct Row<K, T> {
    pub(crate) matched: K,
    pub(crate) key: Key,
    pub(crate) value: T,
}

/// Most rows are appended at the end, and removed at the front: then no other row is moved.
#[derive(Debug)]
pub(crate) struct Rows<K, T> {
    /// The values of those before `begin` were removed, and no others.
    all: Vec<Row<K, Option<T>>>,
    begin: usize,
}

impl<K, T> Default for Rows<K, T> {
    fn default() -> Rows<K, T> {
        Rows { all: Vec::new(), begin: 0 }
    }
}

impl<K: Copy, T> Rows<K, T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.begin
    }

    #[inline(always)]
    fn live(&self) -> &[Row<K, Option<T>>] {
        self.all.get(self.begin..).unwrap_or_default()
    }

    #[inline(never)]
    fn live_behind(&self) -> &[Row<K, Option<T>>] {
        self.live()
    }

    #[inline]
    pub(crate) fn push_back(&mut self, row: Row<K, T>) {
        // Rather than that the array grows, what was removed makes room, if it is half of it.
        if self.all.len() == self.all.capacity() && self.begin * 2 > self.all.len() {
            self.all.drain(..self.begin);
            self.begin = 0;
        }
        self.all.push(row.into_option());
    }

    /// Inserts a row before the one at `at`, or at the end.
    pub(crate) fn insert(&mut self, at: usize, row: Row<K, T>) {
        if at == 0 && self.begin > 0 {
            self.begin -= 1;
            self.all[self.begin] = row.into_option();
        } else {
            self.all.insert(self.begin + at, row.into_option());
        }
    }

    /// Removes the row at `at`, if there is one.
    #[inline]
    pub(crate) fn remove(&mut self, at: usize) -> Option<Row<K, T>> {
        if at > 0 {
            return self.remove_within(at);
        }
        let row = self.all.get_mut(self.begin)?;
        let row = Row { matched: row.matched, key: row.key, value: row.value.take()? };
        self.begin += 1;
        if self.begin == self.all.len() {
            self.all.clear();
            self.begin = 0;
        }
        Some(row)
    }

    fn remove_within(&mut self, at: usize) -> Option<Row<K, T>> {
        let at = self.begin + at;
        if at >= self.all.len() {
            return None;
        }
        let Row { matched, key, value } = self.all.remove(at);
        Some(Row { matched, key, value: value? })
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<(Key, &T)> {
        let row = self.live().get(at)?;
        Some((row.key, row.value.as_ref()?))
    }

    /// Where the first row is with a pattern or an envelope that `takes` takes.
    #[inline(always)]
    pub(crate) fn position(&self, takes: impl Fn(&K) -> bool) -> Option<usize> {
        self.live().iter().position(|row| takes(&row.matched))
    }

    /// Where the row with this key is.
    #[inline]
    pub(crate) fn position_of(&self, key: Key) -> Option<usize> {
        self.live().iter().position(|row| row.key == key)
    }

    #[inline(always)]
    pub(crate) fn scan(&self) -> RowScan<'_, K, T> {
        // Where nothing was removed at the front, no address is computed.
        let rows = if self.begin == 0 { &self.all[..] } else { self.live_behind() };
        RowScan { rows: rows.iter() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &K, &T)> {
        self.live().iter().filter_map(|row| Some((row.key, &row.matched, row.value.as_ref()?)))
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(K, &mut T) -> bool) {
        self.begin = 0;
        self.all.retain_mut(|row| row.value.as_mut().is_some_and(|value| keep(row.matched, value)));
    }

    /// Takes all rows out. Their array stays.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Row<K, T>> {
        self.begin = 0;
        self.all.drain(..).filter_map(|row| {
            let Row { matched, key, value } = row;
            Some(Row { matched, key, value: value? })
        })
    }
}

impl<K, T> Row<K, T> {
    #[inline]
    fn into_option(self) -> Row<K, Option<T>> {
        let Row { matched, key, value } = self;
        Row { matched, key, value: Some(value) }
    }
}

/// Rows from the front, one after the other.
#[derive(Debug)]
pub(crate) struct RowScan<'a, K, T> {
    rows: slice::Iter<'a, Row<K, Option<T>>>,
}

impl<'a, K, T> RowScan<'a, K, T> {
    /// The next one with a pattern or an envelope that `takes` takes.
    #[inline(always)]
    pub(crate) fn next(&mut self, takes: impl Fn(&K) -> bool) -> Option<&'a T> {
        for row in self.rows.by_ref() {
            if takes(&row.matched) {
                return row.value.as_ref();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Stamps;
    use std::collections::VecDeque;

    /// Beside a plain deque, in and out at the front, at the end and within.
    #[test]
    fn rows_do_what_a_deque_does() {
        let (mut rows, mut model) = (Rows::default(), VecDeque::new());
        let mut stamps = Stamps::default();
        let mut random = 1_u64;
        for step in 0..20_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let drawn = random >> 33;
            let at = (drawn >> 4) as usize % (model.len() + 1);
            let row = Row { matched: step, key: Key::without_slot(stamps.next()), value: step };
            match drawn % 16 {
                0..5 if model.len() < 20 => {
                    model.push_back(step);
                    rows.push_back(row);
                }
                5 => {
                    model.insert(at, step);
                    rows.insert(at, row);
                }
                6 => {
                    model.push_front(step);
                    rows.insert(0, row);
                }
                7 => {
                    let removed = rows.remove(at).map(|row| (row.matched, row.value));
                    assert_eq!(removed, model.remove(at).map(|value| (value, value)));
                }
                8 => {
                    let keep = |value: u64| !value.is_multiple_of(5);
                    rows.retain(|matched, value| keep(matched) && keep(*value));
                    model.retain(|value| keep(*value));
                }
                _ => assert_eq!(rows.remove(0).map(|row| row.value), model.pop_front()),
            }
            assert!(rows.iter().map(|(_, _, value)| *value).eq(model.iter().copied()));
            assert!(rows.len() == model.len() && rows.all.capacity() <= 128);
            let wanted = model.get(at).copied().unwrap_or(u64::MAX);
            let found = rows.position(|matched| *matched == wanted);
            assert_eq!(found, model.iter().position(|value| *value == wanted));
            assert_eq!(
                rows.scan().next(|matched| *matched == wanted).copied(),
                model.get(at).copied()
            );
        }
        assert!(rows.drain().map(|row| row.value).eq(model) && rows.len() == 0);
    }
}
