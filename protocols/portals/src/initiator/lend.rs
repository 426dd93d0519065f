//! The initiator's side of long data that the transport moves by itself, by one copy, where it can.
//!
//! The initiator *lends* the memory of a long put or get: its request carries a key to it. The
//! target knows where in its own memory the data belongs once the request was matched; it fetches
//! the data by the key, or writes it, and then says how that went (`target::lent`). Before the
//! operation ends, with success or because the target is lost, access to the memory is ended: the
//! program's event comes only when no other process can reach the memory any more.

use crate::{
    Failure, Handle, Operation, Request,
    outstanding::{Awaited, Outstanding},
    response::{SILENT, status_result},
    state::State,
    transfer::{Recalled, Transfer},
};
use petasos_fabric::{Access, Body, Key, Peer, RegionId, Token};
use petasos_wire::portals as wire;

impl State {
    /// Lends a peer the memory of an operation, if its data is long enough, and lies in one piece.
    pub(super) fn lend(&mut self, operation: &Operation, peer: Peer) -> Option<(RegionId, Key)> {
        let (part, access) = match operation.request {
            Request::Put => (operation.data?, Access::READ),
            Request::Get => (operation.result?, Access::WRITE),
            _ => return None,
        };
        if part.len <= self.config.lend_above as u64 || !self.network.has_native_access(peer) {
            return None;
        }
        let memory = self.descriptors.memory(part.descriptor)?.slice(part.offset, part.len)?;
        // Without room for one more region the data goes in messages.
        self.network.lend(&memory, access)
    }

    /// Takes in what the target says of an operation whose memory it was lent.
    pub(super) fn take_lent_response(
        &mut self,
        handle: Handle<Outstanding>,
        response: wire::Response,
        data: &[u8],
        body: Option<(Body, u64)>,
    ) {
        // What is answered has left, whether or not the transport has said so yet.
        self.operations.end_sending(handle);
        let Some(operation) = self.operations.get(handle) else { return self.discard(body) };
        let details = operation.details;
        let asked = details.len();
        let moved = response.moved.unwrap_or((asked, details.target.offset));
        let replies = matches!(details.awaited(), Awaited::Reply(_));
        let plain = data.is_empty() && body.is_none();
        let outcome = match status_result(response.status) {
            Some(Ok(())) if plain && moved.0 <= asked => Recalled::Answered(Ok(moved)),
            Some(Err(failure)) if plain => match self.is_dropped(&details, failure) {
                true => Recalled::Silent,
                false => Recalled::Answered(Err(failure)),
            },
            None if plain && response.status == SILENT && !replies => Recalled::Silent,
            _ => {
                self.status.garbage += 1;
                Recalled::Answered(Err(Failure::Undelivered))
            }
        };
        self.discard(body);
        self.recall(handle, outcome);
    }

    /// Ends access to the memory of an operation, which then ends.
    pub(super) fn recall(&mut self, operation: Handle<Outstanding>, outcome: Recalled) {
        if let Some(region) = self.operations.take_lent(operation) {
            self.network.close(region, Transfer::Recalled { region, operation, outcome });
        }
    }

    /// Access to memory was not ended, as a peer may still reach it: asks again. The operation ends
    /// when it is, however long that takes, as its memory is not the program's before.
    pub(crate) fn recall_again(&mut self, token: Token) {
        let Some(transfer) = self.network.end_transfer(token) else { return };
        let (Transfer::Recalled { region, .. } | Transfer::Unlent(region)) = &transfer else {
            return tracing::error!("an operation that closes nothing cannot be closed again");
        };
        let region = *region;
        tracing::warn!(?region, "a peer may still reach memory that was lent to it");
        self.network.close(region, transfer);
    }

    /// No other process reaches the memory any more.
    pub(crate) fn recalled(&mut self, handle: Handle<Outstanding>, outcome: Recalled) {
        match outcome {
            Recalled::Unsent(failure) => self.finish_sending(handle, Err(failure)),
            Recalled::Silent => {
                self.finish_sending(handle, Ok(()));
                self.end(handle);
            }
            Recalled::Answered(outcome) => {
                self.finish_sending(handle, Ok(()));
                // An operation that waits for no answer has ended with that.
                let Some(operation) = self.operations.get(handle) else { return };
                let details = operation.details;
                if let (Awaited::Reply(part), Ok(moved)) = (details.awaited(), outcome) {
                    self.raise_reply_start(&details, part, moved);
                }
                self.answered(handle, outcome);
            }
        }
    }
}
