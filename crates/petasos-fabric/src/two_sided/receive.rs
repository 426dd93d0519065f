//! What comes in: each header is checked, its payload is placed, and then it takes effect.

use super::{
    Buffer, EAGER_CREDITS, Engine, MAX_BODIES, MAX_EAGER, MAX_REQUESTS, Placement, Violation,
    header::{Header, Status},
    ledger::Ledger,
    link::{Bulk, Landing, Link, Serve, Served},
    matching::{Posted, Unexpected, Waiting},
    operations::{Kind, Op, Pull, Sort, Source, Then, gather},
};
use crate::{
    Access, AtomicOp, Body, Done, Event, Lease, OpError, OpErrorKind, Peer, Pool, RegionId,
    RemoteSpan, Slice, Slices,
};
use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

fn broken<T>(what: &'static str, value: u64) -> Result<T, Violation> {
    Err(Violation::new(what, value))
}

fn at_most(what: &'static str, value: usize, limit: usize) -> Result<(), Violation> {
    match value <= limit {
        true => Ok(()),
        false => broken(what, value as u64),
    }
}

/// A buffer for a message: of the pool, unless it is short.
fn buffer(pool: &Pool, len: usize) -> Option<Buffer> {
    match len <= Lease::INLINE {
        true => Some(Buffer::plain(len)),
        false => Buffer::lent(pool, len),
    }
}

impl Link {
    /// Another request of the peer's waits for an answer.
    fn serve(&mut self) -> Result<(), Violation> {
        if self.serving >= MAX_REQUESTS {
            return broken("more requests than allowed", self.serving.into());
        }
        self.serving += 1;
        Ok(())
    }

    /// Another body of the peer's is announced.
    fn announce(&mut self, sort: Sort) -> Result<(), Violation> {
        let theirs = &mut self.theirs[sort as usize];
        if *theirs >= MAX_BODIES {
            return broken("more bodies than allowed", (*theirs).into());
        }
        *theirs += 1;
        Ok(())
    }

