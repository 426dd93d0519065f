//! The registered regions of this endpoint, and the keys that it imported.

use super::header::{Status, Target};
use crate::{
    Access, ImportError, Key, Peer, RegionId, RegisterError, Remote, Slice, Time, Token,
    key::KeyParts,
};
use std::time::Duration;

/// A key that was imported, as a transport with routes of its own needs to see it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The owner.
    pub peer: Peer,
    /// All that the key says.
    pub parts: KeyParts,
    pub(super) target: Option<Target>,
}

/// A table whose handles are a slot and a generation.
#[derive(Debug)]
struct Table<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    limit: usize,
}

impl<T> Table<T> {
    fn new(limit: usize) -> Table<T> {
        let (slots, free) = (Vec::new(), Vec::new());
        Table { slots, free, limit }
    }

    fn insert(&mut self, value: T) -> Option<(u32, u32)> {
        if self.slots.len() - self.free.len() >= self.limit {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(value);
        Some((index, slot.0))
    }

    fn get(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        slot.1.as_ref().filter(|_| slot.0 == generation)
    }

    fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        slot.1.as_mut().filter(|_| slot.0 == generation)
    }

    fn remove(&mut self, index: u32, generation: u32) -> Option<T> {
        self.get(index, generation)?;
        let slot = &mut self.slots[index as usize];
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(index);
        slot.1.take()
    }
}

/// The regions that peers may reach.
#[derive(Debug)]
pub(super) struct Regions {
    table: Table<Registered>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) memory: Slice,
    pub(super) access: Access,
    secret: u64,
    /// Fragments that are being placed in it, or read from it.
    busy: u32,
    state: State,
}

/// Whether accesses begin in a region, and whether its end is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// No access begins any more. What has begun goes on, and the memory is held.
    Shut,
    /// The same, and this operation completes when the last access has ended.
    Closing(Token),
}

/// A region whose end an operation waits for.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    region: RegionId,
    patience: Duration,
    /// Known once the time was first given.
    until: Option<Time>,
}

impl Regions {
    pub(super) fn new(limit: usize) -> Regions {
        Regions { table: Table::new(limit), waiting: Vec::new() }
    }

    pub(super) fn register(
        &mut self,
        memory: &Slice,
        access: Access,
    ) -> Result<RegionId, RegisterError> {
        let writes = access.allows(Access::WRITE) || access.allows(Access::ATOMIC);
        if writes && !memory.is_writable() {
            return Err(RegisterError::ReadOnly);
        }
        if access.allows(Access::ATOMIC) && memory.device().is_some() {
            return Err(RegisterError::DeviceAtomics);
        }
        let secret = getrandom::u64().map_err(|e| RegisterError::System(e.to_string()))?;
        let entry =
            Registered { memory: memory.clone(), access, secret, busy: 0, state: State::Open };
        let limit = self.table.limit;
        let (index, generation) =
            self.table.insert(entry).ok_or(RegisterError::TooMany { limit })?;
        Ok(RegionId { index, generation })
    }

    /// A region that is open.
    pub(super) fn get(&self, id: RegionId) -> Option<&Registered> {
        let entry = self.table.get(id.index, id.generation)?;
        (entry.state == State::Open).then_some(entry)
    }

    /// What a key says of it.
    pub(super) fn target(&self, id: RegionId) -> Option<Target> {
        let secret = self.get(id)?.secret;
        Some(Target { slot: id.index, generation: id.generation, secret })
    }

    /// Checks an access by a peer, and gives the memory.
    pub(super) fn check(
        &self,
        target: Target,
        needed: Access,
        offset: u64,
        len: u64,
    ) -> Result<(RegionId, Slice), Status> {
        let id = RegionId { index: target.slot, generation: target.generation };
        let entry = self.get(id).ok_or(Status::Stale)?;
        if entry.secret != target.secret {
            return Err(Status::Stale);
        }
        if !entry.access.allows(needed) {
            return Err(Status::Denied);
        }
        let part = |offset: u64, len: u64| {
            let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
            entry.memory.part(offset, len)
        };
        Ok((id, part(offset, len).ok_or(Status::OutOfBounds)?))
    }

