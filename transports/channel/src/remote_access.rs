//! Put, get and atomics of the user's, carried out by the device.
//!
//! An access is split into pieces of at most the device's size, of which a bounded number is under
//! way at a time; the pieces of one access are not ordered. What the device cannot do in one piece
//! (a put with event of several pieces, say) is left to the engine, and the memory's owner serves
//! it.

use crate::{
    Channels, Device,
    access::Access,
    device::{Fault, Node, RemoteKey},
    flow::Flow,
    port::Pending,
};
use petasos_fabric::{
    Done, Event, Key, LostReason, OpError, OpErrorKind, Operation, Peer, PeerState, Slice, Token,
};
use smallvec::SmallVec;

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
                self.engine.refuse_access(peer, &kind);
                self.complete(token, peer, Err(kind));
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
            if !access.wants_piece(most) {
                return false;
            }
            let known = self.engine.peer_info(access.peer()).and_then(|info| info.incarnation);
            if known != Some(access.incarnation()) {
                access.fail(OpErrorKind::StaleKey);
                continue;
            }
            let serial = access.serial();
            let ticket = self.port.issue(Pending::Access { slot, serial });
            match access.hand_piece(self.port.device_mut(), node, ticket) {
                Ok(()) => self.counters.accesses += 1,
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
        let access = self.accesses.get_mut(slot).filter(|access| access.serial() == serial);
        let Some(access) = access else { return };
        if !access.piece_done(result) {
            return;
        }
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
            let (peer, batch) = (access.peer(), access.batch());
            let (token, result) = access.end();
            let failed = result.as_ref().err().cloned();
            self.complete(token, peer, result);
            self.engine.end_access(peer, batch, failed.as_ref());
        }
    }

    /// Ends all accesses to a lost peer: the device does no more for them.
    pub(crate) fn end_accesses(&mut self, peer: Peer, reason: &LostReason) {
        for slot in self.accesses.of_peer(peer) {
            let (token, result) = self.accesses.remove(slot).end_lost(reason);
            self.complete(token, peer, result);
        }
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
