//! Put, get and atomics of the user's, carried out by the device.
//!
//! An access is split into pieces of at most the device's size, of which a bounded number is under
//! way at a time; the pieces of one access are not ordered. What the device cannot do in one piece
//! (a put with event of several pieces, say) is left to the engine, and the memory's owner serves
//! it.

use crate::{
    Channels, Device,
    device::{AtomicAccess, Fault, Node, RemoteKey, Target, Ticket},
    flow::Flow,
    port::Pending,
};
use petasos_fabric::{
    Access as Rights, AtomicOp, Cursor, Done, Event, Incarnation, Key, LostReason, OpError,
    OpErrorKind, Operation, Peer, PeerState, Slice, Token,
};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::HashMap;

/// An access that was accepted and has not ended.
#[derive(Debug)]
pub(crate) struct Access {
    serial: u32,
    operation: Operation,
    peer: Peer,
    key: RemoteKey,
    incarnation: Incarnation,
    total: u64,
    /// How much was handed to the device.
    handed: Cursor,
    /// All was handed over; for an access of no bytes, its one piece was.
    complete: bool,
    /// Pieces under way.
    running: usize,
    outcome: Option<Result<Done, OpErrorKind>>,
}

/// All accesses that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    list: Slab<Access>,
    tokens: HashMap<Token, usize>,
    /// Of the access that was added last: tells the users of a slot apart.
    serial: u32,
}

impl Accesses {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds an access, whose serial number is set here. Returns its slot.
    fn add(&mut self, mut access: Access) -> usize {
        self.serial = self.serial.wrapping_add(1);
        access.serial = self.serial;
        let token = access.operation.token();
        let slot = self.list.insert(access);
        self.tokens.insert(token, slot);
        slot
    }

    fn get_mut(&mut self, slot: usize) -> Option<&mut Access> {
        self.list.get_mut(slot)
    }

    fn is_complete(&self, slot: usize) -> bool {
        self.list.get(slot).is_some_and(|access| access.complete)
    }

    /// The slot of the access with this token.
    fn find(&self, token: Token) -> Option<usize> {
        self.tokens.get(&token).copied()
    }

    fn of_peer(&self, peer: Peer) -> Vec<usize> {
        let of_peer = self.list.iter().filter(|(_, access)| access.peer == peer);
        of_peer.map(|(slot, _)| slot).collect()
    }

    fn remove(&mut self, slot: usize) -> Access {
        let access = self.list.remove(slot);
        let token = access.operation.token();
        if self.tokens.get(&token) == Some(&slot) {
            self.tokens.remove(&token);
        }
        access
    }
}

impl<D: Device> Channels<D> {
    /// Takes in an access. Returns an operation that is for the engine.
    pub(crate) fn accept_access(&mut self, operation: Operation) -> Option<Operation> {
        let (Operation::Put { remote, .. }
        | Operation::Get { remote, .. }
        | Operation::Atomic { remote, .. }) = &operation
        else {
            return Some(operation);
        };
        let peer = remote.peer;
        let info = self.engine.peer_info(peer);
        let live = info.is_some_and(|info| !matches!(info.state, PeerState::Lost(_)));
        if !live || self.engine.is_self(peer) {
            return Some(operation);
        }
        let Some(imported) = self.engine.imported(*remote) else { return Some(operation) };
        let route = imported.parts.route(Key::ROUTE_DEVICE).map(|bytes| RemoteKey::new(bytes));
        let Some(Some(key)) = route else { return Some(operation) };
        let incarnation = imported.parts.incarnation;
        let offers = self.port.device().limits();
        let whole = match &operation {
            Operation::Put { spans, event: Some(_), local, .. } => {
                let len: usize = local.iter().map(Slice::len).sum();
                spans.len() <= 1 && local.len() <= 1 && len <= offers.transfer
            }
            Operation::Atomic { operand, .. } => operand.len() <= offers.atomic,
            _ => true,
        };
        if !whole {
            return Some(operation);
        }
        let token = operation.token();
        let total = match self.engine.check_access(&operation) {
            Ok(0) if matches!(operation, Operation::Get { .. }) => {
                self.complete(token, peer, Ok(Done::Got));
                return None;
            }
            Ok(total) => total,
            Err(kind) => {
                self.complete(token, peer, Err(kind));
                return None;
            }
        };
        let slot = self.accesses.add(Access {
            serial: 0,
            operation,
            peer,
            key,
            incarnation,
            total,
            handed: Cursor::default(),
            complete: false,
            running: 0,
            outcome: None,
        });
        let mut flow = self.peers.open_flow(peer.index);
        flow.accesses.push_back(slot);
        self.schedule.list_output(peer.index, &mut flow);
        self.peers.put_flow(peer.index, flow);
        None
    }

