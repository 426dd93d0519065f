//! The initiator's side, in the order in which an operation passes through it: it is started, its
//! data leaves, its answer comes, its events are raised.
//!
//! A successful operation raises each of its events once. After a put whose data could not be sent
//! no acknowledgement is waited for. So every operation that was accepted ends.

mod lend;

use crate::{
    Ack, Completed, Count, Counts, Descriptor, Error, Event, Failure, Handle, List, Memory,
    Operation, Part, Quiet, Request,
    events::Events,
    network::{Queued, sent},
    outstanding::{Awaited, Details, Ending, Outstanding},
    response::{OVERFLOW, SILENT, status_result},
    state::State,
    transfer::{Recalled, Transfer},
};
use bytes::Bytes;
use petasos_fabric::{Body, InjectError, Operation as FabricOperation, Peer, Region};
use petasos_wire::portals::{self as wire, Kind};

/// The events that are not wanted if one of a put's leaving is not.
const SENT: Quiet = Quiet::SEND.with(Quiet::SUCCESS);

/// Starting.
impl State {
    /// Starts an operation. On an error nothing has happened.
    #[inline(never)]
    pub(crate) fn start(&mut self, operation: &Operation) -> Result<(), Error> {
        operation.check(self.config.limits.atomic)?;
        let (mut ack, mut counted) = (operation.ack, false);
        if let Some(data) = &operation.data {
            let bound = self.descriptors.bound(data.descriptor)?;
            bound.check(data)?;
            counted = bound.has_threshold();
            // An acknowledgement that would raise no event, and count nothing, is not asked for.
            if ack != Ack::None && !bound.spec.hears(ack) {
                ack = Ack::None;
            }
        }
        if let Some(result) = &operation.result {
            let bound = self.descriptors.bound(result.descriptor)?;
            bound.check(result)?;
            counted |= bound.has_threshold();
            if !bound.spec.memory.is_writable() {
                return Err(Error::ReadOnly);
            }
        }
        let handle = self.operations.next()?;
        let peer = self.network.connect(operation.target.process)?;
        if self.network.is_congested(peer) {
            let limit = self.config.limits.waiting as u64;
            return Err(Error::NoSpace { what: "waiting bytes", limit });
        }
        if counted {
            let matching = &mut self.portals.matching;
            ack = self.descriptors.reserve_all(operation.data, operation.result, ack, matching)?;
        }
        if operation.len() > self.config.eager as u64 {
            self.start_long(operation, ack, peer);
        } else {
            self.start_short(operation, ack, handle, peer);
        }
        Ok(())
    }

    /// Sends a request with all of its data. `handle`: the one that the operation gets if it waits
    /// for an answer, or to be sent.
    #[inline]
    fn start_short(
        &mut self,
        operation: &Operation,
        ack: Ack,
        handle: Handle<Outstanding>,
        peer: Peer,
    ) {
        let answered = operation.result.is_some() || ack != Ack::None;
        self.begin_request(operation, answered.then(|| handle.to_bits()), false);
        if let Some(part) = operation.data {
            self.append_part(part);
        }
        // The record of the operation can wait until the message is on its way.
        let injected = self.network.inject(peer);
        let details = Details::new(operation, ack, self.next_link());
        let wanted = self.hold_descriptors(&details);
        let sent = injected.is_ok();
        if answered || !sent {
            self.operations.insert(Outstanding::new(peer, details, !sent, None));
        }
        if !sent {
            return self.frame_injected(peer, Some(handle), injected);
        }
        if wanted {
            self.raise_send(&details, Ok(()));
        }
        if !answered {
            self.release_descriptors(&details);
        }
    }

    /// Lends the memory of a long operation, or else sends a request, and has long data follow it.
    #[inline(never)]
    fn start_long(&mut self, operation: &Operation, ack: Ack, peer: Peer) {
        let details = Details::new(operation, ack, self.next_link());
        let key = self.lend(operation);
        let lent = key.as_ref().map(|(region, _)| *region);
        let wanted = lent.is_some() || details.awaited() != Awaited::Nothing;
        let handle = self.operations.insert(Outstanding::new(peer, details, true, lent));
        let handle = handle.expect("there was room for it");
        self.begin_request(operation, wanted.then(|| handle.to_bits()), lent.is_some());
        self.hold_descriptors(&details);
        match (key, details.data) {
            (Some((_, key)), _) => self.network.frame.append(key.as_bytes()),
            (None, Some(part)) if operation.request == Request::Put => {
                return self.send_body(peer, handle, part);
            }
            (None, Some(part)) => self.append_part(part),
            (None, None) => {}
        }
        self.send_frame(peer, Some(handle));
    }

