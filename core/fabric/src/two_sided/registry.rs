//! The registered regions of this endpoint, and the keys that it imported.

use super::{
    header::{Status, Target},
    parts::Parts,
};
use crate::{
    Access, Done, ExportError, ImportError, Key, KeyId, Peer, RegionId, RegisterError, Remote,
    Slice, Time, Token, key::KeyParts,
};
use std::{ops::Range, time::Duration};

/// A key that was imported, as a transport with routes of its own needs to see it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The owner.
    pub peer: Peer,
    /// All that the key says. Of memory that was imported by its number, whose rights are not
    /// known, all are assumed.
    pub parts: KeyParts,
    pub(super) target: Option<Target>,
    /// It is good for whichever life of the peer the handle is of: it was imported by a number.
    pub(super) any_life: bool,
}

/// A table whose handles are a slot and a generation.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    limit: usize,
}

impl<T> Table<T> {
    pub(super) fn new(limit: usize) -> Table<T> {
        let (slots, free) = (Vec::new(), Vec::new());
        Table { slots, free, limit }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn insert(&mut self, value: T) -> Option<(u32, u32)> {
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

    #[inline]
    pub(super) fn get(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        slot.1.as_ref().filter(|_| slot.0 == generation)
    }

    pub(super) fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        slot.1.as_mut().filter(|_| slot.0 == generation)
    }

    pub(super) fn remove(&mut self, index: u32, generation: u32) -> Option<T> {
        self.get(index, generation)?;
        let slot = &mut self.slots[index as usize];
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(index);
        slot.1.take()
    }
}

/// Memory that peers reach: a region, by the key to all of it, or the part of one to which there is
/// a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposed {
    Region(RegionId),
    Part(KeyId),
}

/// Set in the slot that a [`Target`] names if it is a part's.
const PART: u32 = 1 << 31;
/// The slot in a [`Target`] whose secret is the number under which memory is open.
const BY_NUMBER: u32 = u32::MAX;

impl Exposed {
    fn of(target: Target) -> Exposed {
        let (index, generation) = (target.slot & !PART, target.generation);
        match target.slot & PART {
            0 => Exposed::Region(RegionId { index, generation }),
            _ => Exposed::Part(KeyId { index, generation }),
        }
    }

    fn target(self, secret: u64) -> Target {
        match self {
            Exposed::Region(RegionId { index, generation }) => {
                Target { slot: index, generation, secret }
            }
            Exposed::Part(KeyId { index, generation }) => {
                Target { slot: index | PART, generation, secret }
            }
        }
    }
}

impl From<RegionId> for Exposed {
    fn from(region: RegionId) -> Exposed {
        Exposed::Region(region)
    }
}

/// The regions that peers may reach, and the keys to parts of them.
#[derive(Debug)]
pub(super) struct Regions {
    table: Table<Registered>,
    parts: Parts,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) memory: Slice,
    pub(super) access: Access,
    secret: u64,
    /// Fragments that are being placed in it, or read from it; also by keys to its parts.
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

/// A region or a key whose end an operation waits for.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Exposed,
    patience: Duration,
    /// Known once the time was first given.
    until: Option<Time>,
}

impl Registered {
    fn new(memory: Slice, access: Access) -> Result<Registered, getrandom::Error> {
        let secret = getrandom::u64()?;
        Ok(Registered { memory, access, secret, busy: 0, state: State::Open })
    }

    /// An access ended: the operation that this completes, if it does.
    fn leave(&mut self) -> Option<Token> {
        self.busy -= 1;
        match self.state {
            State::Closing(token) if self.busy == 0 => Some(token),
            _ => None,
        }
    }
}

impl Regions {
    pub(super) fn new(regions: usize, keys: usize) -> Regions {
        let (table, parts) = (Table::new(regions), Parts::new(keys));
        Regions { table, parts, waiting: Vec::new() }
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
        if access.allows(Access::ATOMIC) && !memory.takes_atomics() {
            return Err(RegisterError::DeviceAtomics);
        }
        let entry = Registered::new(memory.clone(), access)
            .map_err(|e| RegisterError::System(e.to_string()))?;
        let limit = self.table.limit();
        let (index, generation) =
            self.table.insert(entry).ok_or(RegisterError::TooMany { limit })?;
        Ok(RegionId { index, generation })
    }

