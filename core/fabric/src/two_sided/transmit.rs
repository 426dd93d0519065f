//! Which packet goes next.

use super::{
    Config, Outgoing, Packet,
    connection::{Connection, InFlight},
    credit::costs,
    header::{Header, Status},
    ledger::Ledger,
    operations::{Announce, Kind, Op, Sort, Source, gather, payload_part},
    queues::{Bulk, Class, Control, Message, Serve, Served},
    registry::Regions,
};
use crate::{Done, Event, OpErrorKind, Payload, memory::Fault};
use bytes::Bytes;

/// Pieces of memory in one packet, so that a vectored write takes it in one go.
const MAX_PIECES: usize = 64;

/// Why memory of operations is always there.
const LOCAL: &str = "the address space is no memory of operations";

/// The outcome for the first message of a queue.
enum Next {
    /// It must wait.
    Blocked,
    /// It must wait for credit, or, an expected one, until it is known whether there are places.
    Starved,
    /// It was cancelled.
    Cancelled,
    Packet(Packet),
}

impl Connection {
    /// The next packet. Answers, messages and requests take turns; bulk data gets its turn after
    /// so many of them, and whenever there are none.
    pub(super) fn poll(
        &mut self,
        config: &Config,
        regions: &mut Regions,
        ledger: &mut Ledger,
    ) -> Option<Packet> {
        if !self.is_up() {
            return None;
        }
        let packet = loop {
            self.changed = false;
            let packet = self.pick(config, regions, ledger);
            // An operation that was dropped may have made room for one that was passed over.
            if packet.is_some() || !self.changed {
                break packet;
            }
        };
        if let Some(packet) = &packet {
            ledger.counters.packets_out += 1;
            ledger.counters.bytes_out += packet.payload.len() as u64;
        }
        packet
    }

    fn pick(
        &mut self,
        config: &Config,
        regions: &mut Regions,
        ledger: &mut Ledger,
    ) -> Option<Packet> {
        if self.schedule.is_bulk_due()
            && let Some(packet) = self.poll_bulk(config, regions, ledger)
        {
            self.schedule.bulk_went();
            return Some(packet);
        }
        self.schedule.small_comes();
        if let Some(packet) = self.poll_small(config, ledger) {
            return Some(packet);
        }
        self.schedule.bulk_went();
        self.poll_bulk(config, regions, ledger)
    }

    fn poll_small(&mut self, config: &Config, ledger: &mut Ledger) -> Option<Packet> {
        for class in self.schedule.small() {
            let packet = match class {
                Class::Control => self.poll_control(),
                Class::Message => self.poll_message(config, ledger),
                Class::Tagged => self.poll_tagged(ledger),
                Class::Asking => self.poll_asking(config, ledger),
            };
            if packet.is_some() {
                self.schedule.small_went(class);
                return packet;
            }
        }
        None
    }

    fn packet(&mut self, header: Header, mut payload: Outgoing, flight: InFlight) -> Packet {
        payload.make_reachable().expect(LOCAL);
        self.launch(header, payload, flight)
    }

    /// The same with a payload that is reachable.
    fn launch(&mut self, header: Header, payload: Outgoing, flight: InFlight) -> Packet {
        if let InFlight::Op(id) = flight
            && let Some(op) = self.op(id)
        {
            op.flying += 1;
        }
        self.in_flight.push_back(flight);
        Packet { header: header.encode(payload.len()), payload }
    }

    fn poll_control(&mut self) -> Option<Packet> {
        if let Some(header) = self.poll_credit().or_else(|| self.poll_expected()) {
            return Some(self.packet(header, Outgoing::Nothing, InFlight::Nothing));
        }
        if let Some(header) = self.incoming.poll_refusals() {
            return Some(self.packet(header, Outgoing::Nothing, InFlight::Nothing));
        }
        Some(match self.queues.control.pop_front()? {
            Control::Reply { id, status, old } => {
                self.incoming.end_serving();
                let header = Header::Reply { id, status };
                self.packet(header, Outgoing::Bytes(old), InFlight::Nothing)
            }
            Control::BodyDone { body, sort } => {
                self.incoming.body_done(sort);
                let header = Header::BodyDone { body };
                self.packet(header, Outgoing::Nothing, InFlight::Nothing)
            }
        })
    }

    /// What there is to say about room for expected messages, if anything.
    fn poll_expected(&mut self) -> Option<Header> {
        self.expected_report.poll(&mut self.entry.expected)
    }

