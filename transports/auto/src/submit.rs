//! Handing operations to members.

use crate::{
    Auto,
    expected::Receive,
    outstanding::{Pending, ROOM},
    peers::Route,
};
use petasos_fabric::{
    Address, Done, Event, Full, InUse, OpError, OpErrorKind, Operation, Peer, PeerState, Refused,
    Slice, Support, Token, submit_each,
};
use std::{collections::VecDeque, mem};

/// The peer that an operation is about.
fn concerns(operation: &Operation) -> Option<Peer> {
    match operation {
        Operation::Send { peer, .. }
        | Operation::SendLong { peer, .. }
        | Operation::SendTagged { peer, .. }
        | Operation::Flush { peer, .. } => Some(*peer),
        Operation::Receive { body, .. } | Operation::Discard { body, .. } => Some(body.peer),
        Operation::PostReceive { source, .. } | Operation::Peek { source, .. } => *source,
        Operation::ReceiveClaimed { message, .. } | Operation::DiscardClaimed { message, .. } => {
            Some(message.peer)
        }
        Operation::Put { remote, .. }
        | Operation::Get { remote, .. }
        | Operation::Atomic { remote, .. }
        | Operation::Map { remote, .. } => Some(remote.peer),
        _ => None,
    }
}

/// What is wrong with an operation whose peer is not known.
fn stale(operation: &Operation) -> OpErrorKind {
    match operation {
        Operation::Receive { .. } | Operation::Discard { .. } => OpErrorKind::UnknownBody,
        Operation::Put { .. }
        | Operation::Get { .. }
        | Operation::Atomic { .. }
        | Operation::Map { .. } => OpErrorKind::UnknownRegion,
        _ => OpErrorKind::UnknownPeer,
    }
}

/// Whether an operation receives expected messages, or looks for them: then it is for what has come
/// of its peer, too, which need not be there any more.
fn is_receive(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::PostReceive { .. }
            | Operation::Peek { .. }
            | Operation::ReceiveClaimed { .. }
            | Operation::DiscardClaimed { .. }
    )
}

/// Whether an operation is about an expected message.
fn is_expected(operation: &Operation) -> bool {
    matches!(operation, Operation::SendTagged { .. }) || is_receive(operation)
}

/// Makes an operation one of a member's.
fn retarget(operation: &mut Operation, name: Token, there: Peer) {
    match operation {
        Operation::Send { token, peer, .. }
        | Operation::SendLong { token, peer, .. }
        | Operation::SendTagged { token, peer, .. }
        | Operation::Flush { token, peer } => {
            (*token, *peer) = (name, there);
        }
        Operation::PostReceive { token, source, .. } | Operation::Peek { token, source, .. } => {
            (*token, *source) = (name, Some(there));
        }
        Operation::ReceiveClaimed { token, message, .. }
        | Operation::DiscardClaimed { token, message } => {
            (*token, message.peer) = (name, there);
        }
        Operation::Receive { token, body, .. } | Operation::Discard { token, body, .. } => {
            (*token, body.peer) = (name, there);
        }
        Operation::Put { token, remote, .. }
        | Operation::Get { token, remote, .. }
        | Operation::Atomic { token, remote, .. }
        | Operation::Map { token, remote, .. } => (*token, remote.peer) = (name, there),
        _ => {}
    }
}

impl Auto {
    pub(crate) fn submit_all(&mut self, operations: &mut VecDeque<Operation>) {
        if !self.submit_plainly(operations) {
            submit_each(self, operations);
        }
    }

