//! Settings of an engine.

use petasos_fabric::Tuning;
use std::time::Duration;

/// Settings of an engine; the defaults suit most.
///
/// ```
/// use petasos_rpc::{EngineConfig, Idle, Refused};
/// use std::time::Duration;
///
/// let config = EngineConfig::default()
///     .idle(Idle::Sleep)
///     .timeout(Duration::from_secs(5))
///     .refused(Refused::Fail);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineConfig {
    /// What the engine does when there is nothing to do.
    pub idle: Idle,
    /// Time limit of calls that set none. Default: 30 s.
    pub timeout: Duration,
    /// How long calls wait for a peer that has not started yet, unless their own deadline is
    /// earlier. Default: 10 s.
    pub patience: Duration,
    /// What calls do while no process listens at their address, so that its system refuses
    /// connections. Default: they wait for a peer that was never there, for up to `patience`, and
    /// fail at once if there was one before.
    pub refused: Refused,
    /// Calls in progress that this engine takes from one caller; more are refused as busy.
    /// Callers learn this number, and send no more. Default: 256.
    pub calls_per_peer: u16,
    /// Calls in progress that this engine takes in all. Each may keep its arguments in memory, of
    /// up to the length of a message. Default: 65,536.
    pub calls_in_all: usize,
    /// Calls to one peer that may wait here for credit; more fail as busy. Default: 65,536.
    pub queue_per_peer: usize,
    /// The largest arguments or result that this engine takes into memory, in bytes. Use bulk
    /// transfer for larger data. Default: 256 MiB.
    pub max_body: u64,
    /// Arguments and results of more bytes than this stay where they are, and the other side
    /// fetches them, even if a message of the transport could hold them. At least 1 KiB: less
    /// counts as 1 KiB. Default: what `petasos tune` found best for this machine and the engine's
    /// transport ([`Tuning`]), otherwise the length of a message.
    pub lend_above: Option<usize>,
    /// What callers are told to wait when this engine is busy. Default: 1 ms.
    pub retry_after: Duration,
    /// Read-only bulk data of up to so many bytes travels within its descriptor. Default: 256.
    pub bulk_inline: usize,
    /// Pieces of memory that are lent at a time, as one argument. Default: 1,048,576.
    pub bulk_pieces: usize,
    /// Whether latencies are recorded, per method. Costs two clock reads a call. Default: no.
    pub measure: bool,
    /// Events taken in one pass: bounds how long a pass takes. Default: 64.
    pub budget: usize,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            idle: Idle::default(),
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            refused: Refused::default(),
            calls_per_peer: 256,
            calls_in_all: 65_536,
            queue_per_peer: 65_536,
            max_body: 256 << 20,
            lend_above: None,
            retry_after: Duration::from_millis(1),
            bulk_inline: 256,
            bulk_pieces: 1 << 20,
            measure: false,
            budget: 64,
        }
    }
}

impl EngineConfig {
    /// Sets what the engine does when there is nothing to do.
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> EngineConfig {
        self.idle = idle;
        self
    }

