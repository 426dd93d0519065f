//! What can be set for an endpoint, and what it counts.

use petasos_fabric::Limits;
use petasos_tcp::Secret;
use std::time::Duration;

/// Settings of an endpoint over libfabric or UCX; the defaults suit most programs. All sizes are in
/// bytes.
///
/// ```
/// use petasos_datagram::{Config, Secret};
///
/// let mut config = Config::default();
/// config.secret = Some(Secret::new(b"sixteen bytes or more".to_vec())?);
/// config.remote_access_from = 64 << 10;
/// # Ok::<(), petasos_datagram::SecretError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What both sides must know: see [`petasos_tcp::Config::secret`]. Not used on shared
    /// memory, where the kernel vouches for peers. Default: none.
    pub secret: Option<Secret>,
    /// How long a peer may be silent before it counts as lost. Not used on shared memory, where the
    /// kernel reports the end of a process. Default: 10 s.
    pub silence: Duration,
    /// The endpoint's limits. `max_message` and `max_inject` are at most [`Config::MAX_MESSAGE`],
    /// and the same on all sides. Default: both are that.
    pub limits: Limits,
    /// The number of slabs of memory for receiving, at least 2, where the library is given some
    /// (libfabric). Default: 4.
    pub slabs: usize,
    /// The length of a slab, at least four times [`Config::MAX_MESSAGE`]. Where each packet is
    /// received into memory of its own (networks of libfabric), all slabs together say how much of it
    /// there is, for at most 256 packets. Default: 1 MiB.
    pub slab: usize,
    /// The most sends and accesses under way at a time, at least 2; the library may have fewer.
    /// Default: 256.
    pub sends: usize,
    /// The most sends and accesses with lost peers that the library may hold beyond
    /// [`Config::sends`]: not every library ever completes an operation with a peer that was
    /// killed, or is stopped. Each holds its memory, a short buffer, and some bytes more. The
    /// library may bear fewer. Beyond, and if none of them has completed after
    /// [`Config::mourning`], the endpoint can send nothing more, and loses the peers to which it is
    /// to send, with an error that says so. Default: 4,096.
    pub lost: usize,
    /// Whether put and get are left to the library, where it can. Otherwise the owner of the memory
    /// serves them, and nothing is registered with the library. Default: true.
    pub remote_access: bool,
    /// Leave put and get to the library even where every process that reaches its port can then
    /// access any memory of this process: on NICs driven by UCX, which does the accesses that a NIC
    /// cannot do without checking them. For networks that no other program can reach. Default:
    /// false, the owner serves them there.
    pub unchecked_access: bool,
    /// Puts and gets from this length on are left to the library. Default: 16 KiB.
    pub remote_access_from: u64,
    /// The owner's endpoint takes puts with event, and others that it serves, packet by packet. The
    /// library writes their payloads of this length or more, where it has completion data for that;
    /// then neither side copies them. Default: as [`Facts::completion_data_from`](crate::Facts)
    /// says, where that is faster.
    pub completion_data_from: Option<u64>,
    /// How many bytes of the endpoint's own memory, that of
    /// [`alloc`](petasos_fabric::Endpoint::alloc), stay registered with the library when they are
    /// deregistered, so that registering them again costs nothing. There are at most 256 such
    /// registrations; the one that was not used for longest is closed first. A peer that returned
    /// its grant and uses it all the same reaches such memory until it is closed: for peers that
    /// are trusted. Default: 0, all are closed at once.
    pub keep_registered: usize,
    /// How long accesses of, or to, a lost peer may go on, where the library does not report their
    /// end. Memory to which the peer had a grant that it did not return counts as reached until
    /// then: closing it ends with [`StillReached`](petasos_fabric::OpErrorKind::StillReached), if
    /// its patience ends before. A get from the peer that the library does not complete ends then,
    /// with [`PeerLost`](petasos_fabric::OpErrorKind::PeerLost): its memory may be written as long
    /// as the endpoint lives, which holds it, so that it never becomes exclusive. A put ends with
    /// its peer; its memory is held in the same way. It must not be shorter than data may wait in
    /// buffers of connections that are about to be closed. Default: 60 s.
    pub mourning: Duration,
}

impl Config {
    /// The longest message, and the longest payload of a packet.
    pub const MAX_MESSAGE: usize = 64 << 10;

    pub(crate) fn check(&self) -> Result<(), String> {
        let Config { limits, slabs, slab, sends, .. } = self;
        if limits.max_message > Self::MAX_MESSAGE || limits.max_inject > limits.max_message {
            let most = Self::MAX_MESSAGE;
            return Err(format!(
                "a `max_message` of {} bytes and a `max_inject` of {}; at most {most}, and no more to inject",
                limits.max_message, limits.max_inject
            ));
        }
        if *slabs < 2 || *slab < 4 * Self::MAX_MESSAGE || *sends < 2 {
            let least = 4 * Self::MAX_MESSAGE;
            return Err(format!(
                "{slabs} slabs of {slab} bytes and {sends} sends at a time; at least 2 slabs of {least} bytes, and 2 sends"
            ));
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Config {
        let mut limits = Limits::default();
        limits.max_inject = Self::MAX_MESSAGE;
        limits.max_message = Self::MAX_MESSAGE;
        Config {
            secret: None,
            silence: Duration::from_secs(10),
            limits,
            slabs: 4,
            slab: 1 << 20,
            sends: 256,
            lost: 4096,
            remote_access: true,
            unchecked_access: false,
            remote_access_from: 16 << 10,
            completion_data_from: None,
            keep_registered: 0,
            mourning: Duration::from_secs(60),
        }
    }
}

/// What an endpoint did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets sent, without mere acknowledgements.
    pub packets_out: u64,
    /// Packets received, without mere acknowledgements.
    pub packets_in: u64,
    /// Acknowledgements that had no packet to ride on.
    pub acknowledgements: u64,
    /// Packets with no valid ticket, thrown away.
    pub strays: u64,
    /// Sends and accesses with lost peers that the library has now.
    pub lost: usize,
    /// How often the library had no room.
    pub again: u64,
    /// Packets that waited for room here, for their sender's greeting, or for their completion
    /// data.
    pub deferred: u64,
    /// Pieces of put and get that the library carried out.
    pub accesses: u64,
    /// Payloads of puts with event that the library wrote, with completion data for the owner.
    pub completion_data_out: u64,
    /// Completion data that arrived for writes to our memory.
    pub completion_data_in: u64,
    /// Completion data that names no link, or no packet that can be under way: thrown away.
    pub stray_completion_data: u64,
    /// How often memory was registered with the library.
    pub registrations: u64,
    /// How often that was not needed, because a registration had been kept.
    pub registrations_kept: u64,
    /// Bytes that are registered now, though not in use.
    pub kept_bytes: usize,
    /// Rings for peers that may sleep.
    pub rings: u64,
    /// Peers cut off because they broke the protocol.
    pub violations: u64,
}