    /// Accepts one operation, if there is room for it. What its member refuses then waits here, one
    /// operation of each peer at most, but for those that [`Auto::submit_plainly`] left.
    pub(crate) fn submit_one(&mut self, mut operation: Operation) -> Result<(), Refused> {
        if let Some(member) = self.plain_member(&operation)
            && self.outstanding.is_flushed(member)
        {
            self.rename(&mut operation, member);
            self.pace.give(member);
            if let Err(refused) = self.members[member].endpoint.try_submit(operation) {
                self.outstanding.push(member, refused.operation);
            }
            return Ok(());
        }
        self.flush();
        if let Some(full) = self.full(&operation) {
            if full == Full::Peer
                && let Some(peer) = operation.target()
                && let Some(entry) = self.peers.get_mut(peer)
                && !mem::replace(&mut entry.full, true)
            {
                self.full.push(peer);
            }
            return Err(Refused { operation, full });
        }
        self.accept(operation);
        self.flush();
        Ok(())
    }

    /// The member for an operation about which there is nothing to decide here.
    #[inline]
    fn plain_member(&self, operation: &Operation) -> Option<usize> {
        match operation {
            Operation::Flush { .. } => return None,
            Operation::PostReceive { .. } if !self.expected.is_flowing() => return None,
            _ => {}
        }
        let entry = self.peers.get(concerns(operation)?)?;
        let plain = entry.open
            && !matches!(entry.state, PeerState::Lost(_))
            && self.check(operation).is_ok();
        plain.then_some(entry.route.member)
    }

    /// Gives a member all these operations without a queue between, if they are all for it, it has
    /// taken what it was given before, and they are no more than may wait for it. Its tokens and
    /// handles take the place of the user's where they are. False if nothing was done.
    fn submit_plainly(&mut self, operations: &mut VecDeque<Operation>) -> bool {
        let (first, second) = operations.as_mut_slices();
        let Some(member) = first.first().and_then(|first| self.plain_member(first)) else {
            return false;
        };
        let same = |operation: &Operation| self.plain_member(operation) == Some(member);
        let all = first[1..].iter().all(same) && second.iter().all(same);
        if !all || first.len() + second.len() > ROOM || !self.outstanding.is_flushed(member) {
            return false;
        }
        first.iter_mut().chain(second).for_each(|operation| self.rename(operation, member));
        self.pace.give(member);
        self.members[member].endpoint.submit(operations);
        self.outstanding.left(member, operations);
        true
    }

    /// Puts the member's token and handle in the place of the user's.
    fn rename(&mut self, operation: &mut Operation, member: usize) {
        let Some(peer) = concerns(operation) else { return };
        let Some(there) = self.peers.get(peer).map(|entry| entry.route.peer) else { return };
        let (token, member) = (operation.token(), member as u32);
        let name = self.outstanding.token(Pending::User { token, peer, member, refused: None });
        retarget(operation, name, there);
    }

    /// What has no room for an operation, if anything.
    fn full(&self, operation: &Operation) -> Option<Full> {
        if self.early.len() >= self.capabilities.limits.max_operations {
            return Some(Full::Endpoint);
        }
        match operation {
            Operation::PostReceive { source, .. } if self.must_wait(*source) => {
                let room = self.outstanding.may_wait(self.expected.waiting());
                return (!room).then_some(Full::Endpoint);
            }
            Operation::PostReceive { source: None, .. } | Operation::Peek { source: None, .. } => {
                let room = (0..self.members.len()).all(|m| self.outstanding.has_room(m));
                return (!room).then_some(Full::Endpoint);
            }
            _ => {}
        }
        let entry = self.peers.get(concerns(operation)?)?;
        let full = match (&entry.state, operation.target()) {
            (PeerState::Lost(_), _) => return None,
            _ if !entry.open && !is_receive(operation) => {
                !self.outstanding.may_wait(entry.waiting.len())
            }
            (_, Some(_)) => self.outstanding.waits_for(entry.route.member, entry.route.peer),
            (_, None) if self.outstanding.has_room(entry.route.member) => false,
            _ => return Some(Full::Endpoint),
        };
        full.then_some(Full::Peer)
    }

