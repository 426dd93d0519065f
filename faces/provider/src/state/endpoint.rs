//! An endpoint: what is under way at it, and what its passes find.

use super::{
    Registered, Shared,
    access::{Access, Keys},
    error::{self, Errno},
    matching::{Landing, Lists, Message},
    name::{self, Named},
    open::{Job, Opened},
    queue::{Entry, Failure},
    refusals::Refusals,
    wire::{self, List, Packet},
};
use crate::limits::{ANSWERS, FAREWELL, LONG, PATIENCE};
use petasos_auto::Auto;
use petasos_fabric::{
    Done, Endpoint as _, Event, Lease, LostReason, OpError, OpErrorKind, Operation, Peer,
    PeerQuota, RegionId, Sleep, Time, Token,
};
use petasos_ofi_sys::*;
use slab::Slab;
use std::{
    collections::{HashMap, VecDeque},
    os::fd::BorrowedFd,
};

/// The queue for one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Binding {
    pub(crate) queue: Option<usize>,
    /// `FI_SELECTIVE_COMPLETION`: only what asks for it is reported.
    pub(crate) selective: bool,
}

impl Binding {
    /// Whether an operation with these flags is reported when it succeeds.
    pub(crate) fn reports(&self, flags: u64) -> bool {
        !self.selective || flags & FI_COMPLETION != 0
    }
}

/// Counters, by what they count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) send: Option<usize>,
    pub(crate) receive: Option<usize>,
    pub(crate) read: Option<usize>,
    pub(crate) write: Option<usize>,
}

/// What is done when an operation of the fabric completes.
pub(super) enum Op {
    /// Nothing is told of it.
    Silent,
    /// A message was sent; `long`: it lies where it was until now.
    Sent { entry: Entry, report: bool, peer: Peer, long: bool },
    /// The body of a message has come.
    Landed(Box<Landing>),
    /// Memory was accessed.
    Accessed(Box<Access>),
    /// Memory is closed.
    Closed { key: u64 },
    /// What was sent before has arrived.
    Farewell,
}

/// A peer, as this endpoint knows it.
pub(super) struct Known {
    peer: Peer,
    /// Its number in the address vector, or one that none there has.
    pub(super) source: u64,
    lost: bool,
    /// Long messages to it that were not fetched.
    pub(super) long: usize,
    /// Accesses to its memory that have begun, and not ended.
    pub(super) accesses: usize,
    /// Atomics among them that are the fabric's.
    pub(super) atomics: usize,
    /// Whether something was sent to it since the last farewell.
    pub(super) sent: bool,
    pub(super) keys: Keys,
}

/// Sources that have no number in the address vector.
const STRANGER: u64 = 1 << 63;

/// An endpoint.
pub(crate) struct Endpoint {
    /// Open from when it is enabled.
    pub(super) net: Option<Auto>,
    job: Job,
    refusals: Refusals,
    pub(crate) vector: Option<usize>,
    pub(crate) transmit: Binding,
    pub(crate) receive: Binding,
    pub(crate) counts: Counts,
    /// What operations do that have no flags of their own.
    pub(crate) transmit_flags: u64,
    pub(crate) receive_flags: u64,
    /// Atomics to one peer are done one after the other.
    pub(crate) ordered_atomics: bool,
    pub(crate) min_multi: usize,
    pub(super) lists: Lists,
    pub(super) operations: Slab<Op>,
    /// By the index of their handles.
    pub(super) peers: Vec<Option<Known>>,
    /// By their numbers.
    routes: Vec<Option<Peer>>,
    /// Operations that the fabric has no room for yet.
    pub(super) backlog: VecDeque<Operation>,
    /// Accesses that wait for a key.
    pub(super) waiting: VecDeque<Box<Access>>,
    /// What is still to be said to peers about keys.
    pub(super) answers: VecDeque<(Peer, wire::Bytes)>,
    pub(super) regions: HashMap<u64, RegionId>,
    pub(super) scratch: wire::Bytes,
    /// Peers that were told to keep what they send.
    held: Vec<Peer>,
    /// Since what waits for room was tried last something has happened: there may be room.
    has_moved: bool,
    events: Vec<Event>,
    lease: Lease,
}

