//! The regions of an endpoint: their numbers here and at each member, and how far they are closed.

use petasos_fabric::{Done, Event, OpError, OpErrorKind, RegionId, Token};
use std::collections::HashMap;

/// Regions by their numbers here, and their numbers at the members.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    slots: Vec<(u32, Option<Registered>)>,
    free: Vec<u32>,
    ours: HashMap<(usize, RegionId), RegionId>,
}

#[derive(Debug)]
struct Registered {
    /// With each member.
    there: Vec<RegionId>,
    /// It is being closed: by which operation, at how many members still, and what went wrong.
    closing: Option<(Token, usize, Option<OpError>)>,
    /// The members that have closed it.
    closed: Vec<usize>,
}

impl Regions {
    fn get(&self, region: RegionId) -> Option<&Registered> {
        let (generation, slot) = self.slots.get(region.index as usize)?;
        slot.as_ref().filter(|_| *generation == region.generation)
    }

    fn get_mut(&mut self, region: RegionId) -> Option<&mut Registered> {
        let (generation, slot) = self.slots.get_mut(region.index as usize)?;
        slot.as_mut().filter(|_| *generation == region.generation)
    }

    /// Adds a region, which all members have registered.
    pub(crate) fn add(&mut self, there: Vec<RegionId>) -> RegionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, slot) = &mut self.slots[index as usize];
        let region = RegionId { index, generation: *generation };
        for (member, id) in there.iter().enumerate() {
            self.ours.insert((member, *id), region);
        }
        *slot = Some(Registered { there, closing: None, closed: Vec::new() });
        region
    }

    /// Our number of a member's region.
    pub(crate) fn ours(&self, member: usize, region: RegionId) -> Option<RegionId> {
        self.ours.get(&(member, region)).copied()
    }

    /// The members' numbers of a region.
    pub(crate) fn of_members(&self, region: RegionId) -> Option<&[RegionId]> {
        self.get(region).map(|registered| &registered.there[..])
    }

    /// Begins to close a region for this operation. Returns the members that have not closed it
    /// yet, with their numbers; `None` if there is no such region, or it is being closed already.
    pub(crate) fn close(
        &mut self,
        token: Token,
        region: RegionId,
    ) -> Option<Vec<(usize, RegionId)>> {
        let registered = self.get_mut(region).filter(|r| r.closing.is_none())?;
        let there = registered.there.iter().copied().enumerate();
        let open: Vec<_> =
            there.filter(|(member, _)| !registered.closed.contains(member)).collect();
        registered.closing = Some((token, open.len(), None));
        Some(open)
    }

    /// A member has closed its registration, or has not, because the memory may still be reached
    /// over it. Returns the completion when all members have answered.
    pub(crate) fn closed(
        &mut self,
        region: RegionId,
        member: usize,
        result: Result<Done, OpError>,
    ) -> Option<Event> {
        let registered = self.get_mut(region)?;
        let (token, left, worst) = registered.closing.as_mut()?;
        *left -= 1;
        let reached = |error: &OpError| error.kind == OpErrorKind::StillReached;
        let held = result.as_ref().is_err_and(reached);
        if let Err(found) = result
            && (held || worst.is_none())
        {
            *worst = Some(found);
        }
        if !held {
            registered.closed.push(member);
        }
        if *left > 0 {
            return None;
        }
        let token = *token;
        let (.., error) = registered.closing.take()?;
        if !error.as_ref().is_some_and(reached) {
            self.remove(region);
        }
        let result = error.map_or(Ok(Done::Deregistered), Err);
        Some(Event::Done { token, result })
    }

    fn remove(&mut self, region: RegionId) {
        let Some((generation, slot)) = self.slots.get_mut(region.index as usize) else { return };
        let Some(registered) = slot.take() else { return };
        *generation = generation.wrapping_add(1);
        self.free.push(region.index);
        for (member, id) in registered.there.iter().enumerate() {
            self.ours.remove(&(member, *id));
        }
    }
}
