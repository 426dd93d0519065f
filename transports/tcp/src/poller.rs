//! Waiting for many descriptors at a time.

use rustix::{event::epoll, io::Errno};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// What a descriptor is to the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// The listening socket.
    Listener,
    /// The doorbell, which other threads ring.
    Bell,
    /// A connection that asks whether a claim is true.
    Check,
    /// A connection of somebody who has not shown the secret, by slot.
    Stranger(u32),
    /// A connection to a peer, by slot.
    Peer(u32),
}

impl Name {
    fn to_bits(self) -> u64 {
        match self {
            Name::Listener => 0,
            Name::Bell => 1 << 32,
            Name::Check => 4 << 32,
            Name::Stranger(slot) => 2 << 32 | u64::from(slot),
            Name::Peer(slot) => 3 << 32 | u64::from(slot),
        }
    }

    fn from_bits(bits: u64) -> Name {
        match bits >> 32 {
            0 => Name::Listener,
            1 => Name::Bell,
            2 => Name::Stranger(bits as u32),
            4 => Name::Check,
            _ => Name::Peer(bits as u32),
        }
    }
}

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

/// Descriptors looked at in one call.
const BATCH: usize = 64;

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn add(&self, fd: impl AsFd, name: Name, write: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(name.to_bits());
        Ok(epoll::add(&self.epoll, fd, data, interest(true, write))?)
    }

    /// Waits for a descriptor no more.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sets what a descriptor is, and what to wait for: reading, writing, both or neither.
    pub(crate) fn set(&self, fd: impl AsFd, name: Name, read: bool, write: bool) {
        let data = epoll::EventData::new_u64(name.to_bits());
        // The descriptor is open: this cannot fail but for want of memory.
        if epoll::modify(&self.epoll, &fd, data, interest(read, write)) == Err(Errno::NOENT) {
            let _ = epoll::add(&self.epoll, fd, data, interest(read, write));
        }
    }

    /// Appends the names of what is ready.
    pub(crate) fn ready(&self, names: &mut Vec<Name>) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; BATCH];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(count) = epoll::wait(&self.epoll, &mut events[..], Some(&now)) else { return };
        names.extend(events[..count].iter().map(|event| Name::from_bits(event.data.u64())));
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

/// How long a sleep may be that waits for nothing in particular.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(1);
