//! Memory that peers reach through the library: the owner's side.
//!
//! Nothing is registered with the library before a peer asks for it that holds the region's key,
//! and it is closed with the region. See [`crate::remote_access`].

use crate::{
    cache::inner,
    datagrams::Datagrams,
    exposures::{Close, Exposure, Waiting},
    frame::{Control, Permission, TARGET},
    network::Network,
};
use petasos_fabric::{Access, Event, Key, OpError, OpErrorKind, Operation, Peer, RegionId};

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
            Some(permission) => Control::Grant(target, permission),
            None => Control::Refuse(target),
        };
        self.send_control(peer, answer);
    }

    fn expose(&mut self, peer: Peer, target: &[u8; TARGET]) -> Option<Permission> {
        let region = region_of(target);
        let parts = self.engine.key_parts(region).ok()?;
        // Region, and the secret that only its key has.
        if !self.has_native_access() || parts.route(Key::ROUTE_TWO_SIDED)?[..] != target[..] {
            return None;
        }
        let Datagrams { exposures, net, engine, cache, counters, .. } = self;
        if !exposures.contains(region) {
            let (memory, access) = engine.region(region)?;
            // Not every library closes memory at once, and then the endpoint holds it. What only
            // its program keeps is served by the engine, and so is memory of a device.
            if memory.is_raw() || memory.device().is_some() {
                return None;
            }
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
            exposures.add(region, Exposure::new(opened, memory.clone(), access));
        }
        let location = N::location(exposures.hold(region, peer)?);
        let notice = match parts.access.allows(Access::WRITE) {
            true => self.completion_name(peer),
            false => 0,
        };
        Some(Permission { location, access: parts.access, notice })
    }

    /// Takes in an operation that closes a region that is open to peers. Returns it if it is for
    /// the engine.
    pub(crate) fn close_region(&mut self, operation: Operation) -> Option<Operation> {
        let Operation::Deregister { token, region, patience } = operation else {
            return Some(operation);
        };
        match self.exposures.close(region, Waiting::new(token, patience)) {
            Close::Unknown => return Some(operation),
            Close::Twice => {
                let result = Err(OpError::local(OpErrorKind::UnknownRegion));
                self.engine.raise(Event::Done { token, result });
                return None;
            }
            Close::Waits => {}
            Close::Revoke(holders) => {
                let target = self.engine.key_parts(region).ok();
                let target = target.and_then(|parts| {
                    let route = parts.route(Key::ROUTE_TWO_SIDED)?;
                    <[u8; TARGET]>::try_from(&route[..]).ok()
                });
                self.engine.shut(region);
                for (holder, target) in holders.into_iter().zip(target.into_iter().cycle()) {
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
        match self.exposures.release(region, peer) {
            true => self.close_if_free(region),
            false => self.cut_off(index, "a grant was returned that was not revoked"),
        }
    }

    /// A peer ends, or forgets us, and has returned all its grants.
    pub(crate) fn returned(&mut self, index: u32) {
        let Some(link) = self.links.get(index) else { return };
        let peer = link.peer();
        self.exposures.release_all(peer);
        for region in self.exposures.closing() {
            self.close_if_free(region);
        }
    }

    /// A peer is lost, with its grants.
    pub(crate) fn forget_holder(&mut self, peer: Peer) {
        self.exposures.lose(peer, self.now.after(self.config.mourning));
    }

    /// Closes a region that is to be closed, if no peer holds a grant, and nothing may land any
    /// more.
    fn close_if_free(&mut self, region: RegionId) {
        let Some((exposure, waiting)) = self.exposures.remove_if_free(region, self.now) else {
            return;
        };
        match exposure.has_lost_holder() {
            true => drop(exposure),
            false => self.cache.keep(&exposure.memory, exposure.access, exposure.opened),
        }
        self.net.close_memory();
        let Waiting { token, patience, .. } = waiting;
        self.engine.submit(Operation::Deregister { token, region, patience });
    }

    /// Ends operations that have waited for grants until their patience was over. To cut the peer
    /// off would not end its access with every library. The memory is kept, and open to peers with
    /// grants.
    pub(crate) fn expire_closings(&mut self) {
        for region in self.exposures.closing() {
            self.close_if_free(region);
            let Some((token, holder)) = self.exposures.expire(region, self.now) else { continue };
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
