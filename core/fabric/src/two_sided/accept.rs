//! What comes in, first half: each header is checked, and its payload gets a place.

use super::{
    Engine, MAX_EAGER, Placement, Violation,
    connection::Connection,
    header::{Header, Status, message_len},
    incoming::Landing,
    ledger::Ledger,
    matching::{Matching, Unexpected, Waiting},
    operations::{Kind, Op, Sort, gather},
    packet::expand,
    queues::{Bulk, Serve, Served},
    violation::{at_most, broken},
};
use crate::{Access, AtomicOp, Buffer, Done, Event, Limits, Peer, Pool};
use bytes::Bytes;
use smallvec::smallvec;

/// Longer fragments than these no endpoint sends: data for memory of a device is buffered.
const BOUNCED: usize = 1 << 20;

impl Connection {
    /// Another body of the peer's is announced.
    fn announce(&mut self, sort: Sort) -> Result<(), Violation> {
        let room = self.expected.room_here();
        self.incoming.announce(sort, room)
    }

    /// The peer uses expected messages: gives it room for more, as far as there is some.
    pub(super) fn promise_room(
        &mut self,
        of: (&Pool, &Limits),
        matching: &mut Matching,
        ledger: &mut Ledger,
    ) {
        let announced = self.incoming.bodies(Sort::Tagged);
        let quota = self.credit.quota(of.1).unexpected;
        let (report, expected) = (&mut self.expected_report, &mut self.entry.expected);
        let (tell, refused) = expected.promise_room(announced, quota, report, matching);
        if refused {
            self.credit.grants(of.0, of.1).unexpected_refused += 1;
        }
        if tell {
            self.wake(ledger);
        }
    }

    /// The peer asks whether it has places for expected messages.
    fn promise_places(
        &mut self,
        of: (&Pool, &Limits),
        matching: &mut Matching,
        ledger: &mut Ledger,
    ) {
        let quota = self.credit.quota(of.1).unexpected;
        let (report, expected) = (&mut self.expected_report, &mut self.entry.expected);
        if expected.promise_places(quota, report, matching) {
            self.credit.grants(of.0, of.1).unexpected_refused += 1;
        }
        self.expected_report.answer_places();
        self.wake(ledger);
    }

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
}

impl Engine {
    /// The short way for a plain message that is in memory, if that is what this is, and all is in
    /// order: whether it was taken.
    pub(super) fn deliver_message(
        &mut self,
        peer: Peer,
        header: &[u8],
        payload: &[u8],
    ) -> Option<Result<(), Violation>> {
        let len = message_len(header.try_into().ok()?)? as usize;
        let (_, conn) = self.peers.entry_and_connection(peer).filter(|(entry, _)| entry.is_up())?;
        if conn.is_some_and(|conn| conn.incoming.landing.is_some())
            || len > self.config.limits.max_message
        {
            return None;
        }
        let message = match self.lend(peer, len, |room| room.copy_from_slice(payload)) {
            Ok(message) => message,
            Err(violation) => return Some(Err(violation)),
        };
        let counters = &mut self.ledger.counters;
        counters.packets_in += 1;
        counters.bytes_in += len as u64;
        self.ledger.events.push_back(Event::Message { peer, message });
        Some(Ok(()))
    }