    fn complete(&mut self, token: Token, peer: Peer, result: Result<Done, OpErrorKind>) {
        let result = result.map_err(|kind| match self.engine.peer_info(peer) {
            Some(info) => OpError::with_peer(kind, &info.address),
            None => OpError::local(kind),
        });
        self.engine.raise(Event::Done { token, result });
    }

    /// Hands accesses to the device, in turns. True if anything was done.
    pub(crate) fn serve_accesses(&mut self, node: Node, flow: &mut Flow) -> bool {
        let mut worked = false;
        for _ in 0..flow.accesses.len() {
            let Some(slot) = flow.accesses.pop_front() else { break };
            let full = self.hand(slot, node);
            worked = true;
            // An access that was handed over completely ends by its completions.
            if self.accesses.is_complete(slot) {
                self.settle_access(slot);
                continue;
            }
            flow.accesses.push_back(slot);
            if full {
                flow.accesses.rotate_right(1);
                break;
            }
        }
        worked
    }

    /// Hands pieces of an access to the device. True if that has no room.
    fn hand(&mut self, slot: usize, node: Node) -> bool {
        let most = self.config.accesses;
        loop {
            let Some(access) = self.accesses.get_mut(slot) else { return false };
            if access.outcome.is_some() {
                access.complete = true;
            }
            if access.complete || access.running >= most {
                return false;
            }
            let known = self.engine.peer_info(access.peer).and_then(|info| info.incarnation);
            if known != Some(access.incarnation) {
                access.outcome = Some(Err(OpErrorKind::StaleKey));
                continue;
            }
            let serial = access.serial;
            let ticket = self.port.issue(Pending::Access { slot, serial });
            match access.next(self.port.device_mut(), node, ticket) {
                Ok(()) => {
                    access.running += 1;
                    self.counters.accesses += 1;
                }
                Err(_) => {
                    self.port.redeem(ticket);
                    return true;
                }
            }
        }
    }

    /// The device has completed a piece.
    pub(crate) fn access_done(
        &mut self,
        slot: usize,
        serial: u32,
        result: Result<SmallVec<[u8; 16]>, Fault>,
    ) {
        let Some(access) = self.accesses.get_mut(slot).filter(|a| a.serial == serial) else {
            return;
        };
        access.running -= 1;
        let peer = access.peer;
        match result {
            Ok(old) => {
                if let Operation::Atomic { fetch: true, .. } = access.operation
                    && access.outcome.is_none()
                {
                    access.outcome = Some(Ok(Done::Fetched(old)));
                }
            }
            // The loss of the peer, which follows, gives the reason.
            Err(Fault::Lost) => {
                access.running += 1;
                return;
            }
            Err(fault) => {
                let kind = access.meaning(fault);
                access.outcome.get_or_insert(Err(kind));
            }
        }
        let complete = access.complete;
        self.settle_access(slot);
        if !complete && let Some(mut flow) = self.peers.take_flow(peer.index) {
            self.schedule.list_output(peer.index, &mut flow);
            self.peers.put_flow(peer.index, flow);
        }
    }

    /// Ends an access of which nothing is under way or to be handed over.
    fn settle_access(&mut self, slot: usize) {
        let Some(access) = self.accesses.get_mut(slot) else { return };
        if !access.complete || access.running > 0 {
            return;
        }
        let mut access = self.accesses.remove(slot);
        let done = match access.operation {
            Operation::Put { .. } => Done::Put,
            Operation::Get { .. } => Done::Got,
            _ => Done::Atomic,
        };
        let result = access.outcome.take().unwrap_or(Ok(done));
        self.complete(access.operation.token(), access.peer, result);
    }