    /// Takes an operation in.
    pub(crate) fn accept(&mut self, mut operation: Operation) {
        let token = operation.token();
        if let Operation::Deregister { region, patience, .. } = operation {
            return self.close(token, region, patience);
        }
        if let Operation::Revoke { key, patience, .. } = operation {
            return self.revoke(token, key, patience);
        }
        match operation {
            _ if !is_receive(&operation) => {}
            _ if self.capabilities.tagged == Support::None => {
                let kind = OpErrorKind::Unsupported("expected messages");
                return self.fail(token, OpError::local(kind));
            }
            Operation::PostReceive { source, .. } if self.must_wait(source) => {
                return self.hold(operation);
            }
            Operation::PostReceive { source: None, tag, ignore, into, .. } => {
                return self.post_with_all(Receive { token, tag, ignore, into });
            }
            Operation::Peek { source: None, tag, ignore, claim, .. } => {
                return self.peek_all(token, tag, ignore, claim);
            }
            _ => {}
        }
        let Some(peer) = concerns(&operation) else {
            let error = OpError::local(OpErrorKind::Unsupported("this operation"));
            return self.fail(token, error);
        };
        let Some(entry) = self.peers.get_mut(peer) else {
            return self.fail(token, OpError::local(stale(&operation)));
        };
        let Route { member, peer: there } = entry.route;
        if let PeerState::Lost(reason) = &entry.state {
            // What came before it was lost can still be received.
            let reason = reason.clone();
            if is_receive(&operation) && self.peers.introduced(member, there) == Some(peer) {
                return self.give_lost(operation, peer);
            }
            let Some(entry) = self.peers.get(peer) else { return };
            let error = OpError::with_peer(OpErrorKind::PeerLost(reason), &entry.address);
            return self.fail(token, error);
        }
        if let Operation::Peek { .. } = operation
            && entry.asked
        {
            let result = Ok(Done::Peeked(None));
            return self.early.push(Event::Done { token, result });
        }
        if !entry.open && !is_receive(&operation) {
            entry.waiting.push_back(operation);
            self.outstanding.begin_waiting();
            return;
        }
        // The member has not seen the access that was refused here.
        let refused = match operation {
            Operation::Flush { .. } => entry.refused.take(),
            _ => None,
        };
        if let Err(kind) = self.check(&operation) {
            if let (Operation::Atomic { .. }, Some(entry)) = (&operation, self.peers.get_mut(peer))
            {
                entry.refused.get_or_insert_with(|| Box::new(kind.clone()));
            }
            return self.fail(token, OpError::local(kind));
        }
        let pending = Pending::User { token, peer, member: member as u32, refused };
        let name = self.outstanding.token(pending);
        retarget(&mut operation, name, there);
        self.pace.give(member);
        self.outstanding.push(member, operation);
    }

    /// Gives a receive to the member that has lost its peer.
    fn give_lost(&mut self, mut operation: Operation, peer: Peer) {
        let Some(Route { member, peer: there }) = self.peers.get(peer).map(|entry| entry.route)
        else {
            return;
        };
        let token = operation.token();
        let pending = Pending::User { token, peer, member: member as u32, refused: None };
        let name = self.outstanding.token(pending);
        retarget(&mut operation, name, there);
        self.pace.give(member);
        self.outstanding.push(member, operation);
    }

    /// Refuses what some members would take, and not all of them.
    fn check(&self, operation: &Operation) -> Result<(), OpErrorKind> {
        let limits = &self.capabilities.limits;
        let (what, value, limit) = match operation {
            Operation::Send { payload, .. } => {
                ("the length of a message", payload.len(), limits.max_message)
            }
            Operation::SendLong { header, .. } => {
                ("the length of a header", header.len(), limits.max_header)
            }
            Operation::Atomic { operand, .. } => {
                ("the length of an operand", operand.len(), limits.max_atomic)
            }
            _ if self.capabilities.tagged == Support::None && is_expected(operation) => {
                return Err(OpErrorKind::Unsupported("expected messages"));
            }
            _ => return Ok(()),
        };
        let (value, limit) = (value as u64, limit as u64);
        match value <= limit {
            true => Ok(()),
            false => Err(OpErrorKind::TooLarge { what, value, limit }),
        }
    }

