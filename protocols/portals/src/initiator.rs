//! The initiator's side: operations are started, and their answers come.
//!
//! Each event that a successful operation raises comes once, with its result; after a put whose
//! data could not be sent no acknowledgement is waited for. So every operation that was accepted
//! ends.

use crate::{
    Ack, Completed, Counts, Descriptor, Error, Event, Failure, List, Memory, Operation, Part,
    ProcessId, Quiet, Request, Target,
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
    /// Whether its reply is being moved, or its memory called back: the fabric will say how that
    /// went.
    pub(crate) landing: bool,
    /// Its memory, while the other process may reach it.
    pub(crate) lent: Option<RegionId>,
    /// Where at the target the reply comes from, once that is known.
    replied_at: u64,
    /// The list of the target's that took it: told by an answer.
    pub(crate) list: List,
}

/// What must be known of an operation when its answer comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) data: Option<Part>,
    pub(crate) result: Option<Part>,
    ack: Ack,
    pub(crate) target: Target,
    header_data: u64,
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

/// What of an operation has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Its data has left; whether an acknowledgement is to follow.
    Sent { acknowledged: bool },
    /// The acknowledgement.
    Acknowledged,
    /// One for which there is no event.
    Counted,
    /// One that was not asked for.
    Unasked,
    /// The reply.
    Replied,
}

impl Ending {
    #[inline]
    fn event(self, completed: Completed) -> Event {
        match self {
            Ending::Sent { .. } => Event::Send(completed),
            Ending::Replied => Event::Reply(completed),
            _ => Event::Ack(completed),
        }
    }

    fn is_told(self) -> bool {
        !matches!(self, Ending::Counted | Ending::Unasked)
    }

    fn is_answer(self) -> bool {
        !matches!(self, Ending::Sent { .. } | Ending::Unasked)
    }
}

impl Underway {
    fn new(peer: Peer, asked: Asked, sending: bool, lent: Option<RegionId>) -> Underway {
        let (landing, replied_at, list) = (false, 0, List::Priority);
        Underway { peer, asked, sending, landing, lent, replied_at, list }
    }

    /// Whether data of it has not left.
    pub(crate) fn is_here(&self) -> bool {
        self.sending || self.landing || self.lent.is_some()
    }

    /// A fence: it is answered when all that went before it has come in.
    pub(crate) fn fence(peer: Peer) -> Underway {
        let target = Target::new(ProcessId::ANY, 0);
        let (ack, header_data, user_data, link) = (Ack::Completed, 0, 0, 0);
        let (data, result) = (None, None);
        let asked = Asked { data, result, ack, target, header_data, user_data, link };
        Underway::new(peer, asked, true, None)
    }
}

impl Asked {
    fn new(operation: &Operation, ack: Ack, link: u64) -> Asked {
        let Operation { data, result, user_data, header_data, target, .. } = *operation;
        Asked { data, result, ack, target, header_data, user_data, link }
    }

    /// What an event at a part of it says, as if all had gone as it was asked for.
    #[inline(always)]
    fn completed(&self, part: Part) -> Completed {
        let Asked { target, header_data, user_data, link, .. } = *self;
        Completed {
            descriptor: part.descriptor,
            user_data,
            target,
            header_data,
            requested: part.len,
            len: part.len,
            offset: target.offset,
            list: None,
            link,
            left: None,
            result: Ok(()),
            attached: None,
        }
    }

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
    #[inline(never)]
    pub(crate) fn start(&mut self, operation: &Operation) -> Result<(), Error> {
        operation.check(self.config.limits.atomic)?;
        let (mut ack, mut counted) = (operation.ack, false);
        if let Some(data) = &operation.data {
            let bound = self.bound(data)?;
            bound.check(data)?;
            counted = bound.threshold.is_some();
            // An answer that nothing would come of is not asked for.
            if ack != Ack::None && !bound.spec.hears(ack) {
                ack = Ack::None;
            }
        }
        if let Some(result) = &operation.result {
            let bound = self.bound(result)?;
            bound.check(result)?;
            counted |= bound.threshold.is_some();
            if !bound.spec.memory.is_writable() {
                return Err(Error::ReadOnly);
            }
        }
        let Some(handle) = self.operations.next() else {
            let limit = self.config.limits.operations as u64;
            return Err(Error::NoSpace { what: "operations", limit });
        };
        self.touched = true;
        let peer = self.reach(operation.target.process)?;
        if self.is_congested(peer) {
            let limit = self.config.limits.waiting as u64;
            return Err(Error::NoSpace { what: "waiting bytes", limit });
        }
        if counted {
            ack = self.keep_all(operation, ack)?;
        }
        if operation.len() > self.config.eager as u64 {
            self.start_long(operation, ack, peer);
        } else {
            self.start_short(operation, ack, handle, peer);
        }
        Ok(())
    }

