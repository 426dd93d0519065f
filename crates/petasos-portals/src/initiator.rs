//! The initiator's side: operations are started, and their answers come.
//!
//! Each event that a successful operation raises comes once, with its result; after a put whose data
//! could not be sent no acknowledgement is waited for. So every operation that was accepted ends.

use crate::{
    Ack, Completed, Counts, Descriptor, Error, Event, Failure, Memory, Operation, Part, Quiet,
    Request,
    descriptor::Bound,
    handle::Handle,
    lent::Recalled,
    state::{State, Transfer, tally},
};
use bytes::Bytes;
use petasos_fabric::{Body, Operation as FabricOperation, Peer, Region, RegionId, Token};
use petasos_wire::portals::{self as wire, Kind};

/// An operation that was started.
#[derive(Debug)]
pub(crate) struct Underway {
    pub(crate) peer: Peer,
    pub(crate) asked: Asked,
    /// Whether its data, or its request, has not left yet.
    pub(crate) sending: bool,
    /// Whether its reply is being moved, or its memory called back: the fabric will say how that went.
    pub(crate) landing: bool,
    /// Its memory, while the other process may reach it.
    pub(crate) lent: Option<RegionId>,
    /// Where at the target the reply comes from, once that is known.
    replied_at: u64,
}

/// What must be known of an operation when its answer comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    data: Option<Part>,
    result: Option<Part>,
    ack: Ack,
    /// Where at the target.
    pub(crate) offset: u64,
    user_data: u64,
    link: u64,
}

/// The answer that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    None,
    Ack(Ack),
    Reply(Part),
}

impl Asked {
    pub(crate) fn answer(&self) -> Answer {
        match (self.result, self.ack) {
            (Some(part), _) => Answer::Reply(part),
            (None, Ack::None) => Answer::None,
            (None, ack) => Answer::Ack(ack),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.data.or(self.result).map_or(0, |part| part.len)
    }
}

/// Data of so many bytes gets into a frame by the shortest way.
const SHORT: usize = 32;

fn kind(request: Request) -> Kind {
    match request {
        Request::Put => Kind::Put,
        Request::Get => Kind::Get,
        Request::GetPut => Kind::GetPut,
        Request::Atomic(..) => Kind::Atomic,
        Request::FetchAtomic(..) => Kind::FetchAtomic,
    }
}

impl State {
    /// Starts an operation. On an error nothing has happened.
    pub(crate) fn start(&mut self, operation: Operation) -> Result<(), Error> {
        operation.check(self.config.limits.atomic)?;
        if let Some(data) = operation.data {
            self.bound(&data)?.check(&data)?;
            if self.left(data.descriptor) == Some(0) {
                return Err(Error::Argument("the descriptor's threshold is used up"));
            }
        }
        if let Some(result) = operation.result {
            self.bound(&result)?.check(&result)?;
            if !self.bound(&result)?.spec.memory.is_writable() {
                return Err(Error::ReadOnly);
            }
        }
        if self.operations.is_full() {
            let limit = self.config.limits.operations as u64;
            return Err(Error::NoSpace { what: "operations", limit });
        }
        self.touched = true;
        let peer = self.reach(operation.place.process)?;
        if self.is_congested(peer) {
            let limit = self.config.limits.waiting as u64;
            return Err(Error::NoSpace { what: "waiting bytes", limit });
        }
        let link = self.next_link();
        let key = self.lend(&operation);
        let lent = key.as_ref().map(|(region, _)| *region);
        let Operation { data, result, ack, user_data, .. } = operation;
        let offset = operation.place.offset;
        let asked = Asked { data, result, ack, offset, user_data, link };
        let wanted = lent.is_some() || result.is_some() || ack != Ack::None;
        let (sending, landing, replied_at) = (true, false, 0);
        let underway = Underway { peer, asked, sending, landing, lent, replied_at };
        let Some(handle) = self.operations.insert(underway) else {
            unreachable!("there was room for it");
        };
        self.head(&operation, wanted.then(|| handle.to_bits()), lent.is_some());
        match (key, data) {
            (Some((_, key)), _) => self.frame.extend_from_slice(key.as_bytes()),
            (None, Some(part))
                if part.len > self.config.eager as u64 && operation.request == Request::Put =>
            {
                self.engage(&asked);
                self.send_body(peer, handle, part);
                return Ok(());
            }
            (None, Some(part)) => self.append_part(part),
            (None, None) => {}
        }
        // What is to be written down here can wait until it is on its way.
        let injected = self.inject_frame(peer);
        self.engage(&asked);
        self.frame_injected(peer, Some(handle), injected);
        Ok(())
    }

