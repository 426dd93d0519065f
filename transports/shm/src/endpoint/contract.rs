//! The contract, on top of the endpoint's state.

use crate::{
    Shm, access,
    channel::kind,
    name::SCHEME,
    ring::{LINE, MAX_SHORT, Piece},
    segment::{self, Segment},
    sync::{Ordering, fence},
    table::Entry,
    watchlist::FRONT,
};
use petasos_fabric::{
    Access, Address, AllocError, Completion, Endpoint, Event, ExportError, Full, ImportError,
    InUse, InjectError, Key, Lease, LostReason, Notifier, Operation, Peer, PeerInfo, Refused,
    Region, RegionId, RegisterError, Remote, ResolveError, Sleep, Slice, Time, Token,
    answered_by_engine, submit_each, two_sided::Released,
};
use smallvec::SmallVec;
use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// Messages shorter than a word do not take the shortest path, as they would make it longer.
const WORD: usize = 8;
/// How often `relax` polls for a message, with a pause before each poll.
const POLLS: u32 = 8;
/// So many peers at most are all polled within two passes.
const FEW: usize = 3 * FRONT;
/// So many operations that waited for a fence go on at a time.
const RELEASED: usize = 1024;
/// How soon to poll again for what rings no doorbell: leases, regions that are being closed.
const POLL_AGAIN: Duration = Duration::from_millis(1);