    /// The descriptors of an operation are needed by it from now on. Gives whether the leaving of
    /// its data raises an event, or is counted.
    #[inline(always)]
    fn hold_descriptors(&mut self, details: &Details) -> bool {
        let State { descriptors, portals, .. } = self;
        if let Some(result) = details.result {
            descriptors.hold(result.descriptor, &mut portals.matching);
        }
        let Some(data) = details.data else { return false };
        let (quiet, counts) = descriptors.hold(data.descriptor, &mut portals.matching);
        if !quiet.has(Quiet::START) {
            self.raise_begin(details, data, (data.len, details.target.offset), Event::SendStart);
        }
        let silent = quiet.any(SENT);
        !silent || counts.has(Counts::SEND)
    }

    /// Begins a frame with the header of a request.
    #[inline(always)]
    fn begin_request(&mut self, operation: &Operation, number: Option<u64>, lent: bool) {
        let elements = match operation.request {
            Request::Atomic(op, kind) | Request::FetchAtomic(op, kind) => Some((op, kind)),
            _ => None,
        };
        let header = wire::Request {
            kind: kind(operation.request),
            operation: number,
            portal: operation.target.portal,
            user: self.config.user,
            bits: operation.target.bits,
            offset: operation.target.offset,
            header_data: operation.header_data,
            length: if operation.request == Request::Get || lent { operation.len() } else { 0 },
            lent,
            job: (self.config.job, operation.cookie),
            atomic: elements.map(|(op, kind)| wire::Atomic {
                operator: op as u8,
                datatype: kind as u8,
                operand: operation.operand,
            }),
        };
        self.network.frame.begin(|room| header.write(room));
    }

    /// Appends memory to the frame.
    #[inline(always)]
    fn append_part(&mut self, part: Part) {
        if let Some(memory) = self.descriptors.memory(part.descriptor) {
            memory.read(part.offset, self.network.frame.extend(part.len as usize));
        }
    }
}

/// Sending.
impl State {
    /// Sends the frame; `operation` is the one whose data it is.
    #[inline(always)]
    pub(crate) fn send_frame(&mut self, peer: Peer, operation: Option<Handle<Outstanding>>) {
        let result = self.network.inject(peer);
        if result.is_err() || operation.is_some() {
            self.frame_injected(peer, operation, result);
        }
    }

    /// The frame has been sent, or has to wait.
    #[inline(never)]
    fn frame_injected(
        &mut self,
        peer: Peer,
        operation: Option<Handle<Outstanding>>,
        result: Result<(), InjectError>,
    ) {
        if result == Err(InjectError::Full) {
            let frame = self.network.frame.to_vec();
            return self.enqueue(peer, Queued::Frame(frame, operation));
        }
        let result = sent(result);
        if let Some(operation) = operation {
            self.sent(operation, result);
        }
    }

    /// Sends the frame as the header of a long message, whose data the target fetches from where it
    /// is.
    fn send_body(&mut self, peer: Peer, handle: Handle<Outstanding>, part: Part) {
        let header = Bytes::copy_from_slice(&self.network.frame);
        let Some(memory) = self.descriptors.memory(part.descriptor) else { return };
        let body = memory.slice(part.offset, part.len).unwrap_or_else(|| {
            let mut whole = vec![0; part.len as usize];
            memory.read(part.offset, &mut whole);
            Region::from_vec(whole).whole()
        });
        let token = self.network.transfer(Transfer::Put(handle));
        self.send_long(peer, FabricOperation::SendLong { token, peer, header, body });
    }

    /// The data of an operation has left, or never will.
    #[inline]
    pub(crate) fn sent(&mut self, handle: Handle<Outstanding>, result: Result<(), Failure>) {
        if self.operations.end_sending(handle) {
            self.first_sent(handle, result);
        }
    }

