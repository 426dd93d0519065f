//! Connected peers: which processes they are, and what waits until they can take it.
//!
//! Nothing is kept of a process without a connection, so what this layer holds follows the
//! transport's connections and not the size of the job.

use crate::{
    Error, Failure, ProcessId,
    handle::Handle,
    initiator::Underway,
    lent::Recalled,
    matching::Fold,
    state::{State, Transfer},
};
use petasos_fabric::{InjectError, Operation, Peer};
use std::collections::{HashMap, VecDeque};

/// No user: one that is not vouched for, and not believed.
const NOBODY: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// By the transport's slot.
    records: Vec<Option<Record>>,
    /// By the bits of their names.
    by_process: HashMap<u64, Peer, Fold>,
    /// The peer to which something went last: mostly more follows.
    latest: Option<(ProcessId, Peer)>,
    /// What waits in all outboxes, by number.
    waiting: usize,
}

#[derive(Debug)]
struct Record {
    peer: Peer,
    /// No process of the job: what it sends is dropped.
    process: Option<ProcessId>,
    /// The user that runs it, if the transport vouches for one; looked at when it was first heard
    /// of.
    user: Option<Option<u32>>,
    outbox: VecDeque<Queued>,
    /// Bytes in the outbox.
    bytes: usize,
}

/// Something to send that has to wait.
#[derive(Debug)]
enum Queued {
    /// A message, and the operation whose data it is.
    Message(Vec<u8>, Option<Handle<Underway>>),
    /// A long message.
    Long(Operation),
}

impl Queued {
    fn len(&self) -> usize {
        match self {
            Queued::Message(bytes, _) => bytes.len(),
            Queued::Long(_) => 0,
        }
    }
}

impl Peers {
    #[inline]
    fn get(&mut self, peer: Peer) -> Option<&mut Record> {
        self.records.get_mut(peer.index as usize)?.as_mut().filter(|record| record.peer == peer)
    }

    fn add(&mut self, peer: Peer, process: Option<ProcessId>) {
        let index = peer.index as usize;
        if self.records.len() <= index {
            self.records.resize_with(index + 1, || None);
        }
        let new = Record { peer, process, user: None, outbox: VecDeque::new(), bytes: 0 };
        if let Some(before) = self.records[index].replace(new) {
            self.waiting -= before.outbox.len();
        }
        if let Some(process) = process {
            self.latest = None;
            self.by_process.insert(process.to_bits(), peer);
        }
    }

    fn remove(&mut self, peer: Peer) -> Option<Record> {
        self.get(peer)?;
        let record = self.records[peer.index as usize].take()?;
        self.latest = self.latest.filter(|(_, latest)| *latest != peer);
        self.waiting -= record.outbox.len();
        if let Some(process) = record.process
            && self.by_process.get(&process.to_bits()) == Some(&peer)
        {
            self.by_process.remove(&process.to_bits());
        }
        Some(record)
    }

    /// Whether something waits for a peer.
    #[inline]
    fn waits(&mut self, peer: Peer) -> bool {
        self.waiting > 0 && self.get(peer).is_some_and(|record| !record.outbox.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.records.iter().flatten().count()
    }

    /// Whether anything waits for any peer.
    pub(crate) fn are_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// All that are processes of the job.
    pub(crate) fn known(&self) -> Vec<Peer> {
        let records = self.records.iter().flatten();
        records.filter(|record| record.process.is_some()).map(|record| record.peer).collect()
    }

    /// Whether a peer is still there.
    pub(crate) fn is_known(&mut self, peer: Peer) -> bool {
        self.get(peer).is_some()
    }
}

impl State {
    /// The process from which something came, and the user that the transport vouches for; `None`
    /// for strangers.
    #[inline]
    pub(crate) fn who(&mut self, peer: Peer) -> Option<(ProcessId, Option<u32>)> {
        match self.peers.get(peer) {
            Some(Record { process, user: Some(user), .. }) => Some(((*process)?, *user)),
            _ => self.meet(peer),
        }
    }

