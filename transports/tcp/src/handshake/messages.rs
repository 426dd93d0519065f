//! The messages in the second and third frame.

use super::{CHALLENGE_LEN, HELLO_LEN, HandshakeError, Hash, NONCE, Nonce};
use crate::Secret;
use petasos_noise::{Channel, Handshake};
use sha2::{Digest, Sha256};

/// The messages: of Noise, or in clear where there is no secret.
#[derive(Debug)]
pub(super) enum Messages {
    Keyed(Handshake),
    Clear(Nonce),
}

impl Messages {
    pub(super) fn new(
        secret: Option<&Secret>,
        nonce: Nonce,
        prologue: &[u8],
        side: fn(&petasos_noise::Psk, &[u8]) -> Handshake,
    ) -> Messages {
        match secret {
            Some(secret) => Messages::Keyed(side(secret.psk(), prologue)),
            None => Messages::Clear(nonce),
        }
    }

    pub(super) fn write(&mut self, payload: &[u8], message: &mut [u8]) {
        match self {
            Messages::Keyed(shake) => shake.write(payload, message),
            Messages::Clear(nonce) => {
                message.fill(0);
                message[..NONCE].copy_from_slice(nonce);
                message[NONCE..NONCE + payload.len()].copy_from_slice(payload);
            }
        }
    }

    pub(super) fn read(
        &mut self,
        message: &[u8],
        payload: &mut [u8],
    ) -> Result<(), HandshakeError> {
        match self {
            Messages::Keyed(shake) => {
                shake.read(message, payload).map_err(|_| HandshakeError::Proof)
            }
            Messages::Clear(_) => {
                let (said, tag) = message[NONCE..].split_at(payload.len());
                // A side with a secret does not leave that empty.
                if tag.iter().any(|byte| *byte != 0) {
                    return Err(HandshakeError::Proof);
                }
                payload.copy_from_slice(said);
                Ok(())
            }
        }
    }

    pub(super) fn into_channel(self) -> Option<Channel> {
        match self {
            Messages::Keyed(shake) => Some(shake.into_channel()),
            Messages::Clear(_) => None,
        }
    }
}

/// What both sides agree on before the second frame.
pub(super) fn prologue(challenge: &[u8; CHALLENGE_LEN], wishes: u8) -> [u8; CHALLENGE_LEN + 1] {
    let mut prologue = [wishes; CHALLENGE_LEN + 1];
    prologue[..CHALLENGE_LEN].copy_from_slice(challenge);
    prologue
}

/// The hash of the first two frames, of which a part names the connection.
pub(super) fn hash_of_frames(challenge: &[u8; CHALLENGE_LEN], hello: &[u8; HELLO_LEN]) -> Hash {
    Sha256::new().chain_update(challenge).chain_update(hello).finalize().into()
}
