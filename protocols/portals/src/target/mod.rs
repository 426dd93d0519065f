//! The target's side, in the order in which a request passes through it: a frame comes, the request
//! is matched, its data is moved, the initiator is answered, the events are raised.

mod lent;

use crate::{
    Count, Counts, Event, Failure, List, Memory, Quiet,
    atomic::{Datatype, Operator},
    matching::{Matched, Refusal},
    message::{Arrival, Request},
    network::{HEADER, Identity},
    operation::check_elements,
    response::{OVERFLOW, SILENT, status},
    state::State,
    transfer::{Serving, Transfer},
};
use bytes::Bytes;
use petasos_fabric::{Body, Operation as FabricOperation, Peer, Region};
use petasos_wire::portals::{self as wire, Frame, Kind};
use smallvec::SmallVec;

/// The user of requests for which the transport does not vouch, and whose claim is not trusted.
const UNKNOWN_USER: u32 = u32::MAX;

/// What an atomic operation does to elements.
#[derive(Clone, Copy)]
struct Elements {
    operator: Operator,
    kind: Datatype,
    operand: [u8; wire::OPERAND],
}

/// Requests come in, and are matched.
impl State {
    /// Takes in a frame; `body`: its data, if that comes separately.
    #[inline(always)]
    pub(crate) fn take_frame(&mut self, peer: Peer, frame: &[u8], body: Option<(Body, u64)>) {
        let Some(identity) = self.network.identify(peer) else {
            self.status.unknown_endpoints += 1;
            return self.discard(body);
        };
        // What most frames are; the general case does the same with more checks.
        if body.is_none() {
            if let Some(response) = wire::plain_response(frame) {
                return self.take_response(peer, response, &[], None);
            }
            if let Some((request, data)) = wire::plain_put(frame) {
                return self.take_request(peer, identity, &request, data, None);
            }
        }
        self.take_any_frame(peer, identity, frame, body);
    }

    #[inline(never)]
    fn take_any_frame(
        &mut self,
        peer: Peer,
        identity: Identity,
        frame: &[u8],
        body: Option<(Body, u64)>,
    ) {
        match wire::decode(frame) {
            Ok((Frame::Response(response), data)) => {
                self.take_response(peer, response, data, body);
            }
            Ok((Frame::Request(wire::Request { kind: Kind::Fence, operation, .. }), _))
                if body.is_none() =>
            {
                if let Some(operation) = operation {
                    self.respond(peer, wire::Response { operation, status: 0, moved: None }, &[]);
                }
            }
            Ok((Frame::Request(request), data)) if body.is_none() || data.is_empty() => {
                self.take_request(peer, identity, &request, data, body);
            }
            other => {
                self.status.garbage += 1;
                tracing::warn!(?peer, error = ?other.err(), "a frame was not understood");
                self.discard(body);
            }
        }
    }

    #[inline(always)]
    fn take_request(
        &mut self,
        peer: Peer,
        identity: Identity,
        request: &wire::Request,
        data: &[u8],
        body: Option<(Body, u64)>,
    ) {
        let len = match request.kind {
            Kind::Get => request.length,
            Kind::Put if request.lent => request.length,
            _ => body.map_or(data.len() as u64, |(_, len)| len),
        };
        let separate = body.is_some();
        let understood = understand(request, len, separate).filter(|_| !(separate && request.lent));
        let Some((wanted, elements)) = understood else {
            self.status.garbage += 1;
            return self.discard(body);
        };
        let arrival = Arrival {
            request: wanted,
            initiator: identity.process,
            user: self.user_of(identity, request.user),
            job: request.job.0,
            portal: request.portal,
            bits: request.bits,
            len,
            offset: request.offset,
            header_data: request.header_data,
        };
        let matched = match self.admit(&arrival, request.job.1) {
            Ok(matched) => matched,
            Err(failure) => {
                self.discard(body);
                return self.refuse(peer, request.operation, failure);
            }
        };
        let link = self.next_link();
        let number = request.operation;
        if wanted == Request::Put && body.is_none() && !request.lent {
            return self.deliver_put(peer, number, &arrival, &matched, link, data);
        }
        let silent = !wanted.reads() && !self.portals.matching.at(matched.entry).spec.acknowledge;
        let mut serving = Serving { peer, arrival, matched, number, silent, link };
        if silent && !request.lent {
            // An entry that acknowledges nothing still ends the initiator's operation.
            self.acknowledge(&serving);
            serving.number = None;
        }
        self.raise_start(&arrival, &matched, link);
        match (body, wanted) {
            _ if request.lent => self.move_lent(serving, data),
            (Some((body, _)), _) => self.fetch_data(serving, body),
            (None, Request::Get) => self.reply(serving),
            (None, _) => self.change_memory(&serving, elements, data),
        }
    }