    /// The next unexpected message.
    fn poll_message(&mut self, config: &Config, ledger: &mut Ledger) -> Option<Packet> {
        loop {
            let next = match self.queues.first_message()? {
                Message::Op(id) => {
                    let id = *id;
                    self.message_packet(id, ledger)
                }
                Message::Injected(bytes) if !self.entry.credit.allows(bytes.len()) => Next::Starved,
                Message::Injected(bytes) => {
                    self.entry.credit.spend(bytes.len());
                    let payload = Outgoing::Bytes(bytes.clone());
                    Next::Packet(self.packet(Header::Message, payload, InFlight::Nothing))
                }
            };
            let packet = match next {
                Next::Blocked => return None,
                Next::Starved => {
                    let header = self.entry.credit.ask()?;
                    return Some(self.packet(header, Outgoing::Nothing, InFlight::Nothing));
                }
                Next::Cancelled => None,
                Next::Packet(packet) => Some(packet),
            };
            if self.entry.held {
                self.may_go_on(ledger);
            }
            if self.queues.pop_message(config.inject_queue) {
                ledger.events.push_back(Event::Writable { peer: self.handle });
            }
            if packet.is_some() {
                return packet;
            }
        }
    }

    /// The next expected message. They wait by themselves, so that one for which nothing is posted
    /// a receive holds up no other kind.
    fn poll_tagged(&mut self, ledger: &mut Ledger) -> Option<Packet> {
        loop {
            let id = *self.queues.tagged.front()?;
            match self.message_packet(id, ledger) {
                Next::Blocked => return None,
                // It asks for places first, once.
                Next::Starved if self.expected.ask() => {
                    return Some(self.packet(
                        Header::RoomAsk,
                        Outgoing::Nothing,
                        InFlight::Nothing,
                    ));
                }
                Next::Starved => return None,
                Next::Cancelled => self.queues.tagged.pop_front(),
                Next::Packet(packet) => {
                    self.queues.tagged.pop_front();
                    return Some(packet);
                }
            };
        }
    }

    fn message_packet(&mut self, id: u64, ledger: &mut Ledger) -> Next {
        let (may_ask, eager) = (self.outstanding.may_ask(), self.expected.eager() > 0);
        let (known, room) = (self.expected.is_known(), self.expected.room());
        let may_announce =
            [Sort::Long, Sort::Tagged].map(|sort| self.outstanding.may_announce(sort, room));
        // Of expected messages the data costs no credit.
        let (held, long) = (self.credit.is_deferred(), !self.credit.allows(usize::MAX));
        let starved = |len: usize, tagged: bool| !tagged && (held || (costs(len) && long));
        let Some(op) = self.op(id).filter(|op| !op.stopped()) else {
            self.unqueue(id, ledger);
            return Next::Cancelled;
        };
        if let Kind::Message { payload, tag: Some(tag), .. } = &mut op.kind
            && !eager
        {
            if !known {
                return Next::Starved;
            }
            op.kind = Kind::Body {
                data: std::mem::replace(payload, Payload::Bytes(Bytes::new())),
                announce: Announce::Tagged(*tag),
                open: false,
            };
        }
        let packet = match &mut op.kind {
            Kind::Message { payload, tag, asking } => {
                if *asking && !may_ask {
                    return Next::Blocked;
                }
                let len = if tag.is_none() { payload.len() } else { 0 };
                if starved(len, tag.is_some()) {
                    return Next::Starved;
                }
                let (tag, asking) = (*tag, *asking);
                let payload = payload_part(payload, 0, payload.len());
                op.awaiting = asking.into();
                let request = if asking { self.ask(id, 0, 0) } else { 0 };
                let header = match (tag, asking) {
                    (None, false) => Header::Message,
                    (None, true) => Header::MessageAsking { id: request },
                    (Some(tag), false) => Header::Tagged { tag },
                    (Some(tag), true) => Header::TaggedAsking { tag, id: request },
                };
                if tag.is_some() {
                    self.expected.use_place();
                }
                self.credit.spend(len);
                self.packet(header, payload, InFlight::Op(id))
            }
            Kind::Body { data, announce, open } => {
                let sort = announce.sort();
                if !may_announce[sort as usize] {
                    return Next::Blocked;
                }
                let header_len = match announce {
                    Announce::Long(bytes) => bytes.len(),
                    Announce::Tagged(_) => 0,
                };
                if starved(header_len, sort == Sort::Tagged) {
                    return Next::Starved;
                }
                *open = true;
                let (body, len) = (id, data.len() as u64);
                let (header, payload) = match announce {
                    Announce::Long(bytes) => {
                        let bytes = std::mem::take(bytes);
                        (Header::Long { body, len }, Outgoing::Bytes(bytes))
                    }
                    Announce::Tagged(tag) => {
                        let tag = *tag;
                        (Header::TaggedBody { tag, body, len }, Outgoing::Nothing)
                    }
                };
                self.outstanding.announced(sort);
                self.credit.spend(header_len);
                self.packet(header, payload, InFlight::Nothing)
            }
            _ => unreachable!("only messages are in their queues"),
        };
        self.unqueue(id, ledger);
        Next::Packet(packet)
    }