    /// Gives a member an operation of ours.
    pub(crate) fn hand(&mut self, member: usize, operation: Operation) {
        self.pace.give(member);
        self.outstanding.push(member, operation);
        self.flush();
    }

    /// Gives members the operations for which they have room.
    pub(crate) fn flush(&mut self) {
        self.outstanding.flush(&mut self.members);
    }

    /// An operation that no member was given has failed.
    pub(crate) fn fail(&mut self, token: Token, error: OpError) {
        self.early.push(Event::Done { token, result: Err(error) });
    }

    /// Fails operations that wait for a peer which is not asked any more.
    pub(crate) fn fail_all(
        &mut self,
        waiting: VecDeque<Operation>,
        kind: &OpErrorKind,
        address: &Address,
    ) {
        self.outstanding.end_waiting(waiting.len());
        for operation in waiting {
            self.fail(operation.token(), OpError::with_peer(kind.clone(), address));
        }
    }

    pub(crate) fn cancel_all(&mut self, wanted: Token) {
        let is = |operation: &Operation| operation.token() == wanted;
        for peer in self.peers.handles() {
            let Some(entry) = self.peers.get_mut(peer) else { continue };
            if let Some(at) = entry.waiting.iter().position(is) {
                entry.waiting.remove(at);
                let error = OpError::with_peer(OpErrorKind::Cancelled, &entry.address);
                self.outstanding.end_waiting(1);
                return self.fail(wanted, error);
            }
        }
        if self.cancel_held(wanted) {
            return;
        }
        if let Some(index) = self.expected.of_user(wanted) {
            return self.cancel_any(index);
        }
        for (name, member) in self.outstanding.of_user(wanted) {
            if !self.outstanding.withdraw(member, name) {
                self.members[member].endpoint.cancel(name);
            } else if let Some(event) = self.done(name, Err(OpError::local(OpErrorKind::Cancelled)))
            {
                self.early.push(event);
            }
        }
    }

    /// What touches some memory: operations that no member was given yet, or a member.
    pub(crate) fn used(&self, memory: &Slice) -> Option<InUse> {
        for peer in self.peers.handles() {
            let waiting = self.peers.get(peer).map(|entry| entry.waiting.iter());
            let waits = waiting.into_iter().flatten().find(|operation| operation.uses(memory));
            if let Some(operation) = waits {
                let used = InUse::new("an operation that waits for its peer");
                return Some(used.by(operation.token()).with(Some(peer)));
            }
        }
        if let Some(token) = self.expected.held_with(memory) {
            return Some(InUse::new("a receive that waits for a route").by(token));
        }
        if let Some(name) = self.outstanding.backlog_of(memory) {
            return Some(self.ours(InUse::new("an operation that waits for room").by(name)));
        }
        let mut members = self.members.iter();
        let used = members.find_map(|member| member.endpoint.in_use(memory))?;
        Some(self.ours(used))
    }

    /// The same with the user's token and handle, where it is an operation of the user's.
    fn ours(&self, used: InUse) -> InUse {
        let what = InUse::new(used.what);
        let Some(name) = used.token else { return what };
        if let Some((token, peer)) = self.outstanding.user(name) {
            return what.by(token).with(peer);
        }
        let any = self.outstanding.of_any(name).and_then(|index| self.expected.any_token(index));
        any.map_or(what, |token| what.by(token))
    }

    /// Ends operations that wait for room and are for a peer that is forgotten.
    pub(crate) fn drop_backlog(&mut self, peer: Peer, kind: &OpErrorKind, address: &Address) {
        for name in self.outstanding.withdraw_all(peer) {
            let event = self.done(name, Err(OpError::with_peer(kind.clone(), address)));
            self.early.extend(event);
        }
    }
}