    /// The user of a request: as the transport says, or else as the message does.
    #[inline]
    fn user_of(&self, identity: Identity, claimed: u32) -> u32 {
        identity.user.unwrap_or(if self.config.trust_claimed_user { claimed } else { UNKNOWN_USER })
    }

    /// Finds the entry that takes a request, and counts the failure if there is none.
    #[inline(always)]
    fn admit(&mut self, arrival: &Arrival, cookie: u32) -> Result<Matched, Failure> {
        if !self.portals.admits(cookie, arrival) {
            self.status.dropped += 1;
            return Err(Failure::Permission);
        }
        if self.portals.is_overrun(arrival.portal, &self.events) {
            return Err(self.overrun(arrival));
        }
        let refusal = match self.portals.matching.deliver(arrival) {
            Ok(matched) => return Ok(matched),
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::NoMatch | Refusal::NoHeader
                if self.portals.has_flow_control(arrival.portal) =>
            {
                return Err(self.overrun(arrival));
            }
            _ if self.portals.has_access_list() => self.status.dropped += 1,
            Refusal::NoMatch | Refusal::NoHeader | Refusal::NoPortal => self.status.dropped += 1,
            Refusal::Disabled => self.status.disabled += 1,
            Refusal::Permission => self.status.permission_violations += 1,
            Refusal::Operation => self.status.operation_violations += 1,
        }
        Err(refusal.into())
    }

    /// A portal has no room for what came: it is disabled until the program enables it again.
    #[cold]
    fn overrun(&mut self, arrival: &Arrival) -> Failure {
        let portal = arrival.portal;
        self.status.disabled += 1;
        let matching = &mut self.portals.matching;
        if matching.disable(portal) && !matching.quiet_of_taker(arrival).has(Quiet::FLOW_CONTROL) {
            self.events.push(self.portals.queue(portal), Event::Disabled { portal });
        }
        Failure::PortalDisabled
    }
}

/// Data is moved.
impl State {
    /// A put whose data has come with it: from here to its end.
    #[inline(always)]
    fn deliver_put(
        &mut self,
        peer: Peer,
        number: Option<u64>,
        arrival: &Arrival,
        matched: &Matched,
        link: u64,
        data: &[u8],
    ) {
        self.raise_start(arrival, matched, link);
        let spec = &self.portals.matching.at(matched.entry).spec;
        let result = spec.memory.try_write(matched.offset, &data[..matched.len as usize]);
        // The answer comes first: the initiator need not wait for the events here.
        match (number, result) {
            (Some(number), Ok(())) => {
                let response = success(arrival, matched, number, !spec.acknowledge);
                self.respond(peer, response, &[]);
            }
            (number, Err(failure)) => self.refuse(peer, number, failure),
            (None, Ok(())) => {}
        }
        self.finish_matched(arrival, matched, link, result);
    }

    /// Has the data of a long put moved to where it belongs.
    fn fetch_data(&mut self, serving: Serving, body: Body) {
        let Matched { entry, offset, len, .. } = serving.matched;
        let at = self.portals.matching.at(entry).spec.memory.slice(offset, len);
        let into = at.clone().unwrap_or_else(|| Region::zeroed(len as usize).whole());
        let scratch = at.is_none().then(|| Memory::from(into.clone()));
        self.reserve_event(&serving);
        let token = self.network.transfer(Transfer::Incoming { serving, scratch });
        self.network.submit(FabricOperation::Receive { token, body, into });
    }

