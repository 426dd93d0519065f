//! An operation is started, and its data leaves.

use super::SENT;
use crate::{
    Ack, Counts, Error, Event, Failure, Handle, Operation, Part, Quiet, Request,
    network::{Queued, sent},
    outstanding::{Awaited, Details, Outstanding},
    state::State,
    transfer::{Recalled, Transfer},
};
use bytes::Bytes;
use petasos_fabric::{InjectError, Operation as FabricOperation, Peer, Region};
use petasos_wire::portals::{self as wire, Kind};

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
        let key = self.lend(operation, peer);
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
    pub(super) fn finish_sending(
        &mut self,
        handle: Handle<Outstanding>,
        result: Result<(), Failure>,
    ) {
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

fn kind(request: Request) -> Kind {
    match request {
        Request::Put => Kind::Put,
        Request::Get => Kind::Get,
        Request::GetPut => Kind::GetPut,
        Request::Atomic(..) => Kind::Atomic,
        Request::FetchAtomic(..) => Kind::FetchAtomic,
    }
}
