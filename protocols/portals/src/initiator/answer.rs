//! The answer to an operation comes, or never will, and the operation ends.

use crate::{
    Ack, Completed, Failure, Handle, List, Memory, Part,
    outstanding::{Awaited, Details, Ending, Outstanding},
    response::{OVERFLOW, SILENT, status_result},
    state::State,
    transfer::{Recalled, Transfer},
};
use petasos_fabric::{Body, Operation as FabricOperation, Peer, Region};
use petasos_wire::portals as wire;

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
    pub(super) fn answered(
        &mut self,
        handle: Handle<Outstanding>,
        outcome: Result<(u64, u64), Failure>,
    ) {
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
    pub(super) fn end(&mut self, handle: Handle<Outstanding>) {
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
    pub(super) fn is_dropped(&self, details: &Details, failure: Failure) -> bool {
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
