//! The end of regions, and of what peers do in them.
//!
//! A region that is closed is a peer's until the peer withdraws its announcement of it. A peer that
//! is stopped in the middle of a copy goes on with that when it is continued, whatever became of
//! the connection. So a pair that is given up while the other side announces something is kept and
//! checked until that is over: the announcement is withdrawn, the peer has closed its end, or its
//! process has ended.

use crate::{Shm, channel::Channel, exports::Export, pair::Pair, process::PeerProcess};
use petasos_fabric::{
    Address, Done, Event, OpError, OpErrorKind, Operation, RegionId, Slice, Time, Token,
};
use rustix::event::{PollFd, Timespec, poll};
use std::{mem::ManuallyDrop, time::Duration};

/// Pairs that are kept because they were given up during an access. At this limit no new peer is
/// let in.
const MAX_ABANDONED: usize = 256;
/// How soon, and how seldom at last, memory that an endpoint left behind is checked.
const FIRST_CHECK: Duration = Duration::from_millis(1);
const LAST_CHECK: Duration = Duration::from_millis(100);

/// A region that is closed to new accesses, and whose memory peers may still be in.
struct Closed {
    region: RegionId,
    tag: u64,
    memory: Slice,
}

/// The operation that waits for a region to be free.
struct Deregistration {
    token: Token,
    patience: Duration,
    /// When it ends with [`OpErrorKind::StillReached`]: known from the next pass on.
    until: Option<Time>,
}

/// A pair that was given up while its other side was in a region.
pub(crate) struct Abandoned {
    pair: Pair,
    process: PeerProcess,
    address: Option<Address>,
}

impl Abandoned {
    /// Gives up a pair: the other side begins no access through it from now on. Something, if it is
    /// in one.
    pub(crate) fn of(channel: Channel, address: Option<Address>) -> Option<Abandoned> {
        let Channel { pair, process, .. } = channel;
        pair.end();
        if pair.announced() == 0 {
            return None;
        }
        process.shut_down();
        Some(Abandoned { pair, process, address }).filter(Abandoned::is_within)
    }

    /// Whether the other side may still go on with its access.
    fn is_within(&self) -> bool {
        self.pair.announced() != 0 && !self.process.has_given_up()
    }
}

/// Regions that are closed and not free yet, and the pairs that were given up.
#[derive(Default)]
pub(crate) struct Closing {
    /// Regions with the operations that wait for them.
    waiting: Vec<(Closed, Deregistration)>,
    /// Regions whose operations ended with `StillReached`, until the caller asks again.
    expired: Vec<Closed>,
    abandoned: Vec<Abandoned>,
}

impl Closing {
    /// Operations that wait for a region.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn waits_for(&self, region: RegionId) -> bool {
        self.waiting.iter().any(|(closed, _)| closed.region == region)
    }

    /// Waits for a region again. False if there is no such region.
    fn resume(&mut self, region: RegionId, token: Token, patience: Duration) -> bool {
        let Some(at) = self.expired.iter().position(|closed| closed.region == region) else {
            return false;
        };
        let closed = self.expired.swap_remove(at);
        self.waiting.push((closed, Deregistration { token, patience, until: None }));
        true
    }

    /// Keeps a pair that was given up while its peer was in a region.
    pub(crate) fn keep(&mut self, abandoned: Option<Abandoned>) {
        self.abandoned.extend(abandoned);
    }

    /// Whether so many pairs are kept that no new peer may come.
    pub(crate) fn is_full(&self) -> bool {
        self.abandoned.len() >= MAX_ABANDONED
    }

    /// Lets go of pairs whose peers are in no region any more.
    pub(crate) fn release_pairs(&mut self) {
        if !self.abandoned.is_empty() {
            self.abandoned.retain(Abandoned::is_within);
        }
    }

    /// Of the pairs that are kept, the one through which a peer is in the region with this tag.
    fn within(&self, tag: u64) -> Option<&Abandoned> {
        self.abandoned.iter().find(|abandoned| abandoned.pair.announced() == tag)
    }

    /// The regions that are free now, by `is_reached`, with the operations that waited for them.
    fn take_free(
        &mut self,
        is_reached: impl Fn(&Closing, u64) -> bool,
    ) -> Vec<(RegionId, Deregistration)> {
        let mut free = Vec::new();
        for at in (0..self.waiting.len()).rev() {
            if !is_reached(self, self.waiting[at].0.tag) {
                let (closed, deregistration) = self.waiting.swap_remove(at);
                free.push((closed.region, deregistration));
            }
        }
        free
    }

    #[cfg(test)]
    pub(crate) fn keeps_pairs(&self) -> bool {
        !self.abandoned.is_empty()
    }
}

impl Shm {
    /// Closes a region, or goes on with that.
    pub(crate) fn deregister(&mut self, token: Token, region: RegionId, patience: Duration) {
        if self.closing.resume(region, token, patience) {
            return self.close_regions();
        }
        let tag = self.exports.close(region);
        let memory = self.engine.region(region).map(|(memory, _)| memory.clone());
        let (Some(tag), Some(memory)) = (tag, memory) else {
            if self.closing.waits_for(region) {
                return self.complete(token, None, Err(OpErrorKind::UnknownRegion));
            }
            return self.engine.submit(Operation::Deregister { token, region, patience });
        };
        self.engine.shut(region);
        self.divert_packets();
        let deregistration = Deregistration { token, patience, until: None };
        self.closing.waiting.push((Closed { region, tag, memory }, deregistration));
        self.close_regions();
    }

