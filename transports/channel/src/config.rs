//! The numbers of an endpoint.

use crate::{Cap, Hot, Thresholds, device::DeviceLimits, fifo};
use petasos_fabric::Limits;
use std::time::Duration;

/// Which channel messages take, where that is not left to size and traffic: for tests and
/// measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Force {
    /// By size and traffic.
    #[default]
    None,
    /// Short packets only.
    Mp,
    /// Every payload is fetched by the receiver; what has none goes by short packet.
    Shared,
    /// An exclusive channel from the first message on; who is refused one sends short packets.
    Exclusive,
}

/// How exclusive channels are given and taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExclusiveConfig {
    /// Cells of a FIFO of this endpoint as receiver, and the most that it accepts as sender: from
    /// [`fifo::MIN_CELLS`] to [`fifo::MAX_CELLS`], of [`fifo::CELL`] bytes each. Default: 1024.
    pub cells: u32,
    /// What this endpoint gives to senders. Default: 16 of them, 4 MiB, taken when idle for 1 ms.
    pub give: Cap,
    /// What it keeps as a sender: the same.
    pub keep: Cap,
    /// When a peer is asked for one.
    pub hot: Hot,
    /// How long a peer that refused is not asked again. Default: 5 ms.
    pub pause: Duration,
}

/// How an endpoint behaves. Sizes in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What the endpoint promises. Default: messages of up to 16 KiB.
    pub limits: Limits,
    /// The longest payload of a packet of the two-sided engine. Default: 256 KiB.
    pub fragment: usize,
    /// Which size goes by which channel. Default: as `petasos tune` found it best for this machine and
    /// the device's scheme ([`Thresholds::of_machine`]).
    pub thresholds: Option<Thresholds>,
    /// Whether they are overruled.
    pub force: Force,
    /// Short packets to one peer without acknowledgement, at least 2. The same at both sides.
    /// Default: 16.
    pub window: u32,
    /// Packets that are kept because their turn has not come, of all peers together; beyond, the
    /// receive queue is left alone. Default: 4096.
    pub deferred: usize,
    /// How long an acknowledgement waits for something to ride on. Default: 20 us.
    pub ack_delay: Duration,
    /// Exclusive channels.
    pub exclusive: ExclusiveConfig,
    /// Pieces of memory that are lent at a time for others to fetch. Default: 64.
    pub lent: usize,
    /// Fetches under way for one record at a time. Default: 8.
    pub gets: usize,
    /// Records of one peer whose data is fetched at a time, at least 1: that whose turn it is, and behind
    /// it those that fit a bounce buffer. At most half of the bounce buffers are used ahead of turn.
    /// Default: 4.
    pub ahead: usize,
    /// Bounce buffers for sending, and as many for fetching. Default: 8.
    pub bounces: usize,
    /// Their length. Default: 64 KiB.
    pub bounce: usize,
    /// Pieces of one put or get of the user's under way at a time. Default: 8.
    pub accesses: usize,
    /// What is kept for a peer that was idle for so long is let go. Default: 10 ms.
    pub idle: Duration,
}

impl Default for Config {
    fn default() -> Config {
        let mut limits = Limits::default();
        limits.max_message = 16 << 10;
        let cap = Cap { count: 16, bytes: 4 << 20, idle: Duration::from_millis(1) };
        let exclusive = ExclusiveConfig {
            cells: 1024,
            give: cap,
            keep: cap,
            hot: Hot::default(),
            pause: Duration::from_millis(5),
        };
        Config {
            limits,
            fragment: 256 << 10,
            thresholds: None,
            force: Force::None,
            window: 16,
            deferred: 4096,
            ack_delay: Duration::from_micros(20),
            exclusive,
            lent: 64,
            gets: 8,
            ahead: 4,
            bounces: 8,
            bounce: 64 << 10,
            accesses: 8,
            idle: Duration::from_millis(10),
        }
    }
}

impl Config {
    pub(crate) fn check(&self, device: &DeviceLimits) {
        assert!(device.packet >= 256 && device.transfer > 0, "a device with packets of 256 bytes");
        assert!(self.window >= 2 && self.window <= 1 << 16, "a window of {}", self.window);
        let cells = self.exclusive.cells;
        assert!(
            (fifo::MIN_CELLS..=fifo::MAX_CELLS).contains(&cells),
            "a FIFO of {cells} cells, from {} to {}",
            fifo::MIN_CELLS,
            fifo::MAX_CELLS
        );
        let bounds = [
            self.lent,
            self.gets,
            self.ahead,
            self.bounces,
            self.bounce,
            self.accesses,
            self.deferred,
        ];
        assert!(bounds.iter().all(|bound| *bound > 0), "every bound is at least 1");
    }
}
