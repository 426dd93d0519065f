//! Memory that peers reach through the library: the owner's side.
//!
//! Nothing is registered with the library before a peer asks for it that holds the region's key,
//! and it is closed with the region. See [`crate::access`].

use crate::{
    cache::inner,
    datagrams::Datagrams,
    frame::{Control, Leave, TARGET},
    network::Network,
};
use petasos_fabric::{
    Access, Event, Key, OpError, OpErrorKind, Operation, Peer, RegionId, Slice, Time, Token,
};
use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

/// A region that is open to peers.
struct Exposure<O> {
    opened: O,
    memory: Slice,
    access: Access,
    holders: Vec<Peer>,
    /// The last holder that was lost and returned nothing, and until when a write of it may land.
    /// No library says when that is over: see [`Config::mourning`](crate::Config::mourning).
    lost_holder: Option<(Peer, Time)>,
    /// It is closed to new accesses, and its grants were revoked.
    closing: bool,
    /// The operation that waits for its end.
    waiting: Option<Waiting>,
}

/// An operation that closes a region.
struct Waiting {
    token: Token,
    patience: Duration,
    /// Known from the next pass on.
    until: Option<Time>,
}

/// All of them.
pub(crate) struct Exposures<O> {
    list: HashMap<RegionId, Exposure<O>>,
    /// How many are being closed.
    closing: usize,
}

impl<O> Default for Exposures<O> {
    fn default() -> Exposures<O> {
        Exposures { list: HashMap::new(), closing: 0 }
    }
}

impl<O> Exposures<O> {
    /// When to check again, if nothing happens before.
    pub(crate) fn until(&self) -> Time {
        if self.closing == 0 {
            return Time::NEVER;
        }
        let closing = self.list.values().filter(|exposure| exposure.closing);
        let times = closing.flat_map(|exposure| {
            let waits = exposure.waiting.as_ref().map(|w| w.until.unwrap_or(Time::ZERO));
            let lands = exposure.lost_holder.filter(|_| exposure.holders.is_empty());
            [waits, lands.map(|(_, until)| until)].into_iter().flatten()
        });
        times.min().unwrap_or(Time::NEVER)
    }

