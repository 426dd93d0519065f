//! The contract of the fabric.

use crate::{Auto, completions::is_ours, peers::Route, receive};
use petasos_fabric::{
    Access, Address, AllocError, Capabilities, ChannelUse, Completion, Endpoint, Event,
    ExportError, ImportError, InUse, Incarnation, InjectError, Key, KeyId, Lease, Notifier,
    Operation, Peer, PeerInfo, PeerQuota, PeerUsage, QuotaError, Refused, Region, RegionId,
    RegisterError, Remote, ResolveError, Sleep, Slice, Time, Token,
};
use std::{
    collections::VecDeque,
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

    fn channels_of(&self, peer: Peer) -> Vec<ChannelUse> {
        let route = self.peers.get(peer).map(|entry| entry.route);
        route.map_or_else(Vec::new, |Route { member, peer }| {
            self.members[member].endpoint.channels_of(peer)
        })
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
        if let [part] = parts
            && let Some(through) = self.plain_way(peer, part.len())
        {
            self.pace.give_mask(through.mask);
            return match self.members[through.member()].endpoint.inject(through.there, parts) {
                Ok(()) => Ok(()),
                Err(error) => Err(self.not_injected(peer, error)),
            };
        }
        self.inject_any(peer, parts)
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

    /// Mostly one member is polled, and what it reports is the user's as it is.
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        let Some(member) = self.begin_plain_pass() else {
            return self.progress_all(budget, events);
        };
        let before = events.len();
        let worked = self.members[member].endpoint.progress(now, budget.max(1), events);
        if worked {
            self.pace.worked(member);
        }
        match events.get(before..) {
            Some(news) if news.iter().any(|event| !receive::is_ours(event)) => {
                self.translate_all(member, before, events)
            }
            _ => worked | (events.len() > before),
        }
    }

    #[inline]
    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        if !self.early.is_empty() {
            return None;
        }
        let member = self.pace.front();
        match self.members[member].endpoint.poll_message(message) {
            Some(there) => {
                self.pace.found_in_front();
                self.sender(member, there, message)
            }
            None if self.pace.others().is_empty() => None,
            None => self.poll_others(message),
        }
    }

    #[inline]
    fn poll_completion(&mut self) -> Option<Completion> {
        if !self.early.is_empty() {
            return None;
        }
        let found = self.members[self.pace.front()].endpoint.poll_completion();
        match &found {
            Some(completion) if is_ours(completion) => self.pace.found(),
            None if self.pace.others().is_empty() => {}
            _ => return self.translate_or_poll_on(found),
        }
        found
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
        self.pace.add_chores();
        self.release_unused();
    }
}
