//! What two endpoints say before packets of the engine: their addresses, and the proof of them.
//!
//! Each sends both on the line that it connected. A *hello* claims an address; nothing is believed
//! of it. A *proof* repeats the number of the other side's hello, which went to the address that is
//! claimed: only the endpoint there can know it. With a secret it has a code of that, too.

use petasos_fabric::{Address, Incarnation};
use std::sync::Arc;

/// What makes each hello another.
pub(crate) type Nonce = [u8; 16];
/// Computes the code of some bytes with a secret: a keyed hash. Both sides have the same.
pub type Prover = Arc<dyn Fn(&[u8]) -> [u8; 32] + Send + Sync>;

/// The first bytes of a hello. They change with the protocol.
const HELLO: &[u8; 8] = b"petaplg1";
const PROOF: &[u8; 8] = b"petaprf1";
/// The longest of them, in bytes.
pub(crate) const LONGEST: usize = 8 + 4 + 8 + 16 + 1 + Address::MAX;

/// What an endpoint claims to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The longest packet that its side takes, in bytes.
    pub max_packet: u32,
    /// The incarnation that it says it is.
    pub incarnation: Incarnation,
    /// A number that is new for each hello.
    pub nonce: [u8; 16],
    /// Whether its side has a secret.
    pub secret: bool,
    /// The address at which it says it is.
    pub address: Address,
}

impl Hello {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = HELLO.to_vec();
        bytes.extend(self.max_packet.to_le_bytes());
        bytes.extend(self.incarnation.get().to_le_bytes());
        bytes.extend(self.nonce);
        bytes.push(u8::from(self.secret));
        bytes.extend(self.address.as_str().bytes());
        bytes
    }

    /// What these bytes say; `None` if they are none.
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Hello> {
        let rest = packet.strip_prefix(HELLO)?;
        let (max_packet, rest) = rest.split_first_chunk()?;
        let (incarnation, rest) = rest.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (secret, address) = rest.split_first()?;
        Some(Hello {
            max_packet: u32::from_le_bytes(*max_packet),
            incarnation: Incarnation::new(u64::from_le_bytes(*incarnation))?,
            nonce: *nonce,
            secret: match secret {
                0 => false,
                1 => true,
                _ => return None,
            },
            address: Address::parse(std::str::from_utf8(address).ok()?).ok()?,
        })
    }
}

/// The proof of `from` to `to`: bytes that only a process can make that received the hello of `to`,
/// and has the secret.
pub(crate) fn proof(from: &Hello, to: &Hello, prover: Option<&Prover>) -> Vec<u8> {
    let mut bytes = PROOF.to_vec();
    bytes.extend(to.nonce);
    if let Some(prover) = prover {
        // Each hello as a whole, and in this order: what one side proves is not the other's proof.
        let mut both = b"petasos plug-in".to_vec();
        for hello in [from.encode(), to.encode()] {
            both.extend((hello.len() as u64).to_le_bytes());
            both.extend(hello);
        }
        bytes.extend(prover(&both));
    }
    bytes
}

/// Whether a packet is that proof. Takes the same time for all that have its length.
pub(crate) fn proves(packet: &[u8], from: &Hello, to: &Hello, prover: Option<&Prover>) -> bool {
    let expected = proof(from, to, prover);
    let differ = |differ, (a, b): (&u8, &u8)| differ | (a ^ b);
    packet.len() == expected.len() && packet.iter().zip(&expected).fold(0, differ) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(name: &str, nonce: u8) -> Hello {
        Hello {
            max_packet: 4096,
            incarnation: Incarnation::new(7).unwrap(),
            nonce: [nonce; 16],
            secret: true,
            address: Address::parse(name).unwrap(),
        }
    }

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        let said = hello("seq:///tmp/x", 3);
        let bytes = said.encode();
        assert_eq!(Hello::decode(&bytes), Some(said));
        for cut in 0..bytes.len() - "/tmp/x".len() {
            assert_eq!(Hello::decode(&bytes[..cut]), None, "{cut}");
        }
        for at in [0, 36] {
            let mut other = bytes.clone();
            other[at] = 9;
            assert_eq!(Hello::decode(&other), None, "{at}");
        }
        assert!(bytes.len() <= LONGEST);
    }

    #[test]
    fn a_proof_is_of_both_hellos_and_the_secret() {
        let (here, there) = (hello("seq:///a", 1), hello("seq:///b", 2));
        let keyed = |key: u8| -> Prover {
            Arc::new(move |bytes| {
                let sum = bytes.iter().fold(u64::from(key), |sum, b| {
                    (sum ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
                });
                let mut code = [key; 32];
                code[..8].copy_from_slice(&sum.to_le_bytes());
                code
            })
        };
        for prover in [None, Some(keyed(5))] {
            let prover = prover.as_ref();
            let packet = proof(&here, &there, prover);
            assert!(proves(&packet, &here, &there, prover));
            assert!(!proves(&packet, &here, &hello("seq:///b", 3), prover), "another number");
            assert!(!proves(&packet, &there, &here, prover), "of the other side");
            assert!(!proves(&packet[..packet.len() - 1], &here, &there, prover));
            assert!(!proves(&packet, &here, &there, Some(&keyed(6))), "another secret");
            assert_eq!(proves(&packet, &here, &there, None), prover.is_none());
        }
    }
}
