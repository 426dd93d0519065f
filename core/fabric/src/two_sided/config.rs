//! The engine's numbers: limits that both sides know, those of one endpoint, and counters.

use crate::Limits;

/// Requests to one peer that may be without an answer at a time. Part of the protocol.
pub const MAX_REQUESTS: u32 = 256;
/// Bodies of long messages, and as many of expected ones, announced to one peer and not yet done
/// with. Part of the protocol; what is sent beyond waits at the sender, and so do messages of the
/// same kind behind it.
pub const MAX_BODIES: u32 = 1024;
/// Expected messages to one peer that may be sent with their data before a receive for them is
/// known, once it was asked for places: at most so many. Part of the protocol.
pub const EAGER_CREDITS: u16 = 32;
/// The longest expected message that may be sent so, in bytes. Part of the protocol.
pub const MAX_EAGER: usize = 16 * 1024;

/// Expected messages that one may announce to a peer, at any time, before it has said that there is
/// room for more. Part of the protocol.
pub const TAGGED_ROOM: u16 = 16;

/// The numbers of one engine. Bytes unless said otherwise.
///
/// `limits.max_message`, `max_header` and `max_atomic` must be the same on both sides of a channel:
/// what is longer than ours breaks the protocol.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What the endpoint promises. Messages are never cut, so `max_message`, `max_header` and
    /// twice `max_atomic` must fit into a fragment.
    pub limits: Limits,
    /// The longest payload of a packet that this side sends.
    pub max_fragment: usize,
    /// Expected messages up to this length travel with their data; at most [`MAX_EAGER`], and at
    /// most a fragment.
    pub eager: usize,
    /// How much one get request asks for. The answer is cut into fragments of the owner's.
    pub get_chunk: usize,
    /// How many requests one get or receive keeps under way.
    pub get_depth: u32,
    /// Injected messages that wait for one peer, in bytes and headers together; beyond,
    /// `InjectError::Full`.
    pub inject_queue: usize,
    /// Unmatched expected messages that this endpoint keeps, in bytes with their headers, beside
    /// [`TAGGED_ROOM`] headers of each peer. Peers send what was promised room, and keep the rest.
    pub max_unexpected: usize,
    /// Imported keys at a time.
    pub max_imports: usize,
    /// The transport leaves all operations to the engine, and sends around it nothing but messages,
    /// in order with the engine's packets. Then the engine sees to fences by itself; else
    /// operations that carry one fail, but for those of which the transport asks
    /// ([`Engine::defer`](super::Engine::defer)).
    pub in_order: bool,
}

impl Config {
    /// Numbers that fit a channel whose packets have payloads of up to `max_fragment` bytes.
    #[must_use]
    pub fn new(limits: Limits, max_fragment: usize) -> Config {
        Config {
            limits,
            max_fragment,
            eager: max_fragment.min(4096),
            get_chunk: max_fragment.clamp(128 << 10, 1 << 20),
            get_depth: 8,
            inject_queue: 256 << 10,
            max_unexpected: 64 << 20,
            max_imports: 1 << 20,
            in_order: false,
        }
    }

    pub(super) fn check(&self) {
        let longest = [
            self.limits.max_message,
            self.limits.max_inject,
            self.limits.max_header,
            2 * self.limits.max_atomic,
            self.eager,
        ];
        assert!(
            longest.iter().all(|len| *len <= self.max_fragment),
            "what travels in one packet must fit into a fragment of {} bytes",
            self.max_fragment
        );
        assert!(
            self.max_fragment <= 1 << 30 && self.limits.max_inject <= self.limits.max_message,
            "fragments of at most 1 GiB, and no injected message longer than a message"
        );
        assert!(
            self.eager <= MAX_EAGER && self.get_chunk > 0 && self.get_depth > 0,
            "eager messages of at most {MAX_EAGER} bytes, and gets that ask for something"
        );
    }
}

/// What an engine did, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets handed out to be sent.
    pub packets_out: u64,
    /// Their payload in bytes.
    pub bytes_out: u64,
    /// Packets that came and were in order.
    pub packets_in: u64,
    /// Their payload in bytes.
    pub bytes_in: u64,
    /// Operations accepted.
    pub submitted: u64,
    /// Operations that ended well.
    pub succeeded: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// Accesses of peers that were refused: stale, out of bounds, without the right.
    pub refused: u64,
    /// Payload that came too late and was thrown away, in bytes.
    pub discarded: u64,
    /// How often a peer that asked for credit was looked at and had to wait for leases.
    pub busy: u64,
    /// Expected messages that came before a receive for them.
    pub unexpected: u64,
    /// Peers that broke the protocol.
    pub violations: u64,
}
