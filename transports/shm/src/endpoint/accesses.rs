//! Accesses wait in a queue for each peer, and are moved on in turns.

use crate::{
    Shm,
    access::{Access, Route, Step, within},
};
use petasos_fabric::{
    Access as Rights, Done, LostReason, OpErrorKind, Operation, Peer, PeerState, Region, Remote,
    Token, two_sided::Imported,
};

/// Accesses of one peer that end in one pass.
const PER_PEER: usize = 64;

impl Shm {
    /// Takes in an operation on remote memory. Gives it back if it is for the engine.
    pub(super) fn accept_access(&mut self, operation: Operation) -> Option<Operation> {
        let (Operation::Put { remote, .. }
        | Operation::Get { remote, .. }
        | Operation::Atomic { remote, .. }
        | Operation::Map { remote, .. }) = &operation
        else {
            return Some(operation);
        };
        let remote = *remote;
        let Some(imported) = self.engine.imported(remote) else { return Some(operation) };
        let own = self.engine.is_self(remote.peer);
        if own && let Operation::Map { token, .. } = operation {
            let result = self.map_own(remote);
            self.complete(token, Some(remote.peer), result);
            return None;
        }
        let state = self.engine.state_of(remote.peer);
        let live = state.is_some_and(|state| !matches!(state, PeerState::Lost(_)));
        let Some(route) = Route::of(imported).filter(|_| live && !own) else {
            return Some(operation);
        };
        if let Operation::Put { local, .. } | Operation::Get { local, .. } = &operation
            && local.iter().any(|piece| piece.host_ptr().is_none())
        {
            return Some(operation);
        }
        let checked = self.check(&operation, imported, remote);
        match checked {
            Ok(total) => {
                let streams = total >= self.config.stream_from;
                let batch = match operation {
                    Operation::Map { .. } => {
                        self.engine.begin_outside(remote.peer);
                        None
                    }
                    _ => Some(self.engine.begin_access(remote.peer)),
                };
                self.enqueue(remote.peer, Access::new(operation, batch, route, total, streams));
            }
            Err(kind) => {
                if !matches!(operation, Operation::Map { .. }) {
                    self.engine.refuse_access(remote.peer, &kind);
                }
                self.complete(operation.token(), Some(remote.peer), Err(kind));
            }
        }
        None
    }

    fn enqueue(&mut self, peer: Peer, access: Access) {
        self.accesses.push(peer.index, access);
        let connected = self.channels.get(peer.index).is_some();
        if connected {
            self.accesses.schedule(peer.index);
        }
    }

    /// Checks an operation against the key and the limits, and gives its length.
    fn check(
        &self,
        operation: &Operation,
        imported: &Imported,
        remote: Remote,
    ) -> Result<u64, OpErrorKind> {
        let limits = &self.capabilities.limits;
        let allowed = imported.parts.access;
        let right = |needed| match allowed.allows(needed) {
            true => Ok(()),
            false => Err(OpErrorKind::Denied { allowed, needed }),
        };
        let (local, spans) = match operation {
            Operation::Put { local, spans, .. } => {
                right(Rights::WRITE)?;
                (local, spans)
            }
            Operation::Get { local, spans, .. } => {
                right(Rights::READ)?;
                if !local.iter().all(|piece| piece.is_writable()) {
                    let (allowed, needed) = (Rights::READ, Rights::WRITE);
                    return Err(OpErrorKind::Denied { allowed, needed });
                }
                (local, spans)
            }
            Operation::Map { .. } => return right(Rights::READ).map(|()| 0),
            _ => return right(Rights::ATOMIC).map(|()| 0),
        };
        let (what, pieces) = ("the number of pieces", local.len().max(spans.len()));
        if pieces > limits.max_pieces {
            let (value, limit) = (pieces as u64, limits.max_pieces as u64);
            return Err(OpErrorKind::TooLarge { what, value, limit });
        }
        let mut total = 0u64;
        for span in spans {
            within(span.offset, span.len, remote.len)?;
            total = total.saturating_add(span.len);
        }
        let ours = local.iter().map(|piece| piece.len() as u64).sum();
        if ours != total {
            return Err(OpErrorKind::LengthMismatch { local: ours, remote: total });
        }
        if let Operation::Put { event: Some(_), .. } = operation {
            within(0, total, remote.len)?;
        }
        let (what, limit) = ("the length of a transfer", limits.max_transfer);
        match total <= limit {
            true => Ok(total),
            false => Err(OpErrorKind::TooLarge { what, value: total, limit }),
        }
    }

