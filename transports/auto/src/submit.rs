//! Operations on their way to members.

use crate::{Auto, peers::Way};
use petasos_fabric::{
    Address, Event, OpError, OpErrorKind, Operation, Peer, PeerState, RegionId, Support, Token,
};
use std::collections::VecDeque;

/// Operations that may wait for room at one member.
const ROOM: usize = 256;
/// Operations that may wait for peers who are asked where they are.
const WAITING: usize = 4096;

/// What a member was given, by the token under which it was.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A user's.
    User { token: Token, peer: Peer, address: Address, member: usize },
    /// A member's part in closing a region.
    Closing { region: RegionId, member: usize },
    /// Nobody waits for it.
    Nobody,
}

/// The peer that an operation is about.
fn concerns(operation: &Operation) -> Option<Peer> {
    match operation {
        Operation::Send { peer, .. } | Operation::SendLong { peer, .. } => Some(*peer),
        Operation::Receive { body, .. } | Operation::Discard { body, .. } => Some(body.peer),
        Operation::Put { remote, .. }
        | Operation::Get { remote, .. }
        | Operation::Atomic { remote, .. }
        | Operation::Map { remote, .. } => Some(remote.peer),
        _ => None,
    }
}

/// What is wrong with an operation whose peer nobody knows.
fn stale(operation: &Operation) -> OpErrorKind {
    match operation {
        Operation::Receive { .. } | Operation::Discard { .. } => OpErrorKind::UnknownBody,
        Operation::Send { .. } | Operation::SendLong { .. } => OpErrorKind::UnknownPeer,
        _ => OpErrorKind::UnknownRegion,
    }
}

/// Makes an operation one of a member's.
fn retarget(operation: &mut Operation, name: Token, there: Peer) {
    match operation {
        Operation::Send { token, peer, .. } | Operation::SendLong { token, peer, .. } => {
            (*token, *peer) = (name, there);
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
        while let Some(operation) = operations.front() {
            if !self.has_room(operation) {
                self.flush();
                if !self.has_room(operation) {
                    break;
                }
            }
            if let Some(operation) = operations.pop_front() {
                self.accept(operation);
            }
        }
        self.flush();
    }

    fn has_room(&self, operation: &Operation) -> bool {
        let entry = concerns(operation).and_then(|peer| self.peers.get(peer));
        match entry {
            Some(entry) if entry.open => self.backlog[entry.way.member].len() < ROOM,
            Some(_) => self.waiting < WAITING,
            None => true,
        }
    }

    /// Takes an operation in.
    pub(crate) fn accept(&mut self, mut operation: Operation) {
        let token = operation.token();
        if let Operation::Deregister { region, patience, .. } = operation {
            return self.close(token, region, patience);
        }
        if let Err(kind) = self.check(&operation) {
            return self.fail(token, OpError::local(kind));
        }
        let Some(peer) = concerns(&operation) else {
            let error = OpError::local(OpErrorKind::Unsupported("expected messages"));
            return self.fail(token, error);
        };
        let Some(entry) = self.peers.get_mut(peer) else {
            return self.fail(token, OpError::local(stale(&operation)));
        };
        if let PeerState::Lost(reason) = &entry.state {
            let error = OpError::with_peer(OpErrorKind::PeerLost(reason.clone()), &entry.address);
            return self.fail(token, error);
        }
        if !entry.open {
            entry.waiting.push_back(operation);
            self.waiting += 1;
            return;
        }
        let (Way { member, peer: there }, address) = (entry.way, entry.address.clone());
        let name = self.token(Pending::User { token, peer, address, member });
        retarget(&mut operation, name, there);
        self.give(member);
        self.backlog[member].push_back(operation);
    }

    /// What members would take, some of them, and all together do not.
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
            Operation::Map { .. } if self.capabilities.map == Support::None => {
                return Err(OpErrorKind::Unsupported("mapping with peers on several transports"));
            }
            _ => return Ok(()),
        };
        let (value, limit) = (value as u64, limit as u64);
        match value <= limit {
            true => Ok(()),
            false => Err(OpErrorKind::TooLarge { what, value, limit }),
        }
    }

    /// A token for a member.
    pub(crate) fn token(&mut self, pending: Pending) -> Token {
        Token(self.pending.insert(pending) as u64)
    }

    /// Gives a member an operation of ours.
    pub(crate) fn hand(&mut self, member: usize, operation: Operation) {
        self.give(member);
        self.backlog[member].push_back(operation);
        self.flush();
    }

    /// Gives members what they have room for.
    pub(crate) fn flush(&mut self) {
        for (member, backlog) in self.members.iter_mut().zip(&mut self.backlog) {
            if !backlog.is_empty() {
                member.endpoint.submit(backlog);
            }
        }
    }

    /// An operation that no member was given has failed.
    pub(crate) fn fail(&mut self, token: Token, error: OpError) {
        self.early.push(Event::Done { token, result: Err(error) });
    }

    /// Fails what waits for a peer who is not asked any more.
    pub(crate) fn fail_all(
        &mut self,
        waiting: VecDeque<Operation>,
        kind: &OpErrorKind,
        address: &Address,
    ) {
        self.waiting -= waiting.len();
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
                self.waiting -= 1;
                return self.fail(wanted, error);
            }
        }
        let theirs = self.pending.iter().filter_map(|(name, pending)| match pending {
            // What closes memory is not cancelled, as nobody would close it then.
            Pending::User { token, member, .. } if *token == wanted => {
                Some((Token(name as u64), *member))
            }
            _ => None,
        });
        for (name, member) in theirs.collect::<Vec<_>>() {
            let backlog = &mut self.backlog[member];
            match backlog.iter().position(|operation| operation.token() == name) {
                Some(at) => {
                    backlog.remove(at);
                    let result = Err(OpError::local(OpErrorKind::Cancelled));
                    if let Some(event) = self.done(name, result) {
                        self.early.push(event);
                    }
                }
                None => self.members[member].endpoint.cancel(name),
            }
        }
    }

    /// Ends what waits for room to go to a peer who is forgotten.
    pub(crate) fn drop_backlog(&mut self, peer: Peer, kind: &OpErrorKind, address: &Address) {
        for member in 0..self.backlog.len() {
            for operation in std::mem::take(&mut self.backlog[member]) {
                let name = operation.token();
                let of_it = matches!(
                    self.pending.get(name.0 as usize),
                    Some(Pending::User { peer: of, .. }) if *of == peer
                );
                if of_it {
                    let error = OpError::with_peer(kind.clone(), address);
                    let event = self.done(name, Err(error));
                    self.early.extend(event);
                } else {
                    self.backlog[member].push_back(operation);
                }
            }
        }
    }
}
