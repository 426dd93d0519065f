//! Handles: small values that name something of an interface, and are recognised when it is gone.

use std::{fmt, hash, marker::PhantomData};

/// Names a `K` of one interface: a slot, and how often that slot was used before.
///
/// A handle that outlived what it names gives [`Error::Handle`](crate::Error::Handle).
pub struct Handle<K> {
    index: u32,
    generation: u32,
    kind: PhantomData<fn() -> K>,
}

impl<K> Handle<K> {
    pub(crate) fn new(index: u32, generation: u32) -> Handle<K> {
        Handle { index, generation, kind: PhantomData }
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// Both parts in one number, for logs, and for languages without such types.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The handle with these bits. If it never was one it is stale.
    #[must_use]
    pub fn from_bits(bits: u64) -> Handle<K> {
        Handle::new(bits as u32, (bits >> 32) as u32)
    }
}

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Handle<K> {
        *self
    }
}

impl<K> Copy for Handle<K> {}

impl<K> PartialEq for Handle<K> {
    fn eq(&self, other: &Handle<K>) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl<K> Eq for Handle<K> {}

impl<K> hash::Hash for Handle<K> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.to_bits().hash(state);
    }
}

impl<K> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.index, self.generation)
    }
}

/// What handles name, by slot. Slots are used again, with another generation.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    /// At most so many at a time.
    pub(crate) fn new(limit: usize) -> Table<T> {
        Table { slots: Vec::new(), free: Vec::new(), limit: limit.min(u32::MAX as usize - 1) }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The handle that the next value gets; `None` if the table is full.
    #[inline]
    pub(crate) fn next<K>(&self) -> Option<Handle<K>> {
        match self.free.last() {
            Some(index) => Some(self.handle(*index)),
            None if self.slots.len() >= self.limit => None,
            None => Some(Handle::new(self.slots.len() as u32, 1)),
        }
    }

    /// Puts a value in; `None` if the table is full.
    #[inline]
    pub(crate) fn insert<K>(&mut self, value: T) -> Option<Handle<K>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Some(Handle::new(index, slot.generation))
    }

    /// One more slot; `None` if there are as many as there may be.
    #[cold]
    fn grow(&mut self) -> Option<u32> {
        if self.slots.len() >= self.limit {
            return None;
        }
        // Zero is the generation of handles that never were.
        self.slots.push(Slot { generation: 1, value: None });
        Some(self.slots.len() as u32 - 1)
    }

    #[inline]
    pub(crate) fn get<K>(&self, handle: Handle<K>) -> Option<&T> {
        let slot = self.slots.get(handle.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == handle.generation)
    }

    #[inline]
    pub(crate) fn get_mut<K>(&mut self, handle: Handle<K>) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == handle.generation)
    }

    /// What is in a slot.
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn remove<K>(&mut self, handle: Handle<K>) -> Option<T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        match slot.generation == handle.generation {
            true => self.take(handle.index),
            false => None,
        }
    }

    /// The same for who does not need what it named any more.
    #[inline]
    pub(crate) fn discard<K>(&mut self, handle: Handle<K>) {
        let slot = self.slots.get_mut(handle.index as usize);
        let slot = slot.filter(|slot| slot.generation == handle.generation);
        if let Some(slot) = slot.filter(|slot| slot.value.is_some()) {
            slot.value = None;
            slot.generation = after(slot.generation);
            self.free.push(handle.index);
        }
    }

    /// Takes out what is in a slot.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.generation = after(slot.generation);
        self.free.push(index);
        Some(value)
    }

    /// The handle of what is in a slot.
    pub(crate) fn handle<K>(&self, index: u32) -> Handle<K> {
        Handle::new(index, self.slots[index as usize].generation)
    }

    pub(crate) fn iter<K>(&self) -> impl Iterator<Item = (Handle<K>, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            Some((Handle::new(index as u32, slot.generation), slot.value.as_ref()?))
        })
    }
}

/// The next generation of a slot.
fn after(generation: u32) -> u32 {
    generation.wrapping_add(1).max(1)
}

/// For who keeps indices of slots that are in use: links, chains.
impl<T> std::ops::Index<u32> for Table<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        self.slots[index as usize].value.as_ref().expect("a slot that is linked is in use")
    }
}

impl<T> std::ops::IndexMut<u32> for Table<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].value.as_mut().expect("a slot that is linked is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_handles_are_recognised() {
        let mut table = Table::new(2);
        let a: Handle<u8> = table.insert('a').unwrap();
        let b: Handle<u8> = table.insert('b').unwrap();
        assert!(table.insert::<u8>('c').is_none() && table.next::<u8>().is_none());
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!((table.get(a).is_none(), table.remove(a), table.len()), (true, None, 1));
        let next = table.next();
        let c: Handle<u8> = table.insert('c').unwrap();
        assert_eq!(next, Some(c));
        assert_eq!(c.index(), a.index());
        assert!(c != a && table.get(a).is_none() && table.get(c) == Some(&'c'));
        assert_eq!(Handle::<u8>::from_bits(b.to_bits()), b);
        table.discard(a);
        assert_eq!((table.get(c), table.len()), (Some(&'c'), 2), "it was stale");
        table.discard(c);
        assert_eq!((table.get(c), table.len()), (None, 1));
        for never in [0, u64::MAX, 1 << 32] {
            assert_eq!(table.get(Handle::<u8>::from_bits(never)), None);
        }
    }
}
