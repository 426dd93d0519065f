//! Control messages, which travel over the socket of a pair: a greeting each way, with descriptors;
//! later descriptors of segments. Fixed layouts, checked once.
//!
//! | bytes | greeting |
//! |---|---|
//! | 0..8 | `petasosm` |
//! | 8 | version, 9: kind |
//! | 10 | length of the address |
//! | 12..16 | bytes of each ring |
//! | 16..20 | longest packet |
//! | 20..24 | bytes of each long ring |
//! | 24..32 | incarnation |
//! | 32..40 | where in the sender's memory its incarnation stands |
//! | 40..240 | the address |
//!
//! All else begins with the same ten bytes. A refusal has a code in byte 10 and a text of up to
//! 200 bytes from byte 40 on; a segment its number in 24..32, and in byte 10 whether it is there.

use crate::pair::Sizes;
use petasos_fabric::{Address, Incarnation};

const MAGIC: &[u8; 8] = b"petasosm";
const VERSION: u8 = 4;
const ADDRESS: usize = 40;
/// The length of every message.
pub(crate) const LEN: usize = ADDRESS + Address::MAX;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;
const SEGMENT: u8 = 4;
const DOORBELL: u8 = 5;

/// What each side says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) address: Address,
    pub(crate) incarnation: Incarnation,
    pub(crate) sizes: Sizes,
    pub(crate) probe: u64,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlMessage {
    /// From the side that connects; with its table, the pair, and its doorbell.
    Hello(Greeting),
    /// The answer; with the table and the doorbell of the side that accepts.
    Welcome(Greeting),
    /// Another answer: try again, or for good.
    Refused { again: bool, text: String },
    /// A segment that was asked for, with its descriptor, if it is given.
    Segment { id: u64, given: bool, writable: bool },
    /// Something is in the ring.
    Doorbell,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("a control message of {0} bytes")]
    Length(usize),
    #[error("not a control message of this protocol")]
    Magic,
    #[error("version {0} of the protocol, this is {VERSION}")]
    Version(u8),
    #[error("an unknown control message ({0})")]
    Kind(u8),
    #[error("an invalid address or incarnation")]
    Greeting,
}

impl ControlMessage {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..8].copy_from_slice(MAGIC);
        out[8] = VERSION;
        match self {
            ControlMessage::Hello(greeting) | ControlMessage::Welcome(greeting) => {
                out[9] = if matches!(self, ControlMessage::Hello(_)) { HELLO } else { WELCOME };
                let address = greeting.address.as_str().as_bytes();
                out[10] = address.len() as u8;
                let Sizes { ring, long, max } = greeting.sizes;
                for (at, size) in [(12, ring), (16, max), (20, long)] {
                    out[at..at + 4].copy_from_slice(&(size as u32).to_le_bytes());
                }
                out[24..32].copy_from_slice(&greeting.incarnation.get().to_le_bytes());
                out[32..40].copy_from_slice(&greeting.probe.to_le_bytes());
                out[ADDRESS..ADDRESS + address.len()].copy_from_slice(address);
            }
            ControlMessage::Refused { again, text } => {
                out[9] = REFUSED;
                out[10] = (*again).into();
                let text = &text.as_bytes()[..text.len().min(Address::MAX)];
                out[ADDRESS..ADDRESS + text.len()].copy_from_slice(text);
            }
            ControlMessage::Segment { id, given, writable } => {
                out[9] = SEGMENT;
                out[10] = u8::from(*given) | u8::from(*writable) << 1;
                out[24..32].copy_from_slice(&id.to_le_bytes());
            }
            ControlMessage::Doorbell => out[9] = DOORBELL,
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<ControlMessage, DecodeError> {
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| DecodeError::Length(bytes.len()))?;
        if bytes[..8] != *MAGIC {
            return Err(DecodeError::Magic);
        }
        if bytes[8] != VERSION {
            return Err(DecodeError::Version(bytes[8]));
        }
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        Ok(match bytes[9] {
            kind @ (HELLO | WELCOME) => {
                let address = bytes[ADDRESS..].get(..usize::from(bytes[10]));
                let address = address.and_then(|a| std::str::from_utf8(a).ok());
                let address = address.and_then(|a| Address::parse(a).ok());
                let incarnation = Incarnation::new(u64_at(24));
                let (Some(address), Some(incarnation)) = (address, incarnation) else {
                    return Err(DecodeError::Greeting);
                };
                let [ring, max, long] = [12, 16, 20].map(|at| u32_at(at) as usize);
                let (sizes, probe) = (Sizes { ring, long, max }, u64_at(32));
                let greeting = Greeting { address, incarnation, sizes, probe };
                if kind == HELLO {
                    ControlMessage::Hello(greeting)
                } else {
                    ControlMessage::Welcome(greeting)
                }
            }
            REFUSED => {
                let text = bytes[ADDRESS..].split(|b| *b == 0).next().unwrap_or_default();
                let plain =
                    |b: &u8| if b.is_ascii_graphic() || *b == b' ' { *b as char } else { '?' };
                let text = text.iter().map(plain).collect();
                ControlMessage::Refused { again: bytes[10] & 1 == 1, text }
            }
            SEGMENT => ControlMessage::Segment {
                id: u64_at(24),
                given: bytes[10] & 1 == 1,
                writable: bytes[10] & 2 == 2,
            },
            DOORBELL => ControlMessage::Doorbell,
            kind => return Err(DecodeError::Kind(kind)),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> Vec<ControlMessage> {
        let greeting = Greeting {
            address: Address::parse("shm://x").unwrap(),
            incarnation: Incarnation::new(u64::MAX).unwrap(),
            sizes: Sizes { ring: 1 << 17, long: 1 << 21, max: 99 },
            probe: 0xdead_beef_0000,
        };
        vec![
            ControlMessage::Hello(greeting.clone()),
            ControlMessage::Welcome(greeting),
            ControlMessage::Refused { again: true, text: "why not".into() },
            ControlMessage::Segment { id: 5, given: true, writable: false },
            ControlMessage::Doorbell,
        ]
    }

    #[test]
    fn there_and_back() {
        for note in samples() {
            let bytes = note.encode();
            assert_eq!(ControlMessage::decode(&bytes), Ok(note));
            assert!(ControlMessage::decode(&bytes[1..]).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn garbage_is_refused_or_valid(
            nth in 0usize..5, at in 0..LEN, byte: u8, noise in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let _ = ControlMessage::decode(&noise);
            let mut bytes = samples()[nth].encode();
            bytes[at] = byte;
            if let Ok(note) = ControlMessage::decode(&bytes) {
                prop_assert_eq!(ControlMessage::decode(&note.encode()), Ok(note));
            }
        }
    }
}
