//! The memory of a NIC's user that nodes reach; that of programs is in [`super::exposures`].
//!
//! Nodes write by packets, which this NIC checks and carries out, and read by the library where
//! that can. So the library opens memory for reading alone, and not before it is registered here
//! for that.
//!
//! A node that is lost may still have a read under way, and not every library tolerates one of
//! memory that is closed. So what was open when a node was lost is closed later, after
//! [`Config::mourning`](crate::Config::mourning).

use petasos_channel::{
    device::{Fault, Registration, RemoteKey},
    immediate::{NAME, Name, Opened, name, named},
};
use petasos_fabric::{Access, Slice, Time};
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// Before the library's location in a key: the memory's name and length.
const BEFORE: usize = NAME + 8;

/// A key, decoded.
pub(super) struct Location<'k> {
    pub(super) name: Name,
    /// In bytes.
    pub(super) len: u64,
    /// For the library; empty if it does not read the memory.
    pub(super) place: &'k [u8],
}

impl Location<'_> {
    pub(super) fn encode(&self) -> Option<RemoteKey> {
        RemoteKey::new(&[&self.name[..], &self.len.to_le_bytes(), self.place].concat())
    }

    /// `None` if the key is none of a NIC's.
    pub(super) fn decode(key: &RemoteKey) -> Option<Location<'_>> {
        let (name, rest) = key.as_bytes().split_first_chunk()?;
        let (len, place) = rest.split_first_chunk()?;
        Some(Location { name: *name, len: u64::from_le_bytes(*len), place })
    }
}

/// One registration, with what the library opened for it.
struct Entry<O> {
    opened: Opened,
    exposed: Option<O>,
    since: u64,
}

/// What is closed when its time has come, and its memory.
struct Mourned<O> {
    until: Time,
    /// Closed when it is dropped.
    _exposed: O,
    memory: Slice,
}

/// All of them.
pub(super) struct Registrations<O> {
    list: HashMap<Registration, Entry<O>>,
    most: usize,
    next: u64,
    /// When a node was last lost, and how many registrations there had been by then.
    loss: Option<(Time, u64)>,
    /// What is closed later, by its time.
    mourned: VecDeque<Mourned<O>>,
    mourning: Duration,
}

impl<O> Registrations<O> {
    pub(super) fn new(most: usize, mourning: Duration) -> Registrations<O> {
        let (list, mourned) = (HashMap::new(), VecDeque::new());
        Registrations { list, most, next: 0, loss: None, mourned, mourning }
    }

