//! The headers of records and of control packets, and what follows them: little-endian.
//!
//! Sixteen bytes, the same in a short packet and in a cell of a FIFO:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | length of the body in bytes |
//! | 4..8 | sequence number |
//! | 8..12 | acknowledgement: all records before this number have been taken |
//! | 12 | kind |
//! | 13 | flags |
//! | 14, 15 | version of the format |
//!
//! In a FIFO the first eight bytes, the *mark*, are zero until the put's remote event writes them:
//! a record is there when its mark is.

use crate::{Garbage, device::RemoteKey};

/// Bytes of a header.
pub(crate) const HEADER: usize = 16;
const VERSION: u16 = 1;

/// What the header is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A record of the stream.
    Record = 1,
    /// Control: nothing but the acknowledgement.
    Ack = 2,
    /// Control: the sender wants an exclusive channel; the body says of how many cells.
    Ask = 3,
    /// Control: the request is granted, with the cells and the key.
    Grant = 4,
    /// Control: the request is refused.
    Refuse = 5,
    /// Control: the receiver wants its exclusive channel back.
    Recall = 6,
    /// Control: the sender has closed its exclusive channel, in which all was acknowledged.
    Closed = 7,
}

impl Kind {
    #[inline]
    fn from_u8(number: u8) -> Option<Kind> {
        use Kind::{Ack, Ask, Closed, Grant, Recall, Record, Refuse};
        const KINDS: [Kind; 7] = [Record, Ack, Ask, Grant, Refuse, Recall, Closed];
        KINDS.get(usize::from(number).wrapping_sub(1)).copied()
    }
}

/// The record begins a packet of the engine's.
pub(crate) const FIRST: u8 = 1;
/// It ends one.
pub(crate) const LAST: u8 = 2;
/// Part of it lies in the sender's memory: a [`Lent`] begins the body.
pub(crate) const LENT: u8 = 4;

/// A header that is valid in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: u32,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
}

impl Header {
    pub(crate) fn mark(&self) -> u64 {
        u64::from(self.seq) << 32 | u64::from(self.len)
    }

    #[inline]
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let last = u32::from(VERSION) << 16 | u32::from(self.flags) << 8 | self.kind as u32;
        let high = u64::from(last) << 32 | u64::from(self.ack);
        (u128::from(high) << 64 | u128::from(self.mark())).to_le_bytes()
    }

    #[inline]
    pub(crate) fn decode(bytes: [u8; HEADER]) -> Result<Header, Garbage> {
        // In words of the length in which they are copied: such loads need not wait for the copy.
        let [low, high] = [bytes.first_chunk(), bytes.last_chunk()]
            .map(|word| u64::from_le_bytes(*word.unwrap_or(&[0; 8])));
        let version = (high >> 48) as u16;
        if version != VERSION {
            return Err(Garbage::new("unknown version of a header", version.into()));
        }
        let (kind, flags) = ((high >> 32) as u8, (high >> 40) as u8);
        let known = if kind == Kind::Record as u8 { FIRST | LAST | LENT } else { 0 };
        if flags & !known != 0 {
            return Err(Garbage::new("unknown flags", flags.into()));
        }
        let kind =
            Kind::from_u8(kind).ok_or(Garbage::new("unknown kind of header", kind.into()))?;
        Ok(Header { len: low as u32, seq: (low >> 32) as u32, ack: high as u32, kind, flags })
    }

    /// The header of a packet, and its body.
    pub(crate) fn split(packet: &[u8]) -> Result<(Header, &[u8]), Garbage> {
        let short = Garbage::new("a packet cut short", packet.len() as u64);
        let (header, body) = packet.split_first_chunk::<HEADER>().ok_or(short)?;
        let header = Header::decode(*header)?;
        match header.len as usize == body.len() {
            true => Ok((header, body)),
            false => {
                Err(Garbage::new("a packet of another length than it says", header.len.into()))
            }
        }
    }

    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Memory of the sender's that holds the rest of a record, to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) len: u32,
    pub(crate) key: RemoteKey,
}

impl Lent {
    /// The most bytes that it takes.
    pub(crate) const MAX: usize = 5 + RemoteKey::MAX;

    pub(crate) fn encoded_len(&self) -> usize {
        5 + self.key.as_bytes().len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.len.to_le_bytes());
        out.push(self.key.as_bytes().len() as u8);
        out.extend_from_slice(self.key.as_bytes());
    }

    /// Decodes the descriptor with which the bytes begin. Returns how many bytes it took, too.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Lent, usize), Garbage> {
        let short = Garbage::new("a descriptor cut short", bytes.len() as u64);
        let ([a, b, c, d, key], rest) = bytes.split_first_chunk::<5>().ok_or(short)?;
        let len = u32::from_le_bytes([*a, *b, *c, *d]);
        let key = rest.get(..usize::from(*key)).and_then(RemoteKey::new).ok_or(short)?;
        if len == 0 {
            return Err(Garbage::new("a descriptor of nothing", 0));
        }
        let took = 5 + key.as_bytes().len();
        Ok((Lent { len, key }, took))
    }
}

/// The body of a grant: cells of the FIFO, and the key to it.
pub(crate) fn grant(cells: u32, key: &RemoteKey) -> Vec<u8> {
    [&cells.to_le_bytes()[..], key.as_bytes()].concat()
}

/// Reads the body of a grant.
pub(crate) fn granted(body: &[u8]) -> Result<(u32, RemoteKey), Garbage> {
    let broken = Garbage::new("a grant of a bad length", body.len() as u64);
    let (cells, key) = body.split_first_chunk::<4>().ok_or(broken)?;
    Ok((u32::from_le_bytes(*cells), RemoteKey::new(key).ok_or(broken)?))
}

/// How far `later` is after `earlier`: negative if it is before.
pub(crate) fn distance(earlier: u32, later: u32) -> i32 {
    later.wrapping_sub(earlier) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequence_numbers_wrap() {
        assert_eq!(distance(u32::MAX, 2), 3);
        assert_eq!(distance(2, u32::MAX), -3);
    }

    proptest! {
        #[test]
        fn heads_there_and_back(len in any::<u32>(), seq in any::<u32>(), ack in any::<u32>(), flags in 0u8..8) {
            let header = Header { len, seq, ack, kind: Kind::Record, flags };
            prop_assert_eq!(Header::decode(header.encode()), Ok(header));
        }

        #[test]
        fn any_bytes_are_a_head_or_refused(bytes in any::<[u8; HEADER]>()) {
            if let Ok(header) = Header::decode(bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }

        #[test]
        fn any_bytes_are_a_packet_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::split(&bytes);
            let _ = granted(&bytes);
            if let Ok((lent, took)) = Lent::decode(&bytes) {
                let mut again = Vec::new();
                lent.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..took]);
            }
        }

        #[test]
        fn grants_there_and_back(cells in any::<u32>(), key in proptest::collection::vec(any::<u8>(), 0..64)) {
            let key = RemoteKey::new(&key).unwrap();
            prop_assert_eq!(granted(&grant(cells, &key)), Ok((cells, key)));
        }
    }
}
