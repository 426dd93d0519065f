//! What the engine of a launch does not do itself: put in here, for the launcher and for the
//! daemons that it starts on other hosts alike.

mod copies;
mod rate;
mod sockets;

use copies::Copies;
use petasos_launch::Plugins;
use sockets::Sockets;
use std::sync::Arc;

/// How files are moved; what is said here counts at the launcher only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moving {
    /// The most bytes a second to one host.
    pub(crate) rate: Option<u64>,
    /// No progress is shown.
    pub(crate) quiet: bool,
}

/// All that there is.
pub(crate) fn all(moving: Moving) -> Plugins {
    let mut plugins = Plugins::default();
    plugins.movers.push(Arc::new(Copies::new(moving)));
    plugins.networks.push(Arc::new(Sockets));
    plugins
}