    /// A place for an eager message is free again.
    fn owe(&mut self, ledger: &mut Ledger) {
        self.owed += 1;
        if self.owed >= EAGER_CREDITS / 2 {
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
        then: Then,
        ledger: &mut Ledger,
    ) {
        let pull = Pull {
            source: Source::Body(body),
            spans: smallvec![RemoteSpan { offset: 0, len: total }],
            local: into,
            total,
            asked: 0,
            at: (0, 0),
            received: 0,
            then,
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
            let outcome = match pull.then {
                Then::Got => Ok(Done::Got),
                Then::Received => Ok(Done::Received { len }),
                Then::Tagged { sent, .. } if sent > len => {
                    Err(OpErrorKind::Truncated { sent, posted: len })
                }
                Then::Tagged { tag, .. } => Ok(Done::Tagged { peer, tag, len }),
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
                let then = Then::Tagged { tag, sent: len };
                self.pull_body(posted.token, body, into, total, then, ledger);
            }
            Waiting::Here(buffer) => {
                if self.is_up() {
                    self.owe(ledger);
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

fn eager_result(peer: Peer, tag: u64, sent: usize, room: usize) -> Result<Done, OpErrorKind> {
    let (sent, posted) = (sent as u64, room as u64);
    match sent > posted {
        true => Err(OpErrorKind::Truncated { sent, posted }),
        false => Ok(Done::Tagged { peer, tag, len: sent }),
    }
}

impl Engine {
    pub(super) fn accept_packet(
        &mut self,
        peer: Peer,
        header: &[u8],
    ) -> Result<Placement, Violation> {
        let (header, len) = Header::decode(header)?;
        let Engine { config, pool, peers, regions, matching, ledger, .. } = self;
        let Some(link) = peers.get_mut(peer).filter(|link| link.is_up()) else {
            return broken("a packet of a peer that is not up", 0);
        };
        if link.landing.is_some() {
            return broken("a packet within a packet", 0);
        }
        let mut busy = || {
            ledger.counters.busy += 1;
            Ok(Placement::Busy)
        };
        let limits = &config.limits;
        let (landing, placement) = match header {
            Header::Message | Header::MessageAsking { .. } => {
                at_most("a message too long", len, limits.max_message)?;
                let Some(buffer) = buffer(pool, len) else {
                    return busy();
                };
                let mut wanted = None;
                if let Header::MessageAsking { id } = header {
                    link.serve()?;
                    wanted = Some(id);
                }
                (Landing::Message { id: wanted }, Placement::Buffer(buffer))
            }
            Header::Long { body, len: long } => {
                at_most("a header too long", len, limits.max_header)?;
                if link.announced.contains_key(&body) {
                    return broken("a body announced twice", body);
                }
                let Some(buffer) = buffer(pool, len) else {
                    return busy();
                };
                link.announce(Sort::Long)?;
                let landing = Landing::Long { body, len: long };
                (landing, Placement::Buffer(buffer))
            }
            Header::Tagged { tag } | Header::TaggedAsking { tag, .. } => {
                at_most("an eager message too long", len, MAX_EAGER)?;
                if link.held >= EAGER_CREDITS {
                    return broken("more eager messages than allowed", link.held.into());
                }
                let wanted = match header {
                    Header::TaggedAsking { id, .. } => Some(id),
                    _ => None,
                };
                if wanted.is_some() {
                    link.serve()?;
                }
                let posted = matching.take_posted(peer, tag);
                if posted.is_none() && !matching.has_room(len, config.max_unexpected) {
                    link.serving -= u32::from(wanted.is_some());
                    return busy();
                }
                link.held += 1;
                // A message that is too long for its receive is cut from a buffer.
                let fits = posted.as_ref().and_then(|p| p.into.part(0, len));
                let placement = match fits {
                    Some(memory) => Placement::Memory(smallvec![memory]),
                    None => Placement::Buffer(Buffer::plain(len)),
                };
                (Landing::Tagged { tag, id: wanted, len, posted }, placement)
            }
            Header::Put { target, offset, .. } | Header::PutEvent { target, offset, .. } => {
                let asks = matches!(
                    header,
                    Header::PutEvent { .. } | Header::Put { last: true, asking: true, .. }
                );
                if asks {
                    link.serve()?;
                }
                let checked = regions.check(target, Access::WRITE, offset, len as u64);
                let checked = checked.and_then(|(region, memory)| {
                    let bound = regions.get(region).map_or(0, |r| r.memory.len() as u64);
                    match header {
                        Header::PutEvent { begin, total, .. } if begin.max(total) > bound => {
                            Err(Status::OutOfBounds)
                        }
                        _ => Ok((region, memory)),
                    }
                });
                let (region, status, placement) = match checked {
                    Ok((region, memory)) => {
                        regions.hold(region);
                        let placement = Placement::Memory(smallvec![memory]);
                        (Some(region), Status::Good, placement)
                    }
                    Err(status) => (None, status, Placement::Discard),
                };
                (Landing::Put { header, region, status }, placement)
            }
            Header::Atomic { op, .. } => {
                let most = limits.max_atomic * (1 + usize::from(op == AtomicOp::CompareSwap));
                at_most("an atomic operand too long", len, most)?;
                link.serve()?;
                let buffer = Buffer::plain(len);
                (Landing::Atomic { header }, Placement::Buffer(buffer))
            }
            Header::Data { id, offset } => link.accept_data(id, offset, len as u64, ledger)?,
            Header::Reply { id, status } => {
                at_most("an answer too long", len, limits.max_atomic)?;
                if link.request(id).is_none() {
                    return broken("an answer to nothing", id);
                }
                let buffer = Buffer::plain(len);
                (Landing::Reply { id, status }, Placement::Buffer(buffer))
            }
            _ => {
                at_most("a payload where none belongs", len, 0)?;
                self.accept_control(peer, header)?;
                (Landing::Nothing, Placement::Discard)
            }
        };
        self.ledger.counters.packets_in += 1;
        self.ledger.counters.bytes_in += len as u64;
        if let Some(link) = self.peers.get_mut(peer) {
            link.landing = Some(landing);
        }
        Ok(placement)
    }

    /// Packets without a payload.
    fn accept_control(&mut self, peer: Peer, header: Header) -> Result<(), Violation> {
        let Engine { config, peers, regions, matching, ledger, .. } = self;
        let Some(link) = peers.get_mut(peer) else {
            return Ok(());
        };
        match header {
            Header::TaggedBody { tag, body, len } => {
                link.announce(Sort::Tagged)?;
                let data = Waiting::Body { body, len };
                let message = Unexpected { peer, tag, data };
                match matching.take_posted(peer, tag) {
                    Some(posted) => link.matched(posted, message, ledger),
                    None => {
                        ledger.counters.unexpected += 1;
                        matching.keep(message);
                    }
                }
            }
            Header::Credit { count } => {
                if count == 0 || count > u64::from(EAGER_CREDITS - link.eager) {
                    return broken("more credit than there is", count);
                }
                link.eager += count as u32;
                link.wake(ledger);
            }
            Header::PutAbort { id } => {
                link.failed.remove(&id);
            }
            Header::Get { id, target, offset, len } => {
                link.serve()?;
                if len == 0 || len > config.limits.max_transfer {
                    return broken("a get of a bad length", len);
                }
                match regions.check(target, Access::READ, offset, len) {
                    Ok((region, memory)) => {
                        let what = Served::Region { region, memory };
                        let serve = Serve { id, what, len, done: 0 };
                        link.bulk.push_back(Bulk::Serve(serve));
                        link.wake(ledger);
                    }
                    Err(status) => link.reply(id, status, Bytes::new(), ledger),
                }
            }
            Header::Pull { id, body, offset, len } => {
                link.serve()?;
                let Some(Op { kind: Kind::Body { data, open: true, .. }, done, .. }) =
                    link.op(body)
                else {
                    return broken("a pull of no body", body);
                };
                let end = offset.checked_add(len);
                if !*done && (len == 0 || end.is_none_or(|end| end > data.len() as u64)) {
                    return broken("a pull beyond the body", len);
                }
                let what = Served::Body { op: body, offset };
                let serve = Serve { id, what, len, done: 0 };
                link.bulk.push_back(Bulk::Serve(serve));
                link.wake(ledger);
            }
            Header::BodyDone { body } => {
                let Some(op) = link.op(body) else {
                    return broken("done with no body", body);
                };
                let sort = match &mut op.kind {
                    Kind::Body { open, announce, .. } if *open => {
                        *open = false;
                        announce.sort()
                    }
                    _ => return broken("done with no body", body),
                };
                op.conclude(Ok(Done::Sent));
                link.bodies[sort as usize] -= 1;
                link.settle(body, ledger);
                link.wake(ledger);
            }
            _ => unreachable!("the others have payloads"),
        }
        Ok(())
    }

    /// The payload of the packet is where it should be.
    pub(super) fn land(&mut self, peer: Peer, placement: Placement) -> Result<(), Violation> {
        let Engine { peers, regions, matching, ledger, .. } = self;
        let Some(link) = peers.get_mut(peer) else {
            return Ok(());
        };
        let Some(landing) = link.landing.take() else {
            return Ok(());
        };
        match (landing, placement) {
            (Landing::Message { id }, Placement::Buffer(buffer)) => {
                let message = buffer.into_lease();
                ledger.events.push_back(Event::Message { peer, message });
                if let Some(id) = id {
                    link.reply(id, Status::Good, Bytes::new(), ledger);
                }
            }
            (Landing::Long { body, len }, Placement::Buffer(buffer)) => {
                link.announced.insert(body, len);
                ledger.events.push_back(Event::LongMessage {
                    peer,
                    header: buffer.into_lease(),
                    body: Body { peer, id: body },
                    len,
                });
            }
            (Landing::Tagged { tag, id, len, posted }, placement) => {
                if let Some(id) = id {
                    link.reply(id, Status::Good, Bytes::new(), ledger);
                }
                match (posted, placement) {
                    (Some(posted), Placement::Buffer(buffer)) => {
                        let data = Waiting::Here(buffer);
                        link.matched(posted, Unexpected { peer, tag, data }, ledger);
                    }
                    (Some(posted), _) => {
                        link.owe(ledger);
                        let done = Done::Tagged { peer, tag, len: len as u64 };
                        posted.finish(Ok(done), ledger);
                    }
                    (None, Placement::Buffer(buffer)) => {
                        let data = Waiting::Here(buffer);
                        let message = Unexpected { peer, tag, data };
                        // A receive may have been posted while the payload came.
                        match matching.take_posted(peer, tag) {
                            Some(posted) => link.matched(posted, message, ledger),
                            None => {
                                ledger.counters.unexpected += 1;
                                matching.keep(message);
                            }
                        }
                    }
                    (None, _) => {}
                }
            }
            (Landing::Put { header, region, status }, _) => {
                if let Some(region) = region {
                    ledger.unhold(regions, region);
                }
                link.land_put(header, region, status, ledger)?;
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
                link.reply(id, status, old, ledger);
            }
            (Landing::Data { id, len, placed }, _) => link.land_data(id, len, placed, ledger),
            (Landing::Reply { id, status }, Placement::Buffer(buffer)) => {
                link.land_reply(id, status, &buffer, ledger)?;
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

impl Link {
    /// A fragment of an answer to a get or a pull.
    fn accept_data(
        &mut self,
        id: u64,
        offset: u64,
        len: u64,
        ledger: &mut Ledger,
    ) -> Result<(Landing, Placement), Violation> {
        let Some(request) = self.request(id) else {
            return broken("data for nothing", id);
        };
        if offset != request.got || len == 0 || len > request.len - request.got {
            return broken("data out of place", offset);
        }
        let (op, base) = (request.op, request.base + request.got);
        let Some(op) = self.op(op) else {
            return broken("data for nothing", id);
        };
        let stopped = op.stopped();
        let Kind::Pull(pull) = &op.kind else {
            return broken("data for what is no get", id);
        };
        if stopped {
            ledger.counters.discarded += len;
            return Ok((Landing::Data { id, len, placed: false }, Placement::Discard));
        }
        let (pieces, found) = gather(&pull.local, base, len as usize, usize::MAX);
        debug_assert_eq!(found as u64, len, "a pull asks for what it has room for");
        op.placing = true;
        let landing = Landing::Data { id, len, placed: true };
        Ok((landing, Placement::Memory(pieces)))
    }

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

    fn land_put(
        &mut self,
        header: Header,
        region: Option<RegionId>,
        status: Status,
        ledger: &mut Ledger,
    ) -> Result<(), Violation> {
        let (id, last, asking) = match header {
            Header::Put { id, last, asking, .. } => (id, last, asking),
            Header::PutEvent { id, .. } => (id, true, true),
            _ => return Ok(()),
        };
        if !asking {
            ledger.counters.refused += u64::from(status != Status::Good);
            return Ok(());
        }
        let mut status = status;
        if !last {
            if status != Status::Good {
                self.failed.entry(id).or_insert(status);
                at_most(
                    "more failing puts than allowed",
                    self.failed.len(),
                    MAX_REQUESTS as usize,
                )?;
            }
            return Ok(());
        }
        if let Some(earlier) = self.failed.remove(&id) {
            status = earlier;
        }
        if let Header::PutEvent { data, begin, total, .. } = header
            && let (Status::Good, Some(region)) = (status, region)
        {
            ledger.events.push_back(Event::PutArrived {
                peer: self.handle,
                region,
                offset: begin,
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
        };
        let outcome = match good {
            true => Ok(done),
            false => Err(op.refusal(status)),
        };
        op.conclude(outcome);
        self.answered(id, ledger);
        self.settle(op_id, ledger);
        Ok(())
    }
}