    /// The data of a long put is there, or never will be.
    pub(crate) fn fetched_data(
        &mut self,
        serving: &Serving,
        scratch: Option<Memory>,
        mut result: Result<(), Failure>,
    ) {
        if let (Ok(()), Some(scratch)) = (result, scratch) {
            let memory = &self.portals.matching.at(serving.matched.entry).spec.memory;
            result = copy(&scratch, memory, serving.matched.offset);
        }
        self.unreserve_event(serving);
        self.finish(serving, result);
        match result {
            Ok(()) => self.acknowledge(serving),
            Err(failure) => self.refuse(serving.peer, serving.number, failure),
        }
    }

    /// Sends the data of a get.
    fn reply(&mut self, serving: Serving) {
        let Matched { entry, offset, len, .. } = serving.matched;
        let memory = &self.portals.matching.at(entry).spec.memory;
        let Some(number) = serving.number else {
            // The initiator does not wait for it.
            return self.finish(&serving, Ok(()));
        };
        let response = serving.success(number);
        if len <= self.config.eager as u64 {
            self.network.frame.begin(|room| response.write(room));
            let result = memory.try_read(offset, self.network.frame.extend(len as usize));
            match result {
                Ok(()) => self.send_frame(serving.peer, None),
                Err(failure) => self.refuse(serving.peer, serving.number, failure),
            }
            return self.finish(&serving, result);
        }
        let body = memory.slice(offset, len).map_or_else(
            || {
                let mut whole = vec![0; len as usize];
                memory.try_read(offset, &mut whole)?;
                Ok(Region::from_vec(whole).whole())
            },
            Ok,
        );
        let body = match body {
            Ok(body) => body,
            Err(failure) => {
                self.refuse(serving.peer, serving.number, failure);
                return self.finish(&serving, Err(failure));
            }
        };
        let mut header = Vec::with_capacity(HEADER);
        response.encode(&mut header);
        self.reserve_event(&serving);
        let (peer, header) = (serving.peer, Bytes::from(header));
        let token = self.network.transfer(Transfer::Reply(serving));
        self.send_long(peer, FabricOperation::SendLong { token, peer, header, body });
    }

    /// A long reply has left, or never will.
    pub(crate) fn replied(&mut self, serving: &Serving, result: Result<(), Failure>) {
        self.unreserve_event(serving);
        self.finish(serving, result);
    }

    /// Does a get-put or an atomic operation, and sends the old data if that is wanted.
    fn change_memory(&mut self, serving: &Serving, elements: Option<Elements>, data: &[u8]) {
        let Matched { entry, offset, len, .. } = serving.matched;
        let memory = &self.portals.matching.at(entry).spec.memory;
        let data = &data[..len as usize];
        let old: Result<SmallVec<[u8; 16]>, Failure> = match elements {
            Some(Elements { operator, kind, operand }) => {
                memory.apply(offset, operator, kind, data, &operand)
            }
            None => {
                let mut old = SmallVec::from_elem(0, data.len());
                let changed = memory.try_read(offset, &mut old);
                changed.and_then(|()| memory.try_write(offset, data)).map(|()| old)
            }
        };
        let fetches = serving.arrival.request.reads();
        self.finish(serving, old.as_ref().map(|_| ()).map_err(|failure| *failure));
        match (old, serving.number) {
            (_, None) => {}
            (Err(failure), number) => self.refuse(serving.peer, number, failure),
            (Ok(old), Some(number)) => {
                let response = serving.success(number);
                self.respond(serving.peer, response, if fetches { &old } else { &[] });
            }
        }
    }

    /// Sets aside a slot for the event of an operation whose data is being moved.
    fn reserve_event(&mut self, serving: &Serving) {
        self.events.reserve(self.portals.queue(serving.arrival.portal));
    }

    fn unreserve_event(&mut self, serving: &Serving) {
        self.events.unreserve(self.portals.queue(serving.arrival.portal));
    }
}

/// The initiator is answered.
impl State {
    #[inline(never)]
    fn refuse(&mut self, peer: Peer, number: Option<u64>, failure: Failure) {
        if let Some(operation) = number {
            // A flush has to wait for this message, which belongs to no operation.
            self.next_link();
            let status = status(Err(failure));
            self.respond(peer, wire::Response { operation, status, moved: None }, &[]);
        }
    }

    #[inline(always)]
    fn respond(&mut self, peer: Peer, response: wire::Response, data: &[u8]) {
        self.network.frame.begin(|room| response.write(room));
        self.network.frame.append(data);
        self.send_frame(peer, None);
    }