impl Endpoint for Shm {
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.connect(address, patience, false)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.connect(address, patience, true)
    }

    fn peer(&self, peer: Peer) -> Option<PeerInfo> {
        let info = self.engine.peer_info(peer)?;
        let channel = self.channels.get(peer.index);
        let user = match self.engine.is_self(peer) {
            true => Some(self.uid),
            false => channel
                .filter(|channel| channel.handle == peer)
                .map(|channel| channel.process.user()),
        };
        Some(info.with_user(user))
    }

    fn forget(&mut self, peer: Peer) {
        if self.engine.peer_info(peer).is_some() {
            self.let_go(peer, &LostReason::Forgotten);
            self.departed.retain(|departed| *departed != peer);
            self.engine.forget(peer);
        }
    }

    #[inline]
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        if let [bytes] = parts
            && (WORD..=LINE).contains(&bytes.len())
            && let Some(asleep) = self.inject_plainly::<1>(peer, bytes)
        {
            if asleep {
                self.wake_up(peer.index);
            }
            return Ok(());
        }
        self.inject_any(peer, parts)
    }

    /// Operations that are carried out at once stay where they are until they are dropped: most are
    /// alone in the queue, and to take one out would be most of what it costs.
    #[inline]
    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        let carried = operations.iter().take_while(|operation| self.carry_out(operation)).count();
        if carried == operations.len() {
            return operations.clear();
        }
        if carried > 0 {
            operations.drain(..carried);
        }
        self.post_receives(operations);
        if !operations.is_empty() {
            submit_each(self, operations);
        }
    }

    #[inline]
    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        if self.carry_out(&operation) {
            return Ok(());
        }
        if let Err(full) = self.room_for(&operation) {
            return Err(Refused { operation, full });
        }
        if !self.engine.is_deferred(&operation) {
            self.take_in(operation);
        } else if let Some(operation) = self.engine.defer(operation) {
            self.take_in(operation);
        } else {
            self.go_on();
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token) {
        if !self.cancel_access(token) && !self.cancel_delivery(token) {
            self.engine.cancel(token);
        }
    }

    fn in_use(&self, memory: &Slice) -> Option<InUse> {
        let own = self.accesses.using(memory).map(|(token, peer)| {
            InUse::new("an access under way").by(token).with(self.engine.peer_at(peer))
        });
        own.or_else(|| self.engine.in_use(memory))
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        self.completions.begin_pass();
        self.schedule.pass(self.counters.received);
        let room = budget.max(1);
        if self.has_work() || self.schedule.is_due(now) {
            return self.progress_all(room, events);
        }
        let before = events.len();
        let worked = if self.watched.len() > FRONT {
            self.ring_pending();
            self.receive_many(room, events)
        } else if self.channels.has_pending() {
            self.ring_and_receive(room, events)
        } else {
            self.receive_come(room, events)
        };
        match self.completions.len() | self.delivering.len() {
            0 => worked,
            _ => self.take_ready(before.saturating_add(room), events) || worked,
        }
    }

    #[inline]
    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        // Mostly there is nothing, and there is one peer: the test is as cheap as can be. Or there
        // is a short message, and nothing else to do.
        let mut quiet = false;
        if let [only] = *self.watched.peers() {
            let next = self.channels.get(only)?.pair.consumer.next();
            if let Some(len) = next.one() {
                quiet = !self.has_chores();
                if quiet && let Some(peer) = self.receive_plainly(only, len, message) {
                    return Some(*peer);
                }
            } else if next.is_nothing() {
                return None;
            }
        }
        self.poll_any_message(message, quiet)
    }

    /// What is complete here comes before what the engine reports, as in a pass.
    #[inline]
    fn poll_completion(&mut self) -> Option<Completion> {
        if self.completions.is_empty() {
            return self.poll_arrived();
        }
        self.completions.poll()
    }

    /// With few peers, the one that sent last is likely to send next, and most of a pass is not
    /// about that one. With many, a peer that begins is found in some later pass, and would wait
    /// for that.
    #[inline]
    fn relax(&self) {
        let (peer, looks) = match self.watched.len() {
            0..=1 => (self.watched.only(), POLLS),
            2..=FEW => (self.watched.turn(), POLLS),
            _ => (self.watched.get(0), 1),
        };
        let looks = match peer {
            Some(peer) if !self.has_chores() && !self.has_come(peer) => looks,
            _ => 1,
        };
        for _ in 0..looks {
            std::hint::spin_loop();
            if peer.is_none_or(|peer| self.has_come(peer)) {
                return;
            }
        }
    }

    fn arm(&mut self, now: Time) -> Sleep {
        if !self.completions.is_empty() || self.engine.has_events() || self.engine.has_output() {
            return Sleep::Busy;
        }
        self.report_unused_segments();
        self.ring_pending();
        self.armed = true;
        if self.doorbell.prepare() || self.arrivals.has_backlog() {
            return Sleep::Busy;
        }
        let mut until = self.attempts.deadline().unwrap_or(Time::NEVER);
        until = self.arrivals.deadline().map_or(until, |deadline| until.min(deadline));
        until = until.min(self.channels.trim_at());
        if self.closing.waiting() > 0 {
            until = until.min(now.after(POLL_AGAIN));
        }
        until = until.min(self.engine.deadline());
        if self.engine.has_waiting() {
            // A lease that is dropped rings no doorbell.
            until = until.min(now.after(POLL_AGAIN));
        }
        if !self.channels.ending().is_empty() {
            return Sleep::Busy;
        }
        if !self.wait_for_room() || !self.wait_for_arrivals() {
            return Sleep::Busy;
        }
        self.set_asleep(true);
        fence(Ordering::SeqCst);
        for index in self.watched.iter() {
            let Some(channel) = self.channels.get_mut(*index) else { continue };
            if channel.pair.peek() != Ok(None) {
                return Sleep::Busy;
            }
        }
        if until <= now { Sleep::Busy } else { Sleep::Until(until) }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(self.doorbell.clone())
    }

    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        segment::alloc(len, self.config.huge_pages)
    }

    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        let region = self.engine.register(memory, access)?;
        // What has no address here, peers do not reach by themselves.
        let Some(base) = memory.host_ptr() else { return Ok(region) };
        let segment = memory.backing::<Segment>();
        let entry = Entry {
            base: base.addr().get() as u64,
            len: memory.len() as u64,
            access,
            segment: segment.map_or(0, |segment| segment.id),
            offset: memory.offset() as u64,
            segment_len: segment.map_or(0, |segment| segment.len() as u64),
        };
        self.exports.open(region, &entry);
        Ok(region)
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        let mut parts = self.engine.key_parts(region)?;
        if let Some(tag) = self.exports.tag(region) {
            parts.routes.push((Key::ROUTE_ADDRESS, access::route(region.index, tag)));
        }
        Key::compose(&parts)
    }

    fn import(&mut self, key: &Key) -> Result<Remote, ImportError> {
        let parts = key.parse()?;
        let usable = parts.route(Key::ROUTE_TWO_SIDED).is_some();
        if parts.owner.scheme() != SCHEME || !usable {
            return Err(ImportError::NoRoute { owner: parts.owner, scheme: SCHEME });
        }
        let known = self.engine.find_peer(&parts.owner).is_some();
        let peer = self.resolve(&parts.owner, Key::IMPORT_PATIENCE)?;
        let imported = self.engine.import(parts, peer);
        if imported.is_err() && !known {
            self.forget(peer);
        }
        imported
    }

    fn release(&mut self, remote: Remote) {
        self.released.push(remote);
        self.release_unused();
    }

    // Keys to parts have the engine's route alone: a peer that copies by itself cannot be kept
    // within a part of what it may copy from.
    answered_by_engine! {
        engine: address incarnation capabilities quota export_part import_number
    }
}