    #[inline(never)]
    fn first_sent(&mut self, handle: Handle<Outstanding>, result: Result<(), Failure>) {
        match (self.operations.get(handle), result) {
            // The target will say when it is done with the memory.
            (Some(operation), Ok(())) if operation.is_lent() => {}
            (Some(operation), Err(failure)) if operation.is_lent() => {
                self.recall(handle, Recalled::Unsent(failure));
            }
            _ => self.finish_sending(handle, result),
        }
    }

    /// Raises the event of an operation's data having left, or never leaving, and what follows from
    /// that.
    fn finish_sending(&mut self, handle: Handle<Outstanding>, result: Result<(), Failure>) {
        let Some(operation) = self.operations.get(handle) else { return };
        let details = operation.details;
        self.raise_send(&details, result);
        match (result, details.awaited()) {
            (Ok(()), Awaited::Nothing) => self.end(handle),
            (Ok(()), _) => {}
            (Err(_), Awaited::Reply(_)) => self.answered(handle, result.map(|()| (0, 0))),
            (Err(_), _) => self.end(handle),
        }
    }
}

/// Answers.
impl State {
    /// Takes in a response; `body`: its data, if that comes separately.
    #[inline(always)]
    pub(crate) fn take_response(
        &mut self,
        peer: Peer,
        mut response: wire::Response,
        data: &[u8],
        body: Option<(Body, u64)>,
    ) {
        let handle = Handle::internal(response.operation);
        let Some(operation) = self.operations.answered_by(peer, handle) else {
            self.count_stray_answer();
            return self.discard(body);
        };
        if response.status == OVERFLOW {
            (response.status, operation.list) = (0, List::Overflow);
        }
        if operation.is_lent() {
            return self.take_lent_response(handle, response, data, body);
        }
        let details = &operation.details;
        let (awaited, asked) = (details.awaited(), (details.len(), details.target.offset));
        let moved = response.moved.unwrap_or(asked);
        match (status_result(response.status), awaited) {
            (Some(Ok(())), Awaited::Reply(part)) => {
                let came = body.map_or(data.len() as u64, |(_, len)| len);
                if came > part.len || came != moved.0 {
                    self.status.garbage += 1;
                    self.discard(body);
                    return self.answered(handle, Err(Failure::Undelivered));
                }
                let details = operation.details;
                self.raise_reply_start(&details, part, moved);
                let memory = self.descriptors.memory(part.descriptor).cloned().unwrap_or_default();
                match body {
                    None => {
                        memory.write(part.offset, data);
                        self.answered(handle, Ok(moved));
                    }
                    Some(body) => self.fetch_reply(handle, memory, part, body, moved.1),
                }
            }
            (Some(Ok(())), Awaited::Ack) if moved.0 <= asked.0 && body.is_none() => {
                // What is answered has left, whether or not the transport has said so yet.
                if operation.sending {
                    self.sent(handle, Ok(()));
                }
                self.end_answered(handle, Ok(moved));
            }
            (Some(Err(failure)), Awaited::Reply(_) | Awaited::Ack) => {
                let details = operation.details;
                let dropped = self.is_dropped(&details, failure);
                self.discard(body);
                self.sent(handle, Ok(()));
                match dropped {
                    true => self.end(handle),
                    false => self.answered(handle, Err(failure)),
                }
            }
            (None, _) if response.status == SILENT && body.is_none() => {
                self.sent(handle, Ok(()));
                self.end(handle);
            }
            _ => {
                self.status.garbage += 1;
                self.discard(body);
                self.answered(handle, Err(Failure::Undelivered));
            }
        }
    }

    /// Has a long reply moved to where it belongs.
    fn fetch_reply(
        &mut self,
        operation: Handle<Outstanding>,
        memory: Memory,
        part: Part,
        (body, len): (Body, u64),
        replied_at: u64,
    ) {
        self.operations.begin_receiving(operation, replied_at);
        let at = memory.slice(part.offset, len);
        let into = at.clone().unwrap_or_else(|| Region::zeroed(len as usize).whole());
        let scratch = at.is_none().then(|| Memory::from(into.clone()));
        let memory = memory.part(part.offset, len).unwrap_or_default();
        let token = self.network.transfer(Transfer::Result { operation, memory, scratch, len });
        self.network.submit(FabricOperation::Receive { token, body, into });
    }

