//! The endpoint and what lies around it: the connected peers, the frame that is put together, the
//! messages that have to wait, and the transfers that the endpoint makes for us.

mod frame;
mod peers;

pub(crate) use frame::Frame;
pub(crate) use peers::{Identity, Queued};

use crate::{
    Config, Directory, Error, Failure, Handle, ProcessId, handle::Table, outstanding::Outstanding,
    transfer::Transfer,
};
use bytes::Bytes;
use peers::Peers;
use petasos_fabric::{
    Access, Capabilities, Clock, Endpoint, Event, InjectError, Key, Lease, Operation, Peer,
    RegionId, Remote, Sleep, Slice, Support, Time, Token,
};
use std::{collections::VecDeque, io, os::fd::OwnedFd, sync::Arc, time::Duration};

/// Longest header of a frame.
pub(crate) const HEADER: usize = petasos_wire::portals::MAX;

/// The endpoint, its peers, and what waits to be sent.
pub(crate) struct Network {
    endpoint: Box<dyn Endpoint>,
    clock: Option<Clock>,
    now: Time,
    directory: Arc<dyn Directory>,
    /// How long a process that has not started yet is waited for.
    patience: Duration,
    peers: Peers,
    /// How many bytes may wait for a peer before operations to it are refused.
    waiting_limit: usize,
    /// The frame that is put together.
    pub(crate) frame: Frame,
    /// Operations for which the endpoint had no room.
    submits: VecDeque<Operation>,
    /// Peers whose messages wait behind those.
    deferred: Vec<Peer>,
    /// Whether the endpoint was given an operation since it last made progress.
    submitted: bool,
    /// Whether the endpoint was used since it was armed: then it may not signal its descriptor.
    used: bool,
    /// What the endpoint moves for us: its tokens are the handles.
    transfers: Table<Transfer>,
    /// The vector for the endpoint's events, which is used again.
    events: Vec<Event>,
}

/// What became of a message that has to wait.
pub(crate) enum Enqueued {
    /// It waits.
    Waits,
    /// It waits, behind more than a peer that takes its messages would leave.
    Stuck,
    /// The peer is not there.
    NoPeer(Queued),
}

/// The result of sending the data of an operation.
type Sent = (Handle<Outstanding>, Result<(), Failure>);

impl Network {
    pub(crate) fn new(
        endpoint: Box<dyn Endpoint>,
        directory: Arc<dyn Directory>,
        config: &Config,
        time: Result<Clock, Time>,
    ) -> Network {
        Network {
            endpoint,
            now: time.as_ref().map_or_else(|now| *now, Clock::now),
            clock: time.ok(),
            directory,
            patience: config.patience,
            peers: Peers::default(),
            waiting_limit: config.limits.waiting,
            frame: Frame::default(),
            submits: VecDeque::new(),
            deferred: Vec::new(),
            submitted: false,
            used: false,
            transfers: Table::new(usize::MAX),
            events: Vec::new(),
        }
    }

    // Time, and sleeping.

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// It is at least this time now.
    pub(crate) fn advance_to(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(crate) fn read_clock(&mut self) {
        if let Some(clock) = &self.clock {
            self.now = clock.now();
        }
    }

    /// A duplicate of the endpoint's descriptor.
    pub(crate) fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.endpoint.fd().map(|fd| fd.try_clone_to_owned()).transpose()
    }

    /// Prepares to sleep: until when, or `None` if there is something to do.
    pub(crate) fn arm(&mut self) -> Option<Time> {
        self.read_clock();
        match self.endpoint.arm(self.now) {
            Sleep::Busy => None,
            Sleep::Until(until) => {
                self.used = false;
                Some(until)
            }
        }
    }

    /// Whether the endpoint was used since it was armed.
    #[inline]
    pub(crate) fn was_used(&self) -> bool {
        self.used
    }

    /// Waits a moment, as the transport does best between two polls.
    #[inline]
    pub(crate) fn relax(&self) {
        self.endpoint.relax();
    }

    // Which process is where.

    /// This process, as the directory names it.
    pub(crate) fn own_process(&self) -> Result<ProcessId, Error> {
        let address = self.endpoint.address();
        let unknown = || Error::NotInDirectory(address.as_str().to_owned());
        self.directory.process(address).ok_or_else(unknown)
    }

    /// Checks that the directory knows a process.
    pub(crate) fn check_process(&self, process: ProcessId) -> Result<(), Error> {
        self.directory.address(process).map(drop).ok_or_else(|| not_in_directory(process))
    }

    pub(crate) fn distance(&self, from: ProcessId, to: ProcessId) -> u32 {
        self.directory.distance(from, to)
    }

    /// Whether atomic operations of the transport are coherent with those of the processor.
    pub(crate) fn has_processor_atomics(&self) -> bool {
        self.endpoint.capabilities().processor_atomics
    }

