//! What can be set for a server, and what cannot.

use std::{num::NonZero, time::Duration};

/// The most bytes of data in one call.
pub(super) const INLINE: u64 = 256 << 10;

/// The most bytes that are lent to one call.
pub(super) const WINDOW: u64 = 16 << 20;

/// Settings of a server; the defaults suit most.
///
/// ```
/// use petasos_forward::server::ServerConfig;
/// use std::time::Duration;
///
/// let mut config = ServerConfig::default();
/// config.read_only = true;
/// // Memory for data on the way, and what each session may read, in bytes and bytes a second.
/// config.limits.memory = 1 << 30;
/// config.limits.rate = Some(500_000_000);
/// // A client that was stopped loses its locks to others that want them.
/// config.limits.lease = Some(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Whether nothing can be changed. Default: no.
    pub read_only: bool,
    /// What clients may use.
    pub limits: Limits,
    /// Threads that work on files. Default: two for each processor, at least four.
    pub threads: usize,
    /// How long one of these threads, without work, looks for more before it sleeps. Default: 20
    /// µs.
    pub spin: Duration,
    /// How long a staged file that is not touched is kept; checked at the start, and each hour.
    /// Default: seven days.
    pub stage_lifetime: Duration,
    /// Whether a staged file stays when it is closed without having got a name, so that a later
    /// session can go on with it. Otherwise it is discarded then, at the latest at the end of its
    /// session, however that ends. Default: yes.
    pub keep_staged: bool,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        ServerConfig {
            read_only: false,
            limits: Limits::default(),
            threads: (2 * processors).max(4),
            spin: Duration::from_micros(20),
            stage_lifetime: Duration::from_secs(7 * 24 * 3600),
            keep_staged: true,
        }
    }
}

/// What clients may use: at a limit, what goes beyond it waits or is refused, with an error that
/// names the limit. See [`ServerConfig`] for an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Memory for data on the way, in bytes; no less than 8 MiB counts. Default: 256 MiB.
    pub memory: u64,
    /// Sessions at a time; one address has no more than a quarter of them. Default: 1,024.
    pub sessions: usize,
    /// Files and directories that a session has open. Default: 1,024.
    pub files_per_session: usize,
    /// Calls of a session that are served at a time; as many may wait. Default: 128.
    pub calls_per_session: usize,
    /// Locks that a session holds. Default: 4,096.
    pub locks_per_session: usize,
    /// How long a client that sends nothing keeps its locks. After that another client that wants
    /// them takes them. Clients renew the lease by themselves a few times within it, as long as
    /// their engine is driven. Default: for as long as the client is connected.
    pub lease: Option<Duration>,
    /// Bytes a second that a session may read and write. Default: as many as it can.
    pub rate: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory: 256 << 20,
            sessions: 1024,
            files_per_session: 1024,
            calls_per_session: 128,
            locks_per_session: 4096,
            lease: None,
            rate: None,
        }
    }
}