impl Shm {
    /// Sends a short message of one cell, or of two, if nothing is in the way: a few dozen
    /// instructions. Then says whether the peer sleeps, and is to be rung.
    #[inline(always)]
    fn inject_plainly<const CELLS: usize>(&mut self, peer: Peer, bytes: &[u8]) -> Option<bool> {
        if let Some((channel, pending)) = self.channels.to(peer)
            && !channel.served
            && !self.engine.has_output()
            && match CELLS {
                1 => channel.pair.producer.send_one(bytes),
                _ => channel.pair.producer.send_two(bytes),
            }
        {
            self.counters.sent += 1;
            return Some(channel.has_published(peer.index, pending));
        }
        None
    }

    /// Takes in an operation for which there is room, and that waits for no fence.
    #[inline]
    fn take_in(&mut self, operation: Operation) {
        match operation {
            Operation::Send { .. } if self.send_asking(&operation) => {}
            Operation::Deregister { token, region, patience } => {
                self.deregister(token, region, patience);
            }
            Operation::Revoke { .. } => self.revoke(operation),
            operation => {
                if let Some(operation) = self.accept_access(operation) {
                    self.engine.submit(operation);
                }
            }
        }
    }

    /// Takes in what has waited for a fence. A message is there when it is in the ring: no access
    /// passes it. A put that its owner serves is not.
    #[cold]
    fn go_on(&mut self) {
        for _ in 0..RELEASED {
            match self.engine.next_released(|_, puts| puts) {
                Some(Released::Operation(operation)) => self.take_in(operation),
                Some(Released::Handle(remote)) => self.release(remote),
                None => return,
            }
        }
    }

    /// Posts the receives at the front of the queue. Nothing but what a receive is made of is taken
    /// out of it.
    #[inline]
    fn post_receives(&mut self, operations: &mut VecDeque<Operation>) {
        while let Some(operation @ Operation::PostReceive { .. }) = operations.front()
            && self.room_for(operation).is_ok()
            && let Some(Operation::PostReceive { token, source, tag, ignore, into }) =
                operations.pop_front()
        {
            self.engine.submit_receive(token, source, tag, ignore, into);
        }
    }

    /// Whether another operation is taken: as many as the engine takes, its own and others
    /// together. Completions that were not taken count, too.
    #[inline]
    fn room_for(&mut self, operation: &Operation) -> Result<(), Full> {
        match self.completions.len() >= self.capabilities.limits.max_operations {
            true => Err(Full::Endpoint),
            false => self.engine.room_for(operation),
        }
    }

    /// Rings for a peer that sleeps.
    #[cold]
    #[inline(never)]
    fn wake_up(&mut self, index: u32) {
        self.counters.wake_ups += 1;
        if let Some(channel) = self.channel(index) {
            channel.ring();
        }
    }

