//! Operations that come from the user: checked, and queued.

use super::{
    Batch, Engine, MAX_EAGER,
    ledger::Location,
    matching::{Posted, Unexpected},
    operations::{Announce, Atomic, Kind, Op, Pull, Purpose, Put, Route, Sort, Source, first},
    registry::Exposed,
};
use crate::{
    Access, AtomicOp, AtomicType, Body, Claimed, Done, Level, Offered, OpError, OpErrorKind,
    Operation, Payload, Peer, PeerState, Remote, RemoteSpan, Slice, Slices, SpanCursor, Token,
};
use petasos_match::Pattern;
use smallvec::SmallVec;

fn at_most(what: &'static str, value: usize, limit: usize) -> Result<(), OpErrorKind> {
    let (value, limit) = (value as u64, limit as u64);
    match value <= limit {
        true => Ok(()),
        false => Err(OpErrorKind::TooLarge { what, value, limit }),
    }
}

fn writable<'a>(mut pieces: impl Iterator<Item = &'a Slice>) -> Result<(), OpErrorKind> {
    match pieces.all(|piece| piece.is_writable()) {
        true => Ok(()),
        false => Err(OpErrorKind::Denied { allowed: Access::READ, needed: Access::WRITE }),
    }
}

impl Engine {
    /// Accepts a receive ([`Operation::PostReceive`]), for which there is room
    /// ([`Engine::room_for`]), as [`Engine::submit`] does.
    #[inline]
    pub fn submit_receive(
        &mut self,
        token: Token,
        source: Option<Peer>,
        tag: u64,
        ignore: u64,
        into: Slice,
    ) {
        self.ledger.live += 1;
        self.ledger.counters.submitted += 1;
        if let Err(kind) = self.post_receive(token, source, tag, ignore, into) {
            self.refuse(token, source, kind);
        }
    }

    /// An operation that was counted is not taken in.
    #[cold]
    fn refuse(&mut self, token: Token, peer: Option<Peer>, kind: OpErrorKind) {
        self.ledger.live -= 1;
        let address = peer.and_then(|peer| self.peers.get(peer)).map(|l| l.address.clone());
        let error = OpError::new(kind, address);
        self.ledger.finish(token, None, Err(error));
    }

    /// Takes in an operation; `batch` is that of an access that was counted before.
    pub(super) fn submit_one(&mut self, operation: Operation, batch: Option<Batch>) {
        self.ledger.live += 1;
        self.ledger.counters.submitted += 1;
        let token = operation.token();
        let peer = self.concerns(&operation);
        let is_access = operation.is_access();
        if let Err(kind) = self.begin(operation, batch) {
            if is_access && let Some(peer) = peer {
                self.note_refusal(peer, batch, &kind);
            }
            self.refuse(token, peer, kind);
        }
    }

    fn concerns(&self, operation: &Operation) -> Option<Peer> {
        match operation {
            Operation::Send { peer, .. }
            | Operation::SendLong { peer, .. }
            | Operation::SendTagged { peer, .. }
            | Operation::Flush { peer, .. } => Some(*peer),
            Operation::Receive { body, .. } | Operation::Discard { body, .. } => Some(body.peer),
            Operation::PostReceive { source, .. } | Operation::Peek { source, .. } => *source,
            Operation::PostOffered { .. } => None,
            Operation::ReceiveClaimed { message, .. }
            | Operation::DiscardClaimed { message, .. } => Some(message.peer),
            Operation::Put { remote, .. }
            | Operation::Get { remote, .. }
            | Operation::Atomic { remote, .. }
            | Operation::Map { remote, .. } => Some(remote.peer),
            Operation::Deregister { .. } | Operation::Revoke { .. } => None,
            Operation::Fenced(fenced) => fenced.target(),
        }
    }