    /// A long reply is where it belongs, or will never be.
    pub(crate) fn reply_received(
        &mut self,
        handle: Handle<Outstanding>,
        result: Result<u64, Failure>,
    ) {
        if let Some(offset) = self.operations.replied_at(handle) {
            self.answered(handle, result.map(|len| (len, offset)));
        }
    }

    /// The answer has come, or never will: bytes moved, and the offset at the target.
    #[inline(never)]
    fn answered(&mut self, handle: Handle<Outstanding>, outcome: Result<(u64, u64), Failure>) {
        if outcome.is_ok() {
            self.sent(handle, Ok(()));
        }
        self.end_answered(handle, outcome);
    }

    /// The answer to an operation whose data has left has come, or never will.
    #[inline(always)]
    fn end_answered(&mut self, handle: Handle<Outstanding>, outcome: Result<(u64, u64), Failure>) {
        let Some((details, list)) = self.operations.take(handle) else { return };
        let ending = match details.ack {
            _ if details.result.is_some() => Ending::Replied,
            Ack::Full => Ending::Acknowledged,
            Ack::Counting | Ack::Completed => Ending::Counted,
            Ack::None => Ending::Unasked,
        };
        if let Some(part) = details.result.or(details.data) {
            let (len, offset) = outcome.unwrap_or((0, details.target.offset));
            let list = outcome.is_ok().then_some(list);
            let result = outcome.map(|_| ());
            let completed = Completed { len, offset, list, result, ..details.completed(part) };
            self.raise_completed(completed, ending);
        }
        self.release_descriptors(&details);
    }

    /// An operation ends without an answer: what its descriptors had reserved for that is restored.
    fn end(&mut self, handle: Handle<Outstanding>) {
        let Some((details, _)) = self.operations.take(handle) else { return };
        let answered = match details.awaited() {
            Awaited::Nothing => None,
            Awaited::Reply(part) => Some(part),
            Awaited::Ack => details.data,
        };
        if let Some(part) = answered {
            self.descriptors.unreserve(part.descriptor, &mut self.portals.matching);
        }
        self.release_descriptors(&details);
    }

    /// A peer is lost: the operations that wait for its answer end.
    pub(crate) fn end_all_with(&mut self, peer: Peer) {
        for operation in self.operations.waiting_for(peer) {
            match self.operations.get(operation).is_some_and(Outstanding::is_lent) {
                true => self.recall(operation, Recalled::Unsent(Failure::Unreachable)),
                false => self.answered(operation, Err(Failure::Unreachable)),
            }
        }
    }

    /// Whether an operation ends without an event: a target of Portals 3 drops what it does not
    /// take.
    fn is_dropped(&self, details: &Details, failure: Failure) -> bool {
        use Failure::{Dropped, Operation, Permission, PortalDisabled};
        let refused = matches!(failure, Dropped | PortalDisabled | Permission | Operation);
        let part = details.result.or(details.data);
        let bound = part.and_then(|part| self.descriptors.get(part.descriptor));
        refused && bound.is_some_and(|bound| bound.has_threshold())
    }

    fn count_stray_answer(&mut self) {
        match self.portals.has_access_list() {
            true => self.status.dropped += 1,
            false => self.status.garbage += 1,
        }
    }

    /// Discards a body that is not wanted.
    pub(crate) fn discard(&mut self, body: Option<(Body, u64)>) {
        if let Some((body, _)) = body {
            let token = self.network.transfer(Transfer::Discard);
            self.network.submit(FabricOperation::Discard { token, body });
        }
    }
}

/// Events, and counting.
impl State {
    /// Raises the event of an operation's data having left, or never leaving.
    #[inline(never)]
    fn raise_send(&mut self, details: &Details, result: Result<(), Failure>) {
        let Some(data) = details.data else { return };
        let completed = Completed { result, ..details.completed(data) };
        let acknowledged = details.awaited() == Awaited::Ack;
        self.raise_completed(completed, Ending::Sent { acknowledged });
    }

    /// The reply to an operation begins to come: so many bytes, from that offset.
    fn raise_reply_start(&mut self, details: &Details, part: Part, moved: (u64, u64)) {
        let Some(bound) = self.descriptors.get(part.descriptor) else { return };
        if !bound.spec.quiet.has(Quiet::START) {
            self.raise_begin(details, part, moved, Event::ReplyStart);
        }
    }

