//! Memory that peers reach through the library: the owner's side.
//!
//! Nothing is registered with the library before a peer asks for it that holds the region's key, and it is closed
//! with the region. See [`crate::access`].

use crate::{
    frame::{Control, Leave, TARGET},
    kept::inner,
    network::Network,
    state::Datagrams,
};
use petasos_fabric::{Access, Key, LostReason, Operation, Peer, RegionId, Slice, Time};
use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

/// How long a peer may keep a grant that was asked back, before it is cut off.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long memory is kept in which a lost peer's access might still be landing: longer than data waits in buffers of
/// connections that are about to be closed.
const MOURNING: Duration = Duration::from_secs(60);

/// A region that is open to peers.
struct Exposure<O> {
    opened: O,
    memory: Slice,
    access: Access,
    holders: Vec<Peer>,
    /// One of them was lost, and gave nothing back.
    torn: bool,
    /// It is being closed: by this operation, and until then.
    closing: Option<(Operation, Time)>,
}

/// All of them.
pub(crate) struct Exposures<O> {
    list: HashMap<RegionId, Exposure<O>>,
    /// How many are being closed.
    closing: usize,
    /// Memory that is kept for a while.
    kept: Vec<(Slice, Time)>,
}

impl<O> Default for Exposures<O> {
    fn default() -> Exposures<O> {
        Exposures { list: HashMap::new(), closing: 0, kept: Vec::new() }
    }
}

impl<O> Exposures<O> {
    /// When to look, if nothing happens before.
    pub(crate) fn until(&self) -> Time {
        let closing = self.list.values().filter_map(|exposure| exposure.closing.as_ref());
        let kept = self.kept.iter().map(|(_, until)| *until);
        closing.map(|(_, until)| *until).chain(kept).min().unwrap_or(Time::NEVER)
    }

    /// Whether there is anything to look after.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.closing > 0 || !self.kept.is_empty()
    }
}

/// The region that a key's route names.
fn region_of(target: &[u8; TARGET]) -> RegionId {
    let number = |at: usize| {
        u32::from_le_bytes([target[at], target[at + 1], target[at + 2], target[at + 3]])
    };
    RegionId { index: number(0), generation: number(4) }
}

impl<N: Network> Datagrams<N> {
    /// A peer asks for access to a region.
    pub(crate) fn asked(&mut self, index: u32, target: [u8; TARGET]) {
        let Some(Some(link)) = self.links.get(index as usize) else { return };
        let peer = link.peer;
        let answer = match self.expose(peer, &target) {
            Some(leave) => Control::Grant(target, leave),
            None => Control::Refuse(target),
        };
        self.write_letter(peer, answer);
    }

    fn expose(&mut self, peer: Peer, target: &[u8; TARGET]) -> Option<Leave> {
        let region = region_of(target);
        let parts = self.engine.key_parts(region).ok()?;
        // Region, and the secret that only its key has.
        if !self.accesses.native || parts.route(Key::ROUTE_TWO_SIDED)?[..] != target[..] {
            return None;
        }
        let Datagrams { exposures, net, engine, kept, counters, .. } = self;
        if let Entry::Vacant(vacant) = exposures.list.entry(region) {
            let (memory, access) = engine.region(region)?;
            let known = kept.take(memory, access);
            counters.registrations_kept += u64::from(known.is_some());
            let opened = match known {
                Some(opened) => opened,
                None => {
                    let opened = net.open_memory(&inner(memory), access)?;
                    counters.registrations += 1;
                    opened
                }
            };
            let (memory, holders) = (memory.clone(), Vec::new());
            let exposure = Exposure { opened, memory, access, holders, torn: false, closing: None };
            vacant.insert(exposure);
        }
        let exposure =
            exposures.list.get_mut(&region).filter(|exposure| exposure.closing.is_none())?;
        if !exposure.holders.contains(&peer) {
            exposure.holders.push(peer);
        }
        let place = N::place(&exposure.opened);
        let notice = match parts.access.allows(Access::WRITE) {
            true => self.notice_name(peer),
            false => 0,
        };
        Some(Leave { place, access: parts.access, notice })
    }

