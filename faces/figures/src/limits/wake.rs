//! Waking a thread that sleeps in the kernel, and being woken by it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::thread::futex::{self, Timespec};

use super::report::RoundTrip;
use super::{LimitError, Plan, pin, timing};

pub(super) const EVENTFD: &str = "eventfd";
pub(super) const FUTEX: &str = "futex";

/// Two threads wake each other through two eventfds with blocking reads.
///
/// # Errors
///
/// [`LimitError::System`] when an eventfd cannot be had, [`LimitError::PeerStopped`] when the
/// other thread ended early.
pub fn eventfd_round_trip(plan: &Plan) -> Result<RoundTrip, LimitError> {
    let event = || {
        eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(LimitError::system("making an eventfd to sleep on"))
    };
    take_turns(plan, EVENTFD, "blocking reads of two eventfds", &EventFds([event()?, event()?]))
}

/// Two threads wake each other through two futexes, each time once the other sleeps.
///
/// # Errors
///
/// [`LimitError::System`] when the kernel refuses a futex, [`LimitError::PeerStopped`] when the
/// other thread ended early.
pub fn futex_round_trip(plan: &Plan) -> Result<RoundTrip, LimitError> {
    take_turns(plan, FUTEX, "waits on two futexes private to the process", &Futex::default())
}

#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

/// A way to sleep until the other side says so.
trait Bell: Sync {
    /// Wakes `side`.
    fn ring(&self, side: Side) -> Result<(), Errno>;
    /// Wakes `side`, which may have ended.
    fn ring_once(&self, side: Side);
    /// Sleeps until `side` has been woken since its last sleep.
    fn sleep(&self, side: Side) -> Result<(), Errno>;
}

/// Rings for the other side when this one leaves, so that it does not sleep for ever.
struct StopOnDrop<'a, B: Bell> {
    stop: &'a AtomicBool,
    bell: &'a B,
    other: Side,
}

impl<B: Bell> Drop for StopOnDrop<'_, B> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring_once(self.other);
    }
}

fn take_turns<B: Bell>(
    plan: &Plan,
    name: &'static str,
    how: &str,
    bell: &B,
) -> Result<RoundTrip, LimitError> {
    let stop = &AtomicBool::new(false);
    let how = format!("{how}; {}", plan.cores.describe("sleeping threads"));
    thread::scope(|scope| {
        scope.spawn(move || {
            let _stop = StopOnDrop { stop, bell, other: Side::Client };
            pin(plan.cores.server);
            while bell.sleep(Side::Server).is_ok()
                && !stop.load(Ordering::Acquire)
                && bell.ring(Side::Client).is_ok()
            {}
        });
        let client = scope.spawn(move || {
            let _stop = StopOnDrop { stop, bell, other: Side::Server };
            pin(plan.cores.client);
            timing::round_trips(plan, name, &how, || {
                bell.ring(Side::Server).map_err(LimitError::system("waking a thread"))?;
                bell.sleep(Side::Client).map_err(LimitError::system("sleeping until woken"))?;
                if stop.load(Ordering::Acquire) {
                    return Err(LimitError::PeerStopped { name });
                }
                Ok(())
            })
        });
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct EventFds([OwnedFd; 2]);

impl Bell for EventFds {
    fn ring(&self, side: Side) -> Result<(), Errno> {
        retry_on_intr(|| write(&self.0[side as usize], &1_u64.to_ne_bytes())).map(drop)
    }

    fn ring_once(&self, side: Side) {
        // Fails only where the other side's sleep fails as well.
        let _ = self.ring(side);
    }

    fn sleep(&self, side: Side) -> Result<(), Errno> {
        let mut count = [0; 8];
        retry_on_intr(|| read(&self.0[side as usize], &mut count)).map(drop)
    }
}

/// How long a side sleeps before it looks whether it was told something on the way to sleep: only
/// the last word, which does not wait for a sleeper.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A bed for each side, whose word never changes, so that a side that goes to bed does sleep; and
/// whether it has been told to get up.
#[derive(Default)]
struct Futex([Bed; 2]);

#[derive(Default)]
#[repr(align(128))]
struct Bed {
    word: AtomicU32,
    told: AtomicBool,
}

impl Bed {
    fn wake(&self) -> Result<bool, Errno> {
        Ok(futex::wake(&self.word, futex::Flags::PRIVATE, 1)? > 0)
    }
}

impl Bell for Futex {
    fn ring(&self, side: Side) -> Result<(), Errno> {
        let bed = &self.0[side as usize];
        bed.told.store(true, Ordering::Release);
        // Again until it slept: what is measured is the end of a sleep.
        while bed.told.load(Ordering::Relaxed) && !bed.wake()? {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn ring_once(&self, side: Side) {
        let bed = &self.0[side as usize];
        bed.told.store(true, Ordering::Release);
        // Fails only where the other side's sleep fails as well.
        let _ = bed.wake();
    }

    fn sleep(&self, side: Side) -> Result<(), Errno> {
        let bed = &self.0[side as usize];
        loop {
            match futex::wait(&bed.word, futex::Flags::PRIVATE, 0, Some(&NAP)) {
                Ok(()) | Err(Errno::INTR | Errno::TIMEDOUT) => {}
                Err(errno) => return Err(errno),
            }
            if bed.told.swap(false, Ordering::AcqRel) {
                return Ok(());
            }
        }
    }
}