    /// Answers a put whose entry may have gone by now.
    fn acknowledge(&mut self, serving: &Serving) {
        if let Some(number) = serving.number {
            self.respond(serving.peer, serving.success(number), &[]);
        }
    }
}

/// Events are raised.
impl State {
    /// Raises the event of an operation's beginning (Portals 3), if it is wanted.
    #[inline(always)]
    fn raise_start(&mut self, arrival: &Arrival, matched: &Matched, link: u64) {
        if !self.portals.matching.at(matched.entry).spec.quiet.has(Quiet::START) {
            let State { portals, events, .. } = self;
            portals.raise_served(Event::Start, arrival, matched, link, Ok(()), events);
        }
    }

    #[inline(never)]
    fn finish(&mut self, serving: &Serving, result: Result<(), Failure>) {
        self.finish_matched(&serving.arrival, &serving.matched, serving.link, result);
    }

    /// An operation has ended here: counts it, raises its event, and lets its entry go if that was
    /// used up.
    #[inline(always)]
    fn finish_matched(
        &mut self,
        arrival: &Arrival,
        matched: &Matched,
        link: u64,
        result: Result<(), Failure>,
    ) {
        let State { portals, events, .. } = self;
        let spec = &portals.matching.at(matched.entry).spec;
        let (quiet, queue) = (spec.quiet, spec.queue);
        if spec.counts.has(Counts::COMMUNICATION) {
            let (counter, count) =
                (spec.counter, Count::of_operation(spec.counts, matched.len, result));
            events.count(counter, count);
        }
        let silent =
            quiet.has(Quiet::COMMUNICATION) || (result.is_ok() && quiet.has(Quiet::SUCCESS));
        if !silent && queue.or(portals.queue(arrival.portal)).is_some() {
            portals.raise_served(Event::Served, arrival, matched, link, result, events);
        }
        portals.finish(matched, result, link, events);
    }
}

impl Serving {
    /// The response to an operation that succeeded.
    fn success(&self, number: u64) -> wire::Response {
        success(&self.arrival, &self.matched, number, self.silent)
    }
}

/// The response to an operation that succeeded; `silent`: it only ends the operation.
#[inline]
fn success(arrival: &Arrival, matched: &Matched, operation: u64, silent: bool) -> wire::Response {
    let (moved, asked) = (matched.place(), (arrival.offset, arrival.len));
    if silent {
        return wire::Response { operation, status: SILENT, moved: None };
    }
    let status = if matched.list == List::Overflow { OVERFLOW } else { 0 };
    let moved = (moved != asked).then_some((moved.1, moved.0));
    wire::Response { operation, status, moved }
}

/// Copies all of a memory to an offset of another.
///
/// # Errors
/// [`Failure::Fault`] if there is no such memory.
pub(crate) fn copy(from: &Memory, to: &Memory, offset: u64) -> Result<(), Failure> {
    let mut bytes = vec![0; from.len() as usize];
    from.read(0, &mut bytes);
    to.try_write(offset, &bytes)
}

/// What a request means; `None` if nothing.
#[inline(always)]
fn understand(
    request: &wire::Request,
    len: u64,
    separate: bool,
) -> Option<(Request, Option<Elements>)> {
    let whole = match request.kind {
        Kind::Put => return Some((Request::Put, None)),
        Kind::Get => Request::Get,
        Kind::Fence => return None,
        Kind::GetPut => Request::GetPut,
        Kind::Atomic | Kind::FetchAtomic => {
            let atomic = request.atomic.as_ref()?;
            let operator = Operator::from_u8(atomic.operator)?;
            let kind = Datatype::from_u8(atomic.datatype)?;
            check_elements(operator, kind, len).ok()?;
            let fetches = request.kind == Kind::FetchAtomic;
            if separate || (!fetches && operator.is_swap()) {
                return None;
            }
            let wanted = match fetches {
                true => Request::FetchAtomic(operator, kind),
                false => Request::Atomic(operator, kind),
            };
            return Some((wanted, Some(Elements { operator, kind, operand: atomic.operand })));
        }
    };
    (!separate).then_some((whole, None))
}
