//! How the two sides of a measurement wait for each other.

use crate::limits::Plan;
use petasos::{EngineConfig, Idle};
use serde::{Deserialize, Serialize};

/// How an engine waits; also says so in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Looks again at once.
    Spinning,
    /// Sleeps at once.
    Sleeping,
    /// Spins a little, then sleeps.
    Adaptive,
}

impl Waiting {
    /// As settings of an engine say it.
    pub fn idle(self) -> Idle {
        match self {
            Waiting::Spinning => Idle::Spin,
            Waiting::Sleeping => Idle::Sleep,
            Waiting::Adaptive => Idle::Tuned,
        }
    }

    /// Settings of an engine that waits so.
    pub fn config(self) -> EngineConfig {
        let mut config = EngineConfig::default();
        config.idle = self.idle();
        config
    }

    /// In a word, for tables: a side that sleeps at once blocks.
    pub fn label(self) -> &'static str {
        if self == Waiting::Sleeping { "blocking" } else { "spinning" }
    }

    /// How both sides wait when the lowest latency is wanted: they spin, where they have a core
    /// each.
    pub fn for_latency(plan: &Plan) -> Waiting {
        if plan.cores.alone() { Waiting::Sleeping } else { Waiting::Spinning }
    }
}
