//! The engine's clock: read rarely, because reading it costs as much as half a call.

use petasos_fabric::{Clock, Time};
use std::cell::Cell;

/// Passes between two readings of the clock while there is work.
const PASSES: u32 = 64;

#[derive(Debug)]
pub(crate) struct EngineClock {
    source: Source,
    now: Cell<Time>,
    passes: Cell<u32>,
}

#[derive(Debug)]
enum Source {
    Machine(Clock),
    /// Set from outside: see [`crate::Engine::set_time`].
    Given,
}

impl EngineClock {
    pub(crate) fn machine() -> EngineClock {
        let clock = Clock::start();
        let now = Cell::new(clock.now());
        EngineClock { source: Source::Machine(clock), now, passes: Cell::new(0) }
    }

    pub(crate) fn given(now: Time) -> EngineClock {
        EngineClock { source: Source::Given, now: Cell::new(now), passes: Cell::new(0) }
    }

    pub(crate) fn set(&self, now: Time) {
        self.now.set(now.max(self.now.get()));
        self.passes.set(PASSES);
    }

    /// The time when the clock was last read.
    pub(crate) fn coarse(&self) -> Time {
        self.now.get()
    }

    /// Reads the clock now.
    pub(crate) fn read(&self) -> Time {
        if let Source::Machine(clock) = &self.source {
            self.now.set(clock.now());
        }
        self.passes.set(0);
        self.now.get()
    }

    /// Passes since the clock was read.
    #[inline]
    pub(crate) fn passes(&self) -> u32 {
        self.passes.get()
    }

    /// Counts a pass; true if the clock was read in it.
    #[inline]
    pub(crate) fn pass(&self) -> bool {
        let passes = self.passes.get() + 1;
        self.passes.set(passes);
        if passes < PASSES {
            return false;
        }
        self.read();
        true
    }
}
