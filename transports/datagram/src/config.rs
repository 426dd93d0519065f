//! What can be set for an endpoint, and what it counts.

use petasos_fabric::Limits;
use petasos_tcp::Secret;
use std::time::Duration;

/// Settings; the defaults suit most. All sizes in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What both sides must know: see [`petasos_tcp::Config::secret`]. On shared memory the kernel's word
    /// counts instead.
    pub secret: Option<Secret>,
    /// How long a peer may be silent before it is given up. Not on shared memory, where the kernel tells.
    pub silence: Duration,
    /// The endpoint's numbers. `max_message` and `max_inject` at most [`Config::MAX_MESSAGE`], and the same
    /// on all sides.
    pub limits: Limits,
    /// Memory for receiving, where the library is to be given some (libfabric): so many slabs.
    pub slabs: usize,
    /// The length of a slab: at least four times [`Config::MAX_MESSAGE`].
    pub slab: usize,
    /// Sends and accesses under way at a time, at most; the library may have fewer.
    pub sends: usize,
    /// Sends and accesses with peers that were lost which the library may have beyond [`Config::sends`], at most: not every
    /// library is ever done with what a peer that was killed, or is stopped, was to take part in. Each holds its memory, a
    /// short buffer, and some bytes more. The library may bear fewer. Beyond, and if none of them has come back after
    /// [`Config::mourning`], the endpoint can send nothing more, and loses the peers to which it is to send, with an error
    /// that says so. Default: 4,096.
    pub lost: usize,
    /// Whether put and get are left to the library, where it can. Else the owner of the memory serves them,
    /// and nothing is registered with the library.
    pub remote_access: bool,
    /// Leave put and get to the library also where its port then lets whoever reaches it access any memory of the
    /// process: on UCX's cards, whose library does the accesses that a card cannot do without checking them. For networks
    /// on which nobody else is. Default: false, the owner serves them there.
    pub unchecked_access: bool,
    /// Puts and gets from this length on are left to the library.
    pub remote_access_from: u64,
    /// Of puts with event, which the owner's endpoint takes packet by packet, and of others that it serves, the payloads of
    /// this length or more are written by the library, where it has completion data for that: then they are copied on
    /// neither side. In bytes. Default: as [`Facts::notices_from`](crate::Facts) says, where that is faster.
    pub notices_from: Option<u64>,
    /// How many bytes of the endpoint's own memory, that of [`alloc`](petasos_fabric::Endpoint::alloc), stay open to
    /// the library when they are deregistered, so that registering them again costs nothing: of 256 registrations at
    /// most, the one that was not used for longest is closed first. A peer that was granted access, and does not keep
    /// to what it said when it gave that back, reaches such memory until it is closed: for peers that are trusted. Default: 0, all is closed at once.
    pub keep_registered: usize,
    /// How long what a lost peer had a hand in may go on, where the library says nothing of its end. Memory that the peer
    /// was granted access to, and did not give back, counts as reached until then: closing it ends with
    /// [`StillReached`](petasos_fabric::OpErrorKind::StillReached), if its patience ends before. A get from the peer that the
    /// library does not give back ends then, with [`PeerLost`](petasos_fabric::OpErrorKind::PeerLost): its memory may be
    /// written as long as the endpoint lives, and stays held by it, so that it becomes exclusive for nobody. A put ends with
    /// its peer; its memory is held in the same way. Not less than data may wait in buffers of connections that are
    /// about to be closed. Default: 60 s.
    pub mourning: Duration,
}

impl Config {
    /// The longest message, and the longest payload of a packet.
    pub const MAX_MESSAGE: usize = 64 << 10;

    pub(crate) fn check(&self) -> Result<(), String> {
        let Config { limits, slabs, slab, sends, .. } = self;
        if limits.max_message > Self::MAX_MESSAGE || limits.max_inject > limits.max_message {
            return Err(format!("messages of {} bytes", limits.max_message));
        }
        if *slabs < 2 || *slab < 4 * Self::MAX_MESSAGE || *sends < 2 {
            return Err(format!("{slabs} slabs of {slab} bytes, {sends} sends at a time"));
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
            notices_from: None,
            keep_registered: 0,
            mourning: Duration::from_secs(60),
        }
    }
}

/// What an endpoint did, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets sent, without mere acknowledgements.
    pub packets_out: u64,
    /// Packets received, without mere acknowledgements.
    pub packets_in: u64,
    /// Acknowledgements that had no packet to ride on.
    pub acknowledgements: u64,
    /// Packets of nobody we know, thrown away.
    pub strays: u64,
    /// Sends and accesses with lost peers that the library has now.
    pub lost: usize,
    /// How often the library had no room.
    pub again: u64,
    /// Packets that waited for room here, for their sender's greeting, or for their notice.
    pub deferred: u64,
    /// Pieces of put and get that the library did.
    pub accesses: u64,
    /// Payloads of puts with event that the library wrote, and told the owner of.
    pub noticed_out: u64,
    /// What the library told us so of our memory.
    pub noticed_in: u64,
    /// What it told us of nobody we know, or that cannot be: thrown away.
    pub stray_notices: u64,
    /// How often memory was opened to peers by the library.
    pub registrations: u64,
    /// How often that was not needed, for it had been kept open.
    pub registrations_kept: u64,
    /// Bytes that are kept open now, though nobody uses them.
    pub kept_bytes: usize,
    /// Peers that were rung for, since they may sleep.
    pub rings: u64,
    /// Peers cut off because they broke the protocol.
    pub violations: u64,
}
