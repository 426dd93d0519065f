//! What can be set for a TCP endpoint, and what it counts.

use crate::Secret;
use petasos_fabric::Limits;
use std::{net::SocketAddr, time::Duration};

/// Settings; the defaults suit most.
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
    /// Whether what goes over the connections is encrypted and authenticated. Needs a secret. A
    /// connection is encrypted where either side wants that; here it can also be said in the
    /// address, as `tcp://HOST:PORT?encrypt`. Takes up to half a MiB of buffers for a connection
    /// that is open. Default: no.
    pub encrypt: bool,
    /// Addresses by which others reach this endpoint though it does not have them: where something
    /// on the way translates addresses, or passes connections on. A peer that dialled anything else
    /// than where the connection came in, or one of these, is refused, as another process may stand
    /// in between. Default: none.
    pub reached_at: Vec<SocketAddr>,
    /// Whether every peer that connects is dialled back before it is listened to, at the address
    /// that it claims. Otherwise this is done once that address is resolved here
    /// ([`petasos_fabric::Endpoint::resolve`]), or it is another peer's already. Default: no.
    pub verify: bool,
    /// How long a peer may be silent before it is given up. At least 2 s, in whole seconds.
    /// Default: 10 s.
    pub silence: Duration,
    /// How long a handshake may take. Default: 3 s.
    pub handshake: Duration,
    /// Connections that have not shown the secret yet, at a time; the oldest goes when there is
    /// one more. Never more than an eighth of the descriptors that this process may have.
    /// Default: 256.
    pub max_handshakes: usize,
    /// Connections that others may have made to this endpoint, at a time. Of these a host has at
    /// most as many as are left: half of all where it is alone. Never more than seven eighths of
    /// the descriptors that this process may have. Peers beyond that are told so, and try again
    /// within their patience. Default: these.
    pub max_incoming: Option<usize>,
    /// A connection on which nothing was under way for so long is closed, if the other side closes
    /// its own as well (has set this, or `max_connections`). The peer stays: the next message, of
    /// either side, connects again. (Where both sides do so at the same moment, the peer may in
    /// rare cases be lost, as if the connection had broken.) But a process that dies meanwhile is
    /// missed only then. Default: never. For jobs of so many processes that each cannot keep a
    /// socket for all.
    pub close_idle_after: Option<Duration>,
    /// With more connections than this, those that are idle for the longest time are closed, as
    /// above. Those that are not stay. Default: no limit.
    pub max_connections: Option<usize>,
    /// The endpoint's numbers. Messages of up to 256 KiB, unless set otherwise: the same on all
    /// sides.
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

/// What an endpoint did, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections opened by us and by others.
    pub connections: u64,
    /// Of these, such as went on with a peer whose connection had been closed as idle.
    pub resumed: u64,
    /// Connections closed because they were idle.
    pub closed_idle: u64,
    /// Connections refused: wrong secret, garbage, too slow, an address that is not the peer's.
    pub refused: u64,
    /// Of these, such whose host had as many connections as it may.
    pub crowded: u64,
    /// Addresses that were dialled to see whether a claim is true.
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