impl Endpoint {
    pub(crate) fn new(transmit_flags: u64, receive_flags: u64) -> Endpoint {
        Endpoint {
            net: None,
            job: Job::default(),
            refusals: Refusals::default(),
            vector: None,
            transmit: Binding::default(),
            receive: Binding::default(),
            counts: Counts::default(),
            transmit_flags,
            receive_flags,
            ordered_atomics: false,
            min_multi: crate::limits::MIN_MULTI,
            lists: Lists::default(),
            operations: Slab::new(),
            peers: Vec::new(),
            routes: Vec::new(),
            backlog: VecDeque::new(),
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            regions: HashMap::new(),
            scratch: wire::Bytes::new(),
            held: Vec::new(),
            has_moved: false,
            events: Vec::new(),
            lease: Lease::inline(&[]),
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.net.is_some()
    }

    /// From now on it is reached, and all memory of the domain through it.
    ///
    /// # Errors
    /// An endpoint of the fabric does not take the memory, or a queue does not watch it. Then it is
    /// as it was.
    pub(crate) fn enable(&mut self, opened: Opened, shared: &mut Shared) -> Result<(), Errno> {
        self.net = Some(opened.net);
        if let Err(error) = self.open_to(shared) {
            self.net = None;
            self.regions.clear();
            return Err(error);
        }
        (self.job, self.refusals) = (opened.job, opened.refusals);
        shared.job = Some(self.job);
        Ok(())
    }

    fn open_to(&mut self, shared: &Shared) -> Result<(), Errno> {
        for (key, registered) in &shared.memory {
            self.open_memory(*key, registered)?;
        }
        // Its descriptor ends the sleep of all threads that wait for something of it.
        let queues = [self.transmit.queue, self.receive.queue].into_iter().flatten();
        let of_queues = queues.filter_map(|at| shared.queues.get(at)?.bed.as_deref());
        let Counts { send, receive, read, write } = self.counts;
        let counters = [send, receive, read, write].into_iter().flatten();
        let of_counters = counters.filter_map(|at| shared.counters.get(at)?.bed.as_deref());
        let own = shared.driver.as_ref().map(|(bed, _)| &**bed);
        let Some(fd) = self.fd() else { return Ok(()) };
        for bed in of_queues.chain(of_counters).chain(own) {
            bed.watch(fd).map_err(|error| error.raw_os_error())?;
        }
        Ok(())
    }

    /// What its end waits for, in words.
    pub(crate) fn under_way(&self) -> String {
        let kind = |op: &Op| match op {
            Op::Silent => "a message to discard",
            Op::Sent { long: true, .. } => "a long message sent",
            Op::Sent { .. } => "a message sent",
            Op::Landed(_) => "a message that is received",
            Op::Accessed(_) => "an access to memory of a peer",
            Op::Closed { .. } => "memory that peers may be in",
            Op::Farewell => "a farewell",
        };
        let mut kinds: Vec<&str> = self.operations.iter().map(|(_, op)| kind(op)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let (operations, regions) = (self.operations.len(), self.regions.len());
        let waiting = self.backlog.len();
        format!(
            "{operations} operations ({}), {waiting} of them not begun, and {regions} regions",
            kinds.join(", ")
        )
    }

    /// How many connections it has refused.
    pub(crate) fn refused_connections(&self) -> u64 {
        self.refusals.count()
    }

    /// Where peers reach it.
    pub(crate) fn name(&self) -> Option<Named> {
        Named::of(self.net.as_ref()?.address(), self.job)
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.net.as_ref()?.fd()
    }

    pub(super) fn arm(&mut self, now: Time) -> Sleep {
        let waits = !self.backlog.is_empty() || !self.answers.is_empty();
        match &mut self.net {
            // Otherwise an event says when there is room: a peer that is stopped costs no passes.
            _ if waits && self.has_moved => Sleep::Busy,
            Some(net) => net.arm(now),
            None => Sleep::Until(Time::NEVER),
        }
    }

    /// The handle for a peer by its number.
    ///
    /// # Errors
    /// There is no such peer, or no room for one.
    pub(super) fn route(&mut self, shared: &Shared, number: u64) -> Result<Peer, Errno> {
        let index = usize::try_from(number).map_err(|_| libc::EINVAL)?;
        if let Some(&Some(peer)) = self.routes.get(index) {
            if self.known(peer).is_some_and(|known| !known.lost) {
                return Ok(peer);
            }
            // Its successor at the same address may be there by now.
            self.routes[index] = None;
            self.drop_peer(peer);
            if let Some(net) = &mut self.net {
                net.forget(peer);
            }
        }
        let vector = self.vector.and_then(|vector| shared.vectors.get(vector));
        let address = vector.and_then(|vector| vector.address(number)).ok_or(libc::EINVAL)?;
        let net = self.net.as_mut().ok_or(FI_EOPBADSTATE)?;
        let short = name::is_short(address);
        let connected = |known: &&Known| known.source == number && !known.lost;
        if short && let Some(known) = self.peers.iter().flatten().find(connected) {
            // It has connected to us meanwhile.
            let peer = known.peer;
            self.meet(peer, number);
            return Ok(peer);
        }
        let peer = match short {
            // What is to listen there may still have to begin.
            true => net.resolve(address, PATIENCE),
            // A name is that of an endpoint which is there already.
            false => net.resolve_running(address, PATIENCE),
        };
        let peer = peer.map_err(|error| error::of_resolving(&error))?;
        self.meet(peer, number);
        Ok(peer)
    }

    /// A peer, by its handle.
    pub(super) fn known(&mut self, peer: Peer) -> Option<&mut Known> {
        let known = self.peers.get_mut(peer.index as usize)?.as_mut()?;
        (known.peer == peer).then_some(known)
    }

    /// Enters a peer, with its number.
    fn meet(&mut self, peer: Peer, source: u64) {
        if let Some(known) = self.known(peer) {
            known.source = source;
        } else {
            let at = peer.index as usize;
            if self.peers.len() <= at {
                self.peers.resize_with(at + 1, || None);
            }
            let keys = Keys::default();
            let (lost, sent, long, accesses, atomics) = (false, false, 0, 0, 0);
            let known = Known { peer, source, lost, long, accesses, atomics, sent, keys };
            self.peers[at] = Some(known);
        }
        if source < STRANGER {
            let at = source as usize;
            if self.routes.len() <= at {
                self.routes.resize(at + 1, None);
            }
            // One that was found by its host and port may connect to us as well before it has said
            // its name. What is sent to it keeps to one way, and so to its order.
            let taken = self.routes[at].filter(|there| *there != peer);
            if taken.and_then(|there| self.known(there)).is_none_or(|known| known.lost) {
                self.routes[at] = Some(peer);
            }
        }
    }

    fn drop_peer(&mut self, peer: Peer) {
        if self.known(peer).is_some() {
            self.peers[peer.index as usize] = None;
        }
    }

    /// The number of a peer that is connected; one that no other has if it is in no vector.
    pub(super) fn source(&mut self, shared: &Shared, peer: Peer) -> u64 {
        if let Some(known) = self.known(peer) {
            return known.source;
        }
        let address = self.net.as_ref().and_then(|net| net.peer(peer)).map(|info| info.address);
        let vector = self.vector.and_then(|vector| shared.vectors.get(vector));
        let number = vector.zip(address).and_then(|(vector, address)| vector.number(&address));
        let source = number.unwrap_or(STRANGER | u64::from(peer.index));
        self.meet(peer, source);
        source
    }

    /// The vector has changed: peers that are connected may have other numbers now.
    pub(super) fn renumber(&mut self, shared: &Shared) {
        let Some(vector) = self.vector.and_then(|vector| shared.vectors.get(vector)) else {
            return;
        };
        let Some(net) = &self.net else { return };
        let mut changed = Vec::new();
        for known in self.peers.iter_mut().flatten().filter(|known| !known.lost) {
            let address = net.peer(known.peer).map(|info| info.address);
            let number = address.and_then(|address| vector.number(&address));
            // Found by a host and port that it does not go by itself.
            let found = || {
                let by = vector.address(known.source).filter(|by| name::is_short(by));
                by.map(|_| known.source)
            };
            let source = number.or_else(found);
            let source = source.unwrap_or(STRANGER | u64::from(known.peer.index));
            if source != known.source {
                changed.push((known.source, source, known.peer));
                known.source = source;
            }
        }
        for &(before, after, peer) in &changed {
            if let Some(route) = self.routes.get_mut(before as usize) {
                *route = route.filter(|there| *there != peer);
            }
            self.meet(peer, after);
        }
        if !changed.is_empty() {
            self.lists.renumber(&changed);
        }
    }

    /// A pass. False if there was nothing to do.
    pub(crate) fn progress(&mut self, shared: &mut Shared) -> bool {
        let full = |binding: Binding| {
            binding.queue.and_then(|queue| shared.queues.get(queue)).is_some_and(|q| q.is_full())
        };
        // What comes may have to be reported.
        if self.net.is_none() || full(self.receive) || full(self.transmit) {
            return false;
        }
        let mut busy = self.give_answers();
        let Some(net) = &mut self.net else { return false };
        if !self.backlog.is_empty() {
            net.submit(&mut self.backlog);
        }
        for _ in 0..64 {
            let Some(net) = &mut self.net else { return busy };
            let Some(peer) = net.poll_message(&mut self.lease) else { break };
            let lease = std::mem::replace(&mut self.lease, Lease::inline(&[]));
            self.arrived(shared, peer, lease);
            busy = true;
        }
        let Some(net) = &mut self.net else { return busy };
        let mut events = std::mem::take(&mut self.events);
        busy |= net.progress(shared.now(), 64, &mut events);
        self.has_moved = !events.is_empty();
        busy |= self.has_moved;
        for event in events.drain(..) {
            self.event(shared, event);
        }
        self.events = events;
        if !self.waiting.is_empty() {
            self.retry(shared);
        }
        busy
    }

    fn event(&mut self, shared: &mut Shared, event: Event) {
        match event {
            Event::Message { peer, message } => self.arrived(shared, peer, message),
            Event::LongMessage { peer, header, body, len } => {
                let source = self.source(shared, peer);
                if let Some(Packet::Message(of, _)) = Packet::decode(&header) {
                    self.message(shared, peer, of.list, Message::long(source, of, body, len));
                } else {
                    // Not of this protocol: its sender is told that it is done with.
                    self.discard(body);
                }
            }
            Event::PutArrived { peer, len, data, .. } => {
                let source = self.source(shared, peer);
                let flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let entry = Entry { flags, len, data, source, ..Entry::default() };
                shared.done(self.receive, None, true, entry);
            }
            Event::Done { token, result } => self.completed(shared, token, result),
            Event::PeerUp { peer, .. } => {
                self.source(shared, peer);
            }
            Event::PeerLost { peer, reason } => self.lost(shared, peer, &reason),
            _ => {}
        }
    }

    /// A message that came in one piece.
    fn arrived(&mut self, shared: &mut Shared, peer: Peer, lease: Lease) {
        match Packet::decode(&lease) {
            Some(Packet::Message(of, at)) => {
                let source = self.source(shared, peer);
                self.message(shared, peer, of.list, Message::short(source, of, lease, at));
            }
            Some(Packet::Ask { number }) => self.asked(shared, peer, number),
            Some(Packet::Key { number, base, key }) => {
                let key = key.to_vec();
                self.got_key(shared, peer, number, Some((base, key)));
            }
            Some(Packet::NoKey { number }) => self.got_key(shared, peer, number, None),
            // Of another version of this protocol: what it means cannot be known.
            Some(Packet::Nothing) | None => {}
        }
    }

    fn completed(&mut self, shared: &mut Shared, token: Token, result: Result<Done, OpError>) {
        let Some(op) = self.operations.try_remove(token.0 as usize) else { return };
        match op {
            Op::Silent | Op::Farewell => {}
            Op::Sent { entry, report, peer, long } => {
                if long && let Some(known) = self.known(peer) {
                    known.long = known.long.saturating_sub(1);
                }
                match result {
                    Ok(_) => shared.done(self.transmit, self.counts.send, report, entry),
                    Err(why) => {
                        shared.failed(self.transmit, self.counts.send, failure(entry, &why))
                    }
                }
            }
            Op::Landed(landing) => self.landed(shared, *landing, result),
            Op::Accessed(access) => {
                self.came_back(&access);
                self.accessed(shared, access, result);
            }
            Op::Closed { key } => {
                if result.is_ok() {
                    self.regions.remove(&key);
                }
            }
        }
    }

    /// A peer is lost: what waits for it alone fails. What the fabric has of it fails by itself.
    fn lost(&mut self, shared: &mut Shared, peer: Peer, reason: &LostReason) {
        let source = self.source(shared, peer);
        if let Some(known) = self.known(peer) {
            known.lost = true;
            let keys = std::mem::take(&mut known.keys);
            if let Some(net) = &mut self.net {
                keys.remotes().for_each(|remote| net.release(remote));
            }
        }
        let error = OpError::new(OpErrorKind::PeerLost(reason.clone()), None);
        for mut entry in self.lists.of_lost(source) {
            entry.source = source;
            shared.failed(self.receive, self.counts.receive, failure(entry, &error));
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (of, others): (VecDeque<_>, _) =
            waiting.into_iter().partition(|access| access.peer == peer);
        self.waiting = others;
        for access in of {
            self.accessed(shared, access, Err(error.clone()));
        }
        self.answers.retain(|(to, _)| *to != peer);
        self.held.retain(|held| *held != peer);
        if source >= STRANGER {
            // Nothing names it any more.
            self.drop_peer(peer);
        }
    }

    /// Submits an operation that completes as `op` says.
    ///
    /// # Errors
    /// `EAGAIN`: there is no room, and nothing was done.
    pub(super) fn submit(
        &mut self,
        op: Op,
        operation: impl FnOnce(Token) -> Operation,
    ) -> Result<(), (Errno, Op)> {
        let Some(net) = &mut self.net else { return Err((FI_EOPBADSTATE, op)) };
        let token = self.operations.insert(op);
        if net.try_submit(operation(Token(token as u64))).is_err() {
            return Err((libc::EAGAIN, self.operations.remove(token)));
        }
        Ok(())
    }

    /// Submits an operation that ends what a peer began: it waits if there is no room.
    pub(super) fn submit_later(&mut self, op: Op, operation: impl FnOnce(Token) -> Operation) {
        let token = Token(self.operations.insert(op) as u64);
        self.backlog.push_back(operation(token));
        if let Some(net) = &mut self.net {
            net.submit(&mut self.backlog);
        }
    }

    /// Whether there may be one more long message to this peer.
    pub(super) fn takes_long(&mut self, peer: Peer) -> bool {
        self.known(peer).is_some_and(|known| known.long < LONG)
    }

    /// Remembers that a peer asked for something, to be answered when there is room.
    pub(super) fn answer(&mut self, peer: Peer, packet: &Packet<'_>) {
        let mut bytes = wire::Bytes::new();
        packet.encode(&mut bytes);
        // A peer that asks without end asks again, too.
        if self.answers.len() < ANSWERS {
            self.answers.push_back((peer, bytes));
        }
        self.give_answers();
    }

    /// Cancels the operation with this context, if it can be.
    pub(crate) fn cancel(&mut self, shared: &mut Shared, context: usize) {
        if let Some(entry) = self.lists.cancel(context) {
            let cancelled = OpError::local(OpErrorKind::Cancelled);
            shared.failed(self.receive, self.counts.receive, failure(entry, &cancelled));
            return;
        }
        let of = |op: &Op| match op {
            Op::Sent { entry, .. } => entry.context == context,
            Op::Accessed(access) => access.context == context,
            _ => false,
        };
        let found = self.operations.iter().find(|(_, op)| of(op)).map(|(at, _)| at);
        if let (Some(at), Some(net)) = (found, &mut self.net) {
            net.cancel(Token(at as u64));
        }
    }

    /// Begins its end: nothing is accepted, and what it has sent is waited for.
    pub(crate) fn leave(&mut self) {
        // What ends from now on is not reported.
        self.transmit = Binding::default();
        self.receive = Binding::default();
        self.counts = Counts::default();
        self.lists.clear();
        self.waiting.clear();
        let sent: Vec<Peer> = self
            .peers
            .iter_mut()
            .flatten()
            .filter_map(|known| {
                let sent = std::mem::take(&mut known.sent);
                (sent && !known.lost).then_some(known.peer)
            })
            .collect();
        for peer in sent {
            let mut bytes = wire::Bytes::new();
            Packet::Nothing.encode(&mut bytes);
            let payload = petasos_fabric::Payload::Bytes(bytes.to_vec().into());
            let level = petasos_fabric::Level::Delivered;
            let _ =
                self.submit(Op::Farewell, |token| Operation::Send { token, peer, payload, level });
        }
        let keys: Vec<u64> = self.regions.keys().copied().collect();
        for key in keys {
            self.begin_closing(key);
        }
    }

    /// Whether nothing of the program's memory is used any more. When the time for a farewell is
    /// over, all peers are left, which ends what is under way with them.
    pub(crate) fn has_left(&mut self, since: std::time::Duration) -> bool {
        if since > FAREWELL
            && let Some(net) = &mut self.net
        {
            for known in self.peers.drain(..).flatten() {
                net.forget(known.peer);
            }
        }
        self.net.is_none() || (self.operations.is_empty() && self.regions.is_empty())
    }

    /// Opens registered memory to peers.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn open_memory(&mut self, key: u64, registered: &Registered) -> Result<(), Errno> {
        let Some(net) = &mut self.net else { return Ok(()) };
        if registered.rights == petasos_fabric::Access::NONE || registered.memory.is_empty() {
            return Ok(());
        }
        let region =
            net.register(&registered.memory, registered.rights).map_err(|_| libc::ENOMEM)?;
        self.regions.insert(key, region);
        Ok(())
    }

    /// Begins to close memory, or goes on with it. True when it is closed.
    pub(super) fn close_memory(&mut self, key: u64) -> bool {
        let under_way = self
            .operations
            .iter()
            .any(|(_, op)| matches!(op, Op::Closed { key: of } if *of == key));
        if !under_way {
            self.begin_closing(key);
        }
        !self.regions.contains_key(&key)
    }

    fn begin_closing(&mut self, key: u64) {
        let Some(&region) = self.regions.get(&key) else { return };
        let patience = crate::limits::LEAVE;
        self.submit_later(Op::Closed { key }, |token| Operation::Deregister {
            token,
            region,
            patience,
        });
    }

    fn message(&mut self, shared: &mut Shared, peer: Peer, list: List, message: Message) {
        if let Some(place) = self.lists.take(list, &message) {
            return self.land(shared, list, message, place);
        }
        self.lists.keep(list, message);
        if self.lists.is_full()
            && !self.held.contains(&peer)
            && let Some(net) = &mut self.net
            && net.set_quota(peer, PeerQuota::UNLIMITED.with_deferred(true)).is_ok()
        {
            // What it has sent already comes; the rest stays with it.
            self.held.push(peer);
        }
    }

    /// Messages were received that had waited: peers that were told to keep theirs may send again.
    pub(super) fn let_go(&mut self) {
        if !self.held.is_empty()
            && self.lists.has_room()
            && let Some(net) = &mut self.net
        {
            for peer in self.held.drain(..) {
                let _ = net.set_quota(peer, PeerQuota::UNLIMITED);
            }
        }
    }

    pub(super) fn discard(&mut self, body: petasos_fabric::Body) {
        self.submit_later(Op::Silent, |token| Operation::Discard { token, body });
    }
}

/// What is told of an operation that failed.
pub(super) fn failure(entry: Entry, why: &OpError) -> Failure {
    let beyond = match why.kind {
        OpErrorKind::Truncated { sent, posted } => sent.saturating_sub(posted) as usize,
        _ => 0,
    };
    let entry = Entry { source: told(entry.source), ..entry };
    Failure { entry, beyond, error: error::of_operation(&why.kind), text: why.to_string() }
}

/// The flags of messages of a list.
pub(super) fn list_flag(list: List) -> u64 {
    match list {
        List::Plain => FI_MSG,
        List::Tagged => FI_TAGGED,
    }
}

/// What a program is told of a source: those without a number are not known.
pub(crate) fn told(source: u64) -> u64 {
    if source < STRANGER { source } else { FI_ADDR_UNSPEC }
}
