//! The contract, on top of the endpoint's state.

use crate::{
    access::{Route, Target},
    hub::{Content, Refused},
    local::{Local, SCHEME},
    peers::State,
    registry,
    remotes::MAX_REMOTES,
};
use bytes::{BufMut, Bytes};
use petasos_fabric::{
    Access, Address, Capabilities, Completion, Endpoint, Event, ExportError, ImportError, InUse,
    Incarnation, InjectError, Key, KeyId, LostReason, Notifier, OpError, Operation, Peer, PeerInfo,
    PeerQuota, PeerUsage, QuotaError, RegionId, RegisterError, Remote, ResolveError, Sleep, Slice,
    Time, Token, key::KeyParts,
};
use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// Bytes that one `progress` copies at most, for each of the two kinds of copies.
const COPY_BUDGET: usize = 4 << 20;

/// How soon to check again whether a peer's pool has room.
const POLL_AGAIN: Duration = Duration::from_millis(1);

impl Endpoint for Local {
    fn address(&self) -> &Address {
        &self.hub.address
    }

    fn incarnation(&self) -> Incarnation {
        self.hub.incarnation
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        if address.scheme() != SCHEME {
            return Err(ResolveError::WrongScheme { address: address.clone(), scheme: SCHEME });
        }
        if matches!(address.rest(), "" | "*") {
            return Err(ResolveError::Malformed {
                address: address.clone(),
                reason: "a name is needed to reach an endpoint".to_owned(),
            });
        }
        if let Some(index) = self.peers.by_address(address) {
            let now = self.now;
            let entry = self.peers.at(index);
            entry.resolved = true;
            let gone = match &mut entry.state {
                State::Connecting { patience: granted, deadline } => {
                    *granted = patience.max(*granted);
                    *deadline = (*deadline).max(now.map(|now| now.after(patience)));
                    false
                }
                State::Up { hub, .. } => hub.is_closed(),
                State::Lost(_) => true,
            };
            if !gone {
                return Ok(self.peers.handle(index));
            }
            self.lose_and_tell(index, LostReason::Closed, None);
        }
        let limit = self.capabilities.limits.max_peers;
        let index = self
            .peers
            .add(address.clone(), patience, limit)
            .ok_or(ResolveError::TooManyPeers { limit })?;
        let now = self.now;
        let entry = self.peers.at(index);
        entry.resolved = true;
        if let State::Connecting { deadline, .. } = &mut entry.state {
            *deadline = now.map(|now| now.after(patience));
        }
        self.peers.activate(index);
        self.connect(index);
        Ok(self.peers.handle(index))
    }

    fn resolve_running(&mut self, address: &Address, _: Duration) -> Result<Peer, ResolveError> {
        // A running endpoint is found at once.
        self.resolve(address, Duration::ZERO)
    }

    fn peer(&self, peer: Peer) -> Option<PeerInfo> {
        self.peers.info(peer)
    }

    fn set_quota(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        self.set_quota_of(peer, quota)
    }

    fn usage(&self, peer: Peer) -> Option<PeerUsage> {
        self.usage_of(peer)
    }

    fn set_attended(&mut self) {
        self.hub.set_attended();
    }