    /// Sets the time limit of calls that set none.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> EngineConfig {
        self.timeout = timeout;
        self
    }

    /// Sets how long calls wait for a peer that has not started yet.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> EngineConfig {
        self.patience = patience;
        self
    }

    /// Sets what calls do while no process listens at their address.
    #[must_use]
    pub fn refused(mut self, refused: Refused) -> EngineConfig {
        self.refused = refused;
        self
    }

    /// Sets how many calls in progress are taken from one caller.
    #[must_use]
    pub fn calls_per_peer(mut self, calls_per_peer: u16) -> EngineConfig {
        self.calls_per_peer = calls_per_peer;
        self
    }

    /// Sets how many calls in progress are taken in all.
    #[must_use]
    pub fn calls_in_all(mut self, calls_in_all: usize) -> EngineConfig {
        self.calls_in_all = calls_in_all;
        self
    }

    /// Sets how many calls to one peer may wait for credit.
    #[must_use]
    pub fn queue_per_peer(mut self, queue_per_peer: usize) -> EngineConfig {
        self.queue_per_peer = queue_per_peer;
        self
    }

    /// Sets the largest arguments or result that is taken into memory, in bytes.
    #[must_use]
    pub fn max_body(mut self, max_body: u64) -> EngineConfig {
        self.max_body = max_body;
        self
    }

    /// Sets from how many bytes on arguments and results stay where they are.
    #[must_use]
    pub fn lend_above(mut self, lend_above: Option<usize>) -> EngineConfig {
        self.lend_above = lend_above;
        self
    }

    /// Sets what callers are told to wait when this engine is busy.
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> EngineConfig {
        self.retry_after = retry_after;
        self
    }

    /// Sets up to how many bytes read-only bulk data travels within its descriptor.
    #[must_use]
    pub fn bulk_inline(mut self, bulk_inline: usize) -> EngineConfig {
        self.bulk_inline = bulk_inline;
        self
    }

    /// Sets how many pieces of memory are lent at a time.
    #[must_use]
    pub fn bulk_pieces(mut self, bulk_pieces: usize) -> EngineConfig {
        self.bulk_pieces = bulk_pieces;
        self
    }

    /// Sets whether latencies are recorded, per method.
    #[must_use]
    pub fn measure(mut self, measure: bool) -> EngineConfig {
        self.measure = measure;
        self
    }

    /// Sets how many events are taken in one pass.
    #[must_use]
    pub fn budget(mut self, budget: usize) -> EngineConfig {
        self.budget = budget;
        self
    }
}

/// What a call does while no process listens at its address, and the system there refuses
/// connections.
///
/// If nothing answers at all, as when a machine is off, calls wait in any case, for as long as
/// [`EngineConfig::patience`] and their own time limit say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Wait for a peer that was never there, and may start later; fail at once if there was one
    /// before, which has ended.
    #[default]
    WaitForFirst,
    /// Wait: also for a server that is started again.
    Wait,
    /// Fail at once.
    Fail,
}

/// What an engine does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Poll for as long as a wake-up takes on this machine, then sleep: so a wait never costs more
    /// than twice what it would if its length were known before. The time is what `petasos tune`
    /// measured ([`Tuning`]), otherwise 50 us.
    #[default]
    Tuned,
    /// Poll again at once: the lowest latency, for a core that nothing else needs.
    Spin,
    /// Poll for so long, then sleep until something arrives. The thread yields the processor in
    /// between; while other threads keep it for long, it sleeps at once.
    Adaptive(Duration),
    /// Sleep at once.
    Sleep,
}

impl Idle {
    /// How long a wake-up takes, where that was not measured.
    const WAKE_UP: Duration = Duration::from_micros(50);

    /// How long to poll before sleeping; `None`: for ever.
    pub(crate) fn spin(self) -> Option<Duration> {
        match self {
            Idle::Tuned => Some(Tuning::of_machine().spin().unwrap_or(Self::WAKE_UP)),
            Idle::Spin => None,
            Idle::Adaptive(spin) => Some(spin),
            Idle::Sleep => Some(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that is new makes this fail to compile, until it has a builder.
    #[test]
    fn each_setting_has_a_builder_that_sets_it_alone() {
        let whole = EngineConfig::default()
            .idle(Idle::Spin)
            .timeout(Duration::from_secs(1))
            .patience(Duration::from_secs(2))
            .refused(Refused::Wait)
            .calls_per_peer(3)
            .calls_in_all(4)
            .queue_per_peer(5)
            .max_body(6)
            .lend_above(Some(7))
            .retry_after(Duration::from_secs(8))
            .bulk_inline(9)
            .bulk_pieces(11)
            .measure(true)
            .budget(10);
        let EngineConfig {
            idle,
            timeout,
            patience,
            refused,
            calls_per_peer,
            calls_in_all,
            queue_per_peer,
            max_body,
            lend_above,
            retry_after,
            bulk_inline,
            bulk_pieces,
            measure,
            budget,
        } = whole;
        assert_eq!((idle, refused, measure), (Idle::Spin, Refused::Wait, true));
        assert_eq!((timeout.as_secs(), patience.as_secs(), retry_after.as_secs()), (1, 2, 8));
        assert_eq!((calls_per_peer, calls_in_all, queue_per_peer), (3, 4, 5));
        assert_eq!((max_body, lend_above, bulk_inline, budget), (6, Some(7), 9, 10));
        assert_eq!(bulk_pieces, 11);
    }
}
