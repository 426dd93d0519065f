//! Long data that the transport moves by itself, by one copy, where it can.
//!
//! The initiator *lends* the memory of a long put or get: its request carries a key to it. The
//! target, which knows where in its own memory the data belongs once the request was matched,
//! fetches it from there, or brings it there, and then says how that went. Before the operation
//! ends, with success or because the target is gone, the memory is called back: only when it cannot
//! be reached any more its program is told.

use crate::{
    Failure, Handle, Memory, Operation, Request,
    initiator::{Answer, SILENT, Underway, status_result},
    matching::Taken,
    state::{HEADER, State, Transfer},
    target::{Serving, copy},
};
use bytes::Bytes;
use petasos_fabric::{
    Access, Body, Key, Level, Operation as FabricOperation, Peer, Region, RegionId, Remote,
    RemoteSpan,
};
use petasos_wire::portals as wire;
use smallvec::smallvec;

/// How an operation ends whose memory was lent, once that is nobody else's any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recalled {
    /// The target has answered: bytes moved, and where.
    Answered(Result<(u64, u64), Failure>),
    /// It is done, and acknowledges nothing.
    Silent,
    /// The request did not get there, or its target is gone.
    Unsent(Failure),
}

impl State {
    // The initiator's side.

    /// Lends the memory of an operation, if its data is so long, and lies in one piece.
    pub(crate) fn lend(&mut self, operation: &Operation) -> Option<(RegionId, Key)> {
        let (part, access) = match operation.request {
            Request::Put => (operation.data?, Access::READ),
            Request::Get => (operation.result?, Access::WRITE),
            _ => return None,
        };
        if part.len <= self.config.lend_above as u64 {
            return None;
        }
        let memory = self.memory_of(part.descriptor)?.slice(part.offset, part.len)?;
        // Without room for one more region the data goes in messages.
        let region = self.endpoint.register(&memory, access).ok()?;
        let most = self.endpoint.capabilities().limits.max_inject - HEADER;
        match self.endpoint.export(region) {
            Ok(key) if key.as_bytes().len() <= most => Some((region, key)),
            _ => {
                self.close(region, Transfer::Unlent(region));
                None
            }
        }
    }

    /// Takes in what the target says of an operation whose memory it was lent.
    pub(crate) fn take_word(
        &mut self,
        handle: Handle<Underway>,
        response: wire::Response,
        data: &[u8],
        body: Option<(Body, u64)>,
    ) {
        let Some(underway) = self.operations.get_mut(handle) else { return self.discard(body) };
        let (asked, at) = (underway.asked.len(), underway.asked.target.offset);
        let moved = response.moved.unwrap_or((asked, at));
        let replies = matches!(underway.asked.answer(), Answer::Reply(_));
        // What is answered has left, whether or not the transport has said so yet.
        underway.sending = false;
        let plain = data.is_empty() && body.is_none();
        let outcome = match status_result(response.status) {
            Some(Ok(())) if plain && moved.0 <= asked => Recalled::Answered(Ok(moved)),
            Some(Err(failure)) if plain => {
                let asked = underway.asked;
                match self.is_dropped(&asked, failure) {
                    true => Recalled::Silent,
                    false => Recalled::Answered(Err(failure)),
                }
            }
            None if plain && response.status == SILENT && !replies => Recalled::Silent,
            _ => {
                self.status.garbage += 1;
                Recalled::Answered(Err(Failure::Undelivered))
            }
        };
        self.discard(body);
        self.recall(handle, outcome);
    }

    /// Closes the memory of an operation, which then ends.
    pub(crate) fn recall(&mut self, operation: Handle<Underway>, outcome: Recalled) {
        let Some(underway) = self.operations.get_mut(operation) else { return };
        let Some(region) = underway.lent.take() else { return };
        underway.landing = true;
        self.close(region, Transfer::Recalled { region, operation, outcome });
    }

    fn close(&mut self, region: RegionId, transfer: Transfer) {
        let token = self.transfer(transfer);
        let patience = FabricOperation::PATIENCE;
        self.submit(FabricOperation::Deregister { token, region, patience });
    }

