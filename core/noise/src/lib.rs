//! How two peers that share a secret open a connection: the handshake `NNpsk0` of the [Noise
//! protocol framework](https://noiseprotocol.org/noise.html) (revision 34), by the crate `snow`,
//! and the end of the connection ([`ResponderAddress`]), which both sides put into it.
//!
//! * [`Handshake`]: two messages, one in each direction, each with a payload. The secret is mixed
//!   in before the first of them, so that only a process that knows it can read, change or make a
//!   payload. The ephemeral keys (X25519) keep what follows secret even if the secret leaks later.
//!   Each side makes a pair of keys and computes one shared key, with the crate `ring`. The pair
//!   can be made ahead ([`prepare`]), as it depends on nothing in the messages; then the latency is
//!   that of the two shared keys, computed one after the other. There is no handshake without them:
//!   with a pattern of the secret alone, all that was recorded could be read once the secret leaks.
//! * [`Channel`]: what follows, encrypted and authenticated in records. A record is accepted once,
//!   and only in order.
//!
//! The payload of the first message could be recorded and replayed. To prevent that, both sides
//! include the same new number in the *prologue*, which is not transmitted: the responder announces
//! the number before the first message.
#![forbid(unsafe_code)]

mod channel;
mod error;
mod handshake;
mod keys;
mod responder_address;

pub use channel::{Channel, OVERHEAD as RECORD_OVERHEAD, RECORD};
pub use error::NotAuthentic;
pub use handshake::{Handshake, OVERHEAD, Psk};
pub use keys::prepare;
pub use responder_address::ResponderAddress;