    pub(super) fn accept_packet(
        &mut self,
        peer: Peer,
        header: &[u8],
    ) -> Result<Placement, Violation> {
        let (header, len) = Header::decode(header)?;
        let Engine { config, peers, regions, matching, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer).filter(|conn| conn.is_up()) else {
            return broken("a packet of a peer that is not up", 0);
        };
        if conn.incoming.landing.is_some() {
            return broken("a packet within a packet", 0);
        }
        let limits = &config.limits;
        let (landing, placement) = match header {
            Header::Message | Header::MessageAsking { .. } => {
                at_most("a message too long", len, limits.max_message)?;
                let buffer = conn.credit.buffer(len)?;
                let mut wanted = None;
                if let Header::MessageAsking { id } = header {
                    conn.incoming.begin_serving()?;
                    wanted = Some(id);
                }
                (Landing::Message { id: wanted }, Placement::Buffer(buffer))
            }
            Header::Long { body, len: long } => {
                at_most("a header too long", len, limits.max_header)?;
                if conn.incoming.is_announced(body) {
                    return broken("a body announced twice", body);
                }
                let buffer = conn.credit.buffer(len)?;
                conn.announce(Sort::Long)?;
                let landing = Landing::Long { body, len: long };
                (landing, Placement::Buffer(buffer))
            }
            Header::Tagged { tag } | Header::TaggedAsking { tag, .. } => {
                at_most("an eager message too long", len, MAX_EAGER)?;
                conn.expected.check_eager()?;
                let wanted = match header {
                    Header::TaggedAsking { id, .. } => Some(id),
                    _ => None,
                };
                if wanted.is_some() {
                    conn.incoming.begin_serving()?;
                }
                let posted = matching.take_posted(peer, tag, ledger);
                conn.expected.hold();
                // A message that is too long for its receive is cut from a buffer.
                let fits = posted.as_ref().and_then(|p| p.into.part(0, len));
                let placement = match fits {
                    Some(memory) => Placement::Memory(smallvec![memory]),
                    None => Placement::Buffer(Buffer::zeroed(len)),
                };
                (Landing::Tagged { tag, id: wanted, len, posted }, placement)
            }
            Header::Put { target, offset, .. } | Header::PutEvent { target, offset, .. } => {
                let asks = matches!(
                    header,
                    Header::PutEvent { .. } | Header::Put { last: true, asking: true, .. }
                );
                if asks {
                    conn.incoming.begin_serving()?;
                }
                let checked = regions.check(target, Access::WRITE, offset, len as u64);
                let checked = checked.and_then(|(at, memory)| {
                    let bound = regions.get(at).map_or(0, |entry| entry.memory.len() as u64);
                    match header {
                        Header::PutEvent { begin, total, .. } if begin.max(total) > bound => {
                            Err(Status::OutOfBounds)
                        }
                        _ => Ok((at, memory)),
                    }
                });
                let (at, status, placement) = match checked {
                    Ok((at, memory)) => {
                        regions.hold(at);
                        let placement = Placement::Memory(smallvec![memory]);
                        (Some(at), Status::Good, placement)
                    }
                    Err(status) => (None, status, Placement::Discard),
                };
                (Landing::Put { header, at, status }, placement)
            }
            Header::Atomic { op, .. } => {
                let most = limits.max_atomic * (1 + usize::from(op == AtomicOp::CompareSwap));
                at_most("an atomic operand too long", len, most)?;
                conn.incoming.begin_serving()?;
                let buffer = Buffer::zeroed(len);
                (Landing::Atomic { header }, Placement::Buffer(buffer))
            }
            Header::Data { id, offset } => conn.accept_data(id, offset, len as u64, ledger)?,
            Header::Reply { id, status } => {
                at_most("an answer too long", len, limits.max_atomic)?;
                if conn.request(id).is_none() {
                    return broken("an answer to nothing", id);
                }
                let buffer = Buffer::zeroed(len);
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
        let message = matches!(landing, Landing::Message { .. } | Landing::Long { .. });
        let mut placement = placement;
        if let Some(conn) = self.peers.get_mut(peer) {
            conn.incoming.landing = Some(landing);
            if let Placement::Memory(pieces) = &mut placement
                && pieces.iter().any(|piece| piece.device().is_some())
                && !expand(pieces)
            {
                let most = self.config.max_fragment.max(BOUNCED);
                at_most("a fragment too long for memory of a device", len, most)?;
                placement = conn.incoming.bounce(std::mem::take(pieces), len);
            }
        }
        if message {
            self.refill(peer, len);
        }
        Ok(placement)
    }

    /// Packets without a payload.
    fn accept_control(&mut self, peer: Peer, header: Header) -> Result<(), Violation> {
        let Engine { config, pool, peers, regions, matching, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer) else {
            return Ok(());
        };
        match header {
            Header::Grant { .. } | Header::Ask | Header::Recall | Header::Return { .. } => {
                conn.accept_credit(header, (pool, &config.limits), ledger)?;
            }
            Header::Mode { held, attended } => conn.accept_mode(held, attended, ledger),
            Header::Room { count } => {
                conn.expected.accept_room(count)?;
                conn.wake(ledger);
            }
            Header::TaggedBody { tag, body, len } => {
                conn.announce(Sort::Tagged)?;
                conn.promise_room((pool, &config.limits), matching, ledger);
                let data = Waiting::Body { body, len };
                let message = Unexpected::new(peer, tag, data);
                match matching.take_posted(peer, tag, ledger) {
                    Some(posted) => conn.matched(posted, message, ledger),
                    None => {
                        ledger.counters.unexpected += 1;
                        matching.keep(message);
                    }
                }
            }
            Header::RoomAsk => {
                conn.promise_places((pool, &config.limits), matching, ledger);
            }
            Header::Credit { count } => {
                conn.expected.accept_places(count)?;
                conn.wake(ledger);
            }
            Header::Refused { count, status } => {
                if count == 0 || status == Status::Good {
                    return broken("a refusal of nothing", count);
                }
                ledger.events.push_back(Event::PutRefused { peer, why: status.into() });
            }
            Header::Flush { id } => {
                conn.incoming.begin_serving()?;
                conn.answer_flush(id, ledger);
            }
            Header::PutAbort { id } => {
                conn.incoming.end_put(id);
            }
            Header::Get { id, target, offset, len } => {
                conn.incoming.begin_serving()?;
                if len == 0 || len > config.limits.max_transfer {
                    return broken("a get of a bad length", len);
                }
                match regions.check(target, Access::READ, offset, len) {
                    Ok((at, _)) => {
                        let what = Served::Memory { at, offset };
                        let serve = Serve { id, what, len, done: 0 };
                        conn.queues.bulk.push_back(Bulk::Serve(serve));
                        conn.wake(ledger);
                    }
                    Err(status) => conn.reply(id, status, Bytes::new(), ledger),
                }
            }
            Header::Pull { id, body, offset, len } => {
                conn.incoming.begin_serving()?;
                let Some(Op { kind: Kind::Body { data, open: true, .. }, done, .. }) =
                    conn.op(body)
                else {
                    return broken("a pull of no body", body);
                };
                let end = offset.checked_add(len);
                if !*done && (len == 0 || end.is_none_or(|end| end > data.len() as u64)) {
                    return broken("a pull beyond the body", len);
                }
                let what = Served::Body { op: body, offset };
                let serve = Serve { id, what, len, done: 0 };
                conn.queues.bulk.push_back(Bulk::Serve(serve));
                conn.wake(ledger);
            }
            Header::BodyDone { body } => {
                let Some(op) = conn.op(body) else {
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
                conn.outstanding.body_done(sort);
                conn.settle(body, ledger);
                conn.wake(ledger);
            }
            _ => unreachable!("the others have payloads"),
        }
        Ok(())
    }
}
