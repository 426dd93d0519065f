//! Waiting for many descriptors at a time.

use rustix::{event::epoll, io::Errno};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// What a descriptor is to the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The listening socket.
    Listener,
    /// The doorbell, which other threads ring.
    Doorbell,
    /// A connection that verifies a claim.
    Check,
    /// A connection whose peer has not authenticated, by slot.
    Unauthenticated(u32),
    /// A connection to a peer, by slot.
    Peer(u32),
}

impl Source {
    fn to_bits(self) -> u64 {
        match self {
            Source::Listener => 0,
            Source::Doorbell => 1 << 32,
            Source::Check => 4 << 32,
            Source::Unauthenticated(slot) => 2 << 32 | u64::from(slot),
            Source::Peer(slot) => 3 << 32 | u64::from(slot),
        }
    }

    fn from_bits(bits: u64) -> Source {
        match bits >> 32 {
            0 => Source::Listener,
            1 => Source::Doorbell,
            2 => Source::Unauthenticated(bits as u32),
            4 => Source::Check,
            _ => Source::Peer(bits as u32),
        }
    }
}

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

/// Descriptors reported by one call.
const BATCH: usize = 64;

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn add(&self, fd: impl AsFd, source: Source, write: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(source.to_bits());
        Ok(epoll::add(&self.epoll, fd, data, interest(true, write))?)
    }

    /// Removes a descriptor from the set.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sets what a descriptor is, and what to wait for: reading, writing, both or neither.
    pub(crate) fn set(&self, fd: impl AsFd, source: Source, read: bool, write: bool) {
        let data = epoll::EventData::new_u64(source.to_bits());
        // The descriptor is open: this cannot fail but for want of memory.
        if epoll::modify(&self.epoll, &fd, data, interest(read, write)) == Err(Errno::NOENT) {
            let _ = epoll::add(&self.epoll, fd, data, interest(read, write));
        }
    }

    /// Appends the ready of what is ready.
    pub(crate) fn ready(&self, ready: &mut Vec<Source>) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; BATCH];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(count) = epoll::wait(&self.epoll, &mut events[..], Some(&now)) else { return };
        ready.extend(events[..count].iter().map(|event| Source::from_bits(event.data.u64())));
    }
}

fn interest(read: bool, write: bool) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, read);
    flags.set(epoll::EventFlags::OUT, write);
    flags
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// How long a sleep may last while something is awaited that wakes no sleeper.
pub(crate) const POLL_AGAIN: Duration = Duration::from_millis(1);
