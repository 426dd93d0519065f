//! How often the control endpoint and the library are polled, and how long naps are.

use petasos_fabric::Time;
use std::{mem, time::Duration};

/// While messages arrive, the control endpoint is polled once in this many passes.
const TURN: u32 = 32;
/// The same in packets, of which a pass may take in many.
const CROWD: u64 = 128;
/// After this many passes without a message it is polled in each.
const QUIET: u32 = 128;
/// Passes without a sleep after which an endpoint counts as spinning.
const SPINNING: u32 = 2000;
/// The shortest nap, and how often it is doubled.
const NAP: Duration = Duration::from_micros(50);
const DOUBLED: u32 = 8;

/// The rhythm of an endpoint.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Passes, and messages taken on the fast path, since the last sleep.
    passes: u32,
    /// Passes since a message last arrived.
    quiet: u32,
    /// Passes until the control endpoint is polled.
    turn: u32,
    /// Packets that had arrived when it was last polled.
    attended: u64,
    /// Naps in a row.
    naps: u32,
    /// Nothing was done in the last pass.
    idle: bool,
    /// The caller may have slept since the last pass.
    armed: bool,
    /// The library was just polled, and had nothing.
    polled: bool,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            passes: 0,
            quiet: 0,
            turn: 0,
            attended: 0,
            naps: 0,
            idle: false,
            armed: true,
            polled: false,
        }
    }

    #[inline]
    pub(crate) fn begin_pass(&mut self) {
        self.passes = self.passes.saturating_add(1);
        self.turn = self.turn.saturating_sub(1);
    }

    #[inline]
    pub(crate) fn end_pass(&mut self, busy: bool) {
        self.idle = !busy;
    }

    /// Whether nothing was done in the last pass.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Whether the control endpoint is to be polled in this pass, after this many packets in all.
    #[inline]
    pub(crate) fn is_control_due(&self, packets: u64) -> bool {
        let crowd = packets - self.attended >= CROWD;
        self.turn == 0 || crowd || self.quiet >= QUIET || self.armed
    }

    /// The control endpoint is polled. Rings arrive there: the library is polled after that.
    #[inline]
    pub(crate) fn control_polled(&mut self, packets: u64) {
        (self.armed, self.polled) = (false, false);
        (self.turn, self.attended) = (TURN, packets);
    }

    /// The library was polled, and had nothing.
    #[inline]
    pub(crate) fn library_was_empty(&mut self) {
        self.polled = true;
    }

    /// Whether the library was just polled, and had nothing: then a pass does not poll it again.
    #[inline]
    pub(crate) fn take_polled(&mut self) -> bool {
        mem::take(&mut self.polled)
    }

    /// The library was polled in a pass: whether something had arrived.
    #[inline]
    pub(crate) fn library_polled(&mut self, arrived: bool) {
        self.quiet = if arrived { 0 } else { self.quiet.saturating_add(1) };
    }

    /// Something has arrived, or a peer says so.
    #[inline]
    pub(crate) fn arrived(&mut self) {
        self.quiet = 0;
    }

    /// A message was taken on the fast path.
    #[inline]
    pub(crate) fn message_taken(&mut self) {
        self.passes = self.passes.saturating_add(1);
    }

    /// Whether the caller spins rather than sleeps.
    #[inline]
    pub(crate) fn is_spinning(&self) -> bool {
        self.passes > SPINNING
    }

    // Sleeping.

    /// The caller may sleep after this. Says whether there were passes since it last did.
    #[inline]
    pub(crate) fn arm(&mut self) -> bool {
        (self.armed, self.polled) = (true, false);
        mem::take(&mut self.passes) > 0
    }

    /// The end of the next nap: the longer the more there were in a row. `spun` is what
    /// [`Pace::arm`] said.
    #[inline]
    pub(crate) fn nap(&mut self, spun: bool, now: Time) -> Time {
        self.naps = if spun && !self.idle { 0 } else { (self.naps + 1).min(DOUBLED) };
        now.after(NAP * (1 << self.naps))
    }

    /// Whether naps are as long as they become.
    #[inline]
    pub(crate) fn is_longest_nap(&self) -> bool {
        self.naps == DOUBLED
    }

    #[inline]
    pub(crate) fn end_naps(&mut self) {
        self.naps = 0;
    }

    /// When to look again whether a peer that ends has said more.
    #[inline]
    pub(crate) fn look_again(now: Time) -> Time {
        now.after(NAP * 20)
    }
}
