//! What travels in the fabric's messages: a header, and what follows it.
//!
//! | first byte | then | |
//! |---|---|---|
//! | 0, or 128 with data | data if there is | a message |
//! | 1, or 129 with data | tag, data if there is | a tagged message |
//! | 2 | number | asks for the key of memory |
//! | 3 | number, base, key | the key |
//! | 4 | number | there is no such memory |
//! | 5 | | nothing: it has arrived when all before it has |
//!
//! All numbers are 64 bits, little-endian. Of a long message the header is the fabric's header.

use smallvec::SmallVec;

const DATA: u8 = 0x80;

/// In which of the two lists a message is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// `FI_MSG`: no tags.
    Plain = 0,
    /// `FI_TAGGED`.
    Tagged = 1,
}

/// What is known of a message besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) list: List,
    pub(crate) tag: u64,
    /// The sender's completion data.
    pub(crate) data: Option<u64>,
}

/// A message of the fabric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// The header, and where the message begins.
    Message(Header, usize),
    Ask {
        number: u64,
    },
    Key {
        number: u64,
        base: u64,
        key: &'a [u8],
    },
    NoKey {
        number: u64,
    },
    Nothing,
}

/// Room for every header, and for short messages behind it.
pub(crate) type Bytes = SmallVec<[u8; 128]>;

fn put(out: &mut Bytes, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

impl Packet<'_> {
    pub(crate) fn encode(&self, out: &mut Bytes) {
        out.clear();
        match *self {
            Packet::Message(Header { list, tag, data }, _) => {
                out.push(list as u8 | if data.is_some() { DATA } else { 0 });
                if list == List::Tagged {
                    put(out, tag);
                }
                if let Some(data) = data {
                    put(out, data);
                }
            }
            Packet::Ask { number } => {
                out.push(2);
                put(out, number);
            }
            Packet::Key { number, base, key } => {
                out.push(3);
                put(out, number);
                put(out, base);
                out.extend_from_slice(key);
            }
            Packet::NoKey { number } => {
                out.push(4);
                put(out, number);
            }
            Packet::Nothing => out.push(5),
        }
    }

    /// `None`: it is not of this protocol.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Packet<'_>> {
        let (&first, mut rest) = bytes.split_first()?;
        let mut number = || {
            let (head, tail) = rest.split_first_chunk()?;
            rest = tail;
            Some(u64::from_le_bytes(*head))
        };
        let packet = match first & !DATA {
            kind @ (0 | 1) => {
                let list = if kind == 0 { List::Plain } else { List::Tagged };
                let tag = if kind == 0 { 0 } else { number()? };
                let data = if first & DATA == 0 { None } else { Some(number()?) };
                return Some(Packet::Message(Header { list, tag, data }, bytes.len() - rest.len()));
            }
            _ if first & DATA != 0 => return None,
            2 => Packet::Ask { number: number()? },
            3 => {
                let (number, base) = (number()?, number()?);
                return Some(Packet::Key { number, base, key: rest });
            }
            4 => Packet::NoKey { number: number()? },
            5 => Packet::Nothing,
            _ => return None,
        };
        rest.is_empty().then_some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_and_back() {
        let headers = [(List::Plain, 0), (List::Tagged, 77)].into_iter().flat_map(|(list, tag)| {
            [None, Some(u64::MAX)].map(|data| Packet::Message(Header { list, tag, data }, 0))
        });
        let others = [
            Packet::Ask { number: 9 },
            Packet::Key { number: 1, base: 2, key: b"key" },
            Packet::NoKey { number: 3 },
            Packet::Nothing,
        ];
        for packet in headers.chain(others) {
            let mut bytes = Bytes::new();
            packet.encode(&mut bytes);
            match (packet, Packet::decode(&bytes)) {
                (Packet::Message(header, _), Some(Packet::Message(found, at))) => {
                    assert_eq!((found, at), (header, bytes.len()));
                }
                (_, found) => assert_eq!(found, Some(packet)),
            }
            // Cut anywhere it is refused, but for a key, which has no length of its own.
            let fixed = if let Packet::Key { .. } = packet { 17 } else { bytes.len() };
            for len in 0..fixed {
                assert_eq!(Packet::decode(&bytes[..len]), None, "{packet:?} cut at {len}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn what_is_read_is_written_so(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let Some(packet) = Packet::decode(&bytes) else { return Ok(()) };
            let mut again = Bytes::new();
            packet.encode(&mut again);
            if let Packet::Message(_, at) = packet {
                prop_assert_eq!(&again[..], &bytes[..at]);
            } else {
                prop_assert_eq!(&again[..], &bytes[..]);
            }
        }
    }
}
