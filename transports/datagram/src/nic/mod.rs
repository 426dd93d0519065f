//! A NIC made of a [`Network`]: the channels of `petasos-channel` over a library's
//! datagrams.
//!
//! The channels ask for a [`Device`](petasos_channel::Device); a [`Nic`] is one. Below it peers
//! meet and are lost (`Datagrams`), and packets are numbered; what they carry is a NIC's own
//! ([`packet`]). The version of that is part of the protocol in greetings ([`frame::CHANNELS`]), so
//! that NICs that do not understand each other refuse each other with an error that names both.
//!
//! # How it works
//!
//! One numbered stream carries everything to a node: packets of both classes, puts, and answers.
//! The receiver takes in all of it whenever it is polled; data packets that its user does not ask
//! for yet are kept, up to a bound beyond what the window of a correct peer holds. A data packet
//! that is next in all respects is *found*: its user reads it where the library put it, and no
//! event is made of it ([`Device::find_packet`](petasos_channel::Device::find_packet)).
//!
//! * **Puts** are packets, which the target's NIC writes to where they belong. A library's own
//!   writes would need a completion at the target, which not all of them have; and a record of a
//!   channel's FIFO is short. Of long puts with event to memory of programs the library writes the
//!   data, where it has completion data. As a put is a packet, an exclusive channel gains little
//!   over short packets, and channels ask for none unless `petasos tune` found sizes for it.
//! * **Gets** are the library's reads, where it has them, and else requests that the owner's NIC
//!   answers, part by part.
//! * **Memory of programs** is open to no node before that asks for it, and shows the key; then
//!   puts and gets of [`Config::remote_access_from`] bytes or more are the library's. The engine of
//!   the channels serves the others, and atomics.
//!
//! # What is trusted
//!
//! As in [the crate](crate). What a node sends is checked once, where it is decoded; a node that
//! sends anything invalid, or makes more answers wait than it can have asked for, is cut off.
//! Memory is named by a registration and 64 random bits.
//!
//! [`frame::CHANNELS`]: crate::frame::CHANNELS

mod access;
mod body;
mod device;
mod events;
mod exposure;
mod exposures;
mod found;
mod grant;
mod nodes;
mod opened;
mod operations;
pub mod packet;
mod poll;
mod receive;
mod send;

use crate::{
    Config, Counters,
    datagrams::Datagrams,
    frame::HEADER_LEN,
    link::WINDOW,
    network::{Happened, Mark, Network},
};
use exposures::Exposures;
use found::Found;
use nodes::Reachable;
use opened::Registrations;
use operations::Operations;
use packet::Header;
use petasos_channel::{Channels, DeviceEvent, Thresholds};
use petasos_fabric::{Address, Peer, two_sided::header};
use std::collections::VecDeque;

/// How much longer than [`Facts::fragment`](crate::Facts::fragment) its packets may be: the headers
/// of the channels and of their engine come on top.
const HEADERS: usize = 16 + header::MAX;

/// Opens an endpoint at an address of the network: [`Channels`] over a [`Nic`].
///
/// # Errors
/// As [`Nic::open`].
pub fn open<N: Network>(
    address: &Address,
    config: Config,
) -> Result<Channels<Nic<N>>, N::OpenError> {
    Ok(Nic::<N>::open(address, config)?.into_endpoint())
}

/// A [`Device`](petasos_channel::Device) over the datagrams of a library. See [`crate::nic`].
pub struct Nic<N: Network> {
    /// Before the library's endpoint, which is dropped after it.
    opened: Registrations<N::Opened>,
    exposures: Exposures<N::Opened>,
    inner: Datagrams<N>,
    nodes: Reachable,
    operations: Operations,
    /// The library accesses memory of nodes.
    reads: bool,
    /// Whether data packets are asked for in this pass.
    data: bool,
    mail: VecDeque<DeviceEvent>,
    /// Data packets that were not asked for yet.
    stash: VecDeque<DeviceEvent>,
    /// A packet that lies where the library put it: nothing is asked of the library before it is
    /// taken.
    found: Option<Found>,
    /// One was taken since the last pass.
    took: bool,
    /// Lost peers whose loss was handed out: their numbers may be used again.
    departed: Vec<Peer>,
}

