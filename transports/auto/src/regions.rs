//! The regions of an endpoint and the keys to parts of them: their numbers here and at each member,
//! and how far they are closed.

use petasos_fabric::{Done, Event, KeyId, OpError, OpErrorKind, RegionId, Token};
use std::collections::{HashMap, HashSet};

/// Regions and keys by their numbers here, and their numbers at the members.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    regions: Table<RegionId>,
    ours: HashMap<(usize, RegionId), RegionId>,
    keys: Table<KeyId>,
    /// The keys to parts of a region, of those that have some.
    parts: HashMap<RegionId, HashSet<KeyId>>,
}

/// The number of a region or a key.
pub(crate) trait Number: Copy {
    fn new(index: u32, generation: u32) -> Self;
    /// Index and generation.
    fn split(self) -> (u32, u32);
}

impl Number for RegionId {
    fn new(index: u32, generation: u32) -> RegionId {
        RegionId { index, generation }
    }

    fn split(self) -> (u32, u32) {
        (self.index, self.generation)
    }
}

impl Number for KeyId {
    fn new(index: u32, generation: u32) -> KeyId {
        KeyId { index, generation }
    }

    fn split(self) -> (u32, u32) {
        (self.index, self.generation)
    }
}

/// What members have under numbers of their own.
#[derive(Debug)]
struct Table<N> {
    slots: Vec<(u32, Option<Entry<N>>)>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<N> {
    /// With each member.
    there: Vec<N>,
    /// For a key: of which region.
    region: Option<RegionId>,
    /// It is being closed: by which operation, at how many members still, and what went wrong.
    closing: Option<(Token, usize, Option<OpError>)>,
    /// The members that have closed it.
    closed: Vec<usize>,
}

impl<N> Default for Table<N> {
    fn default() -> Table<N> {
        Table { slots: Vec::new(), free: Vec::new() }
    }
}

impl<N: Number> Table<N> {
    fn get(&self, number: N) -> Option<&Entry<N>> {
        let (index, generation) = number.split();
        let (current, slot) = self.slots.get(index as usize)?;
        slot.as_ref().filter(|_| *current == generation)
    }

    fn get_mut(&mut self, number: N) -> Option<&mut Entry<N>> {
        let (index, generation) = number.split();
        let (current, slot) = self.slots.get_mut(index as usize)?;
        slot.as_mut().filter(|_| *current == generation)
    }

    fn add(&mut self, there: Vec<N>, region: Option<RegionId>) -> N {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, slot) = &mut self.slots[index as usize];
        *slot = Some(Entry { there, region, closing: None, closed: Vec::new() });
        N::new(index, *generation)
    }

    fn remove(&mut self, number: N) -> Option<Entry<N>> {
        self.get(number)?;
        let (index, _) = number.split();
        let (generation, slot) = &mut self.slots[index as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(index);
        slot.take()
    }

    /// Begins to close it for this operation. Returns the members that have not closed it yet, with
    /// their numbers; `None` if there is none, or it is being closed already.
    fn close(&mut self, token: Token, number: N) -> Option<Vec<(usize, N)>> {
        let entry = self.get_mut(number).filter(|entry| entry.closing.is_none())?;
        let there = entry.there.iter().copied().enumerate();
        let open: Vec<_> = there.filter(|(member, _)| !entry.closed.contains(member)).collect();
        entry.closing = Some((token, open.len(), None));
        Some(open)
    }

    /// A member has closed it, or has not, because the memory may still be reached over it. Returns
    /// the token and what went wrong when all members have answered.
    fn closed(
        &mut self,
        number: N,
        member: usize,
        result: Result<Done, OpError>,
    ) -> Option<(Token, Option<OpError>)> {
        let entry = self.get_mut(number)?;
        let (token, left, worst) = entry.closing.as_mut()?;
        *left -= 1;
        let held = result.as_ref().is_err_and(is_reached);
        if let Err(found) = result
            && (held || worst.is_none())
        {
            *worst = Some(found);
        }
        if !held {
            entry.closed.push(member);
        }
        if *left > 0 {
            return None;
        }
        let token = *token;
        let (.., error) = entry.closing.take()?;
        Some((token, error))
    }
}

fn is_reached(error: &OpError) -> bool {
    error.kind == OpErrorKind::StillReached
}

impl Regions {
    /// Adds a region, which all members have registered.
    pub(crate) fn add(&mut self, there: Vec<RegionId>) -> RegionId {
        let numbers: Vec<_> = there.iter().copied().enumerate().collect();
        let region = self.regions.add(there, None);
        self.ours.extend(numbers.into_iter().map(|there| (there, region)));
        region
    }