    /// A fragment begins to be placed, or to be read.
    pub(super) fn hold(&mut self, id: RegionId) {
        if let Some(entry) = self.table.get_mut(id.index, id.generation) {
            entry.busy += 1;
        }
    }

    /// It ended: the token of the deregistration that this completes, if it does.
    pub(super) fn unhold(&mut self, id: RegionId) -> Option<Token> {
        let entry = self.table.get_mut(id.index, id.generation)?;
        entry.busy -= 1;
        let State::Closing(token) = entry.state else { return None };
        if entry.busy > 0 {
            return None;
        }
        self.table.remove(id.index, id.generation);
        self.waiting.retain(|waiting| waiting.region != id);
        Some(token)
    }

    /// No access begins from now on. False if the region is not open.
    pub(super) fn shut(&mut self, id: RegionId) -> bool {
        let entry = self.table.get_mut(id.index, id.generation);
        let Some(entry) = entry.filter(|entry| entry.state == State::Open) else { return false };
        entry.state = State::Shut;
        true
    }

    /// Whether no access begins in a region any more, and its memory is still held.
    pub(super) fn is_shut(&self, id: RegionId) -> bool {
        let entry = self.table.get(id.index, id.generation);
        entry.is_some_and(|entry| entry.state != State::Open)
    }

    /// Begins to deregister. `None`: there is no such region, or it is being deregistered already;
    /// `Some(true)`: done at once.
    pub(super) fn close(&mut self, id: RegionId, token: Token, patience: Duration) -> Option<bool> {
        let entry = self.table.get_mut(id.index, id.generation)?;
        if matches!(entry.state, State::Closing(_)) {
            return None;
        }
        if entry.busy == 0 {
            self.table.remove(id.index, id.generation);
            return Some(true);
        }
        entry.state = State::Closing(token);
        self.waiting.push(Waiting { region: id, patience, until: None });
        Some(false)
    }

    /// Whether the end of a region is awaited.
    #[inline]
    pub(super) fn are_closing(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When the first patience is over, as far as that is known.
    pub(super) fn deadline(&self) -> Time {
        let first = self.waiting.iter().map(|waiting| waiting.until.unwrap_or(Time::ZERO)).min();
        first.unwrap_or(Time::NEVER)
    }

    /// A region whose deregistration has run out of patience, and the token of that. It stays shut.
    pub(super) fn overdue(&mut self, now: Time) -> Option<(RegionId, Token)> {
        for waiting in &mut self.waiting {
            waiting.until.get_or_insert(now.after(waiting.patience));
        }
        let at = self.waiting.iter().position(|w| w.until.is_some_and(|until| until <= now))?;
        let id = self.waiting.swap_remove(at).region;
        let entry = self.table.get_mut(id.index, id.generation)?;
        let State::Closing(token) = std::mem::replace(&mut entry.state, State::Shut) else {
            return None;
        };
        Some((id, token))
    }
}

/// Imported keys.
#[derive(Debug)]
pub(super) struct Imports(Table<Imported>);

impl Imports {
    pub(super) fn new(limit: usize) -> Imports {
        Imports(Table::new(limit))
    }

    pub(super) fn insert(&mut self, parts: KeyParts, peer: Peer) -> Result<Remote, ImportError> {
        let target = match parts.route(Key::ROUTE_TWO_SIDED) {
            None => None,
            Some(route) => Some(Target::from_bytes(route).ok_or(ImportError::Malformed(
                "the route through the two-sided engine has another length",
            ))?),
        };
        let (len, limit) = (parts.len, self.0.limit);
        let entry = Imported { peer, parts, target };
        let (index, generation) = self.0.insert(entry).ok_or(ImportError::TooMany { limit })?;
        Ok(Remote { index, generation, peer, len })
    }

    pub(super) fn get(&self, remote: Remote) -> Option<&Imported> {
        let entry = self.0.get(remote.index, remote.generation)?;
        (entry.peer == remote.peer).then_some(entry)
    }

    pub(super) fn remove(&mut self, remote: Remote) {
        if self.get(remote).is_some() {
            self.0.remove(remote.index, remote.generation);
        }
    }
}