    /// Takes in the closing of a region that is open to peers. Gives it back if it is for the engine.
    pub(crate) fn close_region(&mut self, operation: Operation) -> Option<Operation> {
        let Operation::Deregister { region, .. } = operation else { return Some(operation) };
        let until = self.now.after(PATIENCE);
        let Exposures { list, closing, .. } = &mut self.exposures;
        let Some(exposure) = list.get_mut(&region) else { return Some(operation) };
        if exposure.closing.is_some() {
            // A second one fails, when the first is done.
            return Some(operation);
        }
        exposure.closing = Some((operation, until));
        *closing += 1;
        let holders = exposure.holders.clone();
        let target = self.engine.key_parts(region).ok();
        let target = target.and_then(|parts| Some(parts.route(Key::ROUTE_TWO_SIDED)?.clone()));
        if let Some(target) = target.and_then(|bytes| <[u8; TARGET]>::try_from(&bytes[..]).ok()) {
            for holder in holders {
                self.write_letter(holder, Control::Revoke(target));
            }
        }
        self.close_if_free(region);
        None
    }

    /// A peer gave a grant back.
    pub(crate) fn released(&mut self, index: u32, target: [u8; TARGET]) {
        let Some(Some(link)) = self.links.get(index as usize) else { return };
        let (peer, region) = (link.peer, region_of(&target));
        let exposure = self.exposures.list.get_mut(&region).filter(|e| e.closing.is_some());
        let held = exposure.and_then(|e| {
            let at = e.holders.iter().position(|holder| *holder == peer)?;
            Some(e.holders.swap_remove(at))
        });
        match held {
            Some(_) => self.close_if_free(region),
            None => self.wrong(index, "a grant was given back that was not asked for"),
        }
    }

    /// A peer is gone, with its grants.
    pub(crate) fn forget_holder(&mut self, peer: Peer) {
        let mut free = Vec::new();
        for (region, exposure) in &mut self.exposures.list {
            if let Some(at) = exposure.holders.iter().position(|holder| *holder == peer) {
                exposure.holders.swap_remove(at);
                exposure.torn = true;
                free.push(*region);
            }
        }
        for region in free {
            self.close_if_free(region);
        }
    }

    /// Closes a region that is to be closed, if nobody holds a grant.
    fn close_if_free(&mut self, region: RegionId) {
        let Exposures { list, closing, kept } = &mut self.exposures;
        let free = |e: &Exposure<N::Opened>| e.closing.is_some() && e.holders.is_empty();
        if !list.get(&region).is_some_and(free) {
            return;
        }
        let Some(Exposure { opened, memory, access, torn, closing: operation, .. }) =
            list.remove(&region)
        else {
            return;
        };
        *closing -= 1;
        if torn {
            drop(opened);
            kept.push((memory, self.now.after(MOURNING)));
        } else {
            self.kept.keep(&memory, access, opened);
        }
        self.net.close_memory();
        if let Some((operation, _)) = operation {
            self.engine.submit(operation);
        }
    }

    /// Cuts off who keeps grants for too long, and lets memory go that was kept long enough.
    pub(crate) fn look_after_exposures(&mut self) {
        let now = self.now;
        self.exposures.kept.retain(|(_, until)| *until > now);
        if self.exposures.closing == 0 {
            return;
        }
        let late =
            |e: &&Exposure<N::Opened>| e.closing.as_ref().is_some_and(|(_, until)| *until <= now);
        let late =
            self.exposures.list.values().filter(late).flat_map(|e| e.holders.iter().copied());
        for peer in late.collect::<Vec<_>>() {
            self.finish(peer, LostReason::Silent(PATIENCE));
        }
    }
}
