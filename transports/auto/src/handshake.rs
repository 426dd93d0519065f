//! The handshake message: the first message in each direction, by which a peer identifies itself.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `petasosa` |
//! | 8 | version |
//! | 9 | 1 to stay, 2 to ask only for the other's handshake message |
//! | 10..18 | incarnation, little-endian |
//! | 18 | length of the address |
//! | 19.. | the whole address |

use crate::{AutoAddress, SCHEME};
use petasos_fabric::{Address, Incarnation};

const MAGIC: &[u8; 8] = b"petasosa";
const VERSION: u8 = 1;
const HEADER: usize = 19;
/// The longest handshake message, in bytes.
pub const LONGEST: usize = HEADER + Address::MAX;

/// What the sender wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To communicate by the route by which the message comes.
    Stay = 1,
    /// To know the other's whole address.
    Ask = 2,
}

/// How a peer identifies itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// What its sender wants.
    pub wish: Wish,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The sender's whole address.
    pub address: Address,
}

impl Handshake {
    /// Encodes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LONGEST);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, self.wish as u8]);
        out.extend_from_slice(&self.incarnation.get().to_le_bytes());
        out.push(self.address.as_str().len() as u8);
        out.extend_from_slice(self.address.as_str().as_bytes());
        out
    }

    /// Decodes it.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Handshake, &'static str> {
        let (header, address) =
            bytes.split_first_chunk::<HEADER>().ok_or("its handshake message is cut short")?;
        if header[..8] != *MAGIC {
            return Err("its first message is not the handshake of auto://");
        }
        if header[8] != VERSION {
            return Err("its handshake message is of another version");
        }
        let wish = match header[9] {
            1 => Wish::Stay,
            2 => Wish::Ask,
            _ => return Err("its handshake message has an unknown wish"),
        };
        let number = u64::from_le_bytes(std::array::from_fn(|at| header[10 + at]));
        let incarnation =
            Incarnation::new(number).ok_or("its handshake message has no incarnation")?;
        if address.len() != usize::from(header[18]) {
            return Err("its handshake message is cut short");
        }
        let address = std::str::from_utf8(address).ok().and_then(|text| Address::parse(text).ok());
        let address = address.ok_or("its handshake message has no address")?;
        match AutoAddress::parse(&address) {
            Ok(AutoAddress::Whole { .. }) if address.scheme() == SCHEME => {
                Ok(Handshake { wish, incarnation, address })
            }
            _ => Err("its handshake message does not have its whole address"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use proptest::prelude::*;

    fn handshake(wish: Wish) -> Handshake {
        let member = Address::parse("tcp://h:1").unwrap();
        let address = AutoAddress::compose(Node::of(b"x"), &[member]).unwrap();
        Handshake { wish, incarnation: Incarnation::new(7).unwrap(), address }
    }

    #[test]
    fn there_and_back() {
        for wish in [Wish::Stay, Wish::Ask] {
            let bytes = handshake(wish).encode();
            assert_eq!(Handshake::decode(&bytes), Ok(handshake(wish)));
            assert!((0..bytes.len()).all(|len| Handshake::decode(&bytes[..len]).is_err()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn garbage_is_refused_or_means_one_thing(at in 0usize..60, byte: u8, noise: Vec<u8>) {
            let _ = Handshake::decode(&noise);
            let mut bytes = handshake(Wish::Stay).encode();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(handshake) = Handshake::decode(&bytes) {
                prop_assert_eq!(handshake.encode(), bytes);
            }
        }
    }
}