    /// The operation left its queue.
    fn unqueue(&mut self, id: u64, ledger: &mut Ledger) {
        if let Some(op) = self.op(id) {
            op.queued = false;
            self.settle(id, ledger);
        }
    }

    fn poll_asking(&mut self, config: &Config, ledger: &mut Ledger) -> Option<Packet> {
        while self.outstanding.may_ask() {
            if !self.flushes.is_empty()
                && let Some(header) = self.poll_flush(ledger)
            {
                return Some(self.packet(header, Outgoing::Nothing, InFlight::Nothing));
            }
            if self.entry.held
                && let Some(header) = self.poll_fence(ledger)
            {
                return Some(self.packet(header, Outgoing::Nothing, InFlight::Nothing));
            }
            let id = self.queues.asking.pop_front()?;
            let incarnation = self.incarnation;
            if let Some(op) = self.op(id)
                && let Some(route) = op.route()
                && route.incarnation.is_some()
                && route.incarnation != incarnation
            {
                op.conclude(Err(OpErrorKind::StaleKey));
            }
            let (unasked, held) = (self.flushes.has_unasked(), self.credit.is_deferred());
            let Some(op) = self.op(id).filter(|op| !op.stopped()) else {
                self.unqueue(id, ledger);
                continue;
            };
            match &mut op.kind {
                Kind::Put(put) if held && put.event.is_some() => self.queues.hold(id),
                Kind::Put(put) if put.asking() || unasked => {
                    put.confirm = unasked;
                    op.awaiting = 1;
                    let request = self.ask(id, 0, 0);
                    if let Some(Op { kind: Kind::Put(put), .. }) = self.op(id) {
                        put.request = Some(request);
                    }
                    self.queues.bulk.push_back(Bulk::Put(id));
                }
                Kind::Put(_) => {
                    self.entry.accesses.put_unconfirmed();
                    self.queues.bulk.push_back(Bulk::Put(id));
                }
                Kind::Atomic(atomic) => {
                    let payload = Outgoing::Bytes(Bytes::copy_from_slice(&atomic.payload));
                    let mut header = Header::Atomic {
                        id: 0,
                        target: atomic.route.target,
                        offset: atomic.offset,
                        op: atomic.op,
                        kind: atomic.kind,
                        fetch: atomic.fetch,
                    };
                    (op.awaiting, op.queued) = (1, false);
                    let request = self.ask(id, 0, 0);
                    if let Header::Atomic { id, .. } = &mut header {
                        *id = request;
                    }
                    return Some(self.packet(header, payload, InFlight::Nothing));
                }
                Kind::Pull(pull) => {
                    let rest =
                        pull.at.rest(&pull.spans).expect("a pull in this queue asks for more");
                    let len = rest.len.min(config.get_chunk as u64);
                    let (offset, base) = (rest.offset, pull.asked);
                    let source = pull.source;
                    pull.asked += len;
                    pull.at.advance(len);
                    op.awaiting += 1;
                    op.queued = pull.asked < pull.total && op.awaiting < config.get_depth;
                    if op.queued {
                        self.queues.asking.push_back(id);
                    }
                    let id = self.ask(id, base, len);
                    let header = match source {
                        Source::Region(route) => {
                            let target = route.target;
                            Header::Get { id, target, offset, len }
                        }
                        Source::Body(body) => Header::Pull { id, body, offset, len },
                    };
                    return Some(self.packet(header, Outgoing::Nothing, InFlight::Nothing));
                }
                _ => unreachable!("only remote access is in this queue"),
            }
        }
        None
    }

    fn poll_bulk(
        &mut self,
        config: &Config,
        regions: &mut Regions,
        ledger: &mut Ledger,
    ) -> Option<Packet> {
        loop {
            let packet = match self.queues.bulk.pop_front()? {
                Bulk::Put(id) => self.put_fragment(id, config, ledger),
                Bulk::Serve(serve) => Some(self.serve_fragment(serve, config, regions, ledger)),
            };
            if packet.is_some() {
                return packet;
            }
        }
    }

