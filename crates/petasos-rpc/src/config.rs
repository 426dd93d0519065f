//! What can be set for an engine.

use petasos_fabric::Tuning;
use std::time::Duration;

/// Settings of an engine; the defaults suit most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineConfig {
    /// What to do when there is nothing to do.
    pub idle: Idle,
    /// Time limit of calls that set none. Default: 30 s.
    pub timeout: Duration,
    /// How long a peer that has not started yet is waited for. Calls end earlier by their own
    /// deadline. Default: 10 s.
    pub patience: Duration,
    /// Calls in progress that this engine takes from one caller; more are refused as busy.
    /// Callers learn it, and hold back. Default: 256.
    pub calls_per_peer: u16,
    /// Calls in progress that this engine takes in all. Default: 65,536.
    pub calls_in_all: usize,
    /// Calls that may wait here for their turn with one peer; more fail as busy. Default: 65,536.
    pub queue_per_peer: usize,
    /// The largest arguments or result that is taken into memory. Larger data is for bulk
    /// transfer. Default: 256 MiB.
    pub max_body: u64,
    /// Arguments and results of more bytes than this stay where they are, and the other side fetches
    /// them, though a message of the transport would hold them. No less than 1 KiB counts. Default:
    /// what `petasos tune` found best for this machine and the engine's transport ([`Tuning`]), or
    /// else no limit but the message's.
    pub lend_above: Option<usize>,
    /// What callers are told to wait when this engine is busy. Default: 1 ms.
    pub retry_after: Duration,
    /// Read-only bulk data up to so many bytes travels within its descriptor. Default: 256.
    pub bulk_inline: usize,
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
            calls_per_peer: 256,
            calls_in_all: 65_536,
            queue_per_peer: 65_536,
            max_body: 256 << 20,
            lend_above: None,
            retry_after: Duration::from_millis(1),
            bulk_inline: 256,
            measure: false,
            budget: 64,
        }
    }
}

/// What an engine does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Look again for as long as a wake-up takes here, then sleep: so whoever waits never takes
    /// more than twice what he would if he knew what comes. As `petasos tune` found it out
    /// ([`Tuning`]), or else 50 us.
    #[default]
    Tuned,
    /// Look again at once: the lowest latency, and a core that nobody else needs.
    Spin,
    /// Look again for so long, then sleep until something comes. Others who want the processor get it
    /// in between; while they keep it for long, sleep at once.
    Adaptive(Duration),
    /// Sleep at once.
    Sleep,
}

impl Idle {
    /// How long a wake-up takes where nobody measured it.
    const WAKE_UP: Duration = Duration::from_micros(50);

    /// How long to look again before sleeping; `None` for ever.
    pub(crate) fn spin(self) -> Option<Duration> {
        match self {
            Idle::Tuned => Some(Tuning::of_machine().spin().unwrap_or(Self::WAKE_UP)),
            Idle::Spin => None,
            Idle::Adaptive(spin) => Some(spin),
            Idle::Sleep => Some(Duration::ZERO),
        }
    }
}
