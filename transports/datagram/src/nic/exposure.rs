//! Memory of programs: the owner's side. The initiator's is in [`super::grant`].
//!
//! Nothing is registered with the library before a peer asks for it that holds the region's key,
//! and it is closed with the region.

use super::{
    Nic,
    exposures::{Closed, Holder},
    opened::Location,
};
use crate::{
    cache::inner,
    frame::{Control, Permission},
    network::Network,
};
use petasos_channel::{
    DeviceEvent,
    device::{Registration, RemoteKey, Ticket},
    immediate::{Name, Opened, name},
};
use petasos_fabric::{Access, Address, Peer, RegisterError, Slice};
use smallvec::SmallVec;

impl<N: Network> Nic<N> {
    /// Makes a key to memory that peers may ask for.
    pub(super) fn begin_exposure(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        // Not every library closes memory at once, and then it is held. What only its program keeps
        // is served by its engine, and so is memory of a device.
        if memory.is_raw() || memory.device().is_some() {
            let what = "the library gets no memory of devices, nor what only its program keeps";
            return Err(RegisterError::System(what.to_owned()));
        }
        let secret = getrandom::u64().map_err(|e| RegisterError::System(e.to_string()))?;
        let registration = self.opened.number();
        let (name, len) = (name(registration, secret), memory.len() as u64);
        let key = Location { name, len, place: &[] }.encode();
        let key = key.ok_or_else(|| RegisterError::System("a key that is too long".to_owned()))?;
        self.exposures.add(registration, Opened { memory: memory.clone(), access, tag, secret });
        Ok((registration, key))
    }

    /// A peer that has the key of a region asks for access to it.
    pub(super) fn asked(&mut self, peer: Peer, target: Name) {
        // One that is not up has no ticket yet, or is lost.
        if self.nodes.node(peer).is_none() {
            return self.inner.cut_off(peer.index, "it asked for memory before it greeted");
        }
        let answer = match self.grant(peer, target) {
            Some(permission) => Control::Grant(target, permission),
            None => Control::Refuse(target),
        };
        self.inner.send_control(peer, answer);
    }

    fn grant(&mut self, peer: Peer, target: Name) -> Option<Permission> {
        if !self.reads {
            return None;
        }
        let Nic { exposures, inner: lower, .. } = self;
        let granted = exposures.grant(target, peer, |memory| {
            let Opened { memory, access, .. } = memory;
            if let Some(kept) = lower.cache.take(memory, *access) {
                lower.counters.registrations_kept += 1;
                return Some(kept);
            }
            let opened = lower.net.open_memory(&inner(memory), *access)?;
            lower.counters.registrations += 1;
            Some(opened)
        });
        let (opened, access) = granted?;
        let location = N::location(opened);
        let notice = match access.allows(Access::WRITE) {
            true => lower.completion_name(peer),
            false => 0,
        };
        Some(Permission { location, access, notice })
    }

    /// Begins to close a region: its holders are to return their grants.
    pub(super) fn end_exposure(&mut self, registration: Registration, ticket: Option<Ticket>) {
        let Some((holders, secret)) = self.exposures.close(registration, ticket) else { return };
        for holder in holders {
            self.inner.send_control(holder, Control::Revoke(name(registration, secret)));
        }
        self.close_free();
    }

    /// A peer has returned a grant.
    pub(super) fn released(&mut self, peer: Peer, target: Name) {
        match self.exposures.release(target, peer) {
            Ok(()) => self.close_free(),
            Err(_) => self.inner.cut_off(peer.index, "a grant was returned that was not revoked"),
        }
    }

    /// A peer ends, or forgets us, and has returned all its grants.
    pub(super) fn returned(&mut self, peer: Peer) {
        self.exposures.release_all(peer);
        self.close_free();
    }

    /// Closes regions that are to be closed, as far as no peer holds a grant, and nothing may land
    /// any more.
    pub(super) fn close_free(&mut self) {
        let free = self.exposures.take_free(self.inner.now);
        if free.is_empty() {
            return;
        }
        for Closed { memory, opened, had_lost_holder, ticket } in free {
            if let Some(opened) = opened
                && !had_lost_holder
            {
                self.inner.cache.keep(&memory.memory, memory.access, opened);
            }
            if let Some(ticket) = ticket {
                self.mail.push_back(DeviceEvent::Done { ticket, result: Ok(SmallVec::new()) });
            }
        }
        self.inner.net.close_memory();
    }

    /// The peer that still reaches the memory that is closed under this ticket.
    pub(super) fn holder(&self, ticket: Ticket) -> Option<Address> {
        match self.exposures.reached_by(ticket)? {
            Holder::Lost(address) => Some(address),
            Holder::Peer(peer) => self.inner.peers.address(peer).cloned(),
        }
    }
}
