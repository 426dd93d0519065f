//! What this transport can do on this machine, for people.

use crate::{cross_memory, segment};
use petasos_fabric::memory::memfd;

/// Whether this transport works here, and what it lacks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Probe {
    /// Whether memory can be shared at all; the error says why not.
    pub available: Result<(), String>,
    /// Processes of one user may reach into each other's memory: if not, why. Then put and get on
    /// ordinary memory are served by its owner.
    pub cross_memory: Result<(), String>,
    /// Memory of the transport can be given to be read only: if not, why. Then it is not mapped.
    pub read_only_segments: Result<(), String>,
}

/// Probes this machine: makes a sealed file in memory, and reads memory of this process as a peer
/// would.
#[must_use]
pub fn probe() -> Probe {
    let made = memfd::create("petasos-probe", 4096)
        .and_then(|(fd, _)| memfd::seal_for_readers(&fd))
        .map_err(|error| format!("no sealed memory files here (Linux 5.1 has them): {error}"));
    let segments = segment::alloc(1, false).map_err(|error| error.to_string()).and_then(|region| {
        let segment = region.backing::<segment::Segment>().ok_or("no segment")?;
        segment
            .descriptor(false, false)
            .map(|_| ())
            .map_err(|error| format!("/proc/self/fd: {error}"))
    });
    Probe { available: made, cross_memory: cross_memory::allowed(), read_only_segments: segments }
}
