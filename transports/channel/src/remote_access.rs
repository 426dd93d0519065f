//! Put, get and atomics of the user's, carried out by the device.
//!
//! An access is split into pieces of at most the device's size, of which a bounded number is under
//! way at a time; the pieces of one access are not ordered. What the device cannot do in one piece
//! (a put with event of several pieces, say), or does not do before it has begun, is left to the
//! engine, and the memory's owner serves it.

use crate::{
    Channels, Device,
    access::Access,
    device::{Fault, Node, Readiness, RemoteKey},
    flow::Flow,
    port::Pending,
};
use petasos_fabric::{
    Address, Done, Event, Key, LostReason, OpError, OpErrorKind, Operation, Peer, PeerState, Slice,
    Token,
};
use smallvec::SmallVec;

/// What became of an access that the device was to be given pieces of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handed {
    /// It has as many as it may have, or all.
    Enough,
    /// The device has no room.
    Full,
    /// The device cannot do it yet.
    Waits,
    /// The engine does it.
    Left,
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
        if self.accesses.is_released(*remote) {
            let kind = OpErrorKind::UnknownRegion;
            self.engine.refuse_access(peer, &kind);
            self.complete(operation.token(), peer, None, Err(kind));
            return None;
        }
        let state = self.engine.state_of(peer);
        let live = state.is_some_and(|state| !matches!(state, PeerState::Lost(_)));
        if !live || self.engine.is_self(peer) {
            return Some(operation);
        }
        let Some(imported) = self.engine.imported(*remote) else { return Some(operation) };
        let route = imported.parts.route(Key::ROUTE_DEVICE).map(|bytes| RemoteKey::new(bytes));
        let Some(Some(key)) = route else { return Some(operation) };
        let incarnation = imported.parts.incarnation;
        let offers = self.port.device().limits();
        let (whole, from) = match &operation {
            Operation::Put { spans, event: Some(_), local, .. } => {
                let len: usize = local.iter().map(Slice::len).sum();
                let whole = len <= offers.transfer || offers.puts_are_packets;
                (whole && spans.len() <= 1 && local.len() <= 1, offers.serves_events_from)
            }
            Operation::Atomic { operand, .. } => (operand.len() <= offers.atomic, 0),
            _ => (true, offers.serves_from),
        };
        if !whole {
            return Some(operation);
        }
        let token = operation.token();
        let total = match self.engine.check_access(&operation) {
            Ok(total) if total < from => return Some(operation),
            Ok(0) if matches!(operation, Operation::Get { .. }) => {
                self.complete(token, peer, None, Ok(Done::Got));
                return None;
            }
            Ok(total) => total,
            Err(kind) => {
                self.engine.refuse_access(peer, &kind);
                self.complete(token, peer, None, Err(kind));
                return None;
            }
        };
        let batch = self.engine.begin_access(peer);
        let slot = self.accesses.add(Access::new(operation, peer, batch, key, incarnation, total));
        let mut flow = self.peers.open_flow(peer.index);
        flow.accesses.push_back(slot);
        self.schedule.list_output(peer.index, &mut flow);
        self.peers.put_flow(peer.index, flow);
        None
    }

    /// Reports the end of an access; `lost` says where its peer was that is lost.
    fn complete(
        &mut self,
        token: Token,
        peer: Peer,
        lost: Option<&Address>,
        result: Result<Done, OpErrorKind>,
    ) {
        let known = || self.engine.peer_info(peer).map(|info| info.address);
        let result = result.map_err(|kind| match lost.cloned().or_else(known) {
            Some(address) => OpError::with_peer(kind, &address),
            None => OpError::local(kind),
        });
        self.engine.raise(Event::Done { token, result });
    }

    /// Hands accesses to the device, in turns. True if anything was done.
    pub(crate) fn serve_accesses(&mut self, node: Node, flow: &mut Flow) -> bool {
        let mut worked = false;
        for _ in 0..flow.accesses.len() {
            let Some(slot) = flow.accesses.pop_front() else { break };
            let handed = self.hand(slot, node);
            worked |= handed != Handed::Waits;
            if handed == Handed::Left {
                continue;
            }
            // An access that was handed over completely ends by its completions.
            if self.accesses.is_complete(slot) {
                self.settle_access(slot);
                continue;
            }
            flow.accesses.push_back(slot);
            if handed == Handed::Full {
                flow.accesses.rotate_right(1);
                break;
            }
        }
        worked
    }

    /// Hands pieces of an access to the device.
    fn hand(&mut self, slot: usize, node: Node) -> Handed {
        let most = self.config.accesses;
        loop {
            let Some(access) = self.accesses.get_mut(slot) else { return Handed::Left };
            if !access.wants_piece(most) {
                return Handed::Enough;
            }
            let known = self.engine.incarnation_of(access.peer());
            if known != Some(access.incarnation()) {
                access.fail(OpErrorKind::StaleKey);
                continue;
            }
            match access.readiness(self.port.device_mut(), node) {
                Readiness::Now => {}
                Readiness::Later => return Handed::Waits,
                Readiness::Never if access.is_new() => {
                    let access = self.accesses.remove(slot);
                    let (peer, batch) = (access.peer(), access.batch());
                    self.engine.submit_counted(access.into_operation(), peer, batch);
                    self.release_unused();
                    return Handed::Left;
                }
                // The owner closes the memory.
                Readiness::Never => {
                    access.fail(OpErrorKind::StaleKey);
                    continue;
                }
            }
            let serial = access.serial();
            let ticket = self.port.issue(Pending::Access { slot, serial });
            match access.hand_piece(self.port.device_mut(), node, ticket) {
                Ok(()) => self.counters.accesses += 1,
                Err(_) => {
                    self.port.redeem(ticket);
                    return Handed::Full;
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
        let access = self.accesses.get_mut(slot).filter(|access| access.serial() == serial);
        let Some(access) = access else { return };
        access.piece_done(result);
        let peer = access.peer();
        let complete = self.accesses.is_complete(slot);
        self.settle_access(slot);
        if !complete && let Some(mut flow) = self.peers.take_flow(peer.index) {
            self.schedule.list_output(peer.index, &mut flow);
            self.peers.put_flow(peer.index, flow);
        }
    }

    /// Ends an access of which nothing is under way or to be handed over.
    fn settle_access(&mut self, slot: usize) {
        if self.accesses.get_mut(slot).is_some_and(|access| access.is_over()) {
            let access = self.accesses.remove(slot);
            let (peer, batch, lost) = (access.peer(), access.batch(), access.lost().cloned());
            let (token, result) = access.end();
            let failed = result.as_ref().err().cloned();
            self.complete(token, peer, lost.as_ref(), result);
            self.engine.end_access(peer, batch, failed.as_ref());
            self.release_unused();
        }
    }

    /// Gives back keys that the program has released, when no access is by them any more.
    #[inline]
    pub(crate) fn release_unused(&mut self) {
        while let Some(remote) = self.accesses.pop_released() {
            self.engine.release(remote);
        }
    }

    /// A peer is lost: its accesses end. Those for which the device may still write to our memory
    /// end when it has completed them.
    pub(crate) fn end_accesses(&mut self, peer: Peer, reason: &LostReason) {
        let slots = self.accesses.of_peer(peer);
        if slots.is_empty() {
            return;
        }
        let address = self.engine.peer_info(peer).map(|info| info.address);
        for slot in slots {
            let access = self.accesses.get_mut(slot);
            if access.is_some_and(|access| access.lose(reason, address.clone())) {
                let (token, result) = self.accesses.remove(slot).end();
                self.complete(token, peer, address.as_ref(), result);
            }
        }
        self.release_unused();
    }

    /// Cancels an access. False if there is none with this token.
    pub(crate) fn cancel_access(&mut self, token: Token) -> bool {
        let Some(slot) = self.accesses.find(token) else { return false };
        let Some(access) = self.accesses.get_mut(slot) else { return false };
        if access.cancel() {
            let peer = access.peer();
            if let Some(flow) = self.peers.flow_mut(peer.index) {
                flow.accesses.retain(|waiting| *waiting != slot);
            }
            self.settle_access(slot);
        }
        true
    }
}
