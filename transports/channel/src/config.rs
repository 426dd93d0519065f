//! The settings of an endpoint.

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
    /// An exclusive channel from the first message on; short packets while the peer refuses one.
    Exclusive,
}

/// How exclusive channels are given and taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExclusiveConfig {
    /// Cells of a FIFO of this endpoint as receiver, and the most that it accepts as sender: from
    /// [`fifo::MIN_CELLS`] to [`fifo::MAX_CELLS`], of [`fifo::CELL`] bytes each. Default: 1024.
    pub cells: u32,
    /// The exclusive channels that this endpoint gives to senders. Default: 16 of them, 4 MiB,
    /// taken when idle for 1 ms.
    pub give: Cap,
    /// Those that it keeps as a sender. Default: the same.
    pub keep: Cap,
    /// When a peer is asked for one: only messages count that would go through it
    /// ([`Thresholds::exclusive`]). Default: after 32 messages within a millisecond.
    pub hot: Hot,
    /// How long a peer that refused is not asked again. Default: 5 ms.
    pub pause: Duration,
}

/// The settings of an endpoint. Sizes are in bytes.
///
/// ```
/// use petasos_channel::{Config, Thresholds};
///
/// let mut config = Config::default();
/// config.thresholds = Some(Thresholds::new(4 << 10, 32 << 10, 128)?);
/// config.window = 32;
/// # Ok::<(), petasos_channel::ThresholdError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The endpoint's limits. Default: messages of up to 16 KiB, else as [`Limits::default`].
    pub limits: Limits,
    /// The longest payload of a packet of the two-sided engine. Default: 256 KiB.
    pub fragment: usize,
    /// Which size goes by which channel. Default: as `petasos tune` found it best for this machine
    /// and the device's scheme ([`Thresholds::of_machine`]), and no exclusive channel where it
    /// found nothing and the device's puts travel as packets
    /// ([`DeviceLimits::puts_are_packets`]).
    pub thresholds: Option<Thresholds>,
    /// Whether the thresholds are overruled. Default: no.
    pub force: Force,
    /// The most short packets to one peer without acknowledgement, from 2 to 65,536. The same on
    /// both sides. Default: 16.
    pub window: u32,
    /// The most packets that wait to be taken in, of all peers together; beyond, the device's
    /// receive queue is not read. Those that wait for their own sender, as it was stopped while
    /// what it lent is being fetched, do not count: else such peers would stop all others. Of them
    /// there is at most a window per peer. Default: 4096.
    pub deferred: usize,
    /// How long an acknowledgement waits for a record to ride on, where the peer does not wait for
    /// what it returns. Default: 1 ms.
    pub ack_delay: Duration,
    /// Exclusive channels.
    pub exclusive: ExclusiveConfig,
    /// The most pieces of memory that are lent to peers at a time, to be fetched. One peer has no
    /// more of them, and of the bounce buffers for sending, than are free; what is for a peer that
    /// has none, while all are lent, goes by short packets. Default: 64.
    pub lent: usize,
    /// Fetches under way for one record at a time. Default: 8.
    pub gets: usize,
    /// Records of one peer whose data is fetched at a time, at least 1: the one whose turn it is,
    /// and behind it those that fit a bounce buffer. Default: 4.
    pub ahead: usize,
    /// Bounce buffers for sending, and as many for fetching. One peer has no more of those for
    /// fetching than are free; one that has none gets one beyond them, of the length of what it
    /// fetches. Default: 8.
    pub bounces: usize,
    /// Their length. Default: 64 KiB.
    pub bounce: usize,
    /// Pieces of one put or get of the user's under way at a time. Default: 8.
    pub accesses: usize,
    /// How long a peer is idle before the memory that is kept for it is released. Default: 10 ms.
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
            ack_delay: Duration::from_millis(1),
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
