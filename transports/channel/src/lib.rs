//! Messages over an RDMA network: short packets, data that the receiver fetches, and remote FIFOs
//! for peers with much traffic, all of it under the contract of [`petasos_fabric`].
//!
//! An RDMA network ([`Device`]) offers short packets to any node, and put and get between
//! registered memories. Neither alone makes a good message layer: packets are small, and what is
//! kept per peer does not scale. [`Channels`] carries the packets of the two-sided engine
//! ([`petasos_fabric::two_sided`]) by three channels, after the communication framework of the
//! TH-Express interconnect:
//!
//! | channel | made of | memory |
//! |---|---|---|
//! | MP | short packets into one receive queue that all senders share | constant |
//! | shared RDMA | a short packet with a descriptor; the receiver gets the data from the sender's memory | constant |
//! | exclusive RDMA | a FIFO in the receiver's memory that one sender writes ([`fifo`]) | per peer, so only for hot ones |
//!
//! and leaves the user's put, get and atomics to the device.
//!
//! # One stream, three channels
//!
//! The packets to a peer are one sequence of *records*, numbered from 0. A packet of the engine's
//! is one or more records, with flags on the first and the last; each record goes by the channel
//! that suits it, and records may overtake each other. The receiver takes them in the order of
//! their numbers, whichever channel they came by. So the order between two endpoints holds across
//! channels, also while an exclusive channel is given or taken, and a long packet is a pipeline:
//! its records are copied in, put and copied out at the same time.
//!
//! There is one acknowledgement: the number before which all records have been taken (handed to the
//! engine, and fetched where they had to be). It returns all that the sender counts: the window of
//! short packets, the cells of the FIFO, the memory that was lent. It rides in the header of each
//! record that goes the other way, and is read when that record arrives, not when its turn comes.
//! Past half of the window, past a quarter of the FIFO, at the end of what was lent, or after a
//! while, it goes in a control packet, which has slots of its own.
//!
//! # The fast path
//!
//! A short message with nothing before it is one record, and allocates nothing: `inject` hands it
//! to the device from where its parts lie, or composes it in a buffer that is used again for a
//! FIFO, and `poll_message` copies it from where it arrived, a packet or the cells of a FIFO, to
//! its user's lease. There is no queue, and no event. If anything is in the way (no room, a message
//! before it, an event to be reported first), the engine takes it.
//!
//! A device that receives into memory of its own says what it finds there
//! ([`Device::find_packet`]): a packet of the engine's that is whole, and whose turn it is, is
//! copied from there to where it belongs, by `progress` as well. All others lie in
//! [`Lease`](petasos_fabric::Lease)s, made by [`device::gather`] of memory that is used again.
//!
//! # More than one fetch
//!
//! The engine takes one packet of a peer at a time, so lent memory would be fetched piece after
//! piece, a round trip each. Therefore the data of the records behind the next one is fetched
//! meanwhile, up to [`Config::ahead`] in all, and copied when its turn comes: order is that of the
//! numbers, as always. Bounce buffers hold it, so only records that fit one are fetched ahead; with
//! longer ones bandwidth counts, not latency, and they go in place.
//!
//! # What is bounded, and why nothing blocks for good
//!
//! * A sender has at most a window of short packets under way, a FIFO's cells, and a number of
//!   pieces lent. It takes from the engine only what it can send, in order.
//! * Of what may be lent one peer has no more than is free, so that one that fetches nothing holds
//!   up no other; and a peer to which nothing can be lent is sent short packets.
//! * A receiver keeps at most a window of packets per peer whose turn has not come. Of those that
//!   wait for this side there are no more than [`Config::deferred`] in all: then it does not read
//!   the data slots of the device. Others wait for their own sender, which may be stopped, and
//!   hold up no other.
//! * Consider the first record of a stream that has not been taken. Those before it were, so all
//!   that it needs at the sender comes back, by control packets that nothing holds up. It is on its
//!   way, as a put (which needs no slot) or as a packet. A packet sits in the data slots only while
//!   too many others wait for this side: they are taken by its next passes, or, where they can not
//!   be, found to wait for their own sender. So the slots are read again, and the record arrives.
//! * Bounce buffers for sending come back with acknowledgements, those for fetching when the data is
//!   there: two pools, so that neither waits for the other. A device may need the other side to run
//!   for a get; so one peer has no more buffers than are free, and what is next in a peer's order
//!   always gets one, if need be beyond the pool, of just its length. Its message lies in memory as
//!   long as that already, so this at most doubles what such peers cost.
//!
//! # Giving and recalling exclusive channels
//!
//! Which lengths go through an exclusive channel, while there is one, the [`Thresholds`] say, which
//! come from measurement: all up to a limit, those between two, or none. A sender with much of such
//! traffic with a peer ([`policy`]) asks for a channel; other messages do not count. The
//! receiver gives it within its cap, or first recalls the one that was not used for the longest
//! time, or refuses. A sender whose channel is recalled sends its next records as short packets,
//! waits until all records in the FIFO were acknowledged, and then says that the channel is closed.
//! A sender does the same of its own accord when it needs the memory for another peer.
//!
//! # Devices, and what a peer costs
//!
//! An idle peer costs 228 bytes here and in the engine, counted by an allocator: with 10,000 peers
//! of which 8 are hot an endpoint and its device hold 1.8 times what they hold with 10 (6.6 MB and
//! 3.7 MB). The receiver gives exclusive channels within a cap on count and memory.
//!
//! One device is simulated (`petasos_sim::device`), with slots, latencies, reordering, deaths and a
//! memory account; its puts read their source when they land, so that memory that is reused too
//! early is found. The other, the `Nic` of `petasos-datagram`, is made of the datagrams and the
//! reads of libfabric or UCX, between real processes.
//!
//! # What is trusted
//!
//! No peer is: the contents of packets, events and cells are read once and checked, and bounded as
//! is said above; a peer that sends anything invalid is lost with `LostReason::Protocol`. A peer
//! that holds a FIFO can write into it and nowhere else; the device enforces rights on memory.

#![forbid(unsafe_code)]

mod access;
mod ack;
mod assembly;
mod bounce;
mod channels;
mod config;
mod control;
mod counters;
mod deferred;
mod described;
pub mod device;
mod endpoint;
mod events;
mod exclusive;
pub mod fifo;
mod flow;
mod found;
mod header;
mod holders;
pub mod immediate;
mod inbound;
mod loans;
mod outbound;
mod packet;
mod peers;
pub mod policy;
mod port;
mod regions;
mod remote_access;
mod schedule;
mod sent;
mod short;
mod tag;
mod thresholds;

pub use channels::Channels;
pub use config::{Config, ExclusiveConfig, Force};
pub use counters::Counters;
pub use device::{Device, DeviceEvent, DeviceLimits};
pub use policy::{Cap, Hot};
pub use thresholds::{ThresholdError, Thresholds};

/// Invalid bytes from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({value})")]
pub struct Garbage {
    /// What was wrong.
    pub what: &'static str,
    /// The offending value.
    pub value: u64,
}

impl Garbage {
    pub(crate) fn new(what: &'static str, value: u64) -> Garbage {
        Garbage { what, value }
    }
}

impl From<petasos_fabric::two_sided::Violation> for Garbage {
    fn from(violation: petasos_fabric::two_sided::Violation) -> Garbage {
        Garbage { what: violation.what, value: violation.value }
    }
}
