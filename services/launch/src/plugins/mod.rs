//! What programs that run jobs put in: ways to move files, and networks.

mod mover;
mod network;

pub use mover::{Estimate, FileMover, Key, NotPlaced, Placing, Receiving, Target};
pub use network::{ForRanks, Known, Network, Reserved, Row, SECRET_FILE, ThisNode, Wants};
use std::sync::Arc;

/// What the engine of a launch does not do itself, and does not depend on: put in by the program
/// that runs jobs, in the launcher and in the daemons of other hosts alike.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Plugins {
    /// Ways to bring files to nodes; the first is taken.
    pub movers: Vec<Arc<dyn FileMover>>,
    /// Networks that connect ranks; addresses come from the first that has them. Without any, ranks
    /// find each other only by what they put on their business cards.
    pub networks: Vec<Arc<dyn Network>>,
    /// Begins the log of a daemon on another host, with what
    /// [`Settings::log`](crate::Settings::log) says at the launcher: that is not known before the
    /// daemon was told of the job. Called once there, and never at the head node.
    pub log: Option<fn(Option<&str>)>,
}
