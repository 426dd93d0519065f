//! What an endpoint says of itself.

use super::HandshakeError;
use petasos_fabric::{Address, Incarnation};

/// The identity of an endpoint: its address and its incarnation. Both are only claimed, not proven:
/// see [`Request::Vouch`](super::Request::Vouch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where it listens: a number, not a name.
    pub address: Address,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

impl Identity {
    pub(super) fn encode(&self, out: &mut [u8]) {
        let address = self.address.as_str().as_bytes();
        out[..8].copy_from_slice(&self.incarnation.get().to_le_bytes());
        out[8] = address.len() as u8;
        out[9..9 + address.len()].copy_from_slice(address);
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Identity, HandshakeError> {
        let (number, rest) = bytes.split_first_chunk().ok_or(HandshakeError::Identity)?;
        let (&len, rest) = rest.split_first().ok_or(HandshakeError::Identity)?;
        let incarnation = Incarnation::new(u64::from_le_bytes(*number));
        let address = rest.get(..usize::from(len)).and_then(|text| std::str::from_utf8(text).ok());
        let address = address.and_then(|text| Address::parse(text).ok());
        match (incarnation, address) {
            // No peer makes this one look up names.
            (Some(incarnation), Some(address)) if crate::address::numeric(&address).is_some() => {
                Ok(Identity { address, incarnation })
            }
            _ => Err(HandshakeError::Identity),
        }
    }
}
