//! The target's side: requests come, are matched, and are answered.

use crate::{
    Counts, Event, Failure, List, Memory, ProcessId, Quiet,
    atomic::{Datatype, Operator},
    initiator::{OVERFLOW, SILENT, status},
    matching::{Refusal, Taken},
    message::{Arrival, Request},
    operation::check_elements,
    state::{State, Transfer, served, tally},
};
use bytes::Bytes;
use petasos_fabric::{Body, Operation as FabricOperation, Peer, Region};
use petasos_wire::portals::{self as wire, Frame, Kind};
use smallvec::SmallVec;

/// An entry of the access control list (Portals 3): which process may use which portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Which process; parts of it may be any.
    pub process: ProcessId,
    /// Which user, or all.
    pub user: Option<u32>,
    /// Which job, or all.
    pub job: Option<u32>,
    /// Which portal, or all.
    pub portal: Option<u16>,
}

impl Permit {
    /// All that this user does.
    #[must_use]
    pub fn user(user: u32) -> Permit {
        Permit { process: ProcessId::ANY, user: Some(user), job: None, portal: None }
    }

    fn admits(&self, arrival: &Arrival) -> bool {
        let (process, mask) = (self.process.to_bits(), self.process.mask());
        (arrival.initiator.to_bits() ^ process) & mask == 0
            && self.user.is_none_or(|user| user == arrival.user)
            && self.job.is_none_or(|job| job == arrival.job)
            && self.portal.is_none_or(|portal| portal == arrival.portal)
    }
}

/// An operation of another process that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serving {
    pub(crate) peer: Peer,
    pub(crate) arrival: Arrival,
    pub(crate) taken: Taken,
    /// The initiator's number, if it wants an answer.
    pub(crate) number: Option<u64>,
    /// The answer says no more than that it is over.
    silent: bool,
    link: u64,
}

/// What an atomic operation brings along.
#[derive(Clone, Copy)]
struct Elements {
    operator: Operator,
    kind: Datatype,
    operand: [u8; wire::OPERAND],
}

impl State {
    /// Takes in a frame; `body`: its data, if that comes separately.
    #[inline(always)]
    pub(crate) fn take_frame(&mut self, peer: Peer, frame: &[u8], body: Option<(Body, u64)>) {
        let Some(who) = self.who(peer) else {
            self.status.strangers += 1;
            return self.discard(body);
        };
        // What most frames are; the general way is the same with more questions.
        if body.is_none() {
            if let Some(response) = wire::plain_response(frame) {
                return self.take_response(peer, response, &[], None);
            }
            if let Some((request, data)) = wire::plain_put(frame) {
                return self.take_request(peer, who, &request, data, None);
            }
        }
        self.take_any_frame(peer, who, frame, body);
    }

