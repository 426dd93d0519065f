//! Which threads drive an interface, and which sleep meanwhile, and on what.

/// The threads that wait on an interface, and its engine.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    /// Passes over the interface so far.
    passes: u32,
    /// Threads that drive the endpoint now.
    driving: u32,
    /// Threads that sleep on the condition variable.
    waiting: u32,
    /// Whether there is an engine.
    engine: bool,
    /// Whether the engine is to drive, whichever thread did before.
    take_over: bool,
    /// Whether a thread sleeps on the endpoint's descriptor, and whether the endpoint will signal
    /// that.
    sleeper: bool,
    armed: bool,
    /// Whether the interface was ended.
    ended: bool,
}

/// What a thread sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepOn {
    /// The endpoint's descriptor.
    Descriptor,
    /// The condition variable.
    Condition,
    /// The same, once the thread on the descriptor was woken.
    ConditionAfterWake,
}

impl Drivers {
    /// Counts a pass, and says which one it is.
    #[inline]
    pub(crate) fn count_pass(&mut self) -> u32 {
        self.passes = self.passes.wrapping_add(1);
        self.passes
    }

    pub(crate) fn passes(&self) -> u32 {
        self.passes
    }

    // The engine.

    /// Registers the engine; false if there is one.
    pub(crate) fn add_engine(&mut self) -> bool {
        !std::mem::replace(&mut self.engine, true)
    }

    pub(crate) fn remove_engine(&mut self) {
        self.engine = false;
    }

    /// Whether the engine is to drive: it was asked to, or no other thread has driven since a pass.
    pub(crate) fn engine_is_to_drive(&mut self, since: u32) -> bool {
        let others = self.driving > 0 || self.passes != since;
        std::mem::take(&mut self.take_over) || !others
    }

    // Threads that wait.

    /// A thread drives from now on.
    #[inline]
    pub(crate) fn begin_driving(&mut self) {
        self.driving += 1;
    }

    #[inline]
    pub(crate) fn end_driving(&mut self) {
        self.driving -= 1;
    }

    /// Ends all waiting.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    // Sleeping, and waking.

    /// What the calling thread is to sleep on; `used`: whether the endpoint was used since it was
    /// armed.
    pub(crate) fn choose_sleep(&mut self, used: bool) -> SleepOn {
        if self.sleeper && (!self.armed || used) {
            // The endpoint will not wake that thread.
            self.take_over = true;
            self.armed = false;
            return SleepOn::ConditionAfterWake;
        }
        if self.engine {
            self.take_over = true;
        } else if !self.sleeper && self.driving == 0 {
            return SleepOn::Descriptor;
        }
        SleepOn::Condition
    }

    /// A thread sleeps on the condition variable from now on.
    pub(crate) fn begin_waiting(&mut self) {
        self.waiting += 1;
    }

    pub(crate) fn end_waiting(&mut self) {
        self.waiting -= 1;
    }

    /// Whether a thread sleeps on the condition variable.
    #[inline]
    pub(crate) fn any_waits(&self) -> bool {
        self.waiting > 0
    }

    /// The endpoint will signal its descriptor when something comes.
    pub(crate) fn arm(&mut self) {
        self.armed = true;
    }

    /// A thread sleeps on the descriptor from now on.
    pub(crate) fn begin_sleep(&mut self) {
        self.sleeper = true;
    }

    pub(crate) fn end_sleep(&mut self) {
        (self.sleeper, self.armed) = (false, false);
    }

    /// Whether a thread may sleep that this one has to wake.
    #[inline]
    pub(crate) fn may_sleep(&self) -> bool {
        self.armed || self.any_waits()
    }

    /// Whether the thread on the descriptor has to be woken, as the endpoint will not do so: it was
    /// used since it was armed.
    pub(crate) fn disarm_if(&mut self, used: bool) -> bool {
        let wake = self.armed && used;
        self.armed &= !wake;
        wake
    }

    /// Whether no thread drives, or sleeps on the descriptor, for those on the condition variable.
    pub(crate) fn none_is_left(&self) -> bool {
        !self.sleeper && !self.engine && self.driving == 0
    }
}
