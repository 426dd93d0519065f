//! The contract of the fabric.

use crate::{Auto, peers::Route};
use petasos_fabric::{
    Access, Address, AllocError, Capabilities, Endpoint, Event, ExportError, ImportError, InUse,
    Incarnation, InjectError, Key, KeyId, Lease, Notifier, Operation, Peer, PeerInfo, PeerQuota,
    PeerState, PeerUsage, QuotaError, Refused, Region, RegionId, RegisterError, Remote,
    ResolveError, Sleep, Slice, Time, Token,
};
use std::{
    collections::VecDeque,
    mem,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

impl Endpoint for Auto {
    fn address(&self) -> &Address {
        &self.address
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn capabilities_of(&self, peer: Peer) -> Option<&Capabilities> {
        let entry = self.peers.get(peer)?;
        Some(match entry.asked {
            true => &self.capabilities,
            false => &self.by_member[entry.route.member],
        })
    }

    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.resolve_by_a_route(address, patience, false)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.resolve_by_a_route(address, patience, true)
    }

    fn peer(&self, peer: Peer) -> Option<PeerInfo> {
        let entry = self.peers.get(peer)?;
        let Route { member, peer: there } = entry.route;
        let there = self.members[member].endpoint.peer(there);
        Some(entry.info().with_attended(there.is_some_and(|info| info.attended)))
    }

    fn set_quota(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        let entry = self.peers.get_mut(peer).ok_or(QuotaError::UnknownPeer)?;
        entry.quota = Some(quota);
        let Route { member, peer: there } = entry.route;
        match self.members[member].endpoint.set_quota(there, quota) {
            // The peer is lost here, or will be.
            Err(QuotaError::UnknownPeer) => Ok(()),
            set => set,
        }
    }

    fn usage(&self, peer: Peer) -> Option<PeerUsage> {
        let entry = self.peers.get(peer)?;
        let Route { member, peer: there } = entry.route;
        let usage = self.members[member].endpoint.usage(there);
        Some(usage.unwrap_or_else(|| PeerUsage::new(entry.quota.unwrap_or_default())))
    }

    fn set_attended(&mut self) {
        for member in &mut self.members {
            member.endpoint.set_attended();
        }
    }

    fn forget(&mut self, peer: Peer) {
        self.forget_peer(peer);
        self.early.retain(|event| event.peer() != Some(peer));
    }

    #[inline]
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let entry = self.peers.get_mut(peer).ok_or(InjectError::UnknownPeer)?;
        let max = self.capabilities.limits.max_inject;
        let len = parts.iter().map(|part| part.len()).sum();
        if len > max {
            return Err(InjectError::TooLong { len, max });
        }
        let Route { member, peer: there } = entry.route;
        if !entry.open || self.outstanding.waits_for(member, there) {
            if matches!(entry.state, PeerState::Lost(_)) {
                return Err(InjectError::PeerLost);
            }
            if !mem::replace(&mut entry.full, true) {
                self.full.push(peer);
            }
            return Err(InjectError::Full);
        }
        self.pace.give(member);
        let sent = self.members[member].endpoint.inject(there, parts);
        match sent {
            Err(InjectError::Full) => entry.full_there = true,
            // The peer is known as lost here, or will be.
            Err(InjectError::UnknownPeer) => return Err(InjectError::PeerLost),
            _ => {}
        }
        sent
    }

    #[inline]
    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        self.submit_all(operations);
    }

    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        self.submit_one(operation)
    }

    fn cancel(&mut self, token: Token) {
        self.cancel_all(token);
    }

    fn in_use(&self, memory: &Slice) -> Option<InUse> {
        self.used(memory)
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        let all = self.pace.begin_pass();
        let before = events.len();
        let limit = before.saturating_add(budget.max(1));
        if !self.early.is_empty() {
            events.append(&mut self.early);
        }
        let mut worked = false;
        self.flush();
        if !self.released.is_empty() {
            self.release_unused();
        }
        let count = self.members.len();
        for nth in 0..count {
            let member = self.pace.nth(nth, count);
            let room = limit.saturating_sub(events.len());
            if room == 0 {
                if all {
                    self.pace.poll_all();
                }
                break;
            }
            if !all && !self.pace.is_due(member) {
                continue;
            }
            self.pace.polled(member);
            let from = events.len();
            if self.members[member].endpoint.progress(now, room, events) {
                worked = true;
                self.pace.worked(member);
            }
            self.translate(member, from, events);
        }
        if !self.greetings.is_empty() {
            worked |= self.serve_greetings();
        }
        // Peers that are up may be sent to from now on, so the handshake message leaves at once.
        while let Some(member) = self.greetings.pop_sent() {
            let from = events.len();
            self.members[member].endpoint.progress(now, 1, events);
            self.translate(member, from, events);
        }
        if !self.full.is_empty() {
            worked |= self.tell_room(Some(events));
        }
        if !self.early.is_empty() {
            events.append(&mut self.early);
        }
        worked | (events.len() > before)
    }

    #[inline]
    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        if !self.early.is_empty() {
            return None;
        }
        for member in 0..self.members.len() {
            if self.pace.is_warm(member)
                && let Some(peer) = self.members[member].endpoint.poll_message(message)
            {
                self.pace.worked(member);
                let ours = self.peers.introduced(member, peer);
                if ours.is_none() {
                    let handshake = mem::take(message);
                    self.handshake(Route { member, peer }, &handshake);
                }
                return ours;
            }
        }
        None
    }

    #[inline]
    fn relax(&self) {
        // Peers of this node come first, if a member goes there: a moment is worth most there.
        self.members[0].endpoint.relax();
    }

    fn arm(&mut self, now: Time) -> Sleep {
        self.pace.poll_all();
        if !self.early.is_empty() || self.tell_room(None) {
            return Sleep::Busy;
        }
        let mut until = self.until();
        for member in &mut self.members {
            match member.endpoint.arm(now) {
                Sleep::Busy => return Sleep::Busy,
                Sleep::Until(time) => until = until.min(time),
            }
        }
        Sleep::Until(until)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let all = self.members.iter().all(|member| member.endpoint.fd().is_some());
        all.then(|| self.epoll.as_fd())
    }

    fn notifier(&self) -> Notifier {
        self.members[0].endpoint.notifier()
    }

    /// Memory of the member for this node: its peers may read it in place.
    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        self.members[0].endpoint.alloc(len)
    }

    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        self.register_all(memory, access)
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        self.export_all(region)
    }

    fn export_part(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
    ) -> Result<(KeyId, Key), ExportError> {
        self.export_part_of_all(region, &range, access)
    }

    fn export_number(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        self.export_number_of_all(region, &range, access, number)
    }

    fn import(&mut self, key: &Key) -> Result<Remote, ImportError> {
        self.import_key(key)
    }

    fn import_from(&mut self, key: &Key, from: Peer) -> Result<Remote, ImportError> {
        self.import_key_of(key, from)
    }

    fn import_number(&mut self, peer: Peer, number: u64, len: u64) -> Result<Remote, ImportError> {
        self.import_number_of(peer, number, len)
    }

    fn release(&mut self, remote: Remote) {
        self.released.push(remote);
        self.release_unused();
    }
}
