//! What threads sleep on: a descriptor for each queue that was opened to be waited for.

use petasos_fabric::Time;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::{self, Errno, read, write},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create,
        timerfd_settime,
    },
};
use std::{sync::Arc, time::Duration};

/// Ends the sleep of the threads that wait for a queue, if any do.
#[derive(Default)]
pub(crate) struct Signal {
    event: Option<Arc<OwnedFd>>,
    armed: bool,
}

impl Signal {
    pub(crate) fn raise(&mut self) {
        if std::mem::take(&mut self.armed)
            && let Some(event) = &self.event
        {
            // Full is as good as written.
            let _ = write(event, &1u64.to_ne_bytes());
        }
    }

    /// From now on what happens is told.
    fn arm(&mut self) {
        if let Some(event) = &self.event {
            let _ = read(event, &mut [0u8; 8]);
            self.armed = true;
        }
    }
}

/// One descriptor for all that a queue may be waited for: its own signal, the descriptors of its
/// endpoints, and their next time.
pub(crate) struct Bed {
    all: OwnedFd,
    timer: OwnedFd,
}

impl Bed {
    /// A bed, and the signal that ends the sleep in it.
    pub(crate) fn new() -> io::Result<(Bed, Signal)> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let bed = Bed { all, timer };
        bed.watch(event.as_fd())?;
        bed.watch(bed.timer.as_fd())?;
        Ok((bed, Signal { event: Some(event), armed: false }))
    }

    /// Its sleep ends when this is readable, too.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        match epoll::add(&self.all, fd, data, epoll::EventFlags::IN) {
            Err(Errno::EXIST) => Ok(()),
            added => added,
        }
    }

    /// The one to wait for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// Prepares to sleep: until the signal, a descriptor, or a time that is so long away.
    pub(crate) fn arm(&self, signal: &mut Signal, longest: Option<Duration>) {
        signal.arm();
        let _ = read(&self.timer, &mut [0u8; 8]);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // None is no time; the least is one that has come.
        let at = longest.map_or(zero, |longest| timespec(longest.max(Duration::from_nanos(1))));
        let timer = Itimerspec { it_interval: zero, it_value: at };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer);
    }

    /// Sleeps. Not under the lock.
    pub(crate) fn sleep(fd: BorrowedFd<'_>, longest: Option<Duration>) {
        let longest = longest.map(timespec);
        // Interrupted is as good as woken: the caller looks again.
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], longest.as_ref());
    }
}

fn timespec(duration: Duration) -> Timespec {
    // More than a year is as good as a year.
    let duration = duration.min(Duration::from_secs(1 << 25));
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

/// How long it is from `now` to `until`; `None` if that never comes.
pub(crate) fn rest(until: Time, now: Time) -> Option<Duration> {
    (until != Time::NEVER).then(|| until.since(now))
}
