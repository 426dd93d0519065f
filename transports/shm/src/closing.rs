//! The end of regions, and of what peers do in them.
//!
//! A region that is closed is a peer's until its announcement of it is taken back: a peer that is stopped in the middle
//! of a copy goes on with that when it is continued, whatever became of the connection. So a pair that is given up
//! while the other side announces something is kept, and looked at, until that is over: the announcement is taken back, or
//! the peer has closed its end, or its process is gone.

use crate::{Shm, channel::Channel, pair::Pair, socket};
use petasos_fabric::{
    Address, Done, Event, OpError, OpErrorKind, Operation, RegionId, Slice, Time, Token,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    net::{Shutdown, shutdown},
};
use std::{mem::ManuallyDrop, time::Duration};

/// Connections that were given up in the middle of an access at a time, beyond which nobody new is let in.
pub(crate) const MAX_LINGERING: usize = 256;
/// How soon, and how seldom at last, memory that an endpoint left behind is looked at.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// A region that is closed to new accesses, and whose memory peers may still be in.
pub(crate) struct Closing {
    pub(crate) region: RegionId,
    pub(crate) tag: u64,
    memory: Slice,
    /// Who waits for its end. Nobody does once that took too long, until somebody asks again.
    waiting: Option<Waiting>,
}

/// An operation that waits.
struct Waiting {
    token: Token,
    patience: Duration,
    /// Known from the next pass on.
    until: Option<Time>,
}

/// A pair that was given up while its other side was in a region.
pub(crate) struct Lingering {
    pair: Pair,
    /// Closed by the other side when it has given up the pair as well.
    socket: OwnedFd,
    process: Option<OwnedFd>,
    address: Option<Address>,
}

impl Lingering {
    /// Gives up a pair. Nobody begins to reach through it from now on; something, if the other side is at it.
    pub(crate) fn of(channel: Channel, address: Option<Address>) -> Option<Lingering> {
        let Channel { pair, socket, process, .. } = channel;
        pair.end();
        if pair.announced() == 0 {
            return None;
        }
        // Tells the other side, and leaves us an end that shows whether it has closed its own.
        let _ = shutdown(&socket, Shutdown::Write);
        Some(Lingering { pair, socket, process, address }).filter(Lingering::is_within)
    }

    /// Whether the other side may still do what it was at.
    fn is_within(&self) -> bool {
        self.pair.announced() != 0
            && !socket::is_over(&self.socket, PollFlags::HUP)
            && !self.process.as_ref().is_some_and(|p| socket::is_over(p, PollFlags::IN))
    }
}

impl Shm {
    /// Closes a region, or goes on with that.
    pub(crate) fn deregister(&mut self, token: Token, region: RegionId, patience: Duration) {
        let waiting = Some(Waiting { token, patience, until: None });
        if let Some(at) = self.left.iter().position(|left| left.region == region) {
            let left = self.left.swap_remove(at);
            self.closing.push(Closing { waiting, ..left });
            return self.close_regions();
        }
        let slot = self.exposed.get_mut(region.index as usize);
        let tag = slot.and_then(|slot| slot.take_if(|s| s.0 == region)).map(|(_, tag)| tag);
        let memory = self.engine.region(region).map(|(memory, _)| memory.clone());
        let (Some(tag), Some(memory)) = (tag, memory) else {
            if self.closing.iter().any(|closing| closing.region == region) {
                return self.complete(token, None, Err(OpErrorKind::UnknownRegion));
            }
            return self.engine.submit(Operation::Deregister { token, region, patience });
        };
        self.table.close(region.index);
        self.engine.shut(region);
        self.divert_packets();
        self.closing.push(Closing { region, tag, memory, waiting });
        self.close_regions();
    }