    /// The process behind a peer; `None` if it is none of the job.
    #[inline]
    pub(crate) fn identify(&mut self, peer: Peer) -> Option<Identity> {
        match self.peers.identity(peer) {
            Some(identity) => identity,
            None => self.identify_new(peer),
        }
    }

    #[cold]
    fn identify_new(&mut self, peer: Peer) -> Option<Identity> {
        let info = self.endpoint.peer(peer)?;
        self.peers.add(peer, || self.directory.process(&info.address));
        self.peers.set_user(peer, info.user)
    }

    /// The directory may know other processes than before: asks it again, also for peers that it
    /// did not know.
    pub(crate) fn identify_all(&mut self) {
        let Network { endpoint, directory, peers, .. } = self;
        peers.identify_all(|peer| directory.process(&endpoint.peer(peer)?.address));
    }

    /// The peer that is a process: connected, or about to be.
    #[inline]
    pub(crate) fn connect(&mut self, process: ProcessId) -> Result<Peer, Error> {
        self.used = true;
        match self.peers.latest(process) {
            Some(peer) => Ok(peer),
            None => self.look_up(process),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, process: ProcessId) -> Result<Peer, Error> {
        if let Some(peer) = self.peers.find(process) {
            return Ok(peer);
        }
        let address = self.directory.address(process);
        let address = address.ok_or_else(|| not_in_directory(process))?;
        let resolved = self.endpoint.resolve(&address, self.patience);
        let peer = resolved.map_err(|error| Error::process(process, error))?;
        self.peers.add(peer, || Some(process));
        Ok(peer)
    }

    /// How many peers there are records of.
    pub(crate) fn peers(&self) -> usize {
        self.peers.len()
    }

    /// The peers that are processes of the job.
    pub(crate) fn peers_of_the_job(&self) -> Vec<Peer> {
        self.peers.of_the_job()
    }

    pub(crate) fn is_known(&mut self, peer: Peer) -> bool {
        self.peers.is_known(peer)
    }

    /// Forgets the messages for a peer that is lost, and gives them.
    pub(crate) fn remove(&mut self, peer: Peer) -> impl Iterator<Item = Queued> + use<> {
        self.peers.remove(peer).into_iter()
    }

    /// Lets the endpoint free what it keeps of a peer.
    pub(crate) fn forget(&mut self, peer: Peer) {
        self.endpoint.forget(peer);
    }

    // Receiving.

    /// Takes a message that needs no event.
    #[inline(always)]
    pub(crate) fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        self.used = true;
        self.endpoint.poll_message(message)
    }

    /// Lets the endpoint make progress: whether it did something, and its events. Give the vector
    /// back to [`Network::reuse`].
    pub(crate) fn progress(&mut self, budget: usize) -> (bool, Vec<Event>) {
        let mut events = std::mem::take(&mut self.events);
        let busy = self.endpoint.progress(self.now, budget, &mut events);
        (busy, events)
    }

    pub(crate) fn reuse(&mut self, events: Vec<Event>) {
        self.events = events;
    }

    // Sending.

    /// Whether so much waits for a peer that no more operations to it are accepted.
    #[inline]
    pub(crate) fn is_congested(&mut self, peer: Peer) -> bool {
        self.peers.any_waits() && self.peers.waiting_bytes(peer) >= self.waiting_limit
    }

    /// Hands the frame to the endpoint, unless something waits before it.
    #[inline(always)]
    pub(crate) fn inject(&mut self, peer: Peer) -> Result<(), InjectError> {
        let direct = self.submits.is_empty() && !self.peers.waits(peer);
        if direct { self.endpoint.inject(peer, &[&self.frame]) } else { Err(InjectError::Full) }
    }

    /// Whether messages wait for a peer, so that a long one has to wait, too.
    pub(crate) fn waits(&mut self, peer: Peer) -> bool {
        self.peers.waits(peer)
    }

    /// Lets a message wait for its peer.
    pub(crate) fn enqueue(&mut self, peer: Peer, queued: Queued) -> Enqueued {
        if let Err(queued) = self.peers.push_back(peer, queued) {
            return Enqueued::NoPeer(queued);
        }
        if !self.submits.is_empty() {
            self.deferred.push(peer);
        }
        let most = self.waiting_limit + self.waiting_limit / 2;
        if self.peers.waiting_bytes(peer) > most { Enqueued::Stuck } else { Enqueued::Waits }
    }