    fn begin(&mut self, operation: Operation, batch: Option<Batch>) -> Result<(), OpErrorKind> {
        match operation {
            Operation::Send { token, peer, payload, level } => {
                self.reachable(peer)?;
                let max = self.config.limits.max_message;
                at_most("the length of a message", payload.len(), max)?;
                let asking = level > Level::Reusable;
                self.queue(peer, token, Kind::Message { payload, tag: None, asking });
            }
            Operation::SendLong { token, peer, header, body, .. } => {
                self.reachable(peer)?;
                let max = self.config.limits.max_header;
                at_most("the length of a header", header.len(), max)?;
                let (data, announce) = (Payload::Memory(body), Announce::Long(header));
                self.queue(peer, token, Kind::Body { data, announce, open: false });
            }
            Operation::SendTagged { token, peer, tag, payload, level } => {
                self.reachable(peer)?;
                let short = payload.len() <= self.config.eager.min(MAX_EAGER);
                // Only the end of a pull says that the data is where the target wants it.
                let kind = if short && level < Level::Visible {
                    let asking = level > Level::Reusable;
                    Kind::Message { payload, tag: Some(tag), asking }
                } else {
                    let announce = Announce::Tagged(tag);
                    Kind::Body { data: payload, announce, open: false }
                };
                self.queue(peer, token, kind);
            }
            Operation::PostReceive { token, source, tag, ignore, into } => {
                self.post_receive(token, source, tag, ignore, into)?;
            }
            Operation::PostOffered { token, tag, ignore, into } => {
                self.post_offered(token, &Pattern::new(None, tag, ignore), into)?;
            }
            Operation::Peek { token, source, tag, ignore, claim } => {
                let pattern = Pattern::new(source.map(Peer::to_bits), tag, ignore);
                let peeked = self.matching.peek(&pattern, claim);
                if let (None, Some(source)) = (peeked, source) {
                    self.reachable(source)?;
                }
                self.ledger.live -= 1;
                self.ledger.finish(token, None, Ok(Done::Peeked(peeked.map(Box::new))));
            }
            Operation::ReceiveClaimed { token, message: claimed, into } => {
                writable([&into].into_iter())?;
                let message = self.take_claimed(claimed)?;
                let Engine { peers, ledger, .. } = self;
                if let Some(conn) = peers.get_mut(claimed.peer) {
                    conn.matched(Posted::new(token, into), message, ledger);
                }
            }
            Operation::DiscardClaimed { token, message: claimed } => {
                let message = self.take_claimed(claimed)?;
                let Engine { peers, ledger, .. } = self;
                if let Some(conn) = peers.get_mut(claimed.peer) {
                    conn.discard(message, ledger);
                }
                ledger.live -= 1;
                ledger.finish(token, None, Ok(Done::Discarded));
            }
            Operation::Receive { token, body, into } => {
                writable([&into].into_iter())?;
                let len = self.take_body(body)?;
                let Engine { peers, ledger, .. } = self;
                if let Some(conn) = peers.get_mut(body.peer) {
                    let total = len.min(into.len() as u64);
                    let into = into.part(0, total as usize).into_iter().collect();
                    conn.pull_body(token, body.id, into, total, Purpose::Received, ledger);
                }
            }
            Operation::Discard { token, body } => {
                self.take_body(body)?;
                let Engine { peers, ledger, .. } = self;
                if let Some(conn) = peers.get_mut(body.peer) {
                    conn.body_done(body.id, Sort::Long, ledger);
                }
                ledger.live -= 1;
                ledger.finish(token, None, Ok(Done::Discarded));
            }
            Operation::Put { token, remote, local, spans, level, event } => {
                let route = self.route(remote, Access::WRITE)?;
                let total = self.put_len(&route, &local, &spans, event)?;
                let put = Put {
                    route,
                    local,
                    begin: first(&spans),
                    spans,
                    total,
                    event,
                    level_asks: level > Level::Reusable,
                    confirm: false,
                    request: None,
                    handed: 0,
                    at: SpanCursor::default(),
                    complete: false,
                };
                self.queue_access(remote.peer, token, Kind::Put(put), batch);
            }
            Operation::Get { token, remote, local, spans } => {
                let route = self.route(remote, Access::READ)?;
                let total = self.pieces(&route, &local, &spans)?;
                writable(local.iter())?;
                if total == 0 {
                    self.ledger.live -= 1;
                    self.ledger.finish(token, None, Ok(Done::Got));
                    return Ok(());
                }
                let pull = Pull {
                    source: Source::Region(route),
                    local,
                    spans,
                    total,
                    asked: 0,
                    at: SpanCursor::default(),
                    received: 0,
                    purpose: Purpose::Got,
                };
                self.queue_access(remote.peer, token, Kind::Pull(pull), batch);
            }
            Operation::Atomic { token, remote, offset, op, kind, operand, compare, fetch } => {
                let route = self.route(remote, Access::ATOMIC)?;
                self.elements(&route, offset, op, kind, &operand, &compare)?;
                let mut payload: SmallVec<[u8; 32]> = SmallVec::from_slice(&operand);
                if op == AtomicOp::CompareSwap {
                    payload.extend_from_slice(&compare);
                }
                let operand = operand.len();
                let atomic = Atomic { route, offset, op, kind, payload, operand, fetch };
                self.queue_access(remote.peer, token, Kind::Atomic(atomic), batch);
            }
            Operation::Map { .. } => return Err(OpErrorKind::Unsupported("mapping")),
            Operation::Fenced(_) => return Err(OpErrorKind::Unsupported("a fence")),
            Operation::Flush { token, peer } => {
                self.reachable(peer)?;
                self.flush(peer, token);
            }
            Operation::Deregister { token, region, patience } => {
                let closed = self.regions.close(region.into(), token, patience);
                if closed.ok_or(OpErrorKind::UnknownRegion)? {
                    self.ledger.live -= 1;
                    self.ledger.finish(token, None, Ok(Done::Deregistered));
                }
            }
            Operation::Revoke { token, key, patience } => {
                let closed = self.regions.close(Exposed::Part(key), token, patience);
                if closed.ok_or(OpErrorKind::UnknownRegion)? {
                    self.ledger.live -= 1;
                    self.ledger.finish(token, None, Ok(Done::Revoked));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_one(&self, operation: &Operation) -> Result<u64, OpErrorKind> {
        match operation {
            Operation::Put { remote, local, spans, event, .. } => {
                let route = self.route(*remote, Access::WRITE)?;
                self.put_len(&route, local, spans, *event)
            }
            Operation::Get { remote, local, spans, .. } => {
                let route = self.route(*remote, Access::READ)?;
                let total = self.pieces(&route, local, spans)?;
                writable(local.iter()).map(|()| total)
            }
            Operation::Atomic { remote, offset, op, kind, operand, compare, .. } => {
                let route = self.route(*remote, Access::ATOMIC)?;
                self.elements(&route, *offset, *op, *kind, operand, compare)?;
                Ok(operand.len() as u64)
            }
            _ => Err(OpErrorKind::Unsupported("this operation as remote access")),
        }
    }

    /// Checks the pieces of a put, and gives its length.
    fn put_len(
        &self,
        route: &Route,
        local: &Slices,
        spans: &[RemoteSpan],
        event: Option<u64>,
    ) -> Result<u64, OpErrorKind> {
        let total = self.pieces(route, local, spans)?;
        if event.is_some() && total > route.len {
            let (offset, len, bound) = (0, total, route.len);
            return Err(OpErrorKind::OutOfBounds { offset, len, bound });
        }
        Ok(total)
    }

    /// Checks the elements of an atomic.
    fn elements(
        &self,
        route: &Route,
        offset: u64,
        op: AtomicOp,
        kind: AtomicType,
        operand: &[u8],
        compare: &[u8],
    ) -> Result<(), OpErrorKind> {
        let max = self.config.limits.max_atomic;
        at_most("the length of an atomic", operand.len(), max)?;
        within(route, offset, operand.len() as u64)?;
        let compares = op == AtomicOp::CompareSwap;
        if operand.is_empty()
            || !operand.len().is_multiple_of(kind.size())
            || (compares && compare.len() != operand.len())
        {
            return Err(OpErrorKind::LengthMismatch {
                local: operand.len() as u64,
                remote: if compares { compare.len() } else { kind.size() } as u64,
            });
        }
        if !offset.is_multiple_of(kind.size() as u64) {
            let align = kind.size();
            return Err(OpErrorKind::Misaligned { offset, align });
        }
        Ok(())
    }

    /// Whether operations to this peer make sense.
    fn reachable(&self, peer: Peer) -> Result<(), OpErrorKind> {
        let conn = self.peers.get(peer).ok_or(OpErrorKind::UnknownPeer)?;
        match &conn.state {
            PeerState::Lost(reason) => Err(OpErrorKind::PeerLost(reason.clone())),
            _ => Ok(()),
        }
    }

    /// Queues a message.
    fn queue(&mut self, peer: Peer, token: Token, kind: Kind) {
        let Engine { peers, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer) else {
            return;
        };
        let id = conn.insert(Op::new(token, kind), ledger);
        conn.queue_message(id, ledger);
    }

    fn queue_access(&mut self, peer: Peer, token: Token, kind: Kind, batch: Option<Batch>) {
        let Engine { peers, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer) else {
            return;
        };
        let mut op = Op::new(token, kind);
        op.batch = conn.begin_access(batch);
        let id = conn.insert(op, ledger);
        conn.queue_asking(id, ledger);
    }

    /// Checks an imported key against what is needed of it.
    fn route(&self, remote: Remote, needed: Access) -> Result<Route, OpErrorKind> {
        let imported = self.imports.get(remote).ok_or(OpErrorKind::UnknownRegion)?;
        self.reachable(remote.peer)?;
        let allowed = imported.parts.access;
        if !allowed.allows(needed) {
            return Err(OpErrorKind::Denied { allowed, needed });
        }
        let unsupported = OpErrorKind::Unsupported("remote access with this key");
        Ok(Route {
            target: imported.target.ok_or(unsupported)?,
            incarnation: (!imported.any_life).then_some(imported.parts.incarnation),
            access: allowed,
            len: imported.parts.len,
        })
    }

    /// Checks the pieces of a transfer, and gives its length.
    fn pieces(
        &self,
        route: &Route,
        local: &Slices,
        spans: &[RemoteSpan],
    ) -> Result<u64, OpErrorKind> {
        let limits = &self.config.limits;
        at_most("the number of pieces", local.len().max(spans.len()), limits.max_pieces)?;
        let mut remote = 0u64;
        for span in spans {
            within(route, span.offset, span.len)?;
            remote = remote.saturating_add(span.len);
        }
        let local = local.iter().map(|piece| piece.len() as u64).sum();
        if local != remote {
            return Err(OpErrorKind::LengthMismatch { local, remote });
        }
        match remote <= limits.max_transfer {
            true => Ok(remote),
            false => Err(OpErrorKind::TooLarge {
                what: "the length of a transfer",
                value: remote,
                limit: limits.max_transfer,
            }),
        }
    }

    /// A long message's body, to be received or discarded: its length.
    fn take_body(&mut self, body: Body) -> Result<u64, OpErrorKind> {
        self.reachable(body.peer)?;
        let conn = self.peers.get_mut(body.peer).ok_or(OpErrorKind::UnknownPeer)?;
        conn.incoming.take_body(body.id).ok_or(OpErrorKind::UnknownBody)
    }

    /// A claimed message, to be received or discarded.
    fn take_claimed(&mut self, claimed: Claimed) -> Result<Unexpected, OpErrorKind> {
        match self.matching.take_claimed(claimed) {
            Some(message) => Ok(message),
            None => Err(self.reachable(claimed.peer).err().unwrap_or(OpErrorKind::UnknownMessage)),
        }
    }

    fn post_receive(
        &mut self,
        token: Token,
        source: Option<Peer>,
        tag: u64,
        ignore: u64,
        into: Slice,
    ) -> Result<(), OpErrorKind> {
        if !into.is_writable() {
            return writable([&into].into_iter());
        }
        let Engine { peers, matching, ledger, .. } = self;
        let pattern = Pattern::new(source.map(Peer::to_bits), tag, ignore);
        if matching.has_messages()
            && let Some(message) = matching.take_message(&pattern)
        {
            if let Some(conn) = peers.get_mut(message.peer) {
                conn.matched(Posted::new(token, into), message, ledger);
            }
            return Ok(());
        }
        if let Some(source) = source
            && !peers.get(source).is_some_and(|entry| entry.is_up())
        {
            self.reachable(source)?;
        }
        self.matching.post(pattern, Posted::new(token, into), &mut self.ledger);
        Ok(())
    }

    fn post_offered(
        &mut self,
        token: Token,
        pattern: &Pattern,
        offered: Offered,
    ) -> Result<(), OpErrorKind> {
        if !offered.is_writable() {
            return Err(OpErrorKind::Denied { allowed: Access::READ, needed: Access::WRITE });
        }
        let Engine { peers, matching, ledger, .. } = self;
        if offered.is_open() && !matching.has_message(pattern) {
            matching.post_offered(*pattern, token, offered, ledger);
            return Ok(());
        }
        let into = offered.take().ok_or(OpErrorKind::Cancelled)?;
        if let Some(message) = matching.take_message(pattern)
            && let Some(conn) = peers.get_mut(message.peer)
        {
            conn.matched(Posted::new(token, into), message, ledger);
        }
        Ok(())
    }

    pub(super) fn cancel_one(&mut self, token: Token) {
        let Engine { peers, matching, ledger, .. } = self;
        match ledger.tokens.get(&token).copied() {
            // One that is being filled right now ends by itself.
            None | Some(Location::Posted(_)) => matching.cancel(token, ledger),
            Some(Location::Deferred { peer }) => self.cancel_deferred(peer, token),
            Some(Location::Op { peer, id }) => {
                let Some(conn) = peers.at_mut(peer) else { return };
                if let Some(op) = conn.op(id) {
                    op.conclude(Err(OpErrorKind::Cancelled));
                }
                // If it is one of those, it leaves its queue; the others go back there.
                conn.queues.release_held();
                conn.settle(id, ledger);
            }
        }
    }
}

fn within(route: &Route, offset: u64, len: u64) -> Result<(), OpErrorKind> {
    match offset.checked_add(len) {
        Some(end) if end <= route.len => Ok(()),
        _ => {
            let bound = route.len;
            Err(OpErrorKind::OutOfBounds { offset, len, bound })
        }
    }
}

impl Engine {
    pub(super) fn inject_message(&mut self, peer: Peer, parts: &[&[u8]], len: usize) -> bool {
        let Engine { config, peers, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer) else {
            return true;
        };
        if !conn.queues.inject(parts, len, config.inject_queue) {
            return false;
        }
        conn.wake(ledger);
        true
    }
}
