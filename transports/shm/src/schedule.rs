//! When descriptors are polled: a system call, which a pass that finds messages can do without.

use petasos_fabric::Time;
use std::time::Duration;

/// Passes without a message after which descriptors are polled.
const IDLE_PASSES: u32 = 256;
/// The same while messages come, at most.
const BUSY_PASSES: u32 = 16_384;
/// The same as the first while connections are being made.
const CONNECTING_PASSES: u32 = 16;
/// The longest time between two polls.
const INTERVAL: Duration = Duration::from_millis(1);

/// Counts passes, and says when the next poll is due.
pub(crate) struct PollSchedule {
    /// Passes since the last poll.
    passes: u32,
    /// After so many there is another one.
    due: u32,
    /// So many come after each message.
    patience: u32,
    /// Messages that had come when the poll was last put off.
    received: u64,
    /// A poll at this time in any case.
    due_at: Time,
}

impl PollSchedule {
    pub(crate) fn new() -> PollSchedule {
        PollSchedule { passes: 0, due: 0, patience: 0, received: 0, due_at: Time::ZERO }
    }

    /// Another pass, before which so many messages had come.
    #[inline]
    pub(crate) fn pass(&mut self, received: u64) {
        self.passes += 1;
        if received != self.received {
            self.put_off(received);
        }
    }

    /// Passes since the last poll: a number that differs from pass to pass.
    #[inline]
    pub(crate) fn passes(&self) -> usize {
        self.passes as usize
    }

    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.passes >= self.due || now >= self.due_at
    }

    /// Messages are coming: the poll can wait for a while.
    #[inline]
    pub(crate) fn put_off(&mut self, received: u64) {
        self.received = received;
        self.due = (self.passes + self.patience).min(BUSY_PASSES);
    }

    /// A connection is being made: a poll now, and often.
    pub(crate) fn hurry(&mut self) {
        (self.due, self.patience) = (0, CONNECTING_PASSES);
    }

    /// A poll begins. True if what is done once in each [`INTERVAL`] is due as well.
    pub(crate) fn begin(&mut self, now: Time) -> bool {
        let due = now >= self.due_at;
        if due {
            self.due_at = now.after(INTERVAL);
        }
        due
    }

    /// The poll is over; `connecting` while connections are being made.
    pub(crate) fn finish(&mut self, connecting: bool) {
        self.patience = if connecting { CONNECTING_PASSES } else { IDLE_PASSES };
        (self.passes, self.due) = (0, self.patience);
    }
}