    /// The descriptors of an operation are needed by it from now on.
    #[inline]
    fn engage(&mut self, asked: &Asked) {
        if let Some(result) = asked.result {
            self.hold(result.descriptor);
        }
        if let Some(data) = asked.data {
            self.hold(data.descriptor);
            self.spend(data.descriptor);
            self.tell_send_start(asked, data);
        }
    }

    #[inline]
    fn bound(&self, part: &Part) -> Result<&Bound, Error> {
        self.descriptors.get(part.descriptor).ok_or(Error::Handle("a descriptor"))
    }

    pub(crate) fn memory_of(&self, descriptor: Handle<Descriptor>) -> Option<&Memory> {
        Some(&self.descriptors.get(descriptor)?.spec.memory)
    }

    /// Begins a frame with the header of a request.
    fn head(&mut self, operation: &Operation, number: Option<u64>, lent: bool) {
        let elements = match operation.request {
            Request::Atomic(op, kind) | Request::FetchAtomic(op, kind) => Some((op, kind)),
            _ => None,
        };
        let header = wire::Request {
            kind: kind(operation.request),
            operation: number,
            portal: operation.place.portal,
            user: self.config.user,
            bits: operation.place.bits,
            offset: operation.place.offset,
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
        self.frame.clear();
        header.encode(&mut self.frame);
    }

    /// Appends memory to the frame.
    fn append_part(&mut self, part: Part) {
        let State { frame, descriptors, .. } = self;
        if let Some(bound) = descriptors.get(part.descriptor) {
            let len = part.len as usize;
            let mut short = [0; SHORT];
            match short.get_mut(..len) {
                Some(short) => {
                    bound.spec.memory.read(part.offset, short);
                    frame.extend_from_slice(short);
                }
                None => {
                    let at = frame.len();
                    frame.resize(at + len, 0);
                    bound.spec.memory.read(part.offset, &mut frame[at..]);
                }
            }
        }
    }

    /// Sends the frame as the header of a long message, whose data the target fetches from where it is.
    fn send_body(&mut self, peer: Peer, handle: Handle<Underway>, part: Part) {
        let header = Bytes::copy_from_slice(&self.frame);
        let Some(memory) = self.memory_of(part.descriptor) else { return };
        let body = memory.slice(part.offset, part.len).unwrap_or_else(|| {
            let mut whole = vec![0; part.len as usize];
            memory.read(part.offset, &mut whole);
            Region::from_vec(whole).whole()
        });
        let token = self.transfer(Transfer::Put(handle));
        self.send_long(peer, FabricOperation::SendLong { token, peer, header, body });
    }

    /// A token for a fabric operation.
    pub(crate) fn transfer(&mut self, transfer: Transfer) -> Token {
        let handle = self.transfers.insert::<Transfer>(transfer);
        Token(handle.expect("as many as there is memory for").to_bits())
    }

    /// The data of an operation has left, or never will.
    pub(crate) fn sent(&mut self, handle: Handle<Underway>, result: Result<(), Failure>) {
        let Some(underway) = self.operations.get_mut(handle) else { return };
        if !std::mem::replace(&mut underway.sending, false) {
            return;
        }
        if underway.lent.is_some() {
            // The target will say when it is done with the memory.
            if let Err(failure) = result {
                self.recall(handle, Recalled::Unsent(failure));
            }
            return;
        }
        self.tell_sent(handle, result);
    }

    pub(crate) fn tell_sent(&mut self, handle: Handle<Underway>, result: Result<(), Failure>) {
        let Some(underway) = self.operations.get(handle) else { return };
        let Asked { offset, user_data, link, data, .. } = underway.asked;
        let answer = underway.asked.answer();
        if let Some(Part { descriptor, len, .. }) = data {
            let left = None;
            let completed = Completed { descriptor, user_data, len, offset, link, left, result };
            // A failure is counted once, whichever of the two is counted.
            let counts = match (result, answer) {
                (Err(_), Answer::Ack(_)) => [Counts::SEND, Counts::ACK],
                _ => [Counts::SEND; 2],
            };
            self.complete(completed, counts, Quiet::SEND, Event::Send);
        }
        match (result, answer) {
            (Ok(()), Answer::None) => self.end(handle),
            (Ok(()), _) => {}
            (Err(_), Answer::Reply(_)) => self.answered(handle, result.map(|()| (0, 0))),
            (Err(_), _) => self.end(handle),
        }
    }

    /// The answer has come, or never will: bytes moved, and where.
    pub(crate) fn answered(
        &mut self,
        handle: Handle<Underway>,
        outcome: Result<(u64, u64), Failure>,
    ) {
        // What is answered has left, whether or not the transport has said so yet.
        if outcome.is_ok() {
            self.sent(handle, Ok(()));
        }
        let Some(underway) = self.operations.remove(handle) else { return };
        let asked = underway.asked;
        let Asked { data, result, ack, offset: at, user_data, link } = asked;
        if let Some(part) = result.or(data)
            && self.spend(part.descriptor)
        {
            let (len, offset) = outcome.unwrap_or((0, at));
            let (descriptor, left) = (part.descriptor, None);
            let completed =
                |result| Completed { descriptor, user_data, len, offset, link, left, result };
            let completed = completed(outcome.map(|_| ()));
            match ack {
                _ if result.is_some() => {
                    self.complete(completed, [Counts::REPLY; 2], Quiet::NONE, Event::Reply);
                }
                Ack::Full => self.complete(completed, [Counts::ACK; 2], Quiet::NONE, Event::Ack),
                Ack::None => {}
                Ack::Counting | Ack::Completed => {
                    self.count_completed(&completed, [Counts::ACK; 2]);
                }
            }
        }
        self.over(&asked);
    }

    /// A long reply is where it belongs, or will never be.
    pub(crate) fn landed(&mut self, handle: Handle<Underway>, result: Result<u64, Failure>) {
        let Some(underway) = self.operations.get(handle) else { return };
        let offset = underway.replied_at;
        self.answered(handle, result.map(|len| (len, offset)));
    }

    /// Nothing more comes of an operation.
    pub(crate) fn end(&mut self, handle: Handle<Underway>) {
        if let Some(underway) = self.operations.remove(handle) {
            self.over(&underway.asked);
        }
    }

    /// The descriptors of an operation are not needed by it any more.
    #[inline]
    fn over(&mut self, asked: &Asked) {
        if let Some(part) = asked.data {
            self.let_go(part.descriptor, asked.link);
        }
        if let Some(part) = asked.result {
            self.let_go(part.descriptor, asked.link);
        }
    }

    #[inline]
    fn let_go(&mut self, descriptor: Handle<Descriptor>, link: u64) {
        let Some(bound) = self.descriptors.get_mut(descriptor) else { return };
        bound.pending -= 1;
        if let Some((entry, _)) = bound.attached {
            self.descriptors.remove(descriptor);
            self.matching.let_go(entry, &mut self.notices);
            self.tell_notices(link);
        } else if bound.is_over() {
            self.unlink_used_up(descriptor, link);
        }
    }

    /// A descriptor is needed until the operation ends.
    fn hold(&mut self, descriptor: Handle<Descriptor>) {
        let Some(bound) = self.descriptors.get_mut(descriptor) else { return };
        bound.pending += 1;
        if let Some((entry, _)) = bound.attached {
            self.matching.hold(entry);
        }
    }

    /// Takes one off what a descriptor may do; false if that was nothing.
    fn spend(&mut self, descriptor: Handle<Descriptor>) -> bool {
        let Some(bound) = self.descriptors.get_mut(descriptor) else { return true };
        match bound.attached {
            None => bound.spend(),
            Some((entry, serial)) => self.matching.spend(entry, serial),
        }
    }

    /// What a descriptor may still do.
    fn left(&mut self, descriptor: Handle<Descriptor>) -> Option<u64> {
        let bound = self.descriptors.get(descriptor)?;
        match bound.attached {
            None => bound.threshold?.left,
            // Memory that was used up meanwhile may do nothing.
            Some((entry, serial)) => {
                self.matching.look(entry, serial).map_or(Some(0), |(_, left, _)| left)
            }
        }
    }

    /// A descriptor of Portals 3 goes by itself.
    fn unlink_used_up(&mut self, descriptor: Handle<Descriptor>, link: u64) {
        let Some(bound) = self.descriptors.remove(descriptor) else { return };
        let user_data = bound.threshold.map_or(0, |threshold| threshold.user_data);
        if !bound.spec.quiet.has(Quiet::UNLINK) {
            self.tell(bound.spec.queue, Event::Released { descriptor, user_data, link });
        }
    }

    #[inline]
    fn tell_send_start(&mut self, asked: &Asked, part: Part) {
        let Some(bound) = self.descriptors.get(part.descriptor) else { return };
        if !bound.spec.quiet.has(Quiet::START) {
            self.tell_begin(asked, part, (part.len, asked.offset), Event::SendStart);
        }
    }

    /// The reply to an operation begins to come: so many bytes, from there.
    pub(crate) fn tell_reply_start(&mut self, asked: &Asked, part: Part, moved: (u64, u64)) {
        let Some(bound) = self.descriptors.get(part.descriptor) else { return };
        if !bound.spec.quiet.has(Quiet::START) {
            self.tell_begin(asked, part, moved, Event::ReplyStart);
        }
    }

    #[inline(never)]
    fn tell_begin(
        &mut self,
        asked: &Asked,
        part: Part,
        (len, offset): (u64, u64),
        event: fn(Completed) -> Event,
    ) {
        let Asked { user_data, link, .. } = *asked;
        let (descriptor, result) = (part.descriptor, Ok(()));
        let left = self.left(descriptor);
        let queue = self.descriptors.get(descriptor).and_then(|bound| bound.spec.queue);
        self.tell(
            queue,
            event(Completed { descriptor, user_data, len, offset, link, left, result }),
        );
    }

    fn count_completed(&mut self, completed: &Completed, counts: [Counts; 2]) {
        let Some(bound) = self.descriptors.get(completed.descriptor) else { return };
        let spec = &bound.spec;
        if spec.counts == Counts::NONE {
            return;
        }
        if counts.iter().any(|kind| spec.counts.has(*kind)) {
            let (counter, count) =
                (spec.counter, tally(spec.counts, completed.len, completed.result));
            self.count(counter, count);
        }
    }

    /// Counts the end of a part of an operation, and tells it unless that is not wanted.
    fn complete(
        &mut self,
        completed: Completed,
        counts: [Counts; 2],
        quiet: Quiet,
        event: fn(Completed) -> Event,
    ) {
        self.count_completed(&completed, counts);
        let Some(bound) = self.descriptors.get(completed.descriptor) else { return };
        let unwanted = bound.spec.quiet;
        let silent = completed.result.is_ok()
            && (unwanted.has(Quiet::SUCCESS) || (quiet != Quiet::NONE && unwanted.has(quiet)));
        if !silent {
            let queue = bound.spec.queue;
            let left = self.left(completed.descriptor);
            self.tell(queue, event(Completed { left, ..completed }));
        }
    }

    /// Takes in a response; `body`: its data, if that comes separately.
    pub(crate) fn take_response(
        &mut self,
        peer: Peer,
        response: wire::Response,
        data: &[u8],
        body: Option<(Body, u64)>,
    ) {
        let handle = Handle::from_bits(response.operation);
        // Whom it was asked of, and nobody else, may answer, and once.
        let known = self.operations.get(handle).filter(|op| op.peer == peer && !op.landing);
        let Some(underway) = known else {
            self.status.garbage += 1;
            return self.discard(body);
        };
        if underway.lent.is_some() {
            return self.take_word(handle, response, data, body);
        }
        let op = &underway.asked;
        let (answer, asked) = (op.answer(), (op.len(), op.offset));
        let moved = response.moved.unwrap_or(asked);
        match (status_result(response.status), answer) {
            (Some(Ok(())), Answer::Reply(part)) => {
                let came = body.map_or(data.len() as u64, |(_, len)| len);
                if came > part.len || came != moved.0 {
                    self.status.garbage += 1;
                    self.discard(body);
                    return self.answered(handle, Err(Failure::Undelivered));
                }
                let op = underway.asked;
                self.tell_reply_start(&op, part, moved);
                let memory = self.memory_of(part.descriptor).cloned().unwrap_or_default();
                match body {
                    None => {
                        memory.write(part.offset, data);
                        self.answered(handle, Ok(moved));
                    }
                    Some(body) => self.fetch_reply(handle, memory, part, body, moved.1),
                }
            }
            (Some(Ok(())), Answer::Ack(_)) if moved.0 <= asked.0 && body.is_none() => {
                self.answered(handle, Ok(moved));
            }
            (Some(Err(failure)), Answer::Reply(_) | Answer::Ack(_)) => {
                self.discard(body);
                self.sent(handle, Ok(()));
                self.answered(handle, Err(failure));
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

    /// Has a long reply brought to where it belongs.
    fn fetch_reply(
        &mut self,
        operation: Handle<Underway>,
        memory: Memory,
        part: Part,
        (body, len): (Body, u64),
        replied_at: u64,
    ) {
        if let Some(underway) = self.operations.get_mut(operation) {
            (underway.landing, underway.replied_at) = (true, replied_at);
        }
        let at = memory.slice(part.offset, len);
        let into = at.clone().unwrap_or_else(|| Region::zeroed(len as usize).whole());
        let scratch = at.is_none().then(|| Memory::from(into.clone()));
        let memory = memory.part(part.offset, len).unwrap_or_default();
        let token = self.transfer(Transfer::Result { operation, memory, scratch, len });
        self.submit(FabricOperation::Receive { token, body, into });
    }

    /// Lets a body go that nobody wants.
    pub(crate) fn discard(&mut self, body: Option<(Body, u64)>) {
        if let Some((body, _)) = body {
            let token = self.transfer(Transfer::Discard);
            self.submit(FabricOperation::Discard { token, body });
        }
    }
}

/// The status of a response that ends an operation without an event.
pub(crate) const SILENT: u8 = 255;

/// The number of a result in a response.
pub(crate) fn status(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(Failure::Dropped) => 1,
        Err(Failure::PortalDisabled) => 2,
        Err(Failure::Permission) => 3,
        Err(Failure::Operation) => 4,
        Err(_) => 5,
    }
}

/// The result with this number; `None` for those that mean something else.
pub(crate) fn status_result(status: u8) -> Option<Result<(), Failure>> {
    Some(match status {
        0 => Ok(()),
        1 => Err(Failure::Dropped),
        2 => Err(Failure::PortalDisabled),
        3 => Err(Failure::Permission),
        4 => Err(Failure::Operation),
        5 => Err(Failure::Undelivered),
        _ => return None,
    })
}
