//! The end of regions, and of what peers do in them.
//!
//! A region that is closed is a peer's until the peer withdraws its announcement of it. A peer that
//! is stopped in the middle of a copy goes on with that when it is continued, whatever became of
//! the connection. So a pair that is given up while the other side announces something is kept and
//! checked until that is over: the announcement is withdrawn, the peer has closed its end, or its
//! process has ended.

use crate::{channel::Channel, pair::Pair, process::PeerProcess};
use petasos_fabric::{Address, Operation, RegionId, Slice, Time, Token};
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
    /// When it ends with [`StillReached`](petasos_fabric::OpErrorKind::StillReached): known from
    /// the next pass on.
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

    pub(crate) fn waits_for(&self, region: RegionId) -> bool {
        self.waiting.iter().any(|(closed, _)| closed.region == region)
    }

    /// Waits for a region that was closed to new accesses.
    pub(crate) fn begin(
        &mut self,
        (region, tag): (RegionId, u64),
        memory: Slice,
        token: Token,
        patience: Duration,
    ) {
        let deregistration = Deregistration { token, patience, until: None };
        self.waiting.push((Closed { region, tag, memory }, deregistration));
    }

    /// Waits for a region again. False if there is no such region.
    pub(crate) fn resume(&mut self, region: RegionId, token: Token, patience: Duration) -> bool {
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

    /// Whether a peer is in the region with this tag through a pair that is kept: its address, where
    /// that is known.
    pub(crate) fn within(&self, tag: u64) -> Option<Option<&Address>> {
        let mut kept = self.abandoned.iter();
        let abandoned = kept.find(|abandoned| abandoned.pair.announced() == tag)?;
        Some(abandoned.address.as_ref())
    }

    /// Takes out the regions that are free now, by `is_reached`: the operations that waited for
    /// them, which the engine completes.
    pub(crate) fn take_free(
        &mut self,
        is_reached: impl Fn(&Closing, u64) -> bool,
    ) -> Vec<Operation> {
        let mut free = Vec::new();
        for at in (0..self.waiting.len()).rev() {
            if !is_reached(self, self.waiting[at].0.tag) {
                let (Closed { region, .. }, deregistration) = self.waiting.swap_remove(at);
                let Deregistration { token, patience, .. } = deregistration;
                free.push(Operation::Deregister { token, region, patience });
            }
        }
        free
    }

    /// Ends the operations that have waited for long enough: their tokens, and what `reached_by`
    /// says of the peer in the region.
    pub(crate) fn expire<P>(
        &mut self,
        now: Time,
        reached_by: impl Fn(&Closing, u64) -> Option<P>,
    ) -> Vec<(Token, P)> {
        let mut ended = Vec::new();
        for at in (0..self.waiting.len()).rev() {
            let (closed, Deregistration { token, patience, until }) = &mut self.waiting[at];
            if *until.get_or_insert(now.after(*patience)) > now {
                continue;
            }
            let (tag, token) = (closed.tag, *token);
            // Free since a moment ago: then the next pass closes it.
            let Some(peer) = reached_by(self, tag) else { continue };
            let (closed, _) = self.waiting.swap_remove(at);
            self.expired.push(closed);
            ended.push((token, peer));
        }
        ended
    }

    /// The end of the endpoint: memory in which a peer is outlives it. `open` are its regions that
    /// were open until now, with their tags. Waits for no peer.
    pub(crate) fn leave_behind(
        self,
        open: Vec<(u64, Slice)>,
        channels: impl Iterator<Item = Box<Channel>>,
    ) {
        let Closing { waiting, expired, abandoned: mut within } = self;
        let closed = waiting.into_iter().map(|(closed, _)| closed).chain(expired);
        let closed = closed.map(|closed| (closed.tag, closed.memory));
        let memory = open.into_iter().chain(closed).collect();
        within.extend(channels.filter_map(|channel| Abandoned::of(*channel, None)));
        Left { memory, within }.wait();
    }

    #[cfg(test)]
    pub(crate) fn keeps_pairs(&self) -> bool {
        !self.abandoned.is_empty()
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