    /// Any message that may be sent without a queue. A function of its own, so that the path of one
    /// cell is short.
    #[inline(never)]
    fn inject_any(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let sent = match parts {
            [bytes] if bytes.len() > LINE => self.inject_plainly::<2>(peer, bytes),
            [bytes] if bytes.len() < WORD => self.inject_plainly::<1>(peer, bytes),
            _ => None,
        };
        if let Some(asleep) = sent {
            if asleep {
                self.wake_up(peer.index);
            }
            return Ok(());
        }
        let Shm { channels, engine, counters, .. } = self;
        let Some((channel, pending)) = channels.to(peer) else {
            return engine.inject(peer, parts);
        };
        let len = parts.iter().map(|part| part.len()).sum();
        if len > self.config.max_message {
            return Err(InjectError::TooLong { len, max: self.config.max_message });
        }
        let queued = channel.served || (engine.has_output() && engine.messages_queued(peer));
        let long = len > Lease::LINES;
        if !queued && (!long || engine.may_send(peer, len)) {
            let sent = if len <= MAX_SHORT {
                let mut room = [0; MAX_SHORT];
                let bytes = if let [bytes] = parts { bytes } else { gather(parts, &mut room) };
                channel.pair.send_short(bytes)
            } else {
                let pieces: SmallVec<[Piece<'_>; 4]> =
                    parts.iter().copied().map(Piece::of).collect();
                channel.pair.send(kind::MESSAGE, &pieces, len)
            };
            match sent {
                Ok(true) => {
                    if long {
                        engine.sent_around(peer, len);
                    }
                    counters.sent += 1;
                    counters.wake_ups += u64::from(channel.published(peer.index, pending));
                    if channel.pair.uses_long() {
                        channels.sent_long(self.now);
                    }
                    return Ok(());
                }
                Ok(false) => {}
                Err(broken) => {
                    self.violated(peer.index, broken.to_string());
                    return Err(InjectError::PeerLost);
                }
            }
        }
        self.engine.inject(peer, parts)
    }

    /// Whether there is more to do in a pass than to poll the peers in front.
    #[inline]
    fn has_chores(&self) -> bool {
        self.has_work() || !self.completions.is_empty()
    }

    /// Whether there is more to do than that, and to report what is complete: one test of all that
    /// could tell, as mostly there is not.
    #[inline]
    fn has_work(&self) -> bool {
        let lists = self.channels.ending().len()
            | self.channels.partial().len()
            | self.accesses.scheduled().len()
            | self.channels.sending().len()
            | self.closing.waiting();
        (lists | usize::from(self.armed) != 0) | !self.engine.is_quiet()
    }

    /// Takes any message from any peer; `quiet` if it is known that there is nothing else to do. A
    /// function of its own, so that the path of one cell is short.
    #[inline(never)]
    fn poll_any_message(&mut self, message: &mut Lease, quiet: bool) -> Option<Peer> {
        match self.watched.only() {
            // Events and other work come first.
            _ if !quiet && self.has_chores() => None,
            Some(only) => self.receive_further(only, message),
            None => self.receive_one(message),
        }
    }

    /// A pass with everything.
    #[cold]
    #[inline(never)]
    fn progress_all(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let left = |events: &mut Vec<Event>| end.saturating_sub(events.len());
        let mut worked = self.armed && self.wake();
        // What is left of the last pass: a flush, which the engine reports, comes behind the
        // accesses before it.
        if !self.completions.is_empty() {
            worked |= self.take_ready(end, events);
        }
        // The engine's events came before what lies in the rings. And peers wait for credit.
        if !self.engine.is_quiet() {
            worked |= self.engine.take_events(left(events), events);
        }
        if !self.channels.partial().is_empty() {
            worked |= self.receive_parts(left(events), events);
        }
        worked |= self.receive_many(left(events), events);
        if !self.channels.ending().is_empty() {
            worked |= self.end_all(left(events), events);
        }
        if !self.accesses.scheduled().is_empty() {
            worked |= self.move_accesses();
            if !self.released.is_empty() {
                self.release_unused();
            }
        }
        if self.engine.has_released() {
            self.go_on();
            worked = true;
        }
        if self.engine.has_output() || !self.channels.sending().is_empty() {
            worked |= self.transmit_all();
        }
        self.ring_pending();
        if self.closing.waiting() > 0 {
            worked |= self.check_closing();
        }
        if self.engine.is_closing() {
            self.engine.keep_time(self.now);
        }
        if self.schedule.is_due(self.now) {
            worked |= self.poll_descriptors();
        }
        worked |= self.take_ready(end, events);
        if left(events) > 0 && self.engine.has_events() {
            worked |= self.engine.take_events(left(events), events);
        }
        worked
    }

    /// A completion of a message that has arrived since, or of the engine's.
    #[inline(never)]
    fn poll_arrived(&mut self) -> Option<Completion> {
        if !self.delivering.is_empty() {
            self.take_arrived();
        }
        match self.completions.is_empty() {
            true => self.engine.poll_completion(),
            false => self.completions.poll(),
        }
    }

    /// Reports what is complete, up to so many events in all. True if there was something.
    fn take_ready(&mut self, end: usize, events: &mut Vec<Event>) -> bool {
        if !self.delivering.is_empty() {
            self.take_arrived();
        }
        self.completions.take(end.saturating_sub(events.len()), events)
    }

    /// The sleep is over. True if descriptors had something.
    #[cold]
    fn wake(&mut self) -> bool {
        self.armed = false;
        self.doorbell.awake();
        self.set_asleep(false);
        self.poll_descriptors()
    }

    /// Says to the peers that are watched whether they have to ring.
    fn set_asleep(&self, asleep: bool) {
        for index in self.watched.iter() {
            if let Some(channel) = self.channels.get(*index) {
                channel.pair.set_asleep(asleep);
            }
        }
    }

    /// Whether all that has to be sent or moved waits for peers, which will ring.
    fn wait_for_room(&mut self) -> bool {
        for at in 0..self.channels.sending().len() {
            let index = self.channels.sending()[at];
            let Some(channel) = self.channels.get_mut(index) else { continue };
            if channel.stuck.is_none() {
                return false;
            }
            channel.pair.starve();
            fence(Ordering::SeqCst);
            if channel.pair.has_room() != Ok(false) {
                return false;
            }
        }
        for &index in self.accesses.scheduled() {
            if self.accesses.all_of(index).any(|access| !access.is_waiting()) {
                return false;
            }
            let Some(channel) = self.channels.get_mut(index) else { continue };
            if std::mem::take(&mut channel.unposted) {
                channel.pair.starve();
                fence(Ordering::SeqCst);
                if channel.pair.has_room() != Ok(false) {
                    return false;
                }
                channel.unposted = true;
            }
        }
        true
    }
}

/// The concatenation of some parts, which fits into `room`.
fn gather<'a>(parts: &[&[u8]], room: &'a mut [u8]) -> &'a [u8] {
    let mut at = 0;
    for part in parts {
        room[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    &room[..at]
}