    /// The most there may be.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= self.most
    }

    /// A number for a registration, which no other has.
    pub(super) fn number(&mut self) -> Registration {
        self.next += 1;
        Registration(self.next)
    }

    /// Adds memory, which the library has opened for reading where it can. Returns the registration
    /// and its key.
    pub(super) fn add(
        &mut self,
        opened: Opened,
        exposed: Option<(O, Vec<u8>)>,
    ) -> Option<(Registration, RemoteKey)> {
        let registration = self.number();
        let (name, len) = (name(registration, opened.secret), opened.memory.len() as u64);
        let whole = exposed.as_ref().map_or(&[][..], |(_, place)| place);
        // A location that is too long for a key: then this NIC sends what is read.
        let place = if BEFORE + whole.len() <= RemoteKey::MAX { whole } else { &[] };
        let key = Location { name, len, place }.encode()?;
        let is_read = !place.is_empty();
        let exposed = exposed.filter(|_| is_read).map(|(exposed, _)| exposed);
        self.list.insert(registration, Entry { opened, exposed, since: self.next });
        Some((registration, key))
    }

    /// Takes a registration out. True if the library is to close its memory now.
    pub(super) fn remove(&mut self, registration: Registration, now: Time) -> bool {
        let Some(Entry { exposed: Some(exposed), since, opened }) = self.list.remove(&registration)
        else {
            return false;
        };
        if let Some((at, before)) = self.loss
            && since <= before
            && at.after(self.mourning) > now
        {
            let (until, memory) = (at.after(self.mourning), opened.memory);
            self.mourned.push_back(Mourned { until, _exposed: exposed, memory });
            return false;
        }
        true
    }

    /// A node was lost that may be reading.
    pub(super) fn note_loss(&mut self, now: Time) {
        self.loss = Some((now, self.next));
    }

    /// Takes out what is to be closed now. True if there was anything.
    #[inline]
    pub(super) fn end_mourning(&mut self, now: Time) -> bool {
        if self.mourned.is_empty() {
            return false;
        }
        let before = self.mourned.len();
        while self.mourned.front().is_some_and(|first| first.until <= now) {
            self.mourned.pop_front();
        }
        self.mourned.len() < before
    }

    /// When that is to be called next.
    pub(super) fn until(&self) -> Time {
        self.mourned.front().map_or(Time::NEVER, |first| first.until)
    }

    /// Whether some of this memory is still open, though its registration is closed.
    pub(super) fn holds(&self, memory: &Slice) -> bool {
        self.mourned.iter().any(|mourned| mourned.memory.overlaps(memory))
    }

    /// What a node names.
    #[inline]
    pub(super) fn named(&self, name: Name) -> Result<(&Opened, u64), Fault> {
        let (registration, secret) = named(name);
        let entry = self.list.get(&registration).ok_or(Fault::Stale)?;
        Ok((&entry.opened, secret))
    }

    /// A part of memory that a node names, to be read.
    pub(super) fn readable(&self, name: Name, offset: u64, len: u64) -> Result<Slice, Fault> {
        let (opened, secret) = self.named(name)?;
        let len = usize::try_from(len).map_err(|_| Fault::OutOfBounds)?;
        opened.part(secret, offset, len, Access::READ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::Region;
    use std::rc::Rc;

    fn opened() -> Opened {
        Opened { memory: Region::zeroed(10).whole(), access: Access::READ, tag: 0, secret: 5 }
    }

    #[test]
    fn keys_say_where_the_memory_is() {
        let mut list: Registrations<()> = Registrations::new(2, Duration::ZERO);
        let long = vec![1; RemoteKey::MAX];
        for (place, said) in [(vec![1, 2], 2), (long, 0)] {
            let (registration, key) = list.add(opened(), Some(((), place))).unwrap();
            let location = Location::decode(&key).unwrap();
            assert_eq!((location.len, location.place.len()), (10, said));
            assert!(list.readable(location.name, 2, 8).is_ok());
            assert_eq!(list.readable(location.name, 3, 8).unwrap_err(), Fault::OutOfBounds);
            let other = name(registration, 6);
            assert_eq!(list.readable(other, 0, 1).unwrap_err(), Fault::Stale);
            list.remove(registration, Time::ZERO);
            assert_eq!(list.readable(location.name, 2, 8).unwrap_err(), Fault::Stale);
        }
        assert!(Location::decode(&RemoteKey::new(&[0; BEFORE - 1]).unwrap()).is_none());
    }

    /// What was open when a node was lost stays open for a while, and nothing else does.
    #[test]
    fn memory_is_mourned() {
        let second = |seconds: u64| Time(seconds * 1_000_000_000);
        let mut list = Registrations::new(9, Duration::from_secs(10));
        let exposed: Vec<Rc<()>> = (0..4).map(|_| Rc::default()).collect();
        let is_open = |at: usize| Rc::strong_count(&exposed[at]) > 1;
        let add = |at: usize, list: &mut Registrations<Rc<()>>| {
            list.add(opened(), Some((exposed[at].clone(), vec![1]))).unwrap().0
        };
        let (before, kept, late) = (add(0, &mut list), add(1, &mut list), add(2, &mut list));
        assert!(list.remove(before, second(1)) && !is_open(0));
        list.note_loss(second(2));
        let after = add(3, &mut list);
        assert!(list.remove(after, second(3)) && !is_open(3));
        let memory = list.list[&kept].opened.memory.clone();
        assert!(!list.holds(&memory));
        assert!(!list.remove(kept, second(3)) && is_open(1) && list.holds(&memory));
        assert!(!list.end_mourning(second(11)) && list.until() == second(12));
        assert!(list.end_mourning(second(12)) && !is_open(1) && !list.holds(&memory));
        assert!(list.remove(late, second(12)) && !is_open(2));
    }
}
