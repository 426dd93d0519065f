//! What comes in, second half: the payload is there, and takes effect.

use super::{
    Engine, Placement, Violation,
    connection::Connection,
    header::{Header, Status},
    incoming::Landing,
    ledger::Ledger,
    matching::{Posted, Unexpected, Waiting},
    operations::{Kind, Op, Pull, Purpose, Sort, Source},
    violation::broken,
};
use crate::{
    Access, AtomicOp, Body, Done, Event, OpError, OpErrorKind, Peer, RegionId, RemoteSpan, Slice,
    Slices, SpanCursor,
};
use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

impl Connection {
    /// A place for an eager message is free again.
    pub(super) fn free_place(&mut self, ledger: &mut Ledger) {
        if self.expected.free_place() {
            self.wake(ledger);
        }
    }

    /// Begins to pull the body of a message of the peer's.
    pub(super) fn pull_body(
        &mut self,
        token: crate::Token,
        body: u64,
        into: Slices,
        total: u64,
        purpose: Purpose,
        ledger: &mut Ledger,
    ) {
        let pull = Pull {
            source: Source::Body(body),
            spans: smallvec![RemoteSpan { offset: 0, len: total }],
            local: into,
            total,
            asked: 0,
            at: SpanCursor::default(),
            received: 0,
            purpose,
        };
        let id = self.insert(Op::new(token, Kind::Pull(pull)), ledger);
        if total > 0 {
            self.queue_asking(id, ledger);
        } else {
            self.pulled(id, ledger);
        }
    }

    /// All data of a pull is in place.
    fn pulled(&mut self, id: u64, ledger: &mut Ledger) {
        let peer = self.handle;
        let Some(op) = self.op(id) else { return };
        if let Kind::Pull(pull) = &op.kind {
            let len = pull.total;
            let outcome = match pull.purpose {
                Purpose::Got => Ok(Done::Got),
                Purpose::Received => Ok(Done::Received { len }),
                Purpose::Tagged { sent, .. } if sent > len => {
                    Err(OpErrorKind::Truncated { sent, posted: len })
                }
                Purpose::Tagged { tag, .. } => Ok(Done::Tagged { peer, tag, len }),
            };
            op.conclude(outcome);
        }
        self.settle(id, ledger);
    }

    /// A message and the receive that it goes to have found each other.
    pub(super) fn matched(&mut self, posted: Posted, message: Unexpected, ledger: &mut Ledger) {
        let (peer, tag) = (self.handle, message.tag);
        match message.data {
            Waiting::Body { body, len } => {
                let total = len.min(posted.into.len() as u64);
                let into = posted.into.part(0, total as usize).into_iter().collect();
                let purpose = Purpose::Tagged { tag, sent: len };
                self.pull_body(posted.token, body, into, total, purpose, ledger);
            }
            Waiting::Buffered(buffer) => {
                if self.is_up() {
                    self.free_place(ledger);
                }
                let (sent, room) = (buffer.len(), posted.into.len());
                posted.into.write(0, &buffer[..sent.min(room)]);
                let result = eager_result(peer, tag, sent, room);
                let result = result.map_err(|kind| OpError::with_peer(kind, &self.address));
                posted.finish(result, ledger);
            }
        }
    }
}

impl Connection {
    /// A message that the program claimed is not received: its sender is done with it.
    pub(super) fn discard(&mut self, message: Unexpected, ledger: &mut Ledger) {
        match message.data {
            Waiting::Body { body, .. } => self.body_done(body, Sort::Tagged, ledger),
            Waiting::Buffered(_) if self.is_up() => self.free_place(ledger),
            Waiting::Buffered(_) => {}
        }
    }
}

fn eager_result(peer: Peer, tag: u64, sent: usize, room: usize) -> Result<Done, OpErrorKind> {
    let (sent, posted) = (sent as u64, room as u64);
    match sent > posted {
        true => Err(OpErrorKind::Truncated { sent, posted }),
        false => Ok(Done::Tagged { peer, tag, len: sent }),
    }
}