    /// Makes a key to a part of a region that is open.
    pub(super) fn export_part(
        &mut self,
        region: RegionId,
        range: &Range<u64>,
        access: Access,
    ) -> Result<KeyId, ExportError> {
        let whole = self.get(region.into()).ok_or(ExportError::UnknownRegion)?;
        let memory = part_of(&whole.memory, range, whole.access, access)?;
        let entry =
            Registered::new(memory, access).map_err(|e| ExportError::System(e.to_string()))?;
        self.parts.insert(region, range.start, entry)
    }

    /// Opens a part of a region that is open under a number.
    pub(super) fn export_number(
        &mut self,
        region: RegionId,
        range: &Range<u64>,
        access: Access,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        let whole = self.get(region.into()).ok_or(ExportError::UnknownRegion)?;
        let memory = part_of(&whole.memory, range, whole.access, access)?;
        let entry = Registered { memory, access, secret: number, busy: 0, state: State::Open };
        self.parts.insert_numbered(region, range.start, entry, number)
    }

    /// Memory that is open: no access to it or to the region that it is a part of was ended.
    pub(super) fn get(&self, at: Exposed) -> Option<&Registered> {
        let region = match at {
            Exposed::Region(region) => region,
            Exposed::Part(key) => self.parts.get(key)?.region,
        };
        let whole = self.table.get(region.index, region.generation)?;
        let entry = match at {
            Exposed::Region(_) => whole,
            Exposed::Part(key) => &self.parts.get(key)?.entry,
        };
        (entry.state == State::Open && whole.state == State::Open).then_some(entry)
    }

    /// What a key says of it.
    pub(super) fn target(&self, at: Exposed) -> Option<Target> {
        Some(at.target(self.get(at)?.secret))
    }

    /// The region, and where in it this memory begins.
    pub(super) fn locate(&self, at: Exposed) -> Option<(RegionId, u64)> {
        match at {
            Exposed::Region(region) => Some((region, 0)),
            Exposed::Part(key) => self.parts.get(key).map(|part| (part.region, part.offset)),
        }
    }

    /// Whether an access to `held` is one to `at`.
    pub(super) fn is_within(&self, held: Exposed, at: Exposed) -> bool {
        held == at || self.locate(held).is_some_and(|(region, _)| Exposed::Region(region) == at)
    }

    /// Checks an access by a peer, and gives the memory.
    pub(super) fn check(
        &self,
        target: Target,
        needed: Access,
        offset: u64,
        len: u64,
    ) -> Result<(Exposed, Slice), Status> {
        let at = match target.slot {
            BY_NUMBER => Exposed::Part(self.parts.numbered(target.secret).ok_or(Status::Stale)?),
            _ => Exposed::of(target),
        };
        let entry = self.get(at).ok_or(Status::Stale)?;
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
        Ok((at, part(offset, len).ok_or(Status::OutOfBounds)?))
    }

    /// Whether a region that is open, or not closed yet, has some of this memory.
    pub(super) fn have(&self, memory: &Slice) -> bool {
        let mut regions = self.table.slots.iter().filter_map(|(_, entry)| entry.as_ref());
        regions.any(|entry| entry.memory.overlaps(memory))
    }

    fn entry_mut(&mut self, at: Exposed) -> Option<&mut Registered> {
        match at {
            Exposed::Region(id) => self.table.get_mut(id.index, id.generation),
            Exposed::Part(key) => self.parts.get_mut(key).map(|part| &mut part.entry),
        }
    }

    /// A fragment begins to be placed, or to be read.
    pub(super) fn hold(&mut self, at: Exposed) {
        if let Some(entry) = self.entry_mut(at) {
            entry.busy += 1;
        }
        if let Exposed::Part(_) = at
            && let Some((region, _)) = self.locate(at)
            && let Some(whole) = self.entry_mut(region.into())
        {
            whole.busy += 1;
        }
    }

    /// It ended: tells the operations that this completes, if there are any.
    pub(super) fn unhold(&mut self, at: Exposed, mut ended: impl FnMut(Token, Done)) {
        let Some((region, _)) = self.locate(at) else { return };
        if let Exposed::Part(_) = at
            && let Some(token) = self.entry_mut(at).and_then(Registered::leave)
        {
            self.remove(at);
            ended(token, Done::Revoked);
        }
        if let Some(token) = self.entry_mut(region.into()).and_then(Registered::leave) {
            self.remove(region.into());
            ended(token, Done::Deregistered);
        }
    }