    #[inline(never)]
    fn take_any_frame(
        &mut self,
        peer: Peer,
        who: (ProcessId, Option<u32>),
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
                self.take_request(peer, who, &request, data, body);
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
        (initiator, vouched): (ProcessId, Option<u32>),
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
            initiator,
            user: self.user_of(vouched, request.user),
            job: request.job.0,
            portal: request.portal,
            bits: request.bits,
            len,
            offset: request.offset,
            header_data: request.header_data,
        };
        let taken = match self.admit(&arrival, request.job.1) {
            Ok(taken) => taken,
            Err(failure) => {
                self.discard(body);
                return self.refuse(peer, request.operation, failure);
            }
        };
        let link = self.next_link();
        let number = request.operation;
        if wanted == Request::Put && body.is_none() && !request.lent {
            return self.land(peer, number, &arrival, &taken, link, data);
        }
        let silent = !wanted.reads() && !self.matching.at(taken.entry).spec.acknowledge;
        let mut serving = Serving { peer, arrival, taken, number, silent, link };
        if silent && !request.lent {
            self.hush(&mut serving);
        }
        if !self.matching.at(taken.entry).spec.quiet.has(Quiet::START) {
            self.tell_start(&arrival, &taken, link);
        }
        match (body, wanted) {
            _ if request.lent => self.move_lent(serving, data),
            (Some((body, _)), _) => self.fetch_data(serving, body),
            (None, Request::Get) => self.give(serving),
            (None, _) => self.exchange(&serving, elements, data),
        }
    }

    /// A put whose data has come with it: from here to its end.
    #[inline(always)]
    fn land(
        &mut self,
        peer: Peer,
        number: Option<u64>,
        arrival: &Arrival,
        taken: &Taken,
        link: u64,
        data: &[u8],
    ) {
        if !self.matching.at(taken.entry).spec.quiet.has(Quiet::START) {
            self.tell_start(arrival, taken, link);
        }
        let spec = &self.matching.at(taken.entry).spec;
        spec.memory.write(taken.offset, &data[..taken.len as usize]);
        if let Some(number) = number {
            // A thread that waits for it need not wait for what is to be done here.
            let response = State::word(arrival, taken, number, !spec.acknowledge);
            self.respond(peer, response, &[]);
        }
        self.end_taken(arrival, taken, link, Ok(()));
    }

    /// Finds the entry that takes a request, and counts the failure if there is none.
    #[inline(always)]
    fn admit(&mut self, arrival: &Arrival, cookie: u32) -> Result<Taken, Failure> {
        if let Some(permits) = &self.permits {
            let permit = permits.get(cookie as usize).copied().flatten();
            if !permit.is_some_and(|permit| permit.admits(arrival)) {
                self.status.dropped += 1;
                return Err(Failure::Permission);
            }
        }
        let portal = self.portals.get(usize::from(arrival.portal)).copied().unwrap_or_default();
        if portal.flow_control {
            let queue = portal.queue.and_then(|queue| self.queues.get(queue));
            if queue.is_some_and(|queue| !queue.has_room()) {
                return Err(self.overrun(arrival));
            }
        }
        let refusal = match self.matching.deliver(arrival) {
            Ok(taken) => return Ok(taken),
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::NoMatch | Refusal::NoHeader if portal.flow_control => {
                return Err(self.overrun(arrival));
            }
            _ if self.permits.is_some() => self.status.dropped += 1,
            Refusal::NoMatch | Refusal::NoHeader | Refusal::NoPortal => self.status.dropped += 1,
            Refusal::Disabled => self.status.disabled += 1,
            Refusal::Permission => self.status.permission_violations += 1,
            Refusal::Operation => self.status.operation_violations += 1,
        }
        Err(refusal.into())
    }

    /// A portal has no room for what came: it takes nothing any more, until it is enabled again.
    #[cold]
    fn overrun(&mut self, arrival: &Arrival) -> Failure {
        let portal = arrival.portal;
        self.status.disabled += 1;
        if self.matching.disable(portal)
            && !self.matching.quiet_of_taker(arrival).has(Quiet::FLOW_CONTROL)
        {
            self.tell_portal(portal, Event::Disabled { portal });
        }
        Failure::PortalDisabled
    }

    #[inline(never)]
    pub(crate) fn refuse(&mut self, peer: Peer, number: Option<u64>, failure: Failure) {
        if let Some(operation) = number {
            // Something leaves that is no operation's.
            self.link += 1;
            let status = status(Err(failure));
            self.respond(peer, wire::Response { operation, status, moved: None }, &[]);
        }
    }

    #[inline(always)]
    fn respond(&mut self, peer: Peer, response: wire::Response, data: &[u8]) {
        self.frame.begin(|room| response.write(room));
        self.frame.append(data);
        self.send_frame(peer, None);
    }

    /// The response that says that all went well; `silent`: no more than that it is over.
    #[inline]
    fn word(arrival: &Arrival, taken: &Taken, operation: u64, silent: bool) -> wire::Response {
        let (moved, asked) = (taken.place(), (arrival.offset, arrival.len));
        if silent {
            return wire::Response { operation, status: SILENT, moved: None };
        }
        let status = if taken.list == List::Overflow { OVERFLOW } else { 0 };
        let moved = (moved != asked).then_some((moved.1, moved.0));
        wire::Response { operation, status, moved }
    }

    fn response(serving: &Serving, number: u64) -> wire::Response {
        State::word(&serving.arrival, &serving.taken, number, serving.silent)
    }

    /// Answers a put whose entry may have gone by now.
    pub(crate) fn acknowledge(&mut self, serving: &Serving) {
        if let Some(number) = serving.number {
            self.respond(serving.peer, State::response(serving, number), &[]);
        }
    }

    /// The event of an operation's beginning (Portals 3).
    #[inline(never)]
    fn tell_start(&mut self, arrival: &Arrival, taken: &Taken, link: u64) {
        let owner = self.matching.owner(taken.entry);
        let start =
            || Event::Start(served(owner, *arrival, taken.place(), taken.list, link, Ok(())));
        self.tell_owner(&owner, start);
    }

    #[inline(never)]
    pub(crate) fn finish(&mut self, serving: &Serving, result: Result<(), Failure>) {
        self.end_taken(&serving.arrival, &serving.taken, serving.link, result);
    }

    /// An operation is over at this side: tells, counts, and lets its entry go if it was used up.
    #[inline(always)]
    fn end_taken(
        &mut self,
        arrival: &Arrival,
        taken: &Taken,
        link: u64,
        result: Result<(), Failure>,
    ) {
        let spec = &self.matching.at(taken.entry).spec;
        let (quiet, queue) = (spec.quiet, spec.queue);
        if spec.counts.has(Counts::COMMUNICATION) {
            let (counter, count) = (spec.counter, tally(spec.counts, taken.len, result));
            self.count(counter, count);
        }
        let silent =
            quiet.has(Quiet::COMMUNICATION) || (result.is_ok() && quiet.has(Quiet::SUCCESS));
        if !silent && queue.or(self.portals[usize::from(arrival.portal)].queue).is_some() {
            self.tell_end(arrival, taken, link, result);
        }
        self.matching.finish(taken, result, &mut self.notices);
        self.tell_notices(link);
    }

    /// The event of an operation's end.
    #[inline(never)]
    fn tell_end(
        &mut self,
        arrival: &Arrival,
        taken: &Taken,
        link: u64,
        result: Result<(), Failure>,
    ) {
        let owner = self.matching.owner(taken.entry);
        let end =
            || Event::Served(served(owner, *arrival, taken.place(), taken.list, link, result));
        self.tell_owner(&owner, end);
    }

    /// Has the data of a long put brought to where it belongs.
    fn fetch_data(&mut self, serving: Serving, body: Body) {
        let Taken { entry, offset, len, .. } = serving.taken;
        let at = self.matching.at(entry).spec.memory.slice(offset, len);
        let into = at.clone().unwrap_or_else(|| Region::zeroed(len as usize).whole());
        let scratch = at.is_none().then(|| Memory::from(into.clone()));
        self.promise(serving.arrival.portal, true);
        let token = self.transfer(Transfer::Incoming { serving, scratch });
        self.submit(FabricOperation::Receive { token, body, into });
    }

    /// Sends the data of a get.
    fn give(&mut self, serving: Serving) {
        let Taken { entry, offset, len, .. } = serving.taken;
        let memory = &self.matching.at(entry).spec.memory;
        let Some(number) = serving.number else {
            // It is not awaited.
            return self.finish(&serving, Ok(()));
        };
        let response = State::response(&serving, number);
        if len <= self.config.eager as u64 {
            self.frame.begin(|room| response.write(room));
            memory.read(offset, self.frame.extend(len as usize));
            self.send_frame(serving.peer, None);
            return self.finish(&serving, Ok(()));
        }
        let body = memory.slice(offset, len).unwrap_or_else(|| {
            let mut whole = vec![0; len as usize];
            memory.read(offset, &mut whole);
            Region::from_vec(whole).whole()
        });
        let mut header = Vec::with_capacity(crate::state::HEADER);
        response.encode(&mut header);
        self.promise(serving.arrival.portal, true);
        let (peer, header) = (serving.peer, Bytes::from(header));
        let token = self.transfer(Transfer::Reply(serving));
        self.send_long(peer, FabricOperation::SendLong { token, peer, header, body });
    }

    /// Changes memory, and gives what was there before if that is wanted.
    fn exchange(&mut self, serving: &Serving, elements: Option<Elements>, data: &[u8]) {
        let Taken { entry, offset, len, .. } = serving.taken;
        let memory = &self.matching.at(entry).spec.memory;
        let data = &data[..len as usize];
        let old: Result<SmallVec<[u8; 16]>, Failure> = match elements {
            Some(Elements { operator, kind, operand }) => {
                memory.apply(offset, operator, kind, data, &operand).map_err(|_| Failure::Operation)
            }
            None => {
                let mut old = SmallVec::from_elem(0, data.len());
                memory.read(offset, &mut old);
                memory.write(offset, data);
                Ok(old)
            }
        };
        let fetches = serving.arrival.request.reads();
        self.finish(serving, old.as_ref().map(|_| ()).map_err(|failure| *failure));
        match (old, serving.number) {
            (_, None) => {}
            (Err(failure), number) => self.refuse(serving.peer, number, failure),
            (Ok(old), Some(number)) => {
                let response = State::response(serving, number);
                self.respond(serving.peer, response, if fetches { &old } else { &[] });
            }
        }
    }

    /// An entry that acknowledges nothing still frees the waiter, without an event.
    fn hush(&mut self, serving: &mut Serving) {
        self.acknowledge(serving);
        serving.number = None;
    }

    /// Sets aside a slot for the event that is sure to come; or uses it.
    pub(crate) fn promise(&mut self, portal: u16, promised: bool) {
        let queue = self.portals[usize::from(portal)].queue;
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            if promised { queue.promise(1) } else { queue.redeem() }
        }
    }

    /// The transport has done what it was asked for, or will not.
    pub(crate) fn transferred(
        &mut self,
        transfer: crate::Handle<Transfer>,
        result: Result<(), Failure>,
    ) {
        match self.transfers.remove(transfer) {
            None => tracing::error!(?transfer, "the transport completed an operation twice"),
            Some(Transfer::Discard | Transfer::Unlent(_)) => {}
            Some(Transfer::Put(operation)) => self.sent(operation, result),
            Some(Transfer::Reply(serving)) => {
                self.promise(serving.arrival.portal, false);
                self.finish(&serving, result);
            }
            Some(Transfer::Lent { serving, remote, scratch }) => {
                self.moved_lent(&serving, remote, scratch, result);
            }
            Some(Transfer::Recalled { operation, outcome, .. }) => {
                self.recalled(operation, outcome)
            }
            Some(Transfer::Incoming { serving, scratch }) => {
                if let (Ok(()), Some(scratch)) = (result, scratch) {
                    let memory = &self.matching.at(serving.taken.entry).spec.memory;
                    copy(&scratch, memory, serving.taken.offset);
                }
                self.promise(serving.arrival.portal, false);
                self.finish(&serving, result);
                match result {
                    Ok(()) => self.acknowledge(&serving),
                    Err(failure) => self.refuse(serving.peer, serving.number, failure),
                }
            }
            Some(Transfer::Result { operation, memory, scratch, len }) => {
                if let (Ok(()), Some(scratch)) = (result, scratch) {
                    copy(&scratch, &memory, 0);
                }
                self.landed(operation, result.map(|()| len));
            }
        }
    }
}

pub(crate) fn copy(from: &Memory, to: &Memory, offset: u64) {
    let mut bytes = vec![0; from.len() as usize];
    from.read(0, &mut bytes);
    to.write(offset, &bytes);
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