impl Engine {
    /// The payload of the packet is where it should be.
    pub(super) fn land(&mut self, peer: Peer, placement: Placement) -> Result<(), Violation> {
        let Engine { peers, regions, matching, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer) else {
            return Ok(());
        };
        let Some(landing) = conn.incoming.landing.take() else {
            return Ok(());
        };
        let placement = conn.incoming.unbounce(placement);
        match (landing, placement) {
            (Landing::Message { id }, Placement::Buffer(buffer)) => {
                let message = buffer.into_lease();
                ledger.events.push_back(Event::Message { peer, message });
                if let Some(id) = id {
                    conn.reply(id, Status::Good, Bytes::new(), ledger);
                }
            }
            (Landing::Long { body, len }, Placement::Buffer(buffer)) => {
                conn.incoming.keep_body(body, len);
                ledger.events.push_back(Event::LongMessage {
                    peer,
                    header: Box::new(buffer.into_lease()),
                    body: Body { peer, id: body },
                    len,
                });
            }
            (Landing::Tagged { tag, id, len, posted }, placement) => {
                if let Some(id) = id {
                    conn.reply(id, Status::Good, Bytes::new(), ledger);
                }
                match (posted, placement) {
                    (Some(posted), Placement::Buffer(buffer)) => {
                        let data = Waiting::Buffered(buffer);
                        conn.matched(posted, Unexpected::new(peer, tag, data), ledger);
                    }
                    (Some(posted), _) => {
                        conn.free_place(ledger);
                        let done = Done::Tagged { peer, tag, len: len as u64 };
                        posted.finish(Ok(done), ledger);
                    }
                    (None, Placement::Buffer(buffer)) => {
                        let data = Waiting::Buffered(buffer);
                        let message = Unexpected::new(peer, tag, data);
                        // A receive may have been posted while the payload came.
                        match matching.take_posted(peer, tag, ledger) {
                            Some(posted) => conn.matched(posted, message, ledger),
                            None => {
                                ledger.counters.unexpected += 1;
                                matching.keep(message);
                            }
                        }
                    }
                    (None, _) => {}
                }
            }
            (Landing::Put { header, at, status }, _) => {
                let place = at.and_then(|at| regions.locate(at));
                if let Some(at) = at {
                    ledger.unhold(regions, at);
                }
                let placed = conn.incoming.take_fault();
                let status = if placed.is_err() { Status::OutOfBounds } else { status };
                conn.land_put(header, place, status, ledger)?;
            }
            (
                Landing::Atomic { header: Header::Atomic { id, target, offset, op, kind, fetch } },
                Placement::Buffer(buffer),
            ) => {
                let compares = op == AtomicOp::CompareSwap;
                let split = if compares { buffer.len() / 2 } else { buffer.len() };
                let (operand, compare) = buffer.split_at(split);
                let checked = regions.check(target, Access::ATOMIC, offset, operand.len() as u64);
                let (status, old) = match checked {
                    Err(status) => (status, SmallVec::new()),
                    Ok((_, memory)) => apply(&memory, op, kind, operand, compare),
                };
                let old = match fetch {
                    true => Bytes::copy_from_slice(&old),
                    false => Bytes::new(),
                };
                conn.reply(id, status, old, ledger);
            }
            (Landing::Data { id, len, placed }, _) => conn.land_data(id, len, placed, ledger),
            (Landing::Reply { id, status }, Placement::Buffer(buffer)) => {
                conn.land_reply(id, status, &buffer, ledger)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Applies an atomic to memory whose bounds were checked.
fn apply(
    memory: &Slice,
    op: AtomicOp,
    kind: crate::AtomicType,
    operand: &[u8],
    compare: &[u8],
) -> (Status, SmallVec<[u8; 16]>) {
    match memory.atomic(0, op, kind, operand, compare) {
        Ok(old) => (Status::Good, old),
        Err(OpErrorKind::Misaligned { .. }) => (Status::Misaligned, SmallVec::new()),
        Err(_) => (Status::Unsupported, SmallVec::new()),
    }
}

impl Connection {
    fn land_data(&mut self, id: u64, len: u64, placed: bool, ledger: &mut Ledger) {
        let Some(request) = self.request(id) else {
            return;
        };
        request.got += len;
        let (over, op_id) = (request.got == request.len, request.op);
        if over {
            self.answered(id, ledger);
        }
        let Some(op) = self.op(op_id) else { return };
        let (stopped, queued) = (op.stopped(), op.queued);
        op.placing = false;
        let Kind::Pull(pull) = &mut op.kind else {
            return;
        };
        pull.received += if placed { len } else { 0 };
        let (all, more) = (pull.received == pull.total, pull.asked < pull.total);
        if stopped {
            self.settle(op_id, ledger);
        } else if all {
            self.pulled(op_id, ledger);
        } else if over && more && !queued {
            self.queue_asking(op_id, ledger);
        }
    }

    /// A fragment of a put that asks for no answer was refused: the peer is told, of many at a
    /// time.
    fn refuse(&mut self, status: Status, ledger: &mut Ledger) {
        ledger.counters.refused += 1;
        self.incoming.refuse(status);
        if self.refused_puts == Status::Good {
            self.refused_puts = status;
        }
        self.wake(ledger);
    }

    fn land_put(
        &mut self,
        header: Header,
        place: Option<(RegionId, u64)>,
        status: Status,
        ledger: &mut Ledger,
    ) -> Result<(), Violation> {
        let (id, last, asking) = match header {
            Header::Put { id, last, asking, .. } => (id, last, asking),
            Header::PutEvent { id, .. } => (id, true, true),
            _ => return Ok(()),
        };
        if !asking {
            if status != Status::Good {
                self.refuse(status, ledger);
            }
            return Ok(());
        }
        let mut status = status;
        if !last {
            if status != Status::Good {
                self.incoming.put_failed(id, status)?;
            }
            return Ok(());
        }
        if let Some(earlier) = self.incoming.end_put(id) {
            status = earlier;
        }
        if let Header::PutEvent { data, begin, total, .. } = header
            && let (Status::Good, Some((region, base))) = (status, place)
        {
            ledger.events.push_back(Event::PutArrived {
                peer: self.handle,
                region,
                offset: base + begin,
                len: total,
                data,
            });
        }
        self.reply(id, status, Bytes::new(), ledger);
        Ok(())
    }

    fn land_reply(
        &mut self,
        id: u64,
        status: Status,
        old: &[u8],
        ledger: &mut Ledger,
    ) -> Result<(), Violation> {
        let Some(op_id) = self.request(id).map(|request| request.op) else {
            return broken("an answer to nothing", id);
        };
        let Some(op) = self.op(op_id) else {
            return broken("an answer to nothing", id);
        };
        let good = status == Status::Good;
        let expected = match &op.kind {
            Kind::Atomic(atomic) if atomic.fetch && good => atomic.operand,
            _ => 0,
        };
        if old.len() != expected {
            return broken("an answer of a bad length", old.len() as u64);
        }
        let done = match &op.kind {
            Kind::Message { .. } => Done::Sent,
            Kind::Put(put) if put.complete => Done::Put,
            // Too early for a put that was not sent to its end, but it may be a stopped one.
            Kind::Put(_) => return broken("an answer before its question", id),
            Kind::Atomic(atomic) if atomic.fetch => Done::Fetched(old.into()),
            Kind::Atomic(_) => Done::Atomic,
            Kind::Pull(_) if good => return broken("an answer without data", id),
            Kind::Pull(_) => Done::Got,
            Kind::Body { .. } => return broken("an answer to nothing", id),
            Kind::Flush => {
                self.answered(id, ledger);
                self.flush_answered(op_id, status, ledger);
                return Ok(());
            }
            Kind::Fence => {
                self.answered(id, ledger);
                self.settle(op_id, ledger);
                self.fence_answered(status, ledger);
                return Ok(());
            }
        };
        let outcome = match good {
            true => Ok(done),
            false => Err(op.refusal(status)),
        };
        if let Err(kind) = &outcome
            && op.done
            && matches!(&op.kind, Kind::Put(put) if !put.level_asks)
        {
            let (batch, kind) = (op.batch, kind.clone());
            self.access_refused(batch, kind);
            let (peer, why) = (self.handle, status.into());
            ledger.events.push_back(Event::PutRefused { peer, why });
        } else {
            op.conclude(outcome);
        }
        self.answered(id, ledger);
        self.settle(op_id, ledger);
        Ok(())
    }
}
