//! The two messages of the handshake.

use crate::{Channel, NotAuthentic, keys::Resolver};
use ring::hmac::{Context, HMAC_SHA256, Key};
use sha2::{Digest, Sha256};
use snow::{Builder, HandshakeState, params::NoiseParams};
use std::{fmt, sync::LazyLock};

/// The pattern and what it is computed with: both sides ephemeral keys alone, and a secret that
/// both know.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// How much longer a message is than its payload: an ephemeral key and a tag.
pub const OVERHEAD: usize = 32 + 16;

static PARAMS: LazyLock<NoiseParams> =
    LazyLock::new(|| PATTERN.parse().expect("a pattern that snow knows"));

/// A secret of any length, as the pattern takes it.
#[derive(Clone)]
pub struct Psk([u8; 32]);

impl Psk {
    /// The hash of a secret, for one purpose: it is of no use for another.
    #[must_use]
    pub fn new(purpose: &str, secret: &[u8]) -> Psk {
        let mut hash = Sha256::new();
        hash.update((purpose.len() as u64).to_le_bytes());
        hash.update(purpose);
        hash.update(secret);
        Psk(hash.finalize().into())
    }

    /// A code of some bytes that shows that its maker knows the secret (HMAC-SHA256). One for
    /// another purpose is another.
    #[must_use]
    pub fn code(&self, purpose: &str, bytes: &[u8]) -> [u8; 32] {
        let mut context = Context::with_key(&Key::new(HMAC_SHA256, &self.0));
        context.update(&(purpose.len() as u64).to_le_bytes());
        context.update(purpose.as_bytes());
        context.update(bytes);
        context.sign().as_ref().try_into().expect("a code of SHA-256 has 32 bytes")
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(…)")
    }
}

/// One side of a handshake.
#[derive(Debug)]
pub struct Handshake(Box<HandshakeState>);

impl Handshake {
    /// The side that sends the first message. Both sides give the same prologue.
    #[must_use]
    pub fn initiator(psk: &Psk, prologue: &[u8]) -> Handshake {
        Handshake::new(psk, prologue, Builder::build_initiator)
    }

    /// The other side.
    #[must_use]
    pub fn responder(psk: &Psk, prologue: &[u8]) -> Handshake {
        Handshake::new(psk, prologue, Builder::build_responder)
    }

    fn new<'a>(
        psk: &'a Psk,
        prologue: &'a [u8],
        build: impl FnOnce(Builder<'a>) -> Result<HandshakeState, snow::Error>,
    ) -> Handshake {
        let builder = Builder::with_resolver(PARAMS.clone(), Box::new(Resolver));
        let builder = builder.psk(0, &psk.0);
        let builder = builder.and_then(|builder| builder.prologue(prologue));
        // Nothing in there depends on what a peer sends.
        Handshake(Box::new(builder.and_then(build).expect("the pattern has all that it needs")))
    }

    /// The next message, which is this side's.
    ///
    /// # Panics
    /// If it is the other side's turn, or `message` is not [`OVERHEAD`] longer than the payload.
    pub fn write(&mut self, payload: &[u8], message: &mut [u8]) {
        assert_eq!(message.len(), payload.len() + OVERHEAD, "room for the message");
        let written = self.0.write_message(payload, message).expect("it is this side's turn");
        assert_eq!(written, message.len());
    }

    /// The payload of the other side's message.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the peer does not know the secret, its prologue differs, or the message
    /// was changed.
    ///
    /// # Panics
    /// If `payload` is not [`OVERHEAD`] shorter than the message.
    pub fn read(&mut self, message: &[u8], payload: &mut [u8]) -> Result<(), NotAuthentic> {
        assert_eq!(message.len(), payload.len() + OVERHEAD, "room for the payload");
        // What snow writes there before it has checked the tag must not be used.
        match self.0.read_message(message, payload) {
            Ok(len) if len == payload.len() => Ok(()),
            _ => {
                payload.fill(0);
                Err(NotAuthentic)
            }
        }
    }

    /// What follows the two messages, encrypted.
    ///
    /// # Panics
    /// If one of them is missing.
    #[must_use]
    pub fn into_channel(self) -> Channel {
        Channel::new(self.0.into_transport_mode().expect("both messages were exchanged"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ours: &[u8], theirs: &[u8], prologues: [&[u8]; 2]) -> (Handshake, Handshake) {
        let (ours, theirs) = (Psk::new("test", ours), Psk::new("test", theirs));
        (Handshake::initiator(&ours, prologues[0]), Handshake::responder(&theirs, prologues[1]))
    }

    #[test]
    fn both_read_the_payload_of_the_other() {
        let (mut a, mut b) = pair(b"secret", b"secret", [b"p"; 2]);
        let (mut message, mut payload) = ([0; 5 + OVERHEAD], [0; 5]);
        a.write(b"hello", &mut message);
        assert!(!message.windows(5).any(|five| five == b"hello"));
        b.read(&message, &mut payload).unwrap();
        assert_eq!(&payload, b"hello");
        b.write(b"world", &mut message);
        a.read(&message, &mut payload).unwrap();
        assert_eq!(&payload, b"world");
        let (mut a, mut b) = (a.into_channel(), b.into_channel());
        let mut record = Vec::new();
        a.seal(b"more", &mut record);
        assert_eq!(b.open_all(&record), b"more");
    }

    #[test]
    fn another_secret_purpose_or_prologue_is_refused() {
        let (mut message, mut payload) = ([0; 5 + OVERHEAD], [0; 5]);
        for (ours, theirs, prologues) in [
            (&b"secret"[..], &b"other"[..], [&b"p"[..], b"p"]),
            (b"secret", b"secret", [b"p", b"q"]),
        ] {
            let (mut a, mut b) = pair(ours, theirs, prologues);
            a.write(b"hello", &mut message);
            assert_eq!(b.read(&message, &mut payload), Err(NotAuthentic));
            assert_eq!(payload, [0; 5]);
        }
        let [mut a, mut b] = [
            Handshake::initiator(&Psk::new("one", b"secret"), b""),
            Handshake::responder(&Psk::new("two", b"secret"), b""),
        ];
        a.write(b"hello", &mut message);
        assert_eq!(b.read(&message, &mut payload), Err(NotAuthentic));
    }

    #[test]
    fn a_message_that_was_changed_is_refused() {
        let (mut message, mut payload) = ([0; 5 + OVERHEAD], [0; 5]);
        let (mut a, _) = pair(b"secret", b"secret", [b"p"; 2]);
        a.write(b"hello", &mut message);
        for at in 0..message.len() {
            let (_, mut b) = pair(b"secret", b"secret", [b"p"; 2]);
            message[at] ^= 1;
            assert_eq!(b.read(&message, &mut payload), Err(NotAuthentic), "{at}");
            message[at] ^= 1;
        }
    }

    #[test]
    fn a_code_is_of_the_secret_the_purpose_and_the_bytes() {
        let code = |of: &str, secret: &[u8], purpose: &str, bytes: &[u8]| {
            Psk::new(of, secret).code(purpose, bytes)
        };
        let one = code("tcp", b"secret", "plug-in", b"hello");
        assert_eq!(one, code("tcp", b"secret", "plug-in", b"hello"));
        for other in [
            code("shm", b"secret", "plug-in", b"hello"),
            code("tcp", b"secre", "plug-in", b"hello"),
            code("tcp", b"secret", "plug-i", b"nhello"),
            code("tcp", b"secret", "plug-in", b"hell"),
        ] {
            assert_ne!(one, other);
        }
    }
}