    /// Ends all accesses to a lost peer: the device does no more for them.
    pub(crate) fn end_accesses(&mut self, peer: Peer, reason: &LostReason) {
        for slot in self.accesses.of_peer(peer) {
            let mut access = self.accesses.remove(slot);
            let lost = Err(OpErrorKind::PeerLost(reason.clone()));
            let result = match access.outcome.take() {
                Some(Err(kind)) => Err(kind),
                _ => lost,
            };
            self.complete(access.operation.token(), peer, result);
        }
    }

    /// Cancels an access. False if there is none with this token.
    pub(crate) fn cancel_access(&mut self, token: Token) -> bool {
        let Some(slot) = self.accesses.find(token) else { return false };
        let Some(access) = self.accesses.get_mut(slot) else { return false };
        if !access.complete {
            access.outcome.get_or_insert(Err(OpErrorKind::Cancelled));
            access.complete = true;
            let peer = access.peer.index;
            if let Some(flow) = self.peers.flow_mut(peer) {
                flow.accesses.retain(|waiting| *waiting != slot);
            }
            self.settle_access(slot);
        }
        true
    }
}

impl Access {
    /// Hands the next piece to the device.
    fn next(
        &mut self,
        device: &mut impl Device,
        node: Node,
        ticket: Ticket,
    ) -> Result<(), crate::device::Refusal> {
        let key = self.key.clone();
        if let Operation::Atomic { offset, op, kind, operand, compare, .. } = &self.operation {
            let compare =
                if *op == AtomicOp::CompareSwap { compare.clone() } else { SmallVec::new() };
            let access = AtomicAccess { op: *op, kind: *kind, operand: operand.clone(), compare };
            device.atomic(node, &Target { key, offset: *offset }, access, ticket)?;
            self.complete = true;
            return Ok(());
        }
        let most = device.limits().transfer;
        let (put, event, local, spans) = match &self.operation {
            Operation::Put { local, spans, event, .. } => (true, *event, local, spans),
            Operation::Get { local, spans, .. } => (false, None, local, spans),
            _ => unreachable!("only put, get and atomics are accesses"),
        };
        let mut at = self.handed;
        let stretch = at.take(local, spans, most);
        let piece = stretch.and_then(|stretch| Some((stretch.local()?, stretch.offset)));
        let (memory, offset) = match piece {
            Some(piece) => piece,
            // Nothing is moved, but the device checks the key.
            None => {
                let nothing = petasos_fabric::Region::zeroed(0).whole();
                (nothing, spans.first().map_or(0, |span| span.offset))
            }
        };
        let target = Target { key, offset };
        match put {
            true => device.put(node, &target, &memory, event, ticket)?,
            false => device.get(node, &target, &memory, ticket)?,
        }
        self.handed = at;
        self.complete = at.moved() == self.total;
        Ok(())
    }

    fn meaning(&self, fault: Fault) -> OpErrorKind {
        let (needed, offset, align) = match &self.operation {
            Operation::Put { spans, .. } => {
                (Rights::WRITE, spans.first().map_or(0, |s| s.offset), 1)
            }
            Operation::Atomic { offset, kind, .. } => (Rights::ATOMIC, *offset, kind.size()),
            Operation::Get { spans, .. } => {
                (Rights::READ, spans.first().map_or(0, |s| s.offset), 1)
            }
            _ => (Rights::NONE, 0, 1),
        };
        match fault {
            Fault::Denied => OpErrorKind::Denied { allowed: Rights::NONE, needed },
            Fault::OutOfBounds => OpErrorKind::OutOfBounds { offset, len: self.total, bound: 0 },
            Fault::Misaligned => OpErrorKind::Misaligned { offset, align },
            Fault::Unsupported => OpErrorKind::Unsupported("this access on the device"),
            Fault::Stale | Fault::Lost => OpErrorKind::StaleKey,
        }
    }
}
