//! Handing operations to members.

use crate::{
    Auto,
    expected::{Expected, Receive},
    outstanding::{Pending, ROOM, is_name},
    peers::{Route, Through},
};
use petasos_fabric::{
    Address, Capabilities, Done, Event, Full, InUse, OpError, OpErrorKind, Operation, Peer,
    PeerState, Refused, Slice, Support, Token, submit_each,
};
use smallvec::SmallVec;
use std::{collections::VecDeque, mem};

/// The peer that an operation is about.
pub(crate) fn concerns(operation: &Operation) -> Option<Peer> {
    match operation.plain() {
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
    match operation.plain() {
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
    matches!(operation.plain(), Operation::SendTagged { .. }) || is_receive(operation)
}

/// What the hot path has to know of an operation: its token, where its peer stands, and whether
/// all members would take it. `None` of one about which more is to be decided.
#[inline(always)]
fn plainly<'a>(
    operation: &'a mut Operation,
    capabilities: &Capabilities,
    expected: &Expected,
) -> Option<(Token, &'a mut Peer, bool)> {
    let limits = &capabilities.limits;
    let tagged = || capabilities.tagged != Support::None;
    Some(match operation.plain_mut() {
        Operation::Put { token, remote, .. }
        | Operation::Get { token, remote, .. }
        | Operation::Map { token, remote, .. } => (*token, &mut remote.peer, true),
        Operation::Atomic { token, remote, operand, .. } => {
            (*token, &mut remote.peer, operand.len() <= limits.max_atomic)
        }
        Operation::Send { token, peer, payload, .. } => {
            (*token, peer, payload.len() <= limits.max_message)
        }
        Operation::SendLong { token, peer, header, .. } => {
            (*token, peer, header.len() <= limits.max_header)
        }
        Operation::SendTagged { token, peer, .. } => (*token, peer, tagged()),
        Operation::PostReceive { token, source: Some(peer), .. } => {
            (*token, peer, tagged() && expected.is_flowing())
        }
        Operation::Peek { token, source: Some(peer), .. } => (*token, peer, tagged()),
        Operation::ReceiveClaimed { token, message, .. }
        | Operation::DiscardClaimed { token, message } => (*token, &mut message.peer, tagged()),
        Operation::Receive { token, body, .. } | Operation::Discard { token, body } => {
            (*token, &mut body.peer, true)
        }
        _ => return None,
    })
}

/// Makes an operation one of a member's, which has it under a name.
fn rename(operation: &mut Operation, name: Token) {
    match operation.plain_mut() {
        Operation::Send { token, .. }
        | Operation::SendLong { token, .. }
        | Operation::SendTagged { token, .. }
        | Operation::Flush { token, .. }
        | Operation::PostReceive { token, .. }
        | Operation::Peek { token, .. }
        | Operation::ReceiveClaimed { token, .. }
        | Operation::DiscardClaimed { token, .. }
        | Operation::Receive { token, .. }
        | Operation::Discard { token, .. }
        | Operation::Put { token, .. }
        | Operation::Get { token, .. }
        | Operation::Atomic { token, .. }
        | Operation::Map { token, .. } => *token = name,
        _ => {}
    }
}

/// Puts a member's handle in the place of ours.
fn retarget(operation: &mut Operation, there: Peer) {
    match operation.plain_mut() {
        Operation::Send { peer, .. }
        | Operation::SendLong { peer, .. }
        | Operation::SendTagged { peer, .. }
        | Operation::Flush { peer, .. } => *peer = there,
        Operation::PostReceive { source, .. } | Operation::Peek { source, .. } => {
            *source = Some(there);
        }
        Operation::ReceiveClaimed { message, .. } | Operation::DiscardClaimed { message, .. } => {
            message.peer = there;
        }
        Operation::Receive { body, .. } | Operation::Discard { body, .. } => body.peer = there,
        Operation::Put { remote, .. }
        | Operation::Get { remote, .. }
        | Operation::Atomic { remote, .. }
        | Operation::Map { remote, .. } => remote.peer = there,
        _ => {}
    }
}

impl Auto {
    #[inline]
    pub(crate) fn submit_all(&mut self, operations: &mut VecDeque<Operation>) {
        // Most programs submit one at a time.
        if operations.len() == 1
            && let Some(operation) = operations.front_mut()
            && let Some(member) = self.prepare(operation)
        {
            self.members[member].endpoint.submit(operations);
            return self.outstanding.left(member, operations);
        }
        self.submit_more(operations);
    }

    #[inline(never)]
    fn submit_more(&mut self, operations: &mut VecDeque<Operation>) {
        if !self.submit_plainly(operations) {
            submit_each(self, operations);
        }
    }

    /// Accepts one operation, if there is room for it. What its member refuses then waits here, one
    /// operation of each peer at most, but for those that [`Auto::submit_all`] left.
    pub(crate) fn submit_one(&mut self, mut operation: Operation) -> Result<(), Refused> {
        if let Some(member) = self.prepare(&mut operation) {
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
                self.owe_room(peer);
            }
            return Err(Refused { operation, full });
        }
        self.accept(operation);
        self.flush();
        Ok(())
    }

    /// The route of an operation about which there is nothing to decide here, and whose member has
    /// taken all that it was given before; and where the operation says who its peer is. The member
    /// has it under the program's token.
    #[inline(always)]
    fn plain_route<'a>(&self, operation: &'a mut Operation) -> Option<(&Through, &'a mut Peer)> {
        let (token, peer, taken) = plainly(operation, &self.capabilities, &self.expected)?;
        let through = self.peers.through(*peer)?;
        let plain = taken && !is_name(token) && self.outstanding.is_flushed_mask(through.mask);
        plain.then_some((through, peer))
    }

    /// Makes a plain operation one of its member's.
    #[inline(always)]
    fn prepare(&mut self, operation: &mut Operation) -> Option<usize> {
        let (&through, peer) = self.plain_route(operation)?;
        *peer = through.there;
        self.pace.give_mask(through.mask);
        Some(through.member())
    }

    /// Gives a member all these operations without a queue between, if they are all plain and for
    /// it, and are no more than may wait for it. Its handles take the place of the user's where
    /// they are. False if nothing was done.
    fn submit_plainly(&mut self, operations: &mut VecDeque<Operation>) -> bool {
        if operations.len() > ROOM {
            return false;
        }
        let mut routes = SmallVec::<[Peer; 64]>::new();
        let mut member = None;
        for operation in &mut *operations {
            match self.plain_route(operation) {
                Some((route, _)) if *member.get_or_insert(route.member()) == route.member() => {
                    routes.push(route.there);
                }
                _ => return false,
            }
        }
        let Some(member) = member else { return true };
        for (operation, there) in operations.iter_mut().zip(routes) {
            retarget(operation, there);
        }
        self.pace.give(member);
        self.members[member].endpoint.submit(operations);
        self.outstanding.left(member, operations);
        true
    }

    /// Makes an operation with a peer one of its member's; `refused` is what a flush has to tell
    /// beside what the member says.
    fn give_to(
        &mut self,
        mut operation: Operation,
        peer: Peer,
        Route { member, peer: there }: Route,
        refused: Option<Box<OpErrorKind>>,
    ) {
        let token = operation.token();
        if refused.is_some() || is_name(token) {
            let pending = Pending::User { token, peer, member: member as u32, refused };
            rename(&mut operation, self.outstanding.token(pending));
        }
        retarget(&mut operation, there);
        self.pace.give(member);
        self.outstanding.push(member, operation);
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
            _ if !entry.is_open() && !is_receive(operation) => {
                !self.outstanding.may_wait(entry.waiting.len())
            }
            (_, Some(_)) => self.outstanding.waits_for(entry.route.member, entry.route.peer),
            (_, None) if self.outstanding.has_room(entry.route.member) => false,
            _ => return Some(Full::Endpoint),
        };
        full.then_some(Full::Peer)
    }

    /// Takes an operation in.
    pub(crate) fn accept(&mut self, operation: Operation) {
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
        let route = entry.route;
        if let PeerState::Lost(reason) = &entry.state {
            // What came before it was lost can still be received.
            let reason = reason.clone();
            let Route { member, peer: there } = route;
            if is_receive(&operation) && self.peers.introduced(member, there) == Some(peer) {
                return self.give_to(operation, peer, route, None);
            }
            let Some(entry) = self.peers.get(peer) else { return };
            let error = OpError::with_peer(OpErrorKind::PeerLost(reason), &entry.address);
            return self.fail(token, error);
        }
        if let Operation::Peek { .. } = operation
            && entry.asked
        {
            let result = Ok(Done::Peeked(None));
            return self.report(Event::Done { token, result });
        }
        if !entry.is_open() && !is_receive(&operation) {
            entry.waiting.push_back(operation);
            self.outstanding.begin_waiting();
            return;
        }
        // The member has not seen the access that was refused here.
        let refused = match operation.plain() {
            Operation::Flush { .. } => entry.refused.take(),
            _ => None,
        };
        if let Err(kind) = self.check(&operation) {
            if let Operation::Atomic { .. } = operation.plain()
                && let Some(entry) = self.peers.get_mut(peer)
            {
                entry.refused.get_or_insert_with(|| Box::new(kind.clone()));
            }
            return self.fail(token, OpError::local(kind));
        }
        self.give_to(operation, peer, route, refused);
    }

    /// Refuses what some members would take, and not all of them.
    fn check(&self, operation: &Operation) -> Result<(), OpErrorKind> {
        let limits = &self.capabilities.limits;
        let (what, value, limit) = match operation.plain() {
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
        self.report(Event::Done { token, result: Err(error) });
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
                self.report(event);
            }
        }
        if is_name(wanted) {
            return;
        }
        for member in 0..self.members.len() {
            while self.outstanding.withdraw(member, wanted) {
                self.fail(wanted, OpError::local(OpErrorKind::Cancelled));
            }
            self.members[member].endpoint.cancel(wanted);
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
        if let Some((member, token, there)) = self.outstanding.backlog_of(memory) {
            let what = InUse::new("an operation that waits for room").by(token);
            return Some(self.ours(what.with(there), member));
        }
        let mut members = self.members.iter().enumerate();
        let (member, used) =
            members.find_map(|(nth, member)| Some((nth, member.endpoint.in_use(memory)?)))?;
        Some(self.ours(used, member))
    }

    /// The same with the user's token and handle, where it is an operation of the user's.
    fn ours(&self, used: InUse, member: usize) -> InUse {
        let what = InUse::new(used.what);
        let Some(name) = used.token else { return what };
        if !is_name(name) {
            let peer = used.peer.and_then(|there| self.peers.introduced(member, there));
            return what.by(name).with(peer);
        }
        if let Some((token, peer)) = self.outstanding.user(name) {
            return what.by(token).with(self.peers.get(peer).map(|entry| entry.handle));
        }
        let any = self.outstanding.of_any(name).and_then(|index| self.expected.any_token(index));
        any.map_or(what, |token| what.by(token))
    }

    /// Ends operations that wait for room and are for a peer that is forgotten.
    pub(crate) fn drop_backlog(&mut self, route: Route, kind: &OpErrorKind, address: &Address) {
        for token in self.outstanding.withdraw_all(route.member, route.peer) {
            let error = OpError::with_peer(kind.clone(), address);
            if !is_name(token) {
                self.fail(token, error);
            } else if let Some(event) = self.done(token, Err(error)) {
                self.report(event);
            }
        }
    }
}
