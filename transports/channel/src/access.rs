//! One put, get or atomic of the user's that the device carries out, in pieces; and all of them.

use crate::{
    Device,
    device::{AtomicAccess, Fault, Node, Readiness, Refusal, RemoteKey, Target, Ticket},
};
use petasos_fabric::{
    Access as Rights, Address, AtomicOp, Cursor, Done, Incarnation, LostReason, OpErrorKind,
    Operation, Peer, Region, Remote, Slice, Token, two_sided::Batch,
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
    batch: Batch,
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
    /// The device lost the peer under it: the loss of the peer, which follows, gives the reason.
    cut: bool,
    /// Where the peer was, once it is lost.
    lost: Option<Address>,
}

/// All accesses that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    list: Slab<Access>,
    tokens: HashMap<Token, usize>,
    /// Of the access that was added last: tells the users of a slot apart.
    serial: u32,
    /// Keys that the program has released, of which there is an access.
    released: Vec<Remote>,
}

impl Accesses {
    /// Adds an access, whose serial number is set here. Returns its slot.
    pub(crate) fn add(&mut self, mut access: Access) -> usize {
        self.serial = self.serial.wrapping_add(1);
        access.serial = self.serial;
        let token = access.operation.token();
        let slot = self.list.insert(access);
        self.tokens.insert(token, slot);
        slot
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Access> {
        self.list.get_mut(slot)
    }

    /// Whether all of the access was handed to the device.
    pub(crate) fn is_complete(&self, slot: usize) -> bool {
        self.list.get(slot).is_some_and(|access| access.complete)
    }

    /// The slot of the access with this token.
    pub(crate) fn find(&self, token: Token) -> Option<usize> {
        self.tokens.get(&token).copied()
    }

    /// One that moves bytes of this memory.
    pub(crate) fn using(&self, memory: &Slice) -> Option<&Access> {
        self.list.iter().map(|(_, access)| access).find(|access| access.operation.uses(memory))
    }

    /// The slots of the accesses to a peer.
    pub(crate) fn of_peer(&self, peer: Peer) -> Vec<usize> {
        let of_peer = self.list.iter().filter(|(_, access)| access.peer == peer);
        of_peer.map(|(slot, _)| slot).collect()
    }

    fn has_by(&self, remote: Remote) -> bool {
        self.list.iter().any(|(_, access)| access.remote() == Some(remote))
    }

    /// Keeps a key that the program releases until no access is by it, as it may yet be left to the
    /// engine. False if there is none.
    pub(crate) fn keep_released(&mut self, remote: Remote) -> bool {
        let kept = self.has_by(remote);
        if kept && !self.released.contains(&remote) {
            self.released.push(remote);
        }
        kept
    }

    /// Whether the program has released this key, which is kept.
    #[inline]
    pub(crate) fn is_released(&self, remote: Remote) -> bool {
        self.released.contains(&remote)
    }

    /// Takes out a key that was kept, and by which there is no access any more.
    #[inline]
    pub(crate) fn pop_released(&mut self) -> Option<Remote> {
        if self.released.is_empty() {
            return None;
        }
        let at = self.released.iter().position(|remote| !self.has_by(*remote))?;
        Some(self.released.swap_remove(at))
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Access {
        let access = self.list.remove(slot);
        let token = access.operation.token();
        if self.tokens.get(&token) == Some(&slot) {
            self.tokens.remove(&token);
        }
        access
    }
}

impl Access {
    /// An access of `total` bytes by a key of this incarnation of the peer; `operation` is a put, a
    /// get or an atomic, which counts in `batch`.
    pub(crate) fn new(
        operation: Operation,
        peer: Peer,
        batch: Batch,
        key: RemoteKey,
        incarnation: Incarnation,
        total: u64,
    ) -> Access {
        Access {
            serial: 0,
            operation,
            peer,
            batch,
            key,
            incarnation,
            total,
            handed: Cursor::default(),
            complete: false,
            running: 0,
            outcome: None,
            cut: false,
            lost: None,
        }
    }

    /// Tells the users of a slot apart.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    pub(crate) fn token(&self) -> Token {
        self.operation.token()
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// The key by which it is.
    fn remote(&self) -> Option<Remote> {
        match &self.operation {
            Operation::Put { remote, .. }
            | Operation::Get { remote, .. }
            | Operation::Atomic { remote, .. } => Some(*remote),
            _ => None,
        }
    }

    pub(crate) fn batch(&self) -> Batch {
        self.batch
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether a piece is to be handed to the device now, where `most` may be under way.
    pub(crate) fn wants_piece(&mut self, most: usize) -> bool {
        // After an error no more is handed over.
        self.complete |= self.outcome.is_some();
        !self.complete && !self.cut && self.running < most
    }

    /// Whether the device can do it now.
    pub(crate) fn readiness(&self, device: &mut impl Device, node: Node) -> Readiness {
        match self.operation {
            Operation::Put { .. } => device.readiness(node, &self.key, true),
            Operation::Get { .. } => device.readiness(node, &self.key, false),
            _ => Readiness::Now,
        }
    }

    /// Whether nothing of it was handed over, and it is not to end.
    pub(crate) fn is_new(&self) -> bool {
        self.handed.moved() == 0 && !self.complete && self.outcome.is_none() && !self.cut
    }

    pub(crate) fn into_operation(self) -> Operation {
        self.operation
    }

    /// Hands the next piece to the device.
    pub(crate) fn hand_piece(
        &mut self,
        device: &mut impl Device,
        node: Node,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.hand_next(device, node, ticket)?;
        self.running += 1;
        Ok(())
    }

    fn hand_next(
        &mut self,
        device: &mut impl Device,
        node: Node,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let key = self.key.clone();
        if let Operation::Atomic { offset, op, kind, operand, compare, .. } = &self.operation {
            let compare =
                if *op == AtomicOp::CompareSwap { compare.clone() } else { SmallVec::new() };
            let access = AtomicAccess { op: *op, kind: *kind, operand: operand.clone(), compare };
            device.atomic(node, &Target { key, offset: *offset }, access, ticket)?;
            self.complete = true;
            return Ok(());
        }
        let (put, event, local, spans) = match &self.operation {
            Operation::Put { local, spans, event, .. } => (true, *event, local, spans),
            Operation::Get { local, spans, .. } => (false, None, local, spans),
            _ => unreachable!("only put, get and atomics are accesses"),
        };
        // One with event is not split.
        let most = if event.is_some() { usize::MAX } else { device.limits().transfer };
        let mut at = self.handed;
        let stretch = at.take(local, spans, most);
        let piece = stretch.and_then(|stretch| Some((stretch.local()?, stretch.offset)));
        let (memory, offset) = match piece {
            Some(piece) => piece,
            // Nothing is moved, but the device checks the key.
            None => {
                let nothing = Region::zeroed(0).whole();
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

    /// A piece has completed.
    pub(crate) fn piece_done(&mut self, result: Result<SmallVec<[u8; 16]>, Fault>) {
        self.running -= 1;
        match result {
            Err(Fault::Lost) => self.cut = true,
            Err(fault) => self.fail(self.meaning(fault)),
            Ok(old) => {
                if let Operation::Atomic { fetch: true, .. } = self.operation
                    && self.outcome.is_none()
                {
                    self.outcome = Some(Ok(Done::Fetched(old)));
                }
            }
        }
    }

    /// The access fails with the first of such errors.
    pub(crate) fn fail(&mut self, kind: OpErrorKind) {
        self.outcome.get_or_insert(Err(kind));
    }

    /// Nothing more is handed over. False if all was.
    pub(crate) fn cancel(&mut self) -> bool {
        if self.complete {
            return false;
        }
        self.fail(OpErrorKind::Cancelled);
        self.complete = true;
        true
    }

    /// The peer, which was here, is lost. True if that ends the access: not while the device may
    /// write to its memory.
    pub(crate) fn lose(&mut self, reason: &LostReason, address: Option<Address>) -> bool {
        if !matches!(self.outcome, Some(Err(_))) {
            self.outcome = Some(Err(OpErrorKind::PeerLost(reason.clone())));
        }
        (self.complete, self.lost) = (true, address);
        self.running == 0 || !matches!(self.operation, Operation::Get { .. })
    }

    /// Where its peer was, if that is lost.
    pub(crate) fn lost(&self) -> Option<&Address> {
        self.lost.as_ref()
    }

    /// Whether nothing is under way or to be handed over, and it is known how it ends.
    pub(crate) fn is_over(&self) -> bool {
        self.complete && self.running == 0 && (!self.cut || self.outcome.is_some())
    }

    /// How it ends.
    pub(crate) fn end(self) -> (Token, Result<Done, OpErrorKind>) {
        let done = match self.operation {
            Operation::Put { .. } => Done::Put,
            Operation::Get { .. } => Done::Got,
            _ => Done::Atomic,
        };
        (self.operation.token(), self.outcome.unwrap_or(Ok(done)))
    }

    /// What an error of the device's means for the caller.
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