    /// Adds a key to a part of a region, which all members have made.
    pub(crate) fn add_key(&mut self, region: RegionId, there: Vec<KeyId>) -> KeyId {
        let key = self.keys.add(there, Some(region));
        self.parts.entry(region).or_default().insert(key);
        key
    }

    /// Our number of a member's region.
    pub(crate) fn ours(&self, member: usize, region: RegionId) -> Option<RegionId> {
        self.ours.get(&(member, region)).copied()
    }

    /// The members' numbers of a region.
    pub(crate) fn of_members(&self, region: RegionId) -> Option<&[RegionId]> {
        self.regions.get(region).map(|entry| &entry.there[..])
    }

    /// Begins to close a region for this operation. Returns the members that have not closed it
    /// yet, with their numbers; `None` if there is no such region, or it is being closed already.
    pub(crate) fn close(
        &mut self,
        token: Token,
        region: RegionId,
    ) -> Option<Vec<(usize, RegionId)>> {
        self.regions.close(token, region)
    }

    /// The same for a key to a part.
    pub(crate) fn revoke(&mut self, token: Token, key: KeyId) -> Option<Vec<(usize, KeyId)>> {
        self.keys.close(token, key)
    }

    /// A member has closed its registration, or has not, because the memory may still be reached
    /// over it. Returns the completion when all members have answered.
    pub(crate) fn closed(
        &mut self,
        region: RegionId,
        member: usize,
        result: Result<Done, OpError>,
    ) -> Option<Event> {
        let (token, error) = self.regions.closed(region, member, result)?;
        if !error.as_ref().is_some_and(is_reached) {
            self.remove(region);
        }
        let result = error.map_or(Ok(Done::Deregistered), Err);
        Some(Event::Done { token, result })
    }

    /// The same for a key to a part.
    pub(crate) fn revoked(
        &mut self,
        key: KeyId,
        member: usize,
        result: Result<Done, OpError>,
    ) -> Option<Event> {
        let (token, error) = self.keys.closed(key, member, result)?;
        let region = self.keys.get(key).and_then(|entry| entry.region);
        let ended = region.is_none_or(|region| self.regions.get(region).is_none());
        if ended || !error.as_ref().is_some_and(is_reached) {
            self.remove_key(key);
        }
        let result = error.map_or(Ok(Done::Revoked), Err);
        Some(Event::Done { token, result })
    }

    fn remove_key(&mut self, key: KeyId) {
        let region = self.keys.remove(key).and_then(|entry| entry.region);
        let Some(region) = region else { return };
        let Some(keys) = self.parts.get_mut(&region) else { return };
        keys.remove(&key);
        if keys.is_empty() {
            self.parts.remove(&region);
        }
    }

    /// Forgets a region that all members have closed, and the keys to its parts. One that is being
    /// revoked is forgotten when the members have answered.
    fn remove(&mut self, region: RegionId) {
        let Some(entry) = self.regions.remove(region) else { return };
        for (member, id) in entry.there.iter().enumerate() {
            self.ours.remove(&(member, *id));
        }
        for key in self.parts.remove(&region).unwrap_or_default() {
            if self.keys.get(key).is_some_and(|entry| entry.closing.is_none()) {
                self.keys.remove(key);
            }
        }
    }
}