    /// Takes off what the descriptors of an operation may do what will come of it: one for its
    /// data, one for the reply, and one for the acknowledgement, without which that is not asked
    /// for. So what has begun can end (Portals 3).
    #[inline(never)]
    fn keep_all(&mut self, operation: &Operation, ack: Ack) -> Result<Ack, Error> {
        let Operation { data, result, .. } = operation;
        if let Some(result) = result
            && !self.keep(result.descriptor)
        {
            return Err(Error::Argument(USED_UP));
        }
        let Some(data) = data else { return Ok(ack) };
        if !self.keep(data.descriptor) {
            if let Some(result) = result {
                self.give_back(result.descriptor);
            }
            return Err(Error::Argument(USED_UP));
        }
        let wanted = result.is_none() && ack != Ack::None;
        let ack = if wanted && self.keep(data.descriptor) { ack } else { Ack::None };
        // The data is as good as on its way.
        if let Some(bound) = self.descriptors.get_mut(data.descriptor) {
            bound.redeem(&mut self.matching);
        }
        Ok(ack)
    }

    fn keep(&mut self, descriptor: Handle<Descriptor>) -> bool {
        let bound = self.descriptors.get_mut(descriptor);
        bound.is_none_or(|bound| bound.keep(&mut self.matching))
    }

    fn give_back(&mut self, descriptor: Handle<Descriptor>) {
        if let Some(bound) = self.descriptors.get_mut(descriptor) {
            bound.give_back(&mut self.matching);
        }
    }

    /// Sends a request with all of its data. `handle`: the one that the operation gets if there is
    /// more to come of it.
    #[inline]
    fn start_short(
        &mut self,
        operation: &Operation,
        ack: Ack,
        handle: Handle<Underway>,
        peer: Peer,
    ) {
        let answered = operation.result.is_some() || ack != Ack::None;
        self.head(operation, answered.then(|| handle.to_bits()), false);
        if let Some(part) = operation.data {
            self.append_part(part);
        }
        // What is to be written down here can wait until it is on its way.
        let injected = self.inject_frame(peer);
        let asked = Asked::new(operation, ack, self.next_link());
        let wanted = self.engage(&asked);
        let sent = injected.is_ok();
        if answered || !sent {
            self.operations.insert::<Underway>(Underway::new(peer, asked, !sent, None));
        }
        if !sent {
            return self.frame_injected(peer, Some(handle), injected);
        }
        if wanted {
            self.tell_send(&asked, Ok(()));
        }
        if !answered {
            self.over(&asked);
        }
    }

    /// Lends the memory of a long operation, or else sends a request, and has long data follow it.
    #[inline(never)]
    fn start_long(&mut self, operation: &Operation, ack: Ack, peer: Peer) {
        let asked = Asked::new(operation, ack, self.next_link());
        let key = self.lend(operation);
        let lent = key.as_ref().map(|(region, _)| *region);
        let wanted = lent.is_some() || asked.answer() != Answer::None;
        let handle = self.operations.insert(Underway::new(peer, asked, true, lent));
        let handle = handle.expect("there was room for it");
        self.head(operation, wanted.then(|| handle.to_bits()), lent.is_some());
        self.engage(&asked);
        match (key, asked.data) {
            (Some((_, key)), _) => self.frame.append(key.as_bytes()),
            (None, Some(part)) if operation.request == Request::Put => {
                return self.send_body(peer, handle, part);
            }
            (None, Some(part)) => self.append_part(part),
            (None, None) => {}
        }
        self.send_frame(peer, Some(handle));
    }

    /// The descriptors of an operation are needed by it from now on. Gives whether it is wanted to
    /// know that its data has left.
    #[inline(always)]
    fn engage(&mut self, asked: &Asked) -> bool {
        if let Some(result) = asked.result {
            self.hold(result.descriptor);
        }
        let Some(data) = asked.data else { return false };
        let (quiet, counts) = self.hold(data.descriptor);
        if !quiet.has(Quiet::START) {
            self.tell_begin(asked, data, (data.len, asked.target.offset), Event::SendStart);
        }
        let silent = quiet.any(SENT);
        !silent || counts.has(Counts::SEND)
    }

    #[inline]
    fn bound(&self, part: &Part) -> Result<&Bound, Error> {
        self.descriptors.get(part.descriptor).ok_or(Error::Handle("a descriptor"))
    }

    pub(crate) fn memory_of(&self, descriptor: Handle<Descriptor>) -> Option<&Memory> {
        Some(&self.descriptors.get(descriptor)?.spec.memory)
    }