    /// The same when it is heard of for the first time.
    #[cold]
    fn meet(&mut self, peer: Peer) -> Option<(ProcessId, Option<u32>)> {
        let info = self.endpoint.peer(peer)?;
        if self.peers.get(peer).is_none() {
            self.peers.add(peer, self.directory.process(&info.address));
        }
        let record = self.peers.get(peer)?;
        record.user = Some(info.user);
        Some((record.process?, info.user))
    }

    /// The directory may say another process for a peer: asks again, also of those that were
    /// strangers.
    pub(crate) fn meet_again(&mut self) {
        self.peers.latest = None;
        self.peers.by_process.clear();
        for at in 0..self.peers.records.len() {
            let Some(peer) = self.peers.records[at].as_ref().map(|record| record.peer) else {
                continue;
            };
            let info = self.endpoint.peer(peer);
            let process = info.and_then(|info| self.directory.process(&info.address));
            if let Some(process) = process {
                self.peers.by_process.insert(process.to_bits(), peer);
            }
            if let Some(record) = &mut self.peers.records[at] {
                record.process = process;
            }
        }
    }

    /// The user that asks: as the transport knows, or else as the message says.
    #[inline]
    pub(crate) fn user_of(&self, vouched: Option<u32>, claimed: u32) -> u32 {
        vouched.unwrap_or(if self.config.believe { claimed } else { NOBODY })
    }

