//! What an endpoint counts.

/// Counts since the endpoint was opened, and its state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages and packets written into rings.
    pub sent: u64,
    /// Messages and packets read from rings.
    pub received: u64,
    /// System calls made to wake peers.
    pub wake_ups: u64,
    /// Bytes moved by reaching into peers' ordinary memory.
    pub cross_memory_bytes: u64,
    /// Bytes moved in mapped segments.
    pub mapped_bytes: u64,
    /// Put, get and atomics that were left to the owner of the memory.
    pub served_by_owner: u64,
    /// Peers cut off because they broke the protocol.
    pub violations: u64,
    /// Connections refused for their user.
    pub refused: u64,
    /// Connections that could not be kept for want of descriptors or memory, and whose clients were
    /// told so.
    pub turned_away: u64,
    /// System calls that took a connection, or tried to.
    pub accepts: u64,
    /// Handshakes that failed.
    pub failed_handshakes: u64,
    /// Peers connected now.
    pub peers: usize,
    /// Peers' segments mapped now.
    pub segments: usize,
    /// Leases that are out now.
    pub leases: usize,
}