    /// Forgets memory that nothing accesses: a region, with the keys to its parts, or one of those.
    fn remove(&mut self, at: Exposed) {
        match at {
            Exposed::Region(region) => {
                self.parts.remove_all(region);
                self.table.remove(region.index, region.generation);
            }
            Exposed::Part(key) => self.parts.remove(key),
        }
        self.waiting.retain(|waiting| waiting.at != at);
    }

    /// Forgets a key that was not handed out.
    pub(super) fn take_back(&mut self, key: KeyId) {
        self.remove(Exposed::Part(key));
    }

    /// No access begins from now on. False if the region is not open.
    pub(super) fn shut(&mut self, id: RegionId) -> bool {
        let entry = self.table.get_mut(id.index, id.generation);
        let Some(entry) = entry.filter(|entry| entry.state == State::Open) else { return false };
        entry.state = State::Shut;
        true
    }

    /// Whether no access begins there any more, and the memory is still held.
    pub(super) fn is_shut(&self, at: Exposed) -> bool {
        let is_deferred = match at {
            Exposed::Region(id) => self.table.get(id.index, id.generation).is_some(),
            Exposed::Part(key) => self.parts.get(key).is_some(),
        };
        is_deferred && self.get(at).is_none()
    }

    /// Begins to deregister a region, or to revoke a key. `None`: there is none, or that is under
    /// way already; `Some(true)`: done at once.
    pub(super) fn close(&mut self, at: Exposed, token: Token, patience: Duration) -> Option<bool> {
        let entry = self.entry_mut(at)?;
        if matches!(entry.state, State::Closing(_)) {
            return None;
        }
        if entry.busy == 0 {
            self.remove(at);
            return Some(true);
        }
        entry.state = State::Closing(token);
        self.waiting.push(Waiting { at, patience, until: None });
        Some(false)
    }

    /// Whether the end of a region or a key is awaited.
    #[inline]
    pub(super) fn are_closing(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many are.
    #[inline]
    pub(super) fn closings(&self) -> usize {
        self.waiting.len()
    }

    /// When the first patience is over, as far as that is known.
    pub(super) fn deadline(&self) -> Time {
        let first = self.waiting.iter().map(|waiting| waiting.until.unwrap_or(Time::ZERO)).min();
        first.unwrap_or(Time::NEVER)
    }

    /// A region or key whose end was awaited until the patience was over, and the token of that
    /// operation. It stays shut.
    pub(super) fn overdue(&mut self, now: Time) -> Option<(Exposed, Token)> {
        for waiting in &mut self.waiting {
            waiting.until.get_or_insert(now.after(waiting.patience));
        }
        let due = self.waiting.iter().position(|w| w.until.is_some_and(|until| until <= now))?;
        let at = self.waiting.swap_remove(due).at;
        let entry = self.entry_mut(at)?;
        let State::Closing(token) = std::mem::replace(&mut entry.state, State::Shut) else {
            return None;
        };
        Some((at, token))
    }
}

/// The memory of a key to a part of a region that is open for `allowed`.
fn part_of(
    whole: &Slice,
    range: &Range<u64>,
    allowed: Access,
    wanted: Access,
) -> Result<Slice, ExportError> {
    if !allowed.allows(wanted) {
        return Err(ExportError::Denied { allowed, wanted });
    }
    let bound = whole.len() as u64;
    let out = ExportError::OutOfBounds { start: range.start, end: range.end, bound };
    match range.start <= range.end && range.end <= bound {
        // Both fit, as `bound` does.
        true => whole.part(range.start as usize, (range.end - range.start) as usize).ok_or(out),
        false => Err(out),
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
        let len = parts.len;
        self.add(Imported { peer, parts, target, any_life: false }, len)
    }

    /// Memory of this owner's under a number.
    pub(super) fn insert_number(
        &mut self,
        number: u64,
        parts: KeyParts,
        peer: Peer,
    ) -> Result<Remote, ImportError> {
        let target = Some(Target { slot: BY_NUMBER, generation: 0, secret: number });
        let len = parts.len;
        self.add(Imported { peer, parts, target, any_life: true }, len)
    }

    fn add(&mut self, entry: Imported, len: u64) -> Result<Remote, ImportError> {
        let (peer, limit) = (entry.peer, self.0.limit);
        let (index, generation) = self.0.insert(entry).ok_or(ImportError::TooMany { limit })?;
        Ok(Remote { index, generation, peer, len })
    }

    #[inline]
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