    /// The way to a process: connected, or about to be.
    #[inline]
    pub(crate) fn reach(&mut self, process: ProcessId) -> Result<Peer, Error> {
        match self.peers.latest {
            Some((latest, peer)) if latest == process => Ok(peer),
            _ => self.look_up(process),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, process: ProcessId) -> Result<Peer, Error> {
        if let Some(peer) = self.peers.by_process.get(&process.to_bits()) {
            self.peers.latest = Some((process, *peer));
            return Ok(*peer);
        }
        let address = self.directory.address(process);
        let address =
            address.ok_or_else(|| Error::process(process, "it is not in the directory"))?;
        let resolved = self.endpoint.resolve(&address, self.config.patience);
        let peer = resolved.map_err(|error| Error::process(process, error))?;
        if self.peers.get(peer).is_none() {
            self.peers.add(peer, Some(process));
        }
        Ok(peer)
    }

    /// Whether as much waits for a peer as may.
    #[inline]
    pub(crate) fn is_congested(&mut self, peer: Peer) -> bool {
        let limit = self.config.limits.waiting;
        self.peers.waiting > 0 && self.peers.get(peer).is_some_and(|record| record.bytes >= limit)
    }

    /// Sends the message in the frame buffer; `operation` is the one whose data it is.
    #[inline(always)]
    pub(crate) fn send_frame(&mut self, peer: Peer, operation: Option<Handle<Underway>>) {
        let result = self.inject_frame(peer);
        if result.is_err() || operation.is_some() {
            self.frame_injected(peer, operation, result);
        }
    }

    /// Hands the message in the frame buffer to the endpoint, unless something waits before it.
    /// What comes of it is for [`State::frame_injected`].
    #[inline(always)]
    pub(crate) fn inject_frame(&mut self, peer: Peer) -> Result<(), InjectError> {
        let direct = self.submits.is_empty() && !self.peers.waits(peer);
        if direct { self.endpoint.inject(peer, &[&self.frame]) } else { Err(InjectError::Full) }
    }

    /// The message in the frame buffer has been sent, or has to wait.
    #[inline(never)]
    pub(crate) fn frame_injected(
        &mut self,
        peer: Peer,
        operation: Option<Handle<Underway>>,
        result: Result<(), InjectError>,
    ) {
        match result {
            Err(InjectError::Full) => {
                let frame = self.frame.to_vec();
                self.queue(peer, Queued::Message(frame, operation));
            }
            result => self.injected(operation, result),
        }
    }

    fn injected(&mut self, operation: Option<Handle<Underway>>, result: Result<(), InjectError>) {
        if let Err(error) = &result
            && !matches!(error, InjectError::PeerLost | InjectError::UnknownPeer)
        {
            tracing::error!(%error, "a message was not sent");
        }
        if let Some(operation) = operation {
            self.sent(operation, result.map_err(|_| Failure::Unreachable));
        }
    }

    /// Sends a long message behind what waits already.
    pub(crate) fn send_long(&mut self, peer: Peer, operation: Operation) {
        if self.peers.waits(peer) {
            self.queue(peer, Queued::Long(operation));
        } else {
            self.submit(operation);
        }
    }

    pub(crate) fn submit(&mut self, operation: Operation) {
        self.submitted = true;
        self.submits.push_back(operation);
        self.endpoint.submit(&mut self.submits);
    }

    fn queue(&mut self, peer: Peer, queued: Queued) {
        let limit = self.config.limits.waiting;
        let Some(record) = self.peers.get(peer) else { return self.drop_queued(queued) };
        record.bytes += queued.len();
        record.outbox.push_back(queued);
        let deaf = record.bytes > limit + limit / 2;
        self.peers.waiting += 1;
        if !self.submits.is_empty() {
            self.parked.push(peer);
        }
        if deaf {
            self.status.cut_off += 1;
            tracing::warn!(?peer, "a peer that takes no answers is cut off");
            self.lose(peer);
        }
    }

    /// Sends what waits for a peer, as far as there is room.
    pub(crate) fn flush(&mut self, peer: Peer) {
        while self.submits.is_empty() {
            let Some(record) = self.peers.get(peer) else { return };
            let Some(queued) = record.outbox.pop_front() else { return };
            record.bytes -= queued.len();
            self.peers.waiting -= 1;
            match queued {
                Queued::Long(operation) => self.submit(operation),
                Queued::Message(bytes, operation) => match self.endpoint.inject(peer, &[&bytes]) {
                    Err(InjectError::Full) => {
                        if let Some(record) = self.peers.get(peer) {
                            record.bytes += bytes.len();
                            record.outbox.push_front(Queued::Message(bytes, operation));
                            self.peers.waiting += 1;
                        }
                        return;
                    }
                    result => self.injected(operation, result),
                },
            }
        }
        self.parked.push(peer);
    }

    /// Submits what the endpoint had no room for, and then what had to wait behind it.
    pub(crate) fn flush_submits(&mut self) {
        if self.submits.is_empty() {
            return;
        }
        self.endpoint.submit(&mut self.submits);
        if self.submits.is_empty() {
            for peer in std::mem::take(&mut self.parked) {
                self.flush(peer);
            }
        }
    }

    /// A peer is gone: what was under way with it ends, and nothing of it is kept.
    pub(crate) fn lose(&mut self, peer: Peer) {
        if let Some(record) = self.peers.remove(peer) {
            record.outbox.into_iter().for_each(|queued| self.drop_queued(queued));
        }
        let theirs = self.operations.iter().filter(|(_, op): &(_, &Underway)| op.peer == peer);
        let waiting: Vec<Handle<Underway>> =
            theirs.filter(|(_, op)| !op.sending && !op.landing).map(|(handle, _)| handle).collect();
        for operation in waiting {
            match self.operations.get(operation).is_some_and(|op| op.lent.is_some()) {
                true => self.recall(operation, Recalled::Unsent(Failure::Unreachable)),
                false => self.answered(operation, Err(Failure::Unreachable)),
            }
        }
        self.endpoint.forget(peer);
    }

    /// Something will never be sent.
    fn drop_queued(&mut self, queued: Queued) {
        match queued {
            Queued::Message(_, Some(operation)) => {
                self.sent(operation, Err(Failure::Unreachable));
            }
            Queued::Message(_, None) => {}
            Queued::Long(operation) => {
                let transfer = Handle::<Transfer>::internal(operation.token().0);
                self.transferred(transfer, Err(Failure::Unreachable));
            }
        }
    }
}
