//! What the daemon waits for. There are a few descriptors for each process, and most are silent:
//! they lie in a set that the kernel keeps, so that a wait costs what is ready, and not what there
//! is.
//!
//! Requests come in bursts, and a client that is answered asks again at once. So after something
//! came, the daemon looks again for a moment before it sleeps, and offers its processor meanwhile.

use super::{Daemon, Source, subreaper::Subreaper};
use petasos_fabric::Time;
use petasos_pmix::server::Spin;
use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags, Timespec, epoll, poll},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Instant,
};

/// What is taken from the set at a time; the rest comes the next time.
const BATCH: usize = 256;

/// The set, and whether it is worth while to look again.
#[derive(Debug)]
pub(crate) struct Watch {
    set: OwnedFd,
    busy: bool,
    looking: Spin,
}

/// Kinds of sources in the set, in the highest byte of their number there.
pub(super) const CLIENT: u64 = 0;
pub(super) const RANK: u64 = 1;
pub(super) const OUT: u64 = 2;
pub(super) const ERR: u64 = 3;

impl Watch {
    pub(crate) fn new() -> io::Result<Watch> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Watch { set, busy: false, looking: Spin::default() })
    }

    /// Has a descriptor in the set, or not. A closed one leaves by itself.
    pub(super) fn set(&self, is: &mut bool, wanted: bool, fd: impl AsFd, kind: u64, number: u64) {
        if *is == wanted {
            return;
        }
        let done = match wanted {
            true => {
                let data = epoll::EventData::new_u64(kind << 56 | number);
                epoll::add(&self.set, fd, data, epoll::EventFlags::IN)
            }
            false => epoll::delete(&self.set, fd),
        };
        // Where memory is short it is tried again at the next turn.
        *is = if done.is_ok() { wanted } else { *is };
    }

    fn ready(&self, sources: &mut Vec<Source>) {
        let mut events = Vec::with_capacity(BATCH);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&self.set, spare_capacity(&mut events), Some(&now)).is_err() {
            return;
        }
        sources.extend(events.iter().map(|event| {
            let data = event.data.u64();
            let number = data & !(0xff << 56);
            match data >> 56 {
                CLIENT => Source::Client(number),
                RANK => Source::Rank(number as u32),
                OUT => Source::Out(number as u32),
                _ => Source::Err(number as u32),
            }
        }));
    }
}

impl Daemon {
    /// Brings the set up to date.
    fn watch(&mut self) {
        let takes_output = self.takes_output();
        self.clients.watch(&self.watch);
        self.ranks.watch(takes_output, &self.watch);
    }

    /// Waits until something happens, or this time: what is to be seen to.
    pub(crate) fn wait(&mut self, until: Time) -> Vec<Source> {
        self.watch();
        let deadline = self.engine.deadline().min(self.clients.deadline()).min(until);
        let deadline = deadline.min(self.ranks.deadline()).min(self.head_deadline());
        let now = self.clock.now();
        let deadline = deadline.min(self.silence.deadline()).min(self.admission.deadline(now));
        let deadline = deadline.min(self.peers.strangers.deadline(now));
        let wait = deadline.since(now);
        // A little longer, so that it is not a little too early.
        let wait = Timespec {
            tv_sec: wait.as_secs().min(3600) as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let mut ready = Vec::new();
        if self.watch.busy {
            let since = Instant::now();
            loop {
                self.watch.ready(&mut ready);
                if !ready.is_empty() {
                    return ready;
                }
                if !self.watch.looking.again(since) {
                    break;
                }
            }
        }
        let members = self.poll(&wait, &mut ready);
        if members {
            self.watch.ready(&mut ready);
        }
        self.watch.busy = members;
        ready
    }

    /// Sleeps; says whether one of the set is ready, and adds what else is.
    fn poll(&self, wait: &Timespec, ready: &mut Vec<Source>) -> bool {
        let mut all: Vec<(Source, PollFd<'_>)> = Vec::new();
        let (read, write) = (PollFlags::IN, PollFlags::OUT);
        all.push((Source::Wakes, PollFd::new(&self.wakes, read)));
        let (now, proven) = (self.clock.now(), self.clients.have_few_unproven());
        if let Some(listener) =
            self.listeners.socket().filter(|_| proven && self.admission.is_open(now))
        {
            all.push((Source::Clients, PollFd::new(listener, read)));
        }
        if let Some(listener) = self.peers.waits_at(now).filter(|_| self.admission.is_open(now)) {
            all.push((Source::Strangers, PollFd::new(listener, read)));
        }
        if self.peers.listener.is_some() {
            all.push((Source::Said, PollFd::new(&self.peers.strangers, read)));
        }
        if let Some(ends) = self.subreaper.as_ref().and_then(Subreaper::as_fd) {
            all.push((Source::ChildEnded, PollFd::from_borrowed_fd(ends, read)));
        }
        if let Some(guard) = self.guards.watched() {
            all.push((Source::Guard, PollFd::new(guard, read)));
        }
        let open = proven && self.admission.is_open_to_all(now);
        if let Some(listener) = self.listeners.pmix41().filter(|_| open) {
            all.push((Source::Pmix41, PollFd::new(listener, read)));
        }
        for frames in self.clients.unsent() {
            all.push((Source::Drain, PollFd::new(frames, write)));
        }
        for (number, link) in &self.peers.links {
            let flags = if link.frames.backlog() > 0 { read | write } else { read };
            all.push((Source::Peer(*number), PollFd::new(&link.frames, flags)));
        }
        if let Some(input) = self.ranks.takes_input() {
            all.push((Source::Feed, PollFd::new(input, write)));
        }
        let stdin = rustix::stdio::stdin();
        if self.follows_starter {
            all.push((Source::Starter, PollFd::from_borrowed_fd(stdin, read)));
        } else if self.takes_input() {
            all.push((Source::Input, PollFd::from_borrowed_fd(stdin, read)));
        }
        for (node, pidfd) in self.running_remotes() {
            all.push((Source::Remote(node), PollFd::new(pidfd, read)));
        }
        all.push((Source::Set, PollFd::new(&self.watch.set, read)));
        let (sources, mut fds): (Vec<Source>, Vec<PollFd<'_>>) = all.into_iter().unzip();
        if poll(&mut fds, Some(wait)).is_err() {
            return false;
        }
        let found = sources.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ready.extend(found.map(|(source, _)| source));
        let set = matches!(ready.last(), Some(Source::Set));
        if set {
            ready.pop();
        }
        set
    }
}
