//! Handles: small values that name something of an interface. A stale one is recognised.

use std::{
    fmt, hash,
    marker::PhantomData,
    num::{NonZeroU32, NonZeroU64},
    sync::atomic::{AtomicU32, Ordering},
};

/// Names an interface of this process. No two have the same, also not one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(NonZeroU32);

impl InterfaceId {
    /// The owner of tables whose handles no program sees.
    const INTERNAL: InterfaceId = InterfaceId(NonZeroU32::MAX);

    /// A new one; `None` after four thousand million.
    pub(crate) fn new() -> Option<InterfaceId> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let next = |last: u32| last.checked_add(1).filter(|next| *next < u32::MAX);
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        NonZeroU32::new(last + 1).map(InterfaceId)
    }

    /// The stamp of a slot of its tables that was used so often.
    #[inline]
    fn stamp(self, generation: u32) -> NonZeroU64 {
        let stamp = u64::from(self.0.get()) << 32 | u64::from(generation);
        NonZeroU64::new(stamp).unwrap_or(NonZeroU64::MAX)
    }
}

/// Names a `K` of one interface: a slot, and how often that slot was used before.
///
/// Using a handle that outlived what it names gives [`Error::Handle`](crate::Error::Handle), and so
/// does one of another interface.
pub struct Handle<K> {
    index: u32,
    /// The interface, and the generation: one word, so that one comparison is for both.
    stamp: NonZeroU64,
    kind: PhantomData<fn() -> K>,
}

impl<K> Handle<K> {
    fn new(index: u32, stamp: NonZeroU64) -> Handle<K> {
        Handle { index, stamp, kind: PhantomData }
    }

    /// A handle that names nothing.
    pub(crate) fn none() -> Handle<K> {
        Handle::internal(0)
    }

    /// The handle with these bits of a table whose handles no program sees.
    #[inline]
    pub(crate) fn internal(bits: u64) -> Handle<K> {
        Handle::from_bits(InterfaceId::INTERNAL, bits)
    }

    /// The interface that it belongs to.
    #[must_use]
    pub fn interface(self) -> InterfaceId {
        let owner = NonZeroU32::new((self.stamp.get() >> 32) as u32);
        InterfaceId(owner.unwrap_or(NonZeroU32::MAX))
    }

    fn generation(self) -> u32 {
        self.stamp.get() as u32
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// What tells it from all other handles with this index.
    pub(crate) fn stamp(self) -> u64 {
        self.stamp.get()
    }

    /// Slot and generation in one number, for logs, and for languages without such types. The
    /// interface is not in it.
    #[must_use]
    #[inline]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation()) << 32 | u64::from(self.index)
    }

    /// The handle of an interface with these bits. Bits that never were a handle give a stale one.
    #[must_use]
    #[inline]
    pub fn from_bits(interface: InterfaceId, bits: u64) -> Handle<K> {
        Handle::new(bits as u32, interface.stamp((bits >> 32) as u32))
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
        (self.index, self.stamp) == (other.index, other.stamp)
    }
}

impl<K> Eq for Handle<K> {}

impl<K> hash::Hash for Handle<K> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        (self.index, self.stamp).hash(state);
    }
}

impl<K> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.index, self.generation())
    }
}

/// An event queue of a bounded length. When it is full, the oldest events are overwritten, and the
/// next event that is taken says how many were lost ([`Taken::lost`](crate::Taken::lost)).
///
/// With flow control, slots are set aside for events that must not be lost: the end of an operation
/// whose data is being moved, and that a portal was disabled.
///
/// ```
/// # use petasos_portals::{ProcessMap, Config, Interface};
/// # use petasos_fabric::Endpoint;
/// # use std::sync::Arc;
/// use petasos_portals::{Event, List, MatchEntry, Error, PortalOptions};
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// let queue = interface.queue(2)?;
/// let portal = interface.portal(PortalOptions { queue: Some(queue), ..Default::default() })?;
/// for user_data in 1..=3 {
///     let entry = MatchEntry { user_data, ..MatchEntry::new(vec![0; 8]) };
///     interface.append(portal, List::Priority, entry)?;
/// }
/// // The event of the first entry was overwritten.
/// let taken = interface.take_event(queue)?;
/// let Event::Link(linked) = taken.event else { panic!() };
/// assert_eq!((linked.user_data, taken.lost, taken.sequence), (2, 1, 2));
/// interface.take_event(queue)?;
/// assert_eq!(interface.take_event(queue).unwrap_err(), Error::Empty);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum EventQueue {}

/// A counter of events (a counting event), and actions that wait until it reaches a number. Both
/// counts wrap.
///
/// ```
/// # use petasos_portals::{ProcessMap, Config};
/// # use petasos_fabric::Endpoint;
/// # use std::sync::Arc;
/// use petasos_portals::{Action, Count, Interface};
/// use std::time::Duration;
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// let (arrivals, next) = (interface.counter()?, interface.counter()?);
/// // As soon as three have come, the other counter is increased, without the program's part.
/// interface.trigger(arrivals, 3, Action::Add(next, Count::of(1)))?;
/// for _ in 0..3 {
///     interface.add(arrivals, Count::of(1))?;
/// }
/// let count = interface.wait_count(next, 1, Duration::from_secs(1))?;
/// assert_eq!(count, Count::of(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Counter {}