    fn forget(&mut self, peer: Peer) {
        let Some(entry) = self.peers.get(peer) else {
            return;
        };
        if !matches!(entry.state, State::Lost(_)) {
            self.lose(peer.index, LostReason::Forgotten, None);
        }
        self.peers.forget(peer.index);
        self.ready.retain(|event| event.peer() != Some(peer));
    }

    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let max = self.capabilities.limits.max_inject;
        let len = parts.iter().map(|part| part.len()).sum();
        if len > max {
            return Err(InjectError::TooLong { len, max });
        }
        let entry = self.peers.get(peer).ok_or(InjectError::UnknownPeer)?;
        let sent = match &entry.state {
            State::Lost(_) => return Err(InjectError::PeerLost),
            State::Up { hub, links, may }
                if entry.messages.is_empty() && entry.deferred.is_empty() =>
            {
                hub.offer(links[0], || {
                    let lease = may.lend(len, |mut room| {
                        for part in parts {
                            room.put_slice(part);
                        }
                    });
                    lease.map(Content::Message)
                })
            }
            _ => Err(Refused::Full),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(Refused::Closed) => {
                self.lose_and_tell(peer.index, LostReason::Closed, None);
                Err(InjectError::PeerLost)
            }
            Err(Refused::Full) => {
                self.peers.at(peer.index).wants_room = true;
                self.peers.activate(peer.index);
                Err(InjectError::Full)
            }
        }
    }

    fn try_submit(&mut self, operation: Operation) -> Result<(), petasos_fabric::Refused> {
        match self.room_for(&operation) {
            Ok(()) if self.is_deferred(&operation) => self.accept_held(operation),
            Ok(()) => self.accept(operation),
            Err(full) => return Err(petasos_fabric::Refused { operation, full }),
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token) {
        self.cancel_token(token);
    }

    fn in_use(&self, memory: &Slice) -> Option<InUse> {
        self.used(memory)
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = Some(now);
        self.streak.end();
        if std::mem::take(&mut self.armed) {
            self.hub.doorbell.awake();
            self.hub.doorbell.take();
        }
        let budget = budget.max(1);
        let mut worked = false;
        let mut mail = std::mem::take(&mut self.mail);
        self.hub.fetch(budget.saturating_sub(self.ready.len()), &mut mail);
        while let Some(packet) = mail.pop_front() {
            self.receive(packet);
            worked = true;
        }
        self.mail = mail;
        if self.peers.is_active() {
            let mut bytes = COPY_BUDGET as u64;
            for index in self.peers.active() {
                if let State::Connecting { .. } = self.peers.at(index).state {
                    self.tend_connecting(index, now);
                }
                worked |= self.pump_messages(index);
                worked |= self.pump_accesses(index, &mut bytes);
                worked |= self.go_on(index);
                let entry = self.peers.at(index);
                let first = entry.messages.is_empty() && entry.deferred.is_empty();
                let room = first && entry.has_room();
                if entry.wants_room && room {
                    entry.wants_room = false;
                    let peer = self.peers.handle(index);
                    self.ready.push_back(Event::Writable { peer });
                }
            }
        }
        worked |= self.pump_fetches(&mut { COPY_BUDGET });
        worked |= self.collect_closed();
        self.tell_room();
        let count = budget.min(self.ready.len());
        events.extend(self.ready.drain(..count));
        worked || count > 0
    }

    fn poll_completion(&mut self) -> Option<Completion> {
        let Some(Event::Done { .. }) = self.ready.front().filter(|_| self.streak.goes_on()) else {
            return None;
        };
        self.streak.count();
        self.ready.pop_front().and_then(|event| Completion::from_event(event).ok())
    }

    fn arm(&mut self, now: Time) -> Sleep {
        if !self.ready.is_empty() || !self.fetches.is_empty() {
            return Sleep::Busy;
        }
        self.armed = true;
        // `prepare` comes first: what changes from here on rings.
        if self.hub.doorbell.prepare() || self.hub.has_packets() || self.collect_closed() {
            return Sleep::Busy;
        }
        let mut until = self.closing.until().unwrap_or(Time::NEVER);
        for index in self.peers.active() {
            if self.waits_for_offers(index) {
                continue;
            }
            let entry = self.peers.at(index);
            match &entry.state {
                State::Connecting { deadline, .. } => {
                    let there = registry::wait_for(&entry.address, &self.hub);
                    let Some(deadline) = deadline.filter(|_| there.is_none()) else {
                        return Sleep::Busy;
                    };
                    until = until.min(deadline);
                }
                State::Up { hub, may, .. } => {
                    let copying = !entry.accesses.is_empty() && !entry.stalled;
                    // What waits for room for its header is told of none, either.
                    let sends = !entry.messages.is_empty() || entry.wants_room;
                    let waits = match entry.tagged.is_empty() {
                        true => hub.wait_for_room(may, &self.hub),
                        false => {
                            let full = hub.wait_for_room(may, &self.hub) || !sends;
                            full && !may.has_header()
                        }
                    };
                    if copying || !waits {
                        return Sleep::Busy;
                    }
                    until = until.min(now.after(POLL_AGAIN));
                }
                State::Lost(_) => {}
            }
        }
        Sleep::Until(until)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.hub.doorbell.as_fd())
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(self.hub.doorbell.clone())
    }

    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        let changes = access.allows(Access::WRITE) || access.allows(Access::ATOMIC);
        if changes && !memory.is_writable() {
            return Err(RegisterError::ReadOnly);
        }
        if access.allows(Access::ATOMIC) && !memory.takes_atomics() {
            return Err(RegisterError::DeviceAtomics);
        }
        let limit = self.capabilities.limits.max_regions;
        let added = self.hub.regions.add(memory, access, limit);
        added.ok_or(RegisterError::TooMany { limit })
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        let (len, access) = self.hub.regions.get(region).ok_or(ExportError::UnknownRegion)?;
        self.key(region, len, access)
    }

    fn export_part(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
    ) -> Result<(KeyId, Key), ExportError> {
        let len = range.end.saturating_sub(range.start);
        let limit = self.capabilities.limits.max_keys;
        let slot = self.hub.regions.add_part(region, range, access, None, limit)?;
        let RegionId { index, generation } = slot;
        match self.key(slot, len, access) {
            Ok(key) => Ok((KeyId { index, generation }, key)),
            Err(error) => {
                self.hub.regions.close(slot);
                self.hub.regions.collect(slot);
                Err(error)
            }
        }
    }

    fn export_number(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        let limit = self.capabilities.limits.max_keys;
        let RegionId { index, generation } =
            self.hub.regions.add_part(region, range, access, Some(number), limit)?;
        Ok(KeyId { index, generation })
    }

    fn import(&mut self, key: &Key) -> Result<Remote, ImportError> {
        let parts = key.parse()?;
        let Some(route) = parts.route(Key::ROUTE_SLOT).filter(|_| parts.owner.scheme() == SCHEME)
        else {
            return Err(ImportError::NoRoute { owner: parts.owner, scheme: SCHEME });
        };
        let &[a, b, c, d, e, f, g, h] = &route[..] else {
            return Err(ImportError::Malformed("a route of the wrong length"));
        };
        let route = Route {
            target: Target::Slot(RegionId {
                index: u32::from_le_bytes([a, b, c, d]),
                generation: u32::from_le_bytes([e, f, g, h]),
            }),
            owner: Some(parts.incarnation),
            rights: parts.access,
        };
        let known = self.peers.by_address(&parts.owner);
        let peer = self.resolve(&parts.owner, Key::IMPORT_PATIENCE)?;
        if let Some((hub, _)) = self.peers.at(peer.index).up()
            && hub.incarnation != parts.incarnation
        {
            if known.is_none() {
                self.forget(peer);
            }
            return Err(ImportError::Stale(parts.owner));
        }
        let added = self.remotes.add(route);
        let (index, generation) = added.ok_or(ImportError::TooMany { limit: MAX_REMOTES })?;
        Ok(Remote { index, generation, peer, len: parts.len })
    }

    fn import_number(&mut self, peer: Peer, number: u64, len: u64) -> Result<Remote, ImportError> {
        self.peers.get(peer).ok_or(ImportError::UnknownPeer)?;
        let target = Target::Number(number);
        let added = self.remotes.add(Route { target, owner: None, rights: Access::ALL });
        let (index, generation) = added.ok_or(ImportError::TooMany { limit: MAX_REMOTES })?;
        Ok(Remote { index, generation, peer, len })
    }

    fn release(&mut self, remote: Remote) {
        self.release_later(remote);
    }
}

impl Local {
    /// The key to memory in this slot of the table of regions.
    fn key(&self, slot: RegionId, len: u64, access: Access) -> Result<Key, ExportError> {
        let mut route = Vec::with_capacity(8);
        route.put_u32_le(slot.index);
        route.put_u32_le(slot.generation);
        Key::compose(&KeyParts {
            owner: self.hub.address.clone(),
            incarnation: self.hub.incarnation,
            len,
            access,
            routes: vec![(Key::ROUTE_SLOT, Bytes::from(route))],
        })
    }

    /// Completes the deregistrations and revocations whose last access has ended, and those whose
    /// patience is over. True if there were any.
    fn collect_closed(&mut self) -> bool {
        let ended = self.closing.collect(&self.hub.regions, self.now);
        let any = !ended.is_empty();
        for (token, result) in ended {
            self.done(token, result.map_err(OpError::local));
        }
        any
    }
}