    /// Begins a frame with the header of a request.
    #[inline(always)]
    fn head(&mut self, operation: &Operation, number: Option<u64>, lent: bool) {
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
        self.frame.begin(|room| header.write(room));
    }

    /// Appends memory to the frame.
    #[inline(always)]
    fn append_part(&mut self, part: Part) {
        let State { frame, descriptors, .. } = self;
        if let Some(bound) = descriptors.get(part.descriptor) {
            bound.spec.memory.read(part.offset, frame.extend(part.len as usize));
        }
    }

    /// Sends the frame as the header of a long message, whose data the target fetches from where it
    /// is.
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
    #[inline]
    pub(crate) fn sent(&mut self, handle: Handle<Underway>, result: Result<(), Failure>) {
        let Some(underway) = self.operations.get_mut(handle) else { return };
        if underway.sending {
            underway.sending = false;
            self.left_now(handle, result);
        }
    }

    #[inline(never)]
    fn left_now(&mut self, handle: Handle<Underway>, result: Result<(), Failure>) {
        let Some(underway) = self.operations.get(handle) else { return };
        if underway.lent.is_some() {
            // The target will say when it is done with the memory.
            if let Err(failure) = result {
                self.recall(handle, Recalled::Unsent(failure));
            }
            return;
        }
        self.tell_sent(handle, result);
    }

    /// Tells that the data of an operation has left, or never will, and what follows from that.
    pub(crate) fn tell_sent(&mut self, handle: Handle<Underway>, result: Result<(), Failure>) {
        let Some(underway) = self.operations.get(handle) else { return };
        let asked = underway.asked;
        self.tell_send(&asked, result);
        match (result, asked.answer()) {
            (Ok(()), Answer::None) => self.end(handle),
            (Ok(()), _) => {}
            (Err(_), Answer::Reply(_)) => self.answered(handle, result.map(|()| (0, 0))),
            (Err(_), _) => self.end(handle),
        }
    }

    /// The event of the data's leaving.
    #[inline(never)]
    fn tell_send(&mut self, asked: &Asked, result: Result<(), Failure>) {
        let Some(data) = asked.data else { return };
        let completed = Completed { result, ..asked.completed(data) };
        let acknowledged = matches!(asked.answer(), Answer::Ack(_));
        self.complete(completed, Ending::Sent { acknowledged });
    }

    /// The answer has come, or never will: bytes moved, and where.
    #[inline(never)]
    pub(crate) fn answered(
        &mut self,
        handle: Handle<Underway>,
        outcome: Result<(u64, u64), Failure>,
    ) {
        self.answered_now(handle, outcome);
    }

    #[inline(always)]
    fn answered_now(&mut self, handle: Handle<Underway>, outcome: Result<(u64, u64), Failure>) {
        let Some(underway) = self.operations.get(handle) else { return };
        // What is answered has left, whether or not the transport has said so yet.
        if underway.sending && outcome.is_ok() {
            self.sent(handle, Ok(()));
        }
        let Some(&Underway { asked, list, .. }) = self.operations.get(handle) else { return };
        self.operations.discard(handle);
        let ending = match asked.ack {
            _ if asked.result.is_some() => Ending::Replied,
            Ack::Full => Ending::Acknowledged,
            Ack::Counting | Ack::Completed => Ending::Counted,
            Ack::None => Ending::Unasked,
        };
        if let Some(part) = asked.result.or(asked.data) {
            let (len, offset) = outcome.unwrap_or((0, asked.target.offset));
            let list = outcome.is_ok().then_some(list);
            let result = outcome.map(|_| ());
            let completed = Completed { len, offset, list, result, ..asked.completed(part) };
            self.complete(completed, ending);
        }
        self.over(&asked);
    }

    /// A long reply is where it belongs, or will never be.
    pub(crate) fn landed(&mut self, handle: Handle<Underway>, result: Result<u64, Failure>) {
        let Some(underway) = self.operations.get(handle) else { return };
        let offset = underway.replied_at;
        self.answered(handle, result.map(|len| (len, offset)));
    }

    /// Nothing more comes of an operation: what was kept for its answer is not needed.
    pub(crate) fn end(&mut self, handle: Handle<Underway>) {
        let Some(Underway { asked, .. }) = self.operations.remove(handle) else { return };
        match asked.answer() {
            Answer::None => {}
            Answer::Reply(part) => self.give_back(part.descriptor),
            Answer::Ack(_) => asked.data.iter().for_each(|part| self.give_back(part.descriptor)),
        }
        self.over(&asked);
    }