impl<N: Network> Nic<N> {
    /// Opens a NIC at an address of the network: see the transports for their addresses.
    ///
    /// # Errors
    /// The configuration is not valid, the address is none of this network's, the endpoint by which
    /// peers meet cannot be opened there, or the library refused.
    pub fn open(address: &Address, config: Config) -> Result<Nic<N>, N::OpenError> {
        let headers = HEADER_LEN + Header::MAX + HEADERS;
        let inner = Datagrams::<N>::open(address, config, headers)?;
        Ok(Nic {
            exposures: Exposures::default(),
            opened: Registrations::new(inner.config.limits.max_regions, inner.config.mourning),
            nodes: Reachable::default(),
            operations: Operations::default(),
            reads: inner.native,
            data: false,
            mail: VecDeque::new(),
            stash: VecDeque::new(),
            found: None,
            took: false,
            departed: Vec::new(),
            inner,
        })
    }

    /// The longest packet, in bytes.
    #[inline]
    fn longest(&self) -> usize {
        self.inner.net.facts().fragment + HEADERS
    }

    /// The settings of [`Channels`] that are best over it: what fits a packet is sent as one, and
    /// what is longer is read by its receiver, or, where the library does not read, comes in as many
    /// packets as it takes; there are no exclusive channels. What `petasos tune`
    /// found for the scheme has priority, and may ask for such channels for some sizes. The limits
    /// are those with which the NIC was opened.
    #[must_use]
    pub fn settings(&self) -> petasos_channel::Config {
        let mut settings = petasos_channel::Config::default();
        settings.limits = self.inner.config.limits;
        // One acknowledgement is for the NIC and for the channels.
        settings.window = WINDOW;
        // Where the library does not read, the owner's NIC sends what a receiver fetches: packets,
        // which may as well come without having been asked for.
        if !self.reads {
            settings.fragment = Config::MAX_MESSAGE;
        }
        let whole = Config::MAX_MESSAGE + header::MAX;
        let usual = Thresholds::new(whole, 0, whole).unwrap_or_default();
        settings.thresholds = Some(Thresholds::of_machine_or(self.inner.medium.scheme, usual));
        settings
    }

    /// [`Channels`] over it, with [these settings](Nic::settings).
    #[must_use]
    pub fn into_endpoint(self) -> Channels<Nic<N>> {
        let settings = self.settings();
        Channels::new(self, settings)
    }

    /// Takes in completion data as if a process had written to our memory: for tests, as a write
    /// needs a key of the library's.
    #[doc(hidden)]
    pub fn take_completion_data(&mut self, data: u64) {
        self.happened(Happened::CompletionData(data));
    }

    /// What the NIC did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.counters()
    }

    /// Its own name in the library's network, by which packets reach it.
    #[must_use]
    pub fn fabric_name(&self) -> &[u8] {
        self.inner.net.name()
    }

    /// The protocol that carries its packets, in the library's words.
    #[must_use]
    pub fn carrier(&self) -> &str {
        &self.inner.net.facts().protocol
    }
}

impl<N: Network> Drop for Nic<N> {
    /// What was sent leaves, as far as the library takes it within 200 ms, and nodes are told how
    /// much there was.
    fn drop(&mut self) {
        if !self.inner.home.is_current() {
            return;
        }
        let Nic { operations, inner, .. } = self;
        // Nothing is taken any more.
        inner.part(|inner| {
            while let Some(happened) = inner.net.next() {
                match happened {
                    Happened::Done(Mark::Access { access, serial }, _) => {
                        if let Some((peer, target)) = operations.granted(access, serial) {
                            inner.grants.completed(peer, target);
                        }
                    }
                    Happened::Done(Mark::Packet { link, serial }, result) => {
                        inner.done(link, serial, result);
                    }
                    _ => {}
                }
            }
        });
    }
}

impl<N: Network> std::fmt::Debug for Nic<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nic({}, {})", self.inner.address(), self.carrier())
    }
}