    /// Memory was not closed, for a peer may still reach it: asks again. The operation ends when it
    /// is, however long that takes, as its memory is not the program's before.
    pub(crate) fn close_again(&mut self, transfer: Handle<Transfer>) {
        let Some(transfer) = self.transfers.remove(transfer) else { return };
        match transfer {
            Transfer::Recalled { region, .. } | Transfer::Unlent(region) => {
                tracing::warn!(?region, "a peer may still reach memory that was lent to it");
                self.close(region, transfer);
            }
            _ => tracing::error!("an operation that closes nothing cannot be closed again"),
        }
    }

    /// No other process reaches the memory any more.
    pub(crate) fn recalled(&mut self, handle: Handle<Underway>, outcome: Recalled) {
        match outcome {
            Recalled::Unsent(failure) => self.tell_sent(handle, Err(failure)),
            Recalled::Silent => {
                self.tell_sent(handle, Ok(()));
                self.end(handle);
            }
            Recalled::Answered(outcome) => {
                self.tell_sent(handle, Ok(()));
                // Where no answer was asked for this was all.
                let Some(underway) = self.operations.get(handle) else { return };
                let asked = underway.asked;
                if let (Answer::Reply(part), Ok(moved)) = (asked.answer(), outcome) {
                    self.tell_reply_start(&asked, part, moved);
                }
                self.answered(handle, outcome);
            }
        }
    }

    // The target's side.

    /// Moves the data of a request that came with the key to its memory.
    pub(crate) fn move_lent(&mut self, serving: Serving, key: &[u8]) {
        let Taken { entry, offset, len, .. } = serving.taken;
        if len == 0 {
            self.finish(&serving, Ok(()));
            return self.acknowledge(&serving);
        }
        let Some(remote) = self.reach_lent(serving.peer, key, len) else {
            self.status.garbage += 1;
            tracing::warn!(peer = ?serving.peer, "a key was not understood");
            self.finish(&serving, Err(Failure::Undelivered));
            return self.refuse(serving.peer, serving.number, Failure::Undelivered);
        };
        let memory = &self.matching.at(entry).spec.memory;
        let writes = serving.arrival.request.writes();
        let most = self.endpoint.capabilities().limits.max_pieces;
        let pieces = memory.slices(offset, len).filter(|pieces| pieces.len() <= most);
        let (local, scratch) = match pieces {
            Some(pieces) => (pieces, None),
            None => {
                let whole = Region::zeroed(len as usize).whole();
                let scratch = Memory::from(whole.clone());
                if !writes {
                    let mut bytes = vec![0; len as usize];
                    memory.read(offset, &mut bytes);
                    scratch.write(0, &bytes);
                }
                (smallvec![whole], Some(scratch))
            }
        };
        self.promise(serving.arrival.portal, true);
        let token = self.transfer(Transfer::Lent { serving, remote, scratch });
        let spans = smallvec![RemoteSpan { offset: 0, len }];
        self.submit(match writes {
            true => FabricOperation::Get { token, remote, local, spans },
            false => {
                let (level, event) = (Level::Visible, None);
                FabricOperation::Put { token, remote, local, spans, level, event }
            }
        });
    }

    /// What a key is for, if it is to so much memory of its sender.
    fn reach_lent(&mut self, peer: Peer, key: &[u8], len: u64) -> Option<Remote> {
        let key = Key::from_bytes(Bytes::copy_from_slice(key)).ok()?;
        let remote = self.endpoint.import_from(&key, peer).ok()?;
        if remote.peer == peer && remote.len >= len {
            return Some(remote);
        }
        self.endpoint.release(remote);
        None
    }

    /// The data of a lent operation was moved, or will not be.
    pub(crate) fn moved_lent(
        &mut self,
        serving: &Serving,
        remote: Remote,
        scratch: Option<Memory>,
        result: Result<(), Failure>,
    ) {
        self.endpoint.release(remote);
        if let (Ok(()), Some(scratch), true) = (result, scratch, serving.arrival.request.writes()) {
            let memory = &self.matching.at(serving.taken.entry).spec.memory;
            copy(&scratch, memory, serving.taken.offset);
        }
        self.promise(serving.arrival.portal, false);
        self.finish(serving, result);
        match result {
            Ok(()) => self.acknowledge(serving),
            Err(failure) => self.refuse(serving.peer, serving.number, failure),
        }
    }
}