    fn put_fragment(&mut self, id: u64, config: &Config, ledger: &mut Ledger) -> Option<Packet> {
        let op = self.op(id)?;
        let stopped = op.stopped();
        let Kind::Put(put) = &mut op.kind else {
            return None;
        };
        let (asking, request) = (put.asking(), put.request.unwrap_or(0));
        if stopped {
            let begun = put.handed > 0 && asking;
            if let Some(request) = put.request.take() {
                self.answered(request, ledger);
            }
            self.unqueue(id, ledger);
            let abort = Header::PutAbort { id: request };
            return begun.then(|| self.packet(abort, Outgoing::Nothing, InFlight::Nothing));
        }
        let target = put.route.target;
        let rest = put.at.rest(&put.spans);
        let (offset, left) = rest.map_or((put.begin, 0), |rest| (rest.offset, rest.len));
        let most = left.min(config.max_fragment as u64) as usize;
        let (pieces, len) = gather(&put.local, put.handed, most, MAX_PIECES);
        put.handed += len as u64;
        put.at.advance(len as u64);
        let last = put.handed == put.total;
        put.complete = last;
        let header = match put.event {
            Some(data) if last => Header::PutEvent {
                id: request,
                target,
                offset,
                data,
                begin: put.begin,
                total: put.total,
            },
            _ => Header::Put { id: request, target, offset, last, asking },
        };
        op.queued = !last;
        if !last {
            self.queues.bulk.push_back(Bulk::Put(id));
        }
        let payload = match pieces.is_empty() {
            true => Outgoing::Nothing,
            false => Outgoing::Memory(pieces),
        };
        Some(self.packet(header, payload, InFlight::Op(id)))
    }

    fn serve_fragment(
        &mut self,
        mut serve: Serve,
        config: &Config,
        regions: &mut Regions,
        ledger: &mut Ledger,
    ) -> Packet {
        let (id, offset) = (serve.id, serve.done);
        let len = (serve.len - serve.done).min(config.max_fragment as u64) as usize;
        let fragment = match &serve.what {
            // Nothing of a region that was closed is read, also of a get that has begun.
            Served::Memory { at, offset: base } => match regions.get(*at) {
                Some(entry) => {
                    let part = entry.memory.part((base + offset) as usize, len);
                    let mut payload = Outgoing::Memory(part.into_iter().collect());
                    match payload.make_reachable() {
                        Ok(()) => {
                            regions.hold(*at);
                            Ok((payload, InFlight::Memory(*at)))
                        }
                        Err(Fault) => Err(Status::OutOfBounds),
                    }
                }
                None => Err(Status::Stale),
            },
            Served::Body { op: id, offset: at } => match self.op(*id) {
                Some(Op { kind: Kind::Body { data, .. }, done: false, outcome: None, .. }) => {
                    let mut payload = payload_part(data, at + offset, len);
                    payload.make_reachable().expect(LOCAL);
                    Ok((payload, InFlight::Op(*id)))
                }
                _ => Err(Status::Withdrawn),
            },
        };
        let (payload, flight) = match fragment {
            Ok(fragment) => fragment,
            Err(status) => {
                self.incoming.end_serving();
                ledger.counters.refused += 1;
                let header = Header::Reply { id, status };
                return self.packet(header, Outgoing::Nothing, InFlight::Nothing);
            }
        };
        serve.done += len as u64;
        match serve.done == serve.len {
            true => self.incoming.end_serving(),
            false => self.queues.bulk.push_back(Bulk::Serve(serve)),
        }
        self.launch(Header::Data { id, offset }, payload, flight)
    }

    /// The oldest packet has left.
    pub(super) fn sent(&mut self, regions: &mut Regions, ledger: &mut Ledger) {
        match self.in_flight.pop_front() {
            None | Some(InFlight::Nothing) => {}
            Some(InFlight::Memory(at)) => ledger.unhold(regions, at),
            Some(InFlight::Op(id)) => {
                let Some(op) = self.op(id) else { return };
                op.flying -= 1;
                match &op.kind {
                    Kind::Message { asking: false, .. } => op.conclude(Ok(Done::Sent)),
                    Kind::Put(put) if put.complete && !put.level_asks && op.flying == 0 => {
                        op.conclude(Ok(Done::Put));
                    }
                    _ => {}
                }
                self.settle(id, ledger);
            }
        }
    }
}
