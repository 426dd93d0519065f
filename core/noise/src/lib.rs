//! How two who share a secret begin a connection: the handshake `NNpsk0` of the [Noise protocol
//! framework](https://noiseprotocol.org/noise.html) (revision 34), by the crate `snow`, and where a
//! connection leads ([`Spot`]), which both sides put into it.
//!
//! * [`Handshake`]: two messages, one each way, each with a payload. The secret is mixed in before the first
//!   of them, so that none of the payloads can be read, changed or made by who does not know it. The ephemeral
//!   keys (X25519) make what follows secret also from who learns the secret later.
//!   Each side makes a pair of keys and computes one shared key, with the crate `ring`; the pair can be made ahead
//!   ([`prepare`]), as nothing in it depends on what is said. What is left on the way, one computation after the other,
//!   are the two shared keys. There is no handshake without: a pattern that knows only the secret would let whoever learns
//!   it later read all that was recorded.
//! * [`Channel`]: what follows, encrypted and authenticated in records, each good once and in its turn.
//!
//! Payloads of the first message can be recorded and sent again, unless the *prologue*, which both sides say and
//! nobody sends, has a number in it that is new: who answers says one before the first message.
#![forbid(unsafe_code)]

mod channel;
mod handshake;
mod keys;
mod spot;

pub use channel::{Channel, OVERHEAD as RECORD_OVERHEAD, RECORD};
pub use handshake::{Forged, Handshake, OVERHEAD, Psk};
pub use keys::prepare;
pub use spot::Spot;
