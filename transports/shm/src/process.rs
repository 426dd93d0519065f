//! The process at the other end of a pair: what the kernel says of it, and what it may do.

use crate::{
    cross_memory,
    doorbell::PeerDoorbell,
    privileges::may_write_to_us,
    socket::{self, Credentials},
};
use petasos_fabric::Incarnation;
use rustix::{
    event::{PollFd, PollFlags},
    fd::OwnedFd,
    net::{Shutdown, shutdown},
};

pub(crate) struct PeerProcess {
    socket: OwnedFd,
    credentials: Credentials,
    doorbell: PeerDoorbell,
    /// A handle of the process, which is never another's.
    pidfd: Option<OwnedFd>,
    /// Its ordinary memory can be reached.
    cross_memory: bool,
    /// It may write all of ours anyway; not known before that matters.
    may_write: Option<bool>,
}

impl PeerProcess {
    /// The process that connected by this socket.
    pub(crate) fn new(
        socket: OwnedFd,
        credentials: Credentials,
        doorbell: PeerDoorbell,
    ) -> PeerProcess {
        let pidfd = socket::process(&socket, credentials.pid);
        PeerProcess { socket, credentials, doorbell, pidfd, cross_memory: false, may_write: None }
    }

    /// Wakes it: something was published, or there is room again.
    pub(crate) fn ring(&self) {
        self.doorbell.ring(&self.socket);
    }

    /// Finds out whether its ordinary memory can be reached: whether its incarnation can be read
    /// where it says that it stands.
    pub(crate) fn probe_cross_memory(&mut self, address: u64, incarnation: Incarnation) {
        self.cross_memory = self.credentials.pid > 0
            && self.pidfd.is_some()
            && cross_memory::peek(self.credentials.pid, address) == Ok(incarnation.get());
    }

    pub(crate) fn cross_memory(&self) -> bool {
        self.cross_memory
    }

    /// The kernel does not let us reach its memory any more.
    pub(crate) fn lose_cross_memory(&mut self) {
        self.cross_memory = false;
    }

    /// Zero if it is in a process namespace that we cannot see.
    pub(crate) fn pid(&self) -> i32 {
        self.credentials.pid
    }

    /// The number of the user that runs it.
    pub(crate) fn user(&self) -> u32 {
        self.credentials.uid
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether it has closed its end, or has ended.
    pub(crate) fn is_over(&self) -> bool {
        socket::is_over(&self.socket, PollFlags::RDHUP) || self.has_exited()
    }

    /// Whether the program that connected still runs: neither has its process ended, nor was it
    /// replaced by `exec`, which closes the socket. None if that could not be found out. One system
    /// call.
    pub(crate) fn is_running(&self) -> Option<bool> {
        match &self.pidfd {
            Some(pidfd) => socket::has_ended(&self.socket, pidfd).ok().map(|ended| !ended),
            None => Some(false),
        }
    }

    fn has_exited(&self) -> bool {
        self.pidfd.as_ref().is_some_and(|pidfd| socket::is_over(pidfd, PollFlags::IN))
    }

    /// Whether it may write all of this process's memory, whatever it is given here.
    pub(crate) fn may_write_anyway(&mut self) -> bool {
        if let Some(known) = self.may_write {
            return known;
        }
        let may = self.cross_memory && may_write_to_us(self.credentials.pid);
        // Its number may have become another's since it connected.
        *self.may_write.insert(may && self.is_running() == Some(true))
    }

    // After the pair was given up.

    /// Tells it that the pair is given up, and keeps an end that shows whether it has closed its
    /// own.
    pub(crate) fn shut_down(&self) {
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Whether it has given up the pair as well, or has ended.
    pub(crate) fn has_given_up(&self) -> bool {
        socket::is_over(&self.socket, PollFlags::HUP) || self.has_exited()
    }

    /// The descriptors that tell when it has given up the pair, or has ended.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let pidfd = self.pidfd.as_ref().map(|pidfd| PollFd::new(pidfd, PollFlags::IN));
        [PollFd::new(&self.socket, PollFlags::HUP)].into_iter().chain(pidfd)
    }
}
