//! The numbers of an endpoint.

use crate::pair::Sizes;
use petasos_fabric::{Limits, PeerQuota};
use std::time::Duration;

/// Settings of an endpoint. All sizes are in bytes.
///
/// ```
/// use petasos_fabric::Endpoint;
/// use petasos_shm::{Config, Shm};
///
/// let mut config = Config::default();
/// // Messages of up to 64 KiB, in smaller rings, for a job of many processes on a node.
/// config.max_message = 64 << 10;
/// config.long_ring = 256 << 10;
/// let endpoint = Shm::open_with(&"shm://*".parse()?, config)?;
/// assert_eq!(endpoint.capabilities().limits.max_message, 64 << 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Each of the two rings of a pair: a power of two, from 16 KiB to 16 MiB. Its pages are
    /// allocated when they are first used. The side that connects decides. Default: 128 KiB.
    pub ring: usize,
    /// Each of the two rings for messages of more than 8 KiB, which go in parts, so that both sides
    /// copy at the same time: sizes as above. Its pages are allocated while such messages are sent.
    /// Default: 2 MiB.
    pub long_ring: usize,
    /// The longest unexpected message: 256 bytes or more. Must be the same on both sides, and three
    /// quarters of a long ring must hold one. Default: 1 MiB + 1 KiB, less the longest header of a
    /// packet.
    pub max_message: usize,
    /// Whether other processes' ordinary memory is reached directly (`process_vm_readv`). Without
    /// it, or where the system refuses, its owner serves the access. Default: yes, unless the
    /// environment variable `PETASOS_SHM_NO_CMA` is set, to anything but `0`.
    pub cross_memory: bool,
    /// Numbers of users, beside the one that runs this process, with which this endpoint talks.
    /// Default: none.
    pub admit: Vec<u32>,
    /// Peers at a time. Default: 65,536.
    pub max_peers: usize,
    /// Leases at a time, over all peers: received messages of more than 112 bytes that the program
    /// has not dropped. Default: 4,096.
    pub max_leases: usize,
    /// Bytes of these leases, beyond which no other message is taken. Default: 256 MiB.
    pub max_lease_bytes: usize,
    /// What each peer may have of that, and of room for expected messages, until
    /// [`set_quota`](petasos_fabric::Endpoint::set_quota) says otherwise. Default: no bound of its
    /// own.
    pub quota: PeerQuota,
    /// Bytes that one `progress` copies for put and get, so that messages keep flowing: not 0.
    /// Default: 4 MiB.
    pub transfer_budget: usize,
    /// A put or get of so many bytes or more, in memory that is mapped here, bypasses the caches:
    /// they would not hold both sides of it. Default: 16 MiB.
    pub stream_from: u64,
    /// Peers whose rings are polled. A peer beyond these has to ring, which costs it a system call
    /// for the first message after a pause. Not 0. Default: 1,024.
    pub max_watched: usize,
    /// Segments of one peer that stay mapped after use. Default: 64.
    pub max_mapped: usize,
    /// Whether memory of `alloc` asks for huge pages. Default: no.
    pub huge_pages: bool,
    /// How long a connecting process may take to authenticate. Default: 2 s.
    pub handshake: Duration,
    /// Processes that connect at a time, and have not authenticated. The next one takes the place
    /// of the oldest of the user that has most. Not 0. Default: 256.
    pub max_handshakes: usize,
}

impl Default for Config {
    fn default() -> Config {
        let off = std::env::var_os("PETASOS_SHM_NO_CMA").is_some_and(|v| !v.is_empty() && v != "0");
        Config {
            ring: 128 << 10,
            long_ring: 2 << 20,
            max_message: (1 << 20) + 1024 - petasos_fabric::two_sided::header::MAX,
            cross_memory: !off,
            admit: Vec::new(),
            max_peers: 65_536,
            max_leases: 4096,
            max_lease_bytes: 256 << 20,
            quota: PeerQuota::UNLIMITED,
            transfer_budget: 4 << 20,
            stream_from: 16 << 20,
            max_watched: 1024,
            max_mapped: 64,
            huge_pages: false,
            handshake: Duration::from_secs(2),
            max_handshakes: 256,
        }
    }
}

impl Config {
    /// The sizes of pairs that are made here.
    pub(crate) fn sizes(&self) -> Sizes {
        // A message or a fragment, with its header.
        let max = self.max_message + petasos_fabric::two_sided::header::MAX;
        Sizes { ring: self.ring, long: self.long_ring, max }
    }

    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.max_inject = self.max_message;
        limits.max_message = self.max_message;
        limits.max_header = self.max_message.min(1024);
        limits.max_regions = crate::table::SLOTS;
        limits.max_peers = self.max_peers;
        limits.max_leases = self.max_leases;
        limits.quota = self.quota;
        limits
    }

    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.max_message < 256 || !self.sizes().are_possible() {
            let Config { ring, long_ring, max_message, .. } = self;
            return Err(format!(
                "messages of {max_message} bytes, rings of {ring} and {long_ring}"
            ));
        }
        if self.transfer_budget == 0 || self.max_watched == 0 || self.max_handshakes == 0 {
            return Err("a zero in transfer_budget, max_watched or max_handshakes".to_owned());
        }
        Ok(())
    }
}