    /// Sends what waits for a peer, up to a message that is the data of an operation, and says how
    /// that went. `None` when nothing more can be sent now.
    pub(crate) fn send_next(&mut self, peer: Peer) -> Option<Sent> {
        while self.submits.is_empty() {
            match self.peers.pop_front(peer)? {
                Queued::Long(operation) => self.submit(operation),
                Queued::Frame(bytes, operation) => {
                    let result = self.endpoint.inject(peer, &[&bytes]);
                    if result == Err(InjectError::Full) {
                        self.peers.push_front(peer, Queued::Frame(bytes, operation));
                        return None;
                    }
                    let result = sent(result);
                    if let Some(operation) = operation {
                        return Some((operation, result));
                    }
                }
            }
        }
        self.deferred.push(peer);
        None
    }

    /// Whether the endpoint was given an operation since it last made progress.
    #[inline]
    pub(crate) fn has_submitted(&self) -> bool {
        self.submitted
    }

    pub(crate) fn submit(&mut self, operation: Operation) {
        self.submitted = true;
        self.submits.push_back(operation);
        self.endpoint.submit(&mut self.submits);
    }

    /// Submits the operations for which the endpoint had no room. Once all are submitted, gives the
    /// peers whose messages waited behind them.
    pub(crate) fn resubmit(&mut self) -> Vec<Peer> {
        self.submitted = false;
        if self.submits.is_empty() {
            return Vec::new();
        }
        self.endpoint.submit(&mut self.submits);
        if self.submits.is_empty() { std::mem::take(&mut self.deferred) } else { Vec::new() }
    }

    /// Whether something was not handed to the transport, or is moved by it.
    pub(crate) fn is_sending(&self) -> bool {
        let moving = |transfer: &Transfer| !matches!(transfer, Transfer::Discard);
        !self.submits.is_empty()
            || self.peers.any_waits()
            || self.transfers.iter::<Transfer>().any(|(_, transfer)| moving(transfer))
    }

    // Transfers.

    /// A token for an operation of the endpoint.
    pub(crate) fn transfer(&mut self, transfer: Transfer) -> Token {
        let handle = self.transfers.insert::<Transfer>(transfer);
        Token(handle.expect("as many as there is memory for").to_bits())
    }

    /// The operation with a token has ended.
    pub(crate) fn end_transfer(&mut self, token: Token) -> Option<Transfer> {
        self.transfers.remove(Handle::<Transfer>::internal(token.0))
    }

    // Remote access.

    /// Whether the transport itself moves the data of puts and gets with a peer.
    pub(crate) fn has_native_access(&self, peer: Peer) -> bool {
        let native = |can: &Capabilities| can.remote_access == Support::Native;
        native(self.endpoint.capabilities())
            || self.endpoint.capabilities_of(peer).is_some_and(native)
    }

    /// Lets a peer reach memory by a key, if the transport has room for one more region, and the
    /// key for one more message.
    pub(crate) fn lend(&mut self, memory: &Slice, access: Access) -> Option<(RegionId, Key)> {
        let region = self.endpoint.register(memory, access).ok()?;
        let most = self.endpoint.capabilities().limits.max_inject - HEADER;
        match self.endpoint.export(region) {
            Ok(key) if key.as_bytes().len() <= most => Some((region, key)),
            _ => {
                self.close(region, Transfer::Unlent(region));
                None
            }
        }
    }

    /// Ends a peer's access to memory. The transfer ends when no access can land any more.
    pub(crate) fn close(&mut self, region: RegionId, transfer: Transfer) {
        let token = self.transfer(transfer);
        self.submit(Operation::Deregister { token, region, patience: Operation::PATIENCE });
    }

    /// What a key is for, if it is to so much memory of its sender.
    pub(crate) fn import(&mut self, peer: Peer, key: &[u8], len: u64) -> Option<Remote> {
        let key = Key::from_bytes(Bytes::copy_from_slice(key)).ok()?;
        let remote = self.endpoint.import_from(&key, peer).ok()?;
        if remote.peer == peer && remote.len >= len {
            return Some(remote);
        }
        self.endpoint.release(remote);
        None
    }

    pub(crate) fn release(&mut self, remote: Remote) {
        self.endpoint.release(remote);
    }

    /// How many pieces the local memory of a put or get with a peer may have.
    pub(crate) fn max_pieces(&self, peer: Peer) -> usize {
        let capabilities = self.endpoint.capabilities_of(peer);
        capabilities.unwrap_or_else(|| self.endpoint.capabilities()).limits.max_pieces
    }
}

/// How sending a message went, as its operation learns it.
pub(crate) fn sent(result: Result<(), InjectError>) -> Result<(), Failure> {
    result.map_err(|error| {
        if !matches!(error, InjectError::PeerLost | InjectError::UnknownPeer) {
            tracing::error!(%error, "a message was not sent");
        }
        Failure::Unreachable
    })
}

fn not_in_directory(process: ProcessId) -> Error {
    Error::process(process, "it is not in the directory")
}
