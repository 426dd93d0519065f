//! Connected peers: which processes they are, and the messages that wait for them.
//!
//! Nothing is kept of a process without a connection, so the memory that this layer takes follows
//! the transport's connections and not the size of the job.

use crate::{Handle, ProcessId, outstanding::Outstanding};
use petasos_fabric::{Operation, Peer};
use petasos_match::SeededState;
use std::collections::{HashMap, VecDeque};

/// The process behind a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) process: ProcessId,
    /// The user that runs it, if the transport vouches for one.
    pub(crate) user: Option<u32>,
}

/// A message that has to wait.
#[derive(Debug)]
pub(crate) enum Queued {
    /// A frame, and the operation whose data it is.
    Frame(Vec<u8>, Option<Handle<Outstanding>>),
    /// A long message.
    Long(Operation),
}

impl Queued {
    fn len(&self) -> usize {
        match self {
            Queued::Frame(bytes, _) => bytes.len(),
            Queued::Long(_) => 0,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Peers {
    /// By the transport's slot.
    records: Vec<Option<Record>>,
    /// By the bits of their names.
    by_process: HashMap<u64, Peer, SeededState>,
    /// The peer to which something went last: mostly more follows.
    latest: Option<(ProcessId, Peer)>,
    /// How many messages wait in all outboxes.
    waiting: usize,
}

#[derive(Debug)]
struct Record {
    peer: Peer,
    /// `None` if it is no process of the job: its messages are dropped.
    process: Option<ProcessId>,
    /// The user that the transport vouches for, once it was asked: when the first message came.
    user: Option<Option<u32>>,
    outbox: VecDeque<Queued>,
    /// Bytes in the outbox.
    bytes: usize,
}

impl Peers {
    #[inline]
    fn get(&mut self, peer: Peer) -> Option<&mut Record> {
        self.records.get_mut(peer.index as usize)?.as_mut().filter(|record| record.peer == peer)
    }

    /// Whether a peer is still there.
    pub(super) fn is_known(&mut self, peer: Peer) -> bool {
        self.get(peer).is_some()
    }

    /// Adds a peer, unless it is there.
    pub(super) fn add(&mut self, peer: Peer, process: impl FnOnce() -> Option<ProcessId>) {
        if self.is_known(peer) {
            return;
        }
        let (index, process) = (peer.index as usize, process());
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

    /// Removes a peer, and gives what waited for it.
    pub(super) fn remove(&mut self, peer: Peer) -> VecDeque<Queued> {
        if !self.is_known(peer) {
            return VecDeque::new();
        }
        let Some(record) = self.records[peer.index as usize].take() else { return VecDeque::new() };
        self.latest = self.latest.filter(|(_, latest)| *latest != peer);
        self.waiting -= record.outbox.len();
        if let Some(process) = record.process
            && self.by_process.get(&process.to_bits()) == Some(&peer)
        {
            self.by_process.remove(&process.to_bits());
        }
        record.outbox
    }

    pub(super) fn len(&self) -> usize {
        self.records.iter().flatten().count()
    }

    /// All that are processes of the job.
    pub(super) fn of_the_job(&self) -> Vec<Peer> {
        let records = self.records.iter().flatten();
        records.filter(|record| record.process.is_some()).map(|record| record.peer).collect()
    }

    /// The process behind a peer, `Some(None)` if it is none of the job; `None` if the transport
    /// was not asked yet.
    #[inline]
    pub(super) fn identity(&mut self, peer: Peer) -> Option<Option<Identity>> {
        let Record { process, user, .. } = self.get(peer)?;
        let user = (*user)?;
        Some(process.map(|process| Identity { process, user }))
    }

    /// The transport was asked for the user behind a peer.
    pub(super) fn set_user(&mut self, peer: Peer, user: Option<u32>) -> Option<Identity> {
        let record = self.get(peer)?;
        record.user = Some(user);
        Some(Identity { process: record.process?, user })
    }

    /// Asks again which process each peer is.
    pub(super) fn identify_all(&mut self, mut process: impl FnMut(Peer) -> Option<ProcessId>) {
        self.latest = None;
        self.by_process.clear();
        for record in self.records.iter_mut().flatten() {
            record.process = process(record.peer);
            if let Some(process) = record.process {
                self.by_process.insert(process.to_bits(), record.peer);
            }
        }
    }

    /// The peer to which something went last, if it is this process.
    #[inline]
    pub(super) fn latest(&self, process: ProcessId) -> Option<Peer> {
        let (latest, peer) = self.latest?;
        (latest == process).then_some(peer)
    }

    /// The peer that is this process; the latest from now on.
    pub(super) fn find(&mut self, process: ProcessId) -> Option<Peer> {
        let peer = *self.by_process.get(&process.to_bits())?;
        self.latest = Some((process, peer));
        Some(peer)
    }

    // Outboxes.

    /// Whether messages wait for any peer.
    #[inline]
    pub(super) fn any_waits(&self) -> bool {
        self.waiting > 0
    }

    /// Whether messages wait for a peer.
    #[inline]
    pub(super) fn waits(&mut self, peer: Peer) -> bool {
        self.waiting > 0 && self.get(peer).is_some_and(|record| !record.outbox.is_empty())
    }

    /// Bytes that wait for a peer.
    #[inline]
    pub(super) fn waiting_bytes(&mut self, peer: Peer) -> usize {
        if self.waiting == 0 { 0 } else { self.get(peer).map_or(0, |record| record.bytes) }
    }

    /// Lets a message wait. Gives it back if the peer is not there.
    pub(super) fn push_back(&mut self, peer: Peer, queued: Queued) -> Result<(), Queued> {
        let Some(record) = self.get(peer) else { return Err(queued) };
        record.bytes += queued.len();
        record.outbox.push_back(queued);
        self.waiting += 1;
        Ok(())
    }

    /// Lets a message wait before all others.
    pub(super) fn push_front(&mut self, peer: Peer, queued: Queued) {
        if let Some(record) = self.get(peer) {
            record.bytes += queued.len();
            record.outbox.push_front(queued);
            self.waiting += 1;
        }
    }

    /// The next message that waits for a peer.
    pub(super) fn pop_front(&mut self, peer: Peer) -> Option<Queued> {
        let record = self.get(peer)?;
        let queued = record.outbox.pop_front()?;
        record.bytes -= queued.len();
        self.waiting -= 1;
        Some(queued)
    }
}
