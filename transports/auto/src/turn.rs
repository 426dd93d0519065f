//! A pass over the members, and messages that are not sent at once.

use crate::{
    Auto,
    pace::Due,
    peers::{Route, Through},
};
use petasos_fabric::{Event, InjectError, Lease, Peer, PeerState};
use std::mem;

/// How long all parts are together.
fn total(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

impl Auto {
    /// A pass begins that is one as most, in which one member is polled: that one.
    #[inline]
    pub(crate) fn begin_plain_pass(&mut self) -> Option<usize> {
        debug_assert!(self.pace.has_chores() || !self.has_listed(), "chores are known");
        if self.outstanding.is_behind() {
            return None;
        }
        self.pace.begin_plain_pass()
    }

    /// Whether anything is in the lists of what is to be done in a pass.
    fn has_listed(&self) -> bool {
        let lists = self.early.len() | self.released.len() | self.full.len() | self.greetings.len();
        lists != 0
    }

    /// A pass in which there may be more to do than to poll one member.
    #[inline(never)]
    pub(crate) fn progress_all(&mut self, budget: usize, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        let limit = before.saturating_add(budget.max(1));
        let (mut due, mut worked) = (self.pace.begin_pass(self.now), false);
        if self.pace.has_chores() || self.outstanding.is_behind() {
            due = due.without(self.begin_with_chores(limit, events, &mut worked));
        }
        if self.poll_members(due, limit, events, &mut worked) {
            worked |= self.end_with_chores(events);
        }
        if !self.has_listed() {
            self.pace.end_chores();
        }
        worked | (events.len() > before)
    }

    /// Translates what one member has reported. True if anything was done.
    #[inline(never)]
    pub(crate) fn translate_all(
        &mut self,
        member: usize,
        from: usize,
        events: &mut Vec<Event>,
    ) -> bool {
        if self.translate(member, from, events) {
            self.end_with_chores(events);
        }
        true
    }

    /// Polls members, as far as there is room up to `limit` events. True if there was any event but
    /// those that only name a peer, if anything.
    pub(crate) fn poll_members(
        &mut self,
        mut due: Due,
        limit: usize,
        events: &mut Vec<Event>,
        worked: &mut bool,
    ) -> bool {
        let mut other = false;
        loop {
            let left = due;
            let Some(member) = due.next() else { break };
            let from = events.len();
            if from >= limit {
                self.pace.skip(left);
                break;
            }
            let now = self.now;
            if self.members[member].endpoint.progress(now, limit - from, events) {
                *worked = true;
                self.pace.worked(member);
            }
            other |= self.translate(member, from, events);
        }
        other
    }

    /// What comes before members are polled as in any other pass. Returns those that were polled
    /// here: all after a sleep, and those for which the pass before had no room.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin_with_chores(
        &mut self,
        limit: usize,
        events: &mut Vec<Event>,
        worked: &mut bool,
    ) -> Due {
        events.append(&mut self.early);
        self.flush();
        if !self.released.is_empty() {
            self.release_unused();
        }
        let first = self.pace.take_first();
        self.poll_members(first, limit, events, worked);
        *worked |= self.end_with_chores(events);
        first
    }

    /// What follows when events have come that mean something here. True if anything was done.
    #[inline(never)]
    pub(crate) fn end_with_chores(&mut self, events: &mut Vec<Event>) -> bool {
        let mut worked = false;
        if !self.greetings.is_empty() {
            worked |= self.serve_greetings();
        }
        // Peers that are up may be sent to from now on, so the handshake message leaves at once.
        while let Some(member) = self.greetings.pop_sent() {
            let from = events.len();
            self.members[member].endpoint.progress(self.now, 1, events);
            self.translate(member, from, events);
        }
        if !self.full.is_empty() {
            worked |= self.tell_room(Some(events));
        }
        events.append(&mut self.early);
        worked
    }

    /// The route of a message of `len` bytes; `None` if that is not open, others wait before it, or
    /// it is too long.
    #[inline(always)]
    pub(crate) fn plain_way(&self, peer: Peer, len: usize) -> Option<Through> {
        let &through = self.peers.through(peer)?;
        let plain = len <= self.capabilities.limits.max_inject
            && self.outstanding.is_flushed_mask(through.mask);
        plain.then_some(through)
    }

    /// Sends any message. A function of its own, so that the path of a message of one part is short.
    #[inline(never)]
    pub(crate) fn inject_any(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let Some(through) = self.plain_way(peer, total(parts)) else {
            return self.inject_after_others(peer, parts);
        };
        self.pace.give_mask(through.mask);
        let sent = self.members[through.member()].endpoint.inject(through.there, parts);
        sent.map_err(|error| self.not_injected(peer, error))
    }

    /// A member did not take a message.
    #[cold]
    #[inline(never)]
    pub(crate) fn not_injected(&mut self, peer: Peer, error: InjectError) -> InjectError {
        match error {
            InjectError::Full => {
                if let Some(entry) = self.peers.get_mut(peer) {
                    entry.full_there = true;
                }
                error
            }
            // The peer is known as lost here, or will be.
            InjectError::UnknownPeer => InjectError::PeerLost,
            _ => error,
        }
    }

    /// Sends a message to a peer for which operations may wait, or whose route is not open; or says
    /// why not.
    #[cold]
    #[inline(never)]
    pub(crate) fn inject_after_others(
        &mut self,
        peer: Peer,
        parts: &[&[u8]],
    ) -> Result<(), InjectError> {
        let entry = self.peers.get_mut(peer).ok_or(InjectError::UnknownPeer)?;
        let max = self.capabilities.limits.max_inject;
        let len = total(parts);
        if len > max {
            return Err(InjectError::TooLong { len, max });
        }
        if matches!(entry.state, PeerState::Lost(_)) {
            return Err(InjectError::PeerLost);
        }
        let Route { member, peer: there } = entry.route;
        if !entry.is_open() || self.outstanding.waits_for(member, there) {
            if !mem::replace(&mut entry.full, true) {
                self.owe_room(peer);
            }
            return Err(InjectError::Full);
        }
        self.pace.give(member);
        let sent = self.members[member].endpoint.inject(there, parts);
        sent.map_err(|error| self.not_injected(peer, error))
    }

    /// The sender of a message that a member has found.
    #[inline(always)]
    pub(crate) fn sender(
        &mut self,
        member: usize,
        there: Peer,
        message: &mut Lease,
    ) -> Option<Peer> {
        let ours = self.peers.introduced(member, there);
        if ours.is_none() {
            self.take_handshake(Route { member, peer: there }, message);
        }
        ours
    }

    /// The first message of a peer that has not identified itself: that is what it is to do.
    #[cold]
    #[inline(never)]
    fn take_handshake(&mut self, route: Route, message: &mut Lease) {
        let handshake = mem::take(message);
        self.handshake(route, &handshake);
    }

    /// Polls the members behind that in front for a message, one after the other.
    #[inline(never)]
    pub(crate) fn poll_others(&mut self, message: &mut Lease) -> Option<Peer> {
        for member in self.pace.others() {
            if let Some(there) = self.members[member].endpoint.poll_message(message) {
                self.pace.worked(member);
                self.pace.found();
                return self.sender(member, there, message);
            }
        }
        None
    }
}
