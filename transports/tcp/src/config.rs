//! What can be set for a TCP endpoint, and what it counts.

use crate::Secret;
use petasos_fabric::Limits;
use std::{net::SocketAddr, time::Duration};

/// Settings of an endpoint. The defaults suit most programs.
///
/// ```
/// use petasos_tcp::{Config, Secret, TcpEndpoint};
/// use std::time::Duration;
///
/// let mut config = Config::default();
/// config.secret = Some(Secret::new(*b"at least sixteen random bytes")?);
/// config.encrypt = true;
/// config.silence = Duration::from_secs(5);
/// let endpoint = TcpEndpoint::open(&"tcp://127.0.0.1:0".parse()?, config)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What both sides must know. Needed to listen beyond the loopback interface.
    pub secret: Option<Secret>,
    /// Whether packets are encrypted and authenticated. Needs a secret. A connection is encrypted
    /// where either side wants that; the address can ask for it, too, as `tcp://HOST:PORT?encrypt`.
    /// Takes up to half a MiB of buffers for each open connection. Default: no.
    pub encrypt: bool,
    /// Addresses by which others reach this endpoint though no interface here has them: where
    /// addresses are translated or connections relayed on the way. A peer that dialled anything but
    /// the address at which its connection arrived, or one of these, is refused, as another process
    /// may stand in between. Default: none.
    pub reached_at: Vec<SocketAddr>,
    /// Whether every peer that connects is dialled back, at the address that it claims, before it
    /// is admitted. Otherwise this is done once that address is resolved here
    /// ([`petasos_fabric::Endpoint::resolve`]), or if it is another peer's already. Default: no.
    pub verify: bool,
    /// How long a peer may be silent before it is declared lost: 2 s or more, in whole seconds.
    /// Default: 10 s.
    pub silence: Duration,
    /// How long a handshake may take. Default: 3 s.
    pub handshake: Duration,
    /// Handshakes at a time: connections that others made, and that have not authenticated. The
    /// oldest is closed when there is one more. Never more than an eighth of the descriptors that
    /// this process may have. Default: 256.
    pub max_handshakes: usize,
    /// Connections that others may have made to this endpoint, at a time. Of these a host may have
    /// at most as many as are left: half of all if it is the only one. Never more than seven
    /// eighths of the descriptors that this process may have, which is the default (`None`). A peer
    /// beyond that is told so, and tries again within its patience.
    pub max_incoming: Option<usize>,
    /// A connection that was idle for so long is closed, if the other side agrees (it has set this,
    /// or `max_connections`). The peer stays: the next message, of either side, connects again.
    /// (Where both sides connect at the same moment, the peer may in rare cases be lost, as if the
    /// connection had broken.) A process that dies meanwhile is noticed only then. For jobs of so
    /// many processes that each cannot keep a socket for all others. Default: never (`None`).
    pub close_idle_after: Option<Duration>,
    /// With more connections than this, those that have been idle for longest are closed, as above;
    /// those in use stay. Default: no limit (`None`).
    pub max_connections: Option<usize>,
    /// The endpoint's limits, in bytes and counts: see [`Limits`]. They must be the same on all
    /// sides. Default: messages of up to 256 KiB (`max_inject`, `max_message`), and else those of
    /// [`Limits`].
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Config {
        let mut limits = Limits::default();
        limits.max_inject = 256 << 10;
        limits.max_message = 256 << 10;
        Config {
            secret: None,
            encrypt: false,
            reached_at: Vec::new(),
            verify: false,
            silence: Duration::from_secs(10),
            handshake: Duration::from_secs(3),
            max_handshakes: 256,
            max_incoming: None,
            close_idle_after: None,
            max_connections: None,
            limits,
        }
    }
}

/// Counts since the endpoint was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections opened by us and by others.
    pub connections: u64,
    /// Of these, those that resumed the session of a connection closed as idle.
    pub resumed: u64,
    /// Connections closed because they were idle.
    pub closed_idle: u64,
    /// Connections refused: wrong secret, garbage, too slow, an address that is not the peer's.
    pub refused: u64,
    /// Of these, those of hosts that had as many connections as they may.
    pub crowded: u64,
    /// Addresses that were dialled to verify a claim.
    pub dialled_back: u64,
    /// Connections that could not be kept for want of descriptors or memory, and were cut off.
    pub turned_away: u64,
    /// System calls that took a connection, or tried to.
    pub accepts: u64,
    /// Peers cut off because they broke the protocol.
    pub violations: u64,
    /// System calls that sent.
    pub sends: u64,
    /// System calls that received, or found nothing to receive.
    pub receives: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
}
