//! The descriptors that an endpoint polls and sleeps on: one epoll instance.

use petasos_fabric::Peer;
use rustix::{
    event::{Timespec, epoll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};
use std::mem::MaybeUninit;

/// Descriptors reported by one poll.
const BATCH: usize = 64;
/// Generations as they stand in the epoll set.
const GENERATION: u32 = 0xFF_FFFF;

/// What a descriptor in the set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Source {
    Listener = 1,
    Notifier = 2,
    Arrival = 3,
    Attempt = 4,
    Socket = 5,
    Doorbell = 6,
}

impl Source {
    /// With the index and the generation of a handle.
    fn data(self, index: u32, generation: u32) -> epoll::EventData {
        let generation = u64::from(generation & GENERATION);
        epoll::EventData::new_u64((self as u64) << 56 | generation << 32 | u64::from(index))
    }

    fn of(data: u64) -> Option<(Source, u32, u32)> {
        use Source::*;
        let source = [Listener, Notifier, Arrival, Attempt, Socket, Doorbell]
            .into_iter()
            .find(|source| *source as u64 == data >> 56)?;
        Some((source, data as u32, (data >> 32) as u32 & GENERATION))
    }
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) source: Source,
    /// The index of the handle with which it was added.
    pub(crate) index: u32,
    generation: u32,
    /// The other end was closed, or there is an error.
    pub(crate) hung_up: bool,
}

impl Ready {
    /// Whether it was added with a handle of this generation.
    pub(crate) fn is_of(&self, generation: u32) -> bool {
        self.generation == generation & GENERATION
    }
}

/// Room for what one poll reports.
pub(crate) struct Batch([MaybeUninit<epoll::Event>; BATCH]);

impl Batch {
    pub(crate) fn new() -> Batch {
        Batch([MaybeUninit::uninit(); BATCH])
    }
}

pub(crate) struct Poller(OwnedFd);

impl Poller {
    pub(crate) fn new() -> Result<Poller, Errno> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Poller)
    }

    pub(crate) fn add_listener(&self, listener: impl AsFd) -> Result<(), Errno> {
        epoll::add(&self.0, listener, Source::Listener.data(0, 0), epoll::EventFlags::IN)
    }

    /// Whether the listener is polled: with a connection that cannot be taken it would be ready all
    /// the time.
    pub(crate) fn set_polled(&self, listener: impl AsFd, polled: bool) {
        let none = epoll::EventFlags::empty();
        let flags = if polled { epoll::EventFlags::IN } else { none };
        // It was added, and is open: this cannot fail but for want of memory.
        let _ = epoll::modify(&self.0, listener, Source::Listener.data(0, 0), flags);
    }

    pub(crate) fn add_notifier(&self, notifier: impl AsFd) -> Result<(), Errno> {
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.0, notifier, Source::Notifier.data(0, 0), edge)
    }

    /// Adds a socket, with the handle that is reported.
    pub(crate) fn add(&self, fd: impl AsFd, source: Source, handle: Peer) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.0, fd, source.data(handle.index, handle.generation), flags)
    }

    /// Adds a peer's doorbell: reported once for each ring, so that it need not be read.
    pub(crate) fn add_doorbell(&self, fd: impl AsFd, handle: Peer) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = Source::Doorbell.data(handle.index, handle.generation);
        epoll::add(&self.0, fd, data, flags)
    }

    /// A socket in the set is another source from now on.
    pub(crate) fn change(&self, fd: impl AsFd, source: Source, handle: Peer) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::modify(&self.0, fd, source.data(handle.index, handle.generation), flags)
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// What is ready now. Never blocks.
    pub(crate) fn poll<'a>(
        &self,
        batch: &'a mut Batch,
    ) -> impl ExactSizeIterator<Item = Option<Ready>> + use<'a> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = epoll::wait(&self.0, &mut batch.0, Some(&now));
        let ready = ready.map_or(&mut [][..], |(ready, _)| ready);
        ready.iter().map(|event| {
            let (source, index, generation) = Source::of(event.data.u64())?;
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::RDHUP | epoll::EventFlags::ERR;
            let flags = event.flags;
            Some(Ready { source, index, generation, hung_up: flags.intersects(gone) })
        })
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