    fn map_own(&self, remote: Remote) -> Result<Done, OpErrorKind> {
        let imported = self.engine.imported(remote).ok_or(OpErrorKind::UnknownRegion)?;
        let (allowed, needed) = (imported.parts.access, Rights::READ);
        if !allowed.allows(needed) {
            return Err(OpErrorKind::Denied { allowed, needed });
        }
        let unmapped = OpErrorKind::Unsupported("mapping memory of a device");
        let route = Route::of(imported).ok_or(unmapped)?;
        let export = self.exports.at(route.slot.into()).filter(|export| export.tag == route.tag);
        let export = export.ok_or(OpErrorKind::StaleKey)?;
        let (memory, _) = self.engine.region(export.region).ok_or(OpErrorKind::StaleKey)?;
        if imported.parts.incarnation != self.engine.incarnation() {
            return Err(OpErrorKind::StaleKey);
        }
        let view = Region::view(memory).map(Done::Mapped);
        view.ok_or(OpErrorKind::Unsupported(
            "mapping memory that its program keeps, or of a device",
        ))
    }

    /// Gives back the handles that were released and that no access names any more: one that waits
    /// may come to be the engine's, which looks its region up then.
    #[cold]
    pub(super) fn release_unused(&mut self) {
        let Shm { accesses, engine, released, .. } = self;
        released.retain(|remote| {
            let used = accesses.all_of(remote.peer.index).any(|access| access.names(*remote));
            if !used {
                engine.release(*remote);
            }
            used
        });
    }

    /// Moves accesses on, by a bounded number of bytes. True if something was done.
    pub(super) fn move_accesses(&mut self) -> bool {
        let mut budget = self.config.transfer_budget;
        let mut worked = false;
        for _ in 0..self.accesses.scheduled().len() {
            let Some(index) = self.accesses.next_peer() else { break };
            worked |= self.move_accesses_of(index, &mut budget);
            self.accesses.end_turn(index, self.channels.get(index).is_some());
            if budget == 0 {
                break;
            }
        }
        worked
    }

    fn move_accesses_of(&mut self, index: u32, budget: &mut usize) -> bool {
        let mut worked = false;
        let turns = self.accesses.of(index).min(PER_PEER);
        for _ in 0..turns {
            if *budget == 0 {
                break;
            }
            let most = *budget;
            let Shm { channels, accesses, counters, .. } = self;
            let Some(channel) = channels.get_mut(index) else { return worked };
            let peer = channel.handle;
            let Some((place, mut access)) = accesses.next(index) else { break };
            if channel.ending.is_some() {
                // Fails with the rest once what the peer sent has been taken.
                access.set_waiting(true);
                accesses.put_back(place, access, true);
                break;
            }
            let before = access.moved();
            let wanted = channel.segments.wanted();
            let step = channel.step(&mut access, most, counters);
            let asked = channel.segments.wanted() > wanted;
            *budget -=
                usize::try_from(access.moved() - before).map_or(most, |moved| moved.min(most));
            access.set_waiting(matches!(step, Step::Wait | Step::Full));
            worked |= !access.is_waiting();
            match step {
                Step::Moved | Step::Wait | Step::Full => {
                    self.accesses.put_back(place, access, false);
                }
                Step::Done(result) => {
                    self.accesses.end(place, access.token());
                    let event = access.has_event();
                    self.end_access(&access, peer, result);
                    if event {
                        self.published(index);
                    }
                }
                Step::Engine => {
                    self.accesses.end(place, access.token());
                    self.counters.served_by_owner += 1;
                    match access.batch() {
                        Some(batch) => {
                            self.engine.submit_counted(access.into_operation(), peer, batch);
                        }
                        None => {
                            self.engine.end_outside(peer);
                            self.engine.submit(access.into_operation());
                        }
                    }
                }
                Step::Over => {
                    access.set_waiting(true);
                    self.accesses.put_back(place, access, true);
                    self.channels.hang_up(index, LostReason::Closed);
                    return true;
                }
                Step::Broken(what) => {
                    self.accesses.put_back(place, access, true);
                    self.violated(index, what);
                    return true;
                }
            }
            if asked {
                self.published(index);
            }
        }
        worked
    }

    /// Takes back an access that has not ended. False if there is none with this token.
    pub(super) fn cancel_access(&mut self, token: Token) -> bool {
        let Some((index, access)) = self.accesses.cancel(token) else { return false };
        if let Some(peer) = self.engine.peer_at(index) {
            self.end_access(&access, peer, Err(OpErrorKind::Cancelled));
        }
        true
    }

    /// Completes an access. A flush waits for it no longer.
    pub(super) fn end_access(
        &mut self,
        access: &Access,
        peer: Peer,
        result: Result<Done, OpErrorKind>,
    ) {
        match access.batch() {
            Some(batch) => self.engine.end_access(peer, batch, result.as_ref().err()),
            None => self.engine.end_outside(peer),
        }
        self.complete(access.token(), Some(peer), result);
    }
}
