//! Waking a thread that sleeps in the kernel, and being woken by it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::thread::futex;

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
pub(crate) fn eventfd_round_trip(plan: &Plan) -> Result<RoundTrip, LimitError> {
    let event = || {
        eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(LimitError::system("making an eventfd to sleep on"))
    };
    take_turns(plan, EVENTFD, "blocking reads of two eventfds", &EventFds([event()?, event()?]))
}

/// Two threads wake each other through one futex.
///
/// # Errors
///
/// [`LimitError::System`] when the kernel refuses a futex, [`LimitError::PeerStopped`] when the
/// other thread ended early.
pub(crate) fn futex_round_trip(plan: &Plan) -> Result<RoundTrip, LimitError> {
    take_turns(plan, FUTEX, "waits on one futex private to the process", &Futex::default())
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
        // Fails only where the other side's sleep fails as well.
        let _ = self.bell.ring(self.other);
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

    fn sleep(&self, side: Side) -> Result<(), Errno> {
        let mut count = [0; 8];
        retry_on_intr(|| read(&self.0[side as usize], &mut count)).map(drop)
    }
}

/// One word that both sides sleep on: which of them have been woken, a bit each.
#[derive(Default)]
#[repr(align(128))]
struct Futex(AtomicU32);

impl Bell for Futex {
    fn ring(&self, side: Side) -> Result<(), Errno> {
        self.0.fetch_or(1 << side as u32, Ordering::Release);
        // At most the other side sleeps here: the caller is awake.
        futex::wake(&self.0, futex::Flags::PRIVATE, 1).map(drop)
    }

    fn sleep(&self, side: Side) -> Result<(), Errno> {
        let bit = 1 << side as u32;
        loop {
            let seen = self.0.load(Ordering::Acquire);
            if seen & bit != 0 {
                self.0.fetch_and(!bit, Ordering::AcqRel);
                return Ok(());
            }
            match futex::wait(&self.0, futex::Flags::PRIVATE, seen, None) {
                // Changed before the kernel looked, or a signal: look again.
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}