    /// Takes the memory of closed regions out of the packets that this side has: what arrives is
    /// discarded, and what waits to be sent becomes a copy.
    fn divert_packets(&mut self) {
        use crate::assembly::Assembly;
        let Shm { channels, engine, .. } = self;
        for channel in channels.iter_mut() {
            if let Some(Assembly::Payload(placement, _)) = &mut channel.assembly {
                engine.divert(channel.handle, placement);
            }
            // All others that the engine gave us are in the ring.
            if let Some(packet) = &mut channel.stuck {
                engine.detach(channel.handle, 0, &mut packet.payload);
            }
        }
    }

    /// A peer that reaches into the region with this tag: its address, where that is known.
    fn within(&self, tag: u64) -> Option<Option<Address>> {
        let mut channels = self.channels.iter();
        match channels.find(|channel| channel.pair.announced() == tag) {
            Some(channel) => Some(self.engine.peer_info(channel.handle).map(|info| info.address)),
            None => self.closing.within(tag).map(|abandoned| abandoned.address.clone()),
        }
    }

    /// Lets go of the regions into which no peer reaches any more.
    fn close_regions(&mut self) {
        self.closing.release_pairs();
        let Shm { closing, channels, engine, .. } = self;
        let is_reached = |closing: &Closing, tag| {
            channels.iter().any(|channel| channel.pair.announced() == tag)
                || closing.within(tag).is_some()
        };
        for (region, Deregistration { token, patience, .. }) in closing.take_free(is_reached) {
            engine.submit(Operation::Deregister { token, region, patience });
        }
    }

    /// The same in a pass, which knows the time: operations that have waited for long enough end.
    /// True if one ended.
    pub(crate) fn check_closing(&mut self) -> bool {
        let (now, before) = (self.now, self.closing.waiting.len());
        self.close_regions();
        for at in (0..self.closing.waiting.len()).rev() {
            let (closed, deregistration) = &mut self.closing.waiting[at];
            let Deregistration { patience, until, token } = deregistration;
            if *until.get_or_insert(now.after(*patience)) > now {
                continue;
            }
            let (tag, token) = (closed.tag, *token);
            // Free since a moment ago: then the next pass closes it.
            let Some(peer) = self.within(tag) else { continue };
            let kind = OpErrorKind::StillReached;
            let error = match peer {
                Some(address) => OpError::with_peer(kind, &address),
                None => OpError::local(kind),
            };
            tracing::debug!(%error, "memory that was to be closed is still reached");
            self.ready.push_back(Event::Done { token, result: Err::<Done, _>(error) });
            let (closed, _) = self.closing.waiting.swap_remove(at);
            self.closing.expired.push(closed);
        }
        self.closing.waiting.len() < before
    }

    /// The end of the endpoint: its regions are closed, and memory in which a peer still is
    /// outlives it. Waits for no peer.
    pub(crate) fn leave_memory_behind(&mut self) {
        let mut memory: Vec<(u64, Slice)> = Vec::new();
        for Export { region, tag } in self.exports.close_all() {
            memory.extend(self.engine.region(region).map(|(memory, _)| (tag, memory.clone())));
        }
        let Closing { waiting, expired, abandoned } = std::mem::take(&mut self.closing);
        let closed = waiting.into_iter().map(|(closed, _)| closed).chain(expired);
        memory.extend(closed.map(|closed| (closed.tag, closed.memory)));
        let mut within = abandoned;
        for channel in self.channels.drain() {
            within.extend(Abandoned::of(*channel, None));
        }
        Left { memory, within }.wait();
    }
}

/// Memory of an endpoint that has ended, and the pairs through which peers are in it.
struct Left {
    memory: Vec<(u64, Slice)>,
    within: Vec<Abandoned>,
}

impl Left {
    /// Lets go of memory in which no peer is. True if that was all.
    fn release(&mut self) -> bool {
        self.within.retain(Abandoned::is_within);
        let Left { memory, within } = self;
        memory.retain(|(tag, _)| within.iter().any(|l| l.pair.announced() == *tag));
        within.retain(|l| memory.iter().any(|(tag, _)| l.pair.announced() == *tag));
        memory.is_empty()
    }

    /// Lets go of all of it as soon as possible: now, or on a thread of its own.
    fn wait(mut self) {
        if self.release() {
            return;
        }
        // If no thread can be started, the memory stays for good rather than be freed under a peer.
        let mut left = ManuallyDrop::new(self);
        let thread = std::thread::Builder::new().name("petasos-shm-left".to_owned());
        let started = thread.spawn(move || {
            let mut pause = FIRST_CHECK;
            while !left.release() {
                left.sleep(pause);
                pause = (pause * 2).min(LAST_CHECK);
            }
            drop(ManuallyDrop::into_inner(left));
        });
        drop(started);
    }

    /// Until a peer has ended, or for so long: withdrawing an announcement wakes no sleeper.
    fn sleep(&self, pause: Duration) {
        let fds = self.within.iter().flat_map(|abandoned| abandoned.process.poll_fds());
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        let pause = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as i64 };
        let _ = poll(&mut fds, Some(&pause));
    }
}
