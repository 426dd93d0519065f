//! Transfers of bulk data, and memory that is open to peers.

use super::{Engine, Outcome, Pending, UNDER_WAY, count};
use crate::{
    abi::{ACCESS, BUSY, CANCELED, Code, FAULT, HOSTUNREACH, NOMEM, PROTOCOL_ERROR, SUCCESS},
    log::{Level, say},
    queue::{Entry, Queue, Transferred},
};
use petasos_fabric::{
    Access, ImportError, Key, Level as Arrival, Operation, Peer, RegionId, Remote, RemoteSpan,
    Slice, Slices, Token,
};
use std::sync::{Arc, atomic::AtomicU32};

/// A transfer that is under way.
pub(super) struct Transfer {
    number: u64,
    over: Box<Transferred>,
    queue: Arc<Queue>,
    /// Its operations.
    parts: Vec<Token>,
}

/// The end of something, for the thread that brings it about.
pub(crate) struct Ask(pub(super) Outcome);

impl Ask {
    /// It, and the same for the thread that waits.
    pub(crate) fn new() -> (Ask, Outcome) {
        let outcome = Arc::new(AtomicU32::new(UNDER_WAY));
        (Ask(outcome.clone()), outcome)
    }
}

impl Engine {
    /// Moves data between pieces of local memory and a part of remote memory. Its one end is an
    /// entry of the queue. The number cancels it.
    pub(crate) fn transfer(
        &mut self,
        over: Box<Transferred>,
        queue: &Arc<Queue>,
        remote: Remote,
        from: u64,
        local: impl Iterator<Item = Slice>,
        is_pull: bool,
    ) -> u64 {
        count(&self.counters.bulk);
        let at = self.transfers.vacant_key();
        let number = self.number(at);
        let entry = Transfer { number, over, queue: queue.clone(), parts: Vec::new() };
        self.transfers.insert(entry);
        let (mut pieces, mut len, mut offset) = (Slices::new(), 0u64, from);
        let mut operations = Vec::new();
        let mut cut = |pieces: &mut Slices, len: &mut u64, engine: &mut Engine| {
            let token = engine.token(Pending::Part(number));
            let spans = [RemoteSpan { offset, len: *len }].into();
            let local = std::mem::take(pieces);
            offset += std::mem::take(len);
            let level = Arrival::Visible;
            operations.push(match is_pull {
                true => Operation::Get { token, remote, local, spans },
                false => Operation::Put { token, remote, local, spans, level, event: None },
            });
        };
        for mut piece in local {
            while !piece.is_empty() {
                let room = self.max_transfer - len;
                let now = room.min(piece.len() as u64) as usize;
                let first = piece.part(0, now).expect("not longer than itself");
                piece = piece.part(now, piece.len() - now).expect("the rest of itself");
                pieces.push(first);
                len += now as u64;
                if len == self.max_transfer || pieces.len() == self.max_pieces {
                    cut(&mut pieces, &mut len, self);
                }
            }
        }
        if !pieces.is_empty() {
            cut(&mut pieces, &mut len, self);
        }
        self.transfers[at].parts = operations.iter().map(Operation::token).collect();
        for operation in operations {
            self.submit(operation);
        }
        number
    }

    pub(super) fn part_done(&mut self, number: u64, token: Token, code: Code) {
        let at = number as u32 as usize;
        let known = self.transfers.get_mut(at).filter(|transfer| transfer.number == number);
        let Some(transfer) = known else { return };
        transfer.parts.retain(|part| *part != token);
        let over = &mut transfer.over.code;
        if *over == SUCCESS && code != SUCCESS {
            *over = code;
            // The rest is of no use.
            let rest = transfer.parts.clone();
            rest.into_iter().for_each(|token| self.end(token));
        }
        let known = self.transfers.get(at).filter(|transfer| transfer.number == number);
        if known.is_some_and(|transfer| transfer.parts.is_empty()) {
            let Transfer { over, queue, .. } = self.transfers.remove(at);
            self.push(&queue, Entry::Bulk(over));
        }
    }

    /// Transfers whose entry will be this queue's.
    pub(crate) fn transfers_of(&self, queue: &Arc<Queue>) -> usize {
        self.transfers.iter().filter(|(_, transfer)| Arc::ptr_eq(&transfer.queue, queue)).count()
    }

    /// `HG_Bulk_cancel`: what is left of it ends soon, in the one entry.
    pub(crate) fn cancel_transfer(&mut self, number: u64) {
        let at = number as u32 as usize;
        let known = self.transfers.get_mut(at).filter(|transfer| transfer.number == number);
        let Some(transfer) = known else { return };
        transfer.over.code = CANCELED;
        let rest = transfer.parts.clone();
        rest.into_iter().for_each(|token| self.end(token));
    }

    /// Opens memory to peers.
    ///
    /// # Errors
    /// The endpoint has no more regions, or no such key.
    pub(crate) fn open(&mut self, memory: &Slice, access: Access) -> Result<(RegionId, Key), Code> {
        self.touch();
        let region = self.endpoint.register(memory, access).map_err(|error| {
            say(Level::Error, "bulk", || error.to_string());
            NOMEM
        })?;
        let key = self.endpoint.export(region).map_err(|error| {
            say(Level::Error, "bulk", || error.to_string());
            NOMEM
        });
        match key {
            Ok(key) => Ok((region, key)),
            Err(code) => {
                let token = self.token(Pending::Ignored);
                let patience = Operation::PATIENCE;
                self.submit(Operation::Deregister { token, region, patience });
                Err(code)
            }
        }
    }

    /// Closes it: the outcome is success once no peer reaches it any more, or `HG_BUSY`.
    pub(crate) fn close(&mut self, region: RegionId) -> Outcome {
        let (ask, outcome) = Ask::new();
        let token = self.token(Pending::Waited(ask.0));
        let patience = Operation::PATIENCE;
        self.submit(Operation::Deregister { token, region, patience });
        outcome
    }

    /// Whether anything still touches this memory.
    pub(crate) fn touches(&self, memory: &Slice) -> bool {
        self.backlog.uses(memory) || self.endpoint.in_use(memory).is_some()
    }

    /// Memory of a peer's.
    ///
    /// # Errors
    /// The key is none, or of a process that is not there any more.
    pub(crate) fn import(&mut self, key: &Key, from: Option<Peer>) -> Result<Remote, Code> {
        self.touch();
        let imported = match from.filter(|from| self.endpoint.peer(*from).is_some()) {
            Some(from) => self.endpoint.import_from(key, from),
            None => self.endpoint.import(key),
        };
        imported.map_err(|error| {
            say(Level::Error, "bulk", || error.to_string());
            match error {
                ImportError::Stale(_) => FAULT,
                ImportError::Resolve(_) | ImportError::UnknownPeer => HOSTUNREACH,
                ImportError::NoRoute { .. } => ACCESS,
                ImportError::TooMany { .. } => BUSY,
                _ => PROTOCOL_ERROR,
            }
        })
    }

    /// It is not used any more.
    pub(crate) fn release(&mut self, remote: Remote) {
        self.touch();
        self.endpoint.release(remote);
    }
}