    /// Whether any region is being closed.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.closing > 0
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
        let Some(link) = self.links.get(index) else { return };
        let peer = link.peer();
        let answer = match self.expose(peer, &target) {
            Some(leave) => Control::Grant(target, leave),
            None => Control::Refuse(target),
        };
        self.send_control(peer, answer);
    }

    fn expose(&mut self, peer: Peer, target: &[u8; TARGET]) -> Option<Leave> {
        let region = region_of(target);
        let parts = self.engine.key_parts(region).ok()?;
        // Region, and the secret that only its key has.
        if !self.accesses.native || parts.route(Key::ROUTE_TWO_SIDED)?[..] != target[..] {
            return None;
        }
        let Datagrams { exposures, net, engine, cache, counters, .. } = self;
        if let Entry::Vacant(vacant) = exposures.list.entry(region) {
            let (memory, access) = engine.region(region)?;
            let known = cache.take(memory, access);
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
            let (lost_holder, closing, waiting) = (None, false, None);
            let exposure =
                Exposure { opened, memory, access, holders, lost_holder, closing, waiting };
            vacant.insert(exposure);
        }
        let exposure = exposures.list.get_mut(&region).filter(|exposure| !exposure.closing)?;
        if !exposure.holders.contains(&peer) {
            exposure.holders.push(peer);
        }
        let place = N::place(&exposure.opened);
        let notice = match parts.access.allows(Access::WRITE) {
            true => self.completion_name(peer),
            false => 0,
        };
        Some(Leave { place, access: parts.access, notice })
    }

    /// Takes in an operation that closes a region that is open to peers. Returns it if it is for
    /// the engine.
    pub(crate) fn close_region(&mut self, operation: Operation) -> Option<Operation> {
        let Operation::Deregister { token, region, patience } = operation else {
            return Some(operation);
        };
        let Exposures { list, closing, .. } = &mut self.exposures;
        let Some(exposure) = list.get_mut(&region) else { return Some(operation) };
        if exposure.waiting.is_some() {
            let result = Err(OpError::local(OpErrorKind::UnknownRegion));
            self.engine.raise(Event::Done { token, result });
            return None;
        }
        exposure.waiting = Some(Waiting { token, patience, until: None });
        if !std::mem::replace(&mut exposure.closing, true) {
            *closing += 1;
            let holders = exposure.holders.clone();
            let target = self.engine.key_parts(region).ok();
            let target = target.and_then(|parts| Some(parts.route(Key::ROUTE_TWO_SIDED)?.clone()));
            self.engine.shut(region);
            if let Some(target) = target.and_then(|bytes| <[u8; TARGET]>::try_from(&bytes[..]).ok())
            {
                for holder in holders {
                    self.send_control(holder, Control::Revoke(target));
                }
            }
        }
        self.close_if_free(region);
        None
    }

    /// A peer has returned a grant.
    pub(crate) fn released(&mut self, index: u32, target: [u8; TARGET]) {
        let Some(link) = self.links.get(index) else { return };
        let (peer, region) = (link.peer(), region_of(&target));
        let exposure = self.exposures.list.get_mut(&region).filter(|e| e.closing);
        let held = exposure.and_then(|e| {
            let at = e.holders.iter().position(|holder| *holder == peer)?;
            Some(e.holders.swap_remove(at))
        });
        match held {
            Some(_) => self.close_if_free(region),
            None => self.cut_off(index, "a grant was returned that was not revoked"),
        }
    }

    /// A peer ends, or forgets us, and has returned all its grants.
    pub(crate) fn returned(&mut self, index: u32) {
        let Some(link) = self.links.get(index) else { return };
        let peer = link.peer();
        let mut closing = Vec::new();
        for (region, exposure) in &mut self.exposures.list {
            exposure.holders.retain(|holder| *holder != peer);
            if exposure.closing {
                closing.push(*region);
            }
        }
        for region in closing {
            self.close_if_free(region);
        }
    }

    /// A peer is lost, with its grants.
    pub(crate) fn forget_holder(&mut self, peer: Peer) {
        let until = self.now.after(self.config.mourning);
        for exposure in self.exposures.list.values_mut() {
            if let Some(at) = exposure.holders.iter().position(|holder| *holder == peer) {
                exposure.holders.swap_remove(at);
                exposure.lost_holder = Some((peer, until));
            }
        }
    }

    /// Closes a region that is to be closed, if no peer holds a grant, and nothing may land any
    /// more.
    fn close_if_free(&mut self, region: RegionId) {
        let now = self.now;
        let Exposures { list, closing } = &mut self.exposures;
        let free = |e: &Exposure<N::Opened>| {
            let landed = e.lost_holder.is_none_or(|(_, until)| until <= now);
            e.closing && e.waiting.is_some() && e.holders.is_empty() && landed
        };
        if !list.get(&region).is_some_and(free) {
            return;
        }
        let Some(Exposure { opened, memory, access, lost_holder, waiting, .. }) =
            list.remove(&region)
        else {
            return;
        };
        *closing -= 1;
        match lost_holder {
            Some(_) => drop(opened),
            None => self.cache.keep(&memory, access, opened),
        }
        self.net.close_memory();
        if let Some(Waiting { token, patience, .. }) = waiting {
            self.engine.submit(Operation::Deregister { token, region, patience });
        }
    }

    /// Ends operations that have waited for grants until their patience was over. To cut the peer
    /// off would not end its access with every library. The memory is kept, and open to peers with
    /// grants.
    pub(crate) fn expire_closings(&mut self) {
        let now = self.now;
        let closing = self.exposures.list.iter().filter(|(_, exposure)| exposure.closing);
        for region in closing.map(|(region, _)| *region).collect::<Vec<_>>() {
            self.close_if_free(region);
            let Some(exposure) = self.exposures.list.get_mut(&region) else { continue };
            let late = |waiting: &mut Waiting| {
                *waiting.until.get_or_insert(now.after(waiting.patience)) <= now
            };
            let Some(Waiting { token, .. }) = exposure.waiting.take_if(late) else { continue };
            let holder =
                exposure.holders.first().copied().or(exposure.lost_holder.map(|(peer, _)| peer));
            let info = holder.and_then(|holder| self.engine.peer_info(holder));
            let error = match info {
                Some(info) => OpError::with_peer(OpErrorKind::StillReached, &info.address),
                None => OpError::local(OpErrorKind::StillReached),
            };
            tracing::debug!(%error, "memory that was to be closed is still reached");
            self.engine.raise(Event::Done { token, result: Err(error) });
        }
    }
}