    /// Whether an operation ends without an answer: what a target of Portals 3 does not take, it
    /// drops.
    pub(crate) fn is_dropped(&self, asked: &Asked, failure: Failure) -> bool {
        use Failure::{Dropped, Operation, Permission, PortalDisabled};
        let refused = matches!(failure, Dropped | PortalDisabled | Permission | Operation);
        let part = asked.result.or(asked.data);
        let bound = part.and_then(|part| self.descriptors.get(part.descriptor));
        refused && bound.is_some_and(|bound| bound.threshold.is_some())
    }

    /// An answer to nothing.
    fn stray(&mut self) {
        match self.permits {
            Some(_) => self.status.dropped += 1,
            None => self.status.garbage += 1,
        }
    }

    /// The descriptors of an operation are not needed by it any more.
    #[inline(always)]
    fn over(&mut self, asked: &Asked) {
        if let Some(part) = asked.data {
            self.let_go(part.descriptor, asked.link);
        }
        if let Some(part) = asked.result {
            self.let_go(part.descriptor, asked.link);
        }
    }

    #[inline(always)]
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

    /// A descriptor is needed until the operation ends. Gives the events that are not wanted, and
    /// what is counted.
    #[inline(always)]
    fn hold(&mut self, descriptor: Handle<Descriptor>) -> (Quiet, Counts) {
        let Some(bound) = self.descriptors.get_mut(descriptor) else {
            return (Quiet::START, Counts::NONE);
        };
        bound.pending += 1;
        if let Some((entry, _)) = bound.attached {
            self.matching.hold(entry);
        }
        (bound.spec.quiet, bound.spec.counts)
    }

    /// A descriptor of Portals 3 goes by itself.
    fn unlink_used_up(&mut self, descriptor: Handle<Descriptor>, link: u64) {
        let Some(bound) = self.descriptors.remove(descriptor) else { return };
        let user_data = bound.threshold.map_or(0, |threshold| threshold.user_data);
        if !bound.spec.quiet.has(Quiet::UNLINK) {
            self.tell(bound.spec.queue, Event::Released { descriptor, user_data, link });
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
        let Some(bound) = self.descriptors.get(part.descriptor) else { return };
        let (queue, left) = (bound.spec.queue, bound.left(&self.matching));
        let (attached, user_data) = (bound.attached, bound.user_data(asked.user_data));
        let all = asked.completed(part);
        let completed = Completed { len, offset, left, attached, user_data, ..all };
        self.tell(queue, event(completed));
    }

    /// Counts the end of a part of an operation, and tells it by an event unless that is not
    /// wanted. For an answer one was kept of what the descriptor may do, which is spent.
    #[inline(always)]
    fn complete(&mut self, completed: Completed, ending: Ending) {
        let Some(bound) = self.descriptors.get_mut(completed.descriptor) else { return };
        if bound.threshold.is_some() && ending.is_answer() {
            bound.redeem(&mut self.matching);
        }
        let spec = &bound.spec;
        // What is counted; what leaves it untold if it went well; and what does in any case.
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
        let count = tally(spec.counts, completed.len, completed.result);
        if !silent && ending.is_told() {
            let (left, attached) = (bound.left(&self.matching), bound.attached);
            let user_data = bound.user_data(completed.user_data);
            let completed = Completed { left, attached, user_data, ..completed };
            self.tell(queue, ending.event(completed));
        }
        self.count(counter, count);
    }

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
        // The process that was asked, and no other, may answer, and once.
        let known = self.operations.get_mut(handle).filter(|op| op.peer == peer && !op.landing);
        let Some(underway) = known else {
            self.stray();
            return self.discard(body);
        };
        if response.status == OVERFLOW {
            (response.status, underway.list) = (0, List::Overflow);
        }
        if underway.lent.is_some() {
            return self.take_word(handle, response, data, body);
        }
        let op = &underway.asked;
        let (answer, asked) = (op.answer(), (op.len(), op.target.offset));
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
                self.answered_now(handle, Ok(moved));
            }
            (Some(Err(failure)), Answer::Reply(_) | Answer::Ack(_)) => {
                let asked = underway.asked;
                let dropped = self.is_dropped(&asked, failure);
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

    /// Lets a body go that is not wanted.
    pub(crate) fn discard(&mut self, body: Option<(Body, u64)>) {
        if let Some((body, _)) = body {
            let token = self.transfer(Transfer::Discard);
            self.submit(FabricOperation::Discard { token, body });
        }
    }
}

/// The status of a response that ends an operation without an event.
pub(crate) const SILENT: u8 = 255;

/// The status of a response that tells of a success in the overflow list.
pub(crate) const OVERFLOW: u8 = 6;

/// What leaves it untold that data has left.
const SENT: Quiet = Quiet::SEND.with(Quiet::SUCCESS);

const USED_UP: &str = "the descriptor's threshold is used up";

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
