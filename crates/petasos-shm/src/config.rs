//! The numbers of an endpoint.

use crate::pair::RING;
use petasos_fabric::Limits;
use std::time::Duration;

/// How an endpoint behaves. All sizes in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Each of the two rings of a pair: a power of two, from 16 KiB to 16 MiB. Pages of it are
    /// there once they were used. Who connects decides.
    pub ring: usize,
    /// The longest unexpected message. Must be the same on both sides, and three quarters of a ring
    /// must hold one of them. One of more than 8 KiB goes in parts, so that both sides copy at the
    /// same time.
    pub max_message: usize,
    /// Whether other processes' ordinary memory is reached directly (`process_vm_readv`). Without
    /// it, or where the system refuses, its owner serves the access. The environment variable
    /// `PETASOS_SHM_NO_CMA=1` makes this false by default.
    pub cross_memory: bool,
    /// Users, beside the one who runs this, with whom this endpoint talks: numbers.
    pub admit: Vec<u32>,
    /// Peers at a time.
    pub max_peers: usize,
    /// Received messages that are not yet given back.
    pub max_leases: usize,
    /// Bytes that one `progress` copies for put and get, so that messages keep flowing.
    pub transfer_budget: usize,
    /// Peers whose rings are looked at without being rung for; others' first message after a
    /// while costs them a system call.
    pub max_watched: usize,
    /// Segments of one peer that stay mapped after use.
    pub max_mapped: usize,
    /// Whether memory of `alloc` asks for huge pages.
    pub huge_pages: bool,
    /// How long who connects may take to say who it is.
    pub handshake: Duration,
    /// How many may be at it at a time.
    pub max_handshakes: usize,
    /// How long a peer may stay within a region that is being closed, before it is cut off.
    pub closing_grace: Duration,
}

impl Default for Config {
    fn default() -> Config {
        let off = std::env::var_os("PETASOS_SHM_NO_CMA").is_some_and(|v| !v.is_empty() && v != "0");
        Config {
            ring: 256 << 10,
            max_message: (64 << 10) - petasos_fabric::two_sided::header::MAX,
            cross_memory: !off,
            admit: Vec::new(),
            max_peers: 65_536,
            max_leases: 4096,
            transfer_budget: 4 << 20,
            max_watched: 1024,
            max_mapped: 64,
            huge_pages: false,
            handshake: Duration::from_secs(2),
            max_handshakes: 256,
            closing_grace: Duration::from_secs(5),
        }
    }
}

impl Config {
    /// The longest packet: a message or a fragment, with its header.
    pub(crate) fn max_packet(&self) -> usize {
        self.max_message + petasos_fabric::two_sided::header::MAX
    }

    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.max_inject = self.max_message;
        limits.max_message = self.max_message;
        limits.max_header = self.max_message.min(1024);
        limits.max_regions = crate::table::SLOTS;
        limits.max_peers = self.max_peers;
        limits.max_leases = self.max_leases;
        limits
    }

    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.ring.is_power_of_two() || !RING.contains(&self.ring) {
            return Err(format!("a ring of {} bytes", self.ring));
        }
        let most = longest(self.ring);
        if self.max_message < 256 || self.max_packet() > most {
            return Err(format!(
                "messages of {} bytes in a ring of {}",
                self.max_message, self.ring
            ));
        }
        if self.transfer_budget == 0 || self.max_watched == 0 || self.max_handshakes == 0 {
            return Err("a budget of nothing".to_owned());
        }
        Ok(())
    }
}

/// The longest packet in a ring of so many bytes.
pub(crate) fn longest(ring: usize) -> usize {
    crate::ring::longest(ring / crate::ring::CELL)
}