    #[inline(never)]
    fn raise_begin(
        &mut self,
        details: &Details,
        part: Part,
        (len, offset): (u64, u64),
        event: fn(Completed) -> Event,
    ) {
        let Some(bound) = self.descriptors.get(part.descriptor) else { return };
        let (queue, left) = (bound.spec.queue, bound.left(&self.portals.matching));
        let (attached, user_data) = (bound.attached(), bound.user_data(details.user_data()));
        let all = details.completed(part);
        let completed = Completed { len, offset, left, attached, user_data, ..all };
        self.events.push(queue, event(completed));
    }

    /// Counts the end of a part of an operation, and raises its event unless that is not wanted. An
    /// answer spends what the descriptor has reserved for it.
    #[inline(always)]
    fn raise_completed(&mut self, completed: Completed, ending: Ending) {
        let State { descriptors, portals, events, .. } = self;
        let Some(bound) = descriptors.get_mut(completed.descriptor) else { return };
        if bound.has_threshold() && ending.is_answer() {
            bound.spend(&mut portals.matching);
        }
        let spec = &bound.spec;
        // Whether it is counted; what suppresses the event of a success; and what suppresses it in
        // any case.
        let (counted, quiet, mute) = match ending {
            // A failure is counted once, whichever of the two is counted.
            Ending::Sent { acknowledged: true } if completed.result.is_err() => {
                let counted = spec.counts.has(Counts::SEND) || spec.counts.has(Counts::ACK);
                (counted, SENT, Quiet::COMMUNICATION)
            }
            Ending::Sent { .. } => (spec.counts.has(Counts::SEND), SENT, Quiet::COMMUNICATION),
            Ending::Acknowledged | Ending::Counted => {
                (spec.counts.has(Counts::ACK), Quiet::SUCCESS, Quiet::NONE)
            }
            Ending::Unasked => (false, Quiet::SUCCESS, Quiet::NONE),
            Ending::Replied => {
                (spec.counts.has(Counts::REPLY), Quiet::SUCCESS, Quiet::COMMUNICATION)
            }
        };
        let quiet = if completed.result.is_ok() { quiet.with(mute) } else { mute };
        let silent = spec.quiet.any(quiet);
        let (queue, counter) = (spec.queue, spec.counter.filter(|_| counted));
        let count = Count::of_operation(spec.counts, completed.len, completed.result);
        if !silent && ending.has_event() {
            let (left, attached) = (bound.left(&portals.matching), bound.attached());
            let user_data = bound.user_data(completed.user_data);
            let completed = Completed { left, attached, user_data, ..completed };
            events.push(queue, ending.event(completed));
        }
        events.count(counter, count);
    }

    /// An operation has ended, and does not need its descriptors any more.
    #[inline(always)]
    fn release_descriptors(&mut self, details: &Details) {
        if let Some(part) = details.data {
            self.release_descriptor(part.descriptor, details.link);
        }
        if let Some(part) = details.result {
            self.release_descriptor(part.descriptor, details.link);
        }
    }

    #[inline(always)]
    fn release_descriptor(&mut self, descriptor: Handle<Descriptor>, link: u64) {
        let State { descriptors, portals, events, .. } = self;
        let Some(bound) = descriptors.get_mut(descriptor) else { return };
        bound.end_one();
        if let Some((entry, _)) = bound.attached() {
            descriptors.remove(descriptor);
            portals.let_go(entry, link, events);
        } else if bound.is_used_up() {
            // A descriptor of Portals 3 goes by itself.
            if let Some(bound) = descriptors.remove(descriptor) {
                raise_released(descriptor, &bound, link, events);
            }
        }
    }
}

#[inline(never)]
fn raise_released(
    descriptor: Handle<Descriptor>,
    bound: &crate::descriptor::Bound,
    link: u64,
    events: &mut Events,
) {
    if !bound.spec.quiet.has(Quiet::UNLINK) {
        let user_data = bound.user_data(0);
        events.push(bound.spec.queue, Event::Released { descriptor, user_data, link });
    }
}

fn kind(request: Request) -> Kind {
    match request {
        Request::Put => Kind::Put,
        Request::Get => Kind::Get,
        Request::GetPut => Kind::GetPut,
        Request::Atomic(..) => Kind::Atomic,
        Request::FetchAtomic(..) => Kind::FetchAtomic,
    }
}