/// The values that handles name, by slot. Slots are used again, with another generation.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    limit: usize,
    owner: InterfaceId,
}

#[derive(Debug)]
struct Slot<T> {
    stamp: NonZeroU64,
    value: Option<T>,
}

impl<T> Table<T> {
    /// A table for so many values, whose handles no program sees.
    pub(crate) fn new(limit: usize) -> Table<T> {
        Table::of(InterfaceId::INTERNAL, limit)
    }

    /// A table of an interface.
    pub(crate) fn of(owner: InterfaceId, limit: usize) -> Table<T> {
        let limit = limit.min(u32::MAX as usize - 1);
        Table { slots: Vec::new(), free: Vec::new(), limit, owner }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many values there can be.
    pub(crate) fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// The handle that the next value gets; `None` if the table is full.
    #[inline]
    pub(crate) fn next<K>(&self) -> Option<Handle<K>> {
        match self.free.last() {
            Some(index) => Some(self.handle(*index)),
            None if self.slots.len() >= self.limit => None,
            None => Some(Handle::new(self.slots.len() as u32, self.owner.stamp(1))),
        }
    }

    /// Inserts a value; `None` if the table is full.
    #[inline]
    pub(crate) fn insert<K>(&mut self, value: T) -> Option<Handle<K>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Some(Handle::new(index, slot.stamp))
    }

    /// One more slot; `None` if there are as many as there may be.
    #[cold]
    fn grow(&mut self) -> Option<u32> {
        if self.slots.len() >= self.limit {
            return None;
        }
        // Zero is the generation of handles that name nothing.
        self.slots.push(Slot { stamp: self.owner.stamp(1), value: None });
        Some(self.slots.len() as u32 - 1)
    }

    #[inline]
    pub(crate) fn get<K>(&self, handle: Handle<K>) -> Option<&T> {
        let slot = self.slots.get(handle.index as usize)?;
        slot.value.as_ref().filter(|_| slot.stamp == handle.stamp)
    }

    #[inline]
    pub(crate) fn get_mut<K>(&mut self, handle: Handle<K>) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        slot.value.as_mut().filter(|_| slot.stamp == handle.stamp)
    }

    /// The value of a slot.
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn remove<K>(&mut self, handle: Handle<K>) -> Option<T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        match slot.stamp == handle.stamp {
            true => self.take(handle.index),
            false => None,
        }
    }

    /// Removes a value, of which only a part is needed any more, where it lies.
    #[inline]
    pub(crate) fn discard<K, R>(
        &mut self,
        handle: Handle<K>,
        keep: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.stamp != handle.stamp {
            return None;
        }
        let kept = keep(slot.value.as_ref()?);
        slot.value = None;
        slot.stamp = after(slot.stamp);
        self.free.push(handle.index);
        Some(kept)
    }

    /// Removes the value of a slot.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.stamp = after(slot.stamp);
        self.free.push(index);
        Some(value)
    }

    /// The handle of a slot's value.
    pub(crate) fn handle<K>(&self, index: u32) -> Handle<K> {
        Handle::new(index, self.slots[index as usize].stamp)
    }

    pub(crate) fn iter<K>(&self) -> impl Iterator<Item = (Handle<K>, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            Some((Handle::new(index as u32, slot.stamp), slot.value.as_ref()?))
        })
    }
}

/// The next generation of a slot.
fn after(stamp: NonZeroU64) -> NonZeroU64 {
    let generation = (stamp.get() as u32).wrapping_add(1).max(1);
    let owner = stamp.get() & !u64::from(u32::MAX);
    NonZeroU64::new(owner | u64::from(generation)).unwrap_or(NonZeroU64::MAX)
}

/// For code that keeps indices of slots that are in use: links, chains.
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
        assert_eq!(Handle::<u8>::internal(b.to_bits()), b);
        assert_eq!(table.discard(a, |value| *value), None, "it was stale");
        assert_eq!((table.get(c), table.len()), (Some(&'c'), 2));
        assert_eq!(table.discard(c, |value| *value), Some('c'));
        assert_eq!((table.get(c), table.len()), (None, 1));
        for never in [0, u64::MAX, 1 << 32] {
            assert_eq!(table.get(Handle::<u8>::internal(never)), None);
        }
    }

    #[test]
    fn each_interface_has_handles_of_its_own() {
        let owners = [(); 2].map(|()| InterfaceId::new().unwrap());
        let mut tables = owners.map(|owner| Table::of(owner, 2));
        let handles: [Handle<u8>; 2] = [0, 1].map(|at| tables[at].insert(at).unwrap());
        assert!(handles[0] != handles[1] && handles[0].to_bits() == handles[1].to_bits());
        for (at, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.interface(), owners[at]);
            assert_eq!(Handle::from_bits(owners[at], handle.to_bits()), handle);
            assert_eq!(tables[at].get(handle), Some(&at));
            let other = &mut tables[1 - at];
            assert_eq!(other.get(handle), None);
            assert_eq!(other.get_mut(handle), None);
            assert_eq!(other.remove(handle), None);
            assert_eq!(other.discard(handle, |value| *value), None);
            assert_eq!(other.len(), 1);
        }
        // A generation that comes round stays with its interface.
        let last = owners[0].stamp(u32::MAX);
        assert_eq!(after(last), owners[0].stamp(1));
        assert!(Handle::<u8>::none() != handles[0]);
    }
}