    /// Takes the memory of closed regions out of the packets that this side has: what comes goes nowhere, and what
    /// waits to be sent is a copy.
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
        let mut lingering = self.lingering.iter();
        match channels.find(|channel| channel.pair.announced() == tag) {
            Some(channel) => Some(self.engine.peer_info(channel.handle).map(|info| info.address)),
            None => lingering.find(|l| l.pair.announced() == tag).map(|l| l.address.clone()),
        }
    }

    /// Lets go of pairs through which nobody reaches any more.
    pub(crate) fn forget_lingering(&mut self) {
        if !self.lingering.is_empty() {
            self.lingering.retain(Lingering::is_within);
        }
    }

    /// Lets go of the regions into which nobody reaches any more.
    fn close_regions(&mut self) {
        self.forget_lingering();
        for at in (0..self.closing.len()).rev() {
            if self.within(self.closing[at].tag).is_some() {
                continue;
            }
            let Closing { region, waiting, .. } = self.closing.swap_remove(at);
            if let Some(Waiting { token, patience, .. }) = waiting {
                self.engine.submit(Operation::Deregister { token, region, patience });
            }
        }
    }

    /// The same in a pass, which knows the time: who has waited for long enough is told so. True if something ended.
    pub(crate) fn look_after_closing(&mut self) -> bool {
        let (now, before) = (self.now, self.closing.len());
        self.close_regions();
        for at in (0..self.closing.len()).rev() {
            let Closing { waiting, tag, .. } = &mut self.closing[at];
            let Some(Waiting { patience, until, token }) = waiting else { continue };
            if *until.get_or_insert(now.after(*patience)) > now {
                continue;
            }
            let (tag, token) = (*tag, *token);
            // Gone this very moment: then the next pass closes it.
            let Some(peer) = self.within(tag) else { continue };
            let kind = OpErrorKind::StillReached;
            let error = match peer {
                Some(address) => OpError::with_peer(kind, &address),
                None => OpError::local(kind),
            };
            tracing::debug!(%error, "memory that was to be closed is still reached");
            self.ready.push_back(Event::Done { token, result: Err::<Done, _>(error) });
            let left = self.closing.swap_remove(at);
            self.left.push(Closing { waiting: None, ..left });
        }
        self.closing.len() < before
    }

    /// The end of the endpoint: its regions are closed, and memory in which a peer still is outlives it. Nothing is
    /// waited for.
    pub(crate) fn leave_memory_behind(&mut self) {
        let mut memory: Vec<(u64, Slice)> = Vec::new();
        for (region, tag) in self.exposed.drain(..).flatten() {
            self.table.close(region.index);
            memory.extend(self.engine.region(region).map(|(memory, _)| (tag, memory.clone())));
        }
        let closed = self.closing.drain(..).chain(self.left.drain(..));
        memory.extend(closed.map(|closing| (closing.tag, closing.memory)));
        self.table.close_all();
        let mut within: Vec<Lingering> = self.lingering.drain(..).collect();
        for channel in self.channels.drain() {
            within.extend(Lingering::of(*channel, None));
        }
        Left { memory, within }.wait();
    }
}

/// Memory of an endpoint that is gone, and who is in it.
struct Left {
    memory: Vec<(u64, Slice)>,
    within: Vec<Lingering>,
}

impl Left {
    /// Lets go of what nobody is in. True if that was all.
    fn look(&mut self) -> bool {
        self.within.retain(Lingering::is_within);
        let Left { memory, within } = self;
        memory.retain(|(tag, _)| within.iter().any(|l| l.pair.announced() == *tag));
        within.retain(|l| memory.iter().any(|(tag, _)| l.pair.announced() == *tag));
        memory.is_empty()
    }

    /// Lets go of all of it as soon as that may be: now, or on a thread of its own.
    fn wait(mut self) {
        if self.look() {
            return;
        }
        // Where there is no thread to be had it stays for good, rather than be freed under a peer.
        let mut left = ManuallyDrop::new(self);
        let thread = std::thread::Builder::new().name("petasos-shm-left".to_owned());
        let started = thread.spawn(move || {
            let mut pause = FIRST_LOOK;
            while !left.look() {
                left.sleep(pause);
                pause = (pause * 2).min(LAST_LOOK);
            }
            drop(ManuallyDrop::into_inner(left));
        });
        drop(started);
    }

    /// Until a peer has ended, or for so long: an announcement makes no noise when it is taken back.
    fn sleep(&self, pause: Duration) {
        let sockets = self.within.iter().map(|l| PollFd::new(&l.socket, PollFlags::HUP));
        let processes = self.within.iter().filter_map(|l| l.process.as_ref());
        let processes = processes.map(|process| PollFd::new(process, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = sockets.chain(processes).collect();
        let pause = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as i64 };
        let _ = poll(&mut fds, Some(&pause));
    }
}
