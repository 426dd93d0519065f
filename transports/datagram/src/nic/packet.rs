//! What a NIC's packets begin with, after the header of [`crate::frame`].
//!
//! | first byte | what follows |
//! |---|---|
//! | 0, 1 | a packet of the class data, or control: 7 zeroes, for alignment, and the bytes |
//! | 2 | an immediate put: a [`PutHeader`], and the bytes |
//! | 3 | an immediate put of the receiver's was refused: the code of the fault |
//! | 4 | a part of a put: its number, a [`PutHeader`], and the bytes |
//! | 5 | a put or get of the receiver's is over: its number, and 0, or the code of the fault after 1 |
//! | 6 | a get: its number, the name of the memory, offset and length |
//! | 7 | a part of what the receiver gets: its number, and the bytes |
//! | 8 | a part of a put that the library writes: its number, a [`PutHeader`], and its length, of 4 bytes |
//!
//! Numbers are little-endian. Those of puts and gets are of 4 bytes, and chosen by the side that
//! began them. The last part of a put is the one that asks for an answer: its first byte has the
//! highest bit set, too. A part that the library writes is taken when it has arrived: see
//! [`WAITS`](crate::frame::WAITS).

use crate::frame::Garbled;
use petasos_channel::{
    device::{Class, Fault},
    immediate::{self, NAME, Name, PutHeader},
};

/// In the first byte: the last part of a put.
const LAST: u8 = 0x80;

/// The length of the header of a packet: the bytes behind it are aligned like the whole.
const PACKET: usize = 8;

const IMMEDIATE: u8 = 2;
const REFUSED: u8 = 3;
const PUT: u8 = 4;
const OVER: u8 = 5;
const GET: u8 = 6;
const PART: u8 = 7;
const WRITTEN: u8 = 8;

/// The header of a NIC's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A packet.
    Packet(Class),
    /// An immediate put.
    Immediate(PutHeader),
    /// An immediate put of the receiver's was refused.
    Refused(Fault),
    /// A part of a put; after the last one the sender is told how it went.
    Put {
        /// The sender's number of the put.
        id: u32,
        /// Where the part goes.
        put: PutHeader,
        /// Whether it is the last.
        last: bool,
    },
    /// A part of a put, which the library writes.
    Written {
        /// The sender's number of the put.
        id: u32,
        /// Where the part goes.
        put: PutHeader,
        /// Its length, in bytes.
        len: u32,
        /// Whether it is the last.
        last: bool,
    },
    /// A put or get of the receiver's is over.
    Over {
        /// Its number.
        id: u32,
        /// How it went.
        result: Result<(), Fault>,
    },
    /// The sender wants to read memory.
    Get {
        /// Its number of the get.
        id: u32,
        /// Which memory.
        name: Name,
        /// From where on, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// The next part of what the receiver gets.
    Part {
        /// Its number.
        id: u32,
    },
}

/// A header, encoded.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    bytes: [u8; Header::MAX],
    len: u8,
}

impl Encoded {
    /// Its bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    #[inline]
    fn of(kind: u8) -> Encoded {
        let mut bytes = [0; Header::MAX];
        bytes[0] = kind;
        Encoded { bytes, len: 1 }
    }

    #[inline]
    fn with(mut self, more: &[u8]) -> Encoded {
        let at = usize::from(self.len);
        self.bytes[at..at + more.len()].copy_from_slice(more);
        self.len += more.len() as u8;
        self
    }
}

impl Header {
    /// That of a packet, in bytes.
    pub const PACKET: usize = PACKET;
    /// The longest, in bytes.
    pub const MAX: usize = 1 + 4 + PutHeader::LEN + 4;

    /// Encodes it.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> Encoded {
        match self {
            Header::Packet(class) => Encoded::of(*class as u8).with(&[0; PACKET - 1]),
            Header::Immediate(put) => Encoded::of(IMMEDIATE).with(&put.to_bytes()),
            Header::Refused(fault) => Encoded::of(REFUSED).with(&[immediate::code(*fault)]),
            Header::Put { id, put, last } => {
                let kind = if *last { PUT | LAST } else { PUT };
                Encoded::of(kind).with(&id.to_le_bytes()).with(&put.to_bytes())
            }
            Header::Written { id, put, len, last } => {
                let kind = if *last { WRITTEN | LAST } else { WRITTEN };
                let before = Encoded::of(kind).with(&id.to_le_bytes()).with(&put.to_bytes());
                before.with(&len.to_le_bytes())
            }
            Header::Over { id, result } => {
                let code = result.map_or_else(|fault| 1 + immediate::code(fault), |()| 0);
                Encoded::of(OVER).with(&id.to_le_bytes()).with(&[code])
            }
            Header::Get { id, name, offset, len } => {
                let place = [offset.to_le_bytes(), len.to_le_bytes()].concat();
                Encoded::of(GET).with(&id.to_le_bytes()).with(name).with(&place)
            }
            Header::Part { id } => Encoded::of(PART).with(&id.to_le_bytes()),
        }
    }

    /// Decodes the header of a packet of `total` bytes, of which at least the first
    /// [`Header::MAX`] are given, or all. Returns its length as well: what is behind is the body.
    ///
    /// # Errors
    /// It is no packet of a NIC's.
    #[inline]
    pub fn decode(bytes: &[u8], total: usize) -> Result<(Header, usize), Garbled> {
        const SHORT: Garbled = Garbled("a packet cut short");
        let (&kind, mut rest) = bytes.split_first().ok_or(SHORT)?;
        let body = match kind {
            0 | 1 => {
                let class = if kind == 0 { Class::Data } else { Class::Control };
                if rest.len() < PACKET - 1 {
                    return Err(SHORT);
                }
                return Ok((Header::Packet(class), PACKET));
            }
            IMMEDIATE => {
                let put = rest.first_chunk().ok_or(SHORT)?;
                return Ok((Header::Immediate(PutHeader::from_bytes(put)), 1 + PutHeader::LEN));
            }
            REFUSED => {
                let code = *rest.first().ok_or(SHORT)?;
                rest = &rest[1..];
                (Header::Refused(immediate::fault(code)), false)
            }
            _ => {
                let (id, more) = rest.split_first_chunk().ok_or(SHORT)?;
                rest = more;
                let id = u32::from_le_bytes(*id);
                match kind & !LAST {
                    PUT => {
                        let (put, more) = rest.split_first_chunk().ok_or(SHORT)?;
                        rest = more;
                        let (put, last) = (PutHeader::from_bytes(put), kind & LAST != 0);
                        (Header::Put { id, put, last }, true)
                    }
                    WRITTEN => {
                        let (put, more) = rest.split_first_chunk().ok_or(SHORT)?;
                        let (len, more) = more.split_first_chunk().ok_or(SHORT)?;
                        rest = more;
                        let (put, len) = (PutHeader::from_bytes(put), u32::from_le_bytes(*len));
                        (Header::Written { id, put, len, last: kind & LAST != 0 }, false)
                    }
                    OVER if kind == OVER => {
                        let code = *rest.first().ok_or(SHORT)?;
                        rest = &rest[1..];
                        let fault = code.checked_sub(1).map(immediate::fault);
                        (Header::Over { id, result: fault.map_or(Ok(()), Err) }, false)
                    }
                    GET if kind == GET => {
                        let (name, more) = rest.split_first_chunk::<NAME>().ok_or(SHORT)?;
                        let (offset, more) = more.split_first_chunk().ok_or(SHORT)?;
                        let (len, more) = more.split_first_chunk().ok_or(SHORT)?;
                        rest = more;
                        let (offset, len) = (u64::from_le_bytes(*offset), u64::from_le_bytes(*len));
                        (Header::Get { id, name: *name, offset, len }, false)
                    }
                    PART if kind == PART => (Header::Part { id }, true),
                    _ => return Err(Garbled("a packet of an unknown kind")),
                }
            }
        };
        let (header, has_body) = body;
        let len = bytes.len() - rest.len();
        if !has_body && total > len {
            return Err(Garbled("a packet that is too long"));
        }
        Ok((header, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = Header> {
        let put = || {
            let event = proptest::option::of(any::<u64>());
            let put = (any::<Name>(), any::<u64>(), event);
            put.prop_map(|(name, offset, event)| PutHeader { name, offset, event })
        };
        let fault = || {
            let faults = [Fault::Stale, Fault::Denied, Fault::OutOfBounds, Fault::Unsupported];
            prop::sample::select(faults.to_vec())
        };
        prop_oneof![
            prop::sample::select(vec![Class::Data, Class::Control]).prop_map(Header::Packet),
            put().prop_map(Header::Immediate),
            fault().prop_map(Header::Refused),
            (any::<u32>(), put(), any::<bool>()).prop_map(|(id, put, last)| Header::Put {
                id,
                put,
                last
            }),
            (any::<u32>(), put(), any::<u32>(), any::<bool>())
                .prop_map(|(id, put, len, last)| Header::Written { id, put, len, last }),
            (any::<u32>(), proptest::option::of(fault()))
                .prop_map(|(id, fault)| Header::Over { id, result: fault.map_or(Ok(()), Err) }),
            (any::<u32>(), any::<Name>(), any::<u64>(), any::<u64>())
                .prop_map(|(id, name, offset, len)| Header::Get { id, name, offset, len }),
            any::<u32>().prop_map(|id| Header::Part { id }),
        ]
    }

    proptest! {
        #[test]
        fn headers_go_there_and_back(header in headers(), body in 0..100_usize) {
            let has_body = matches!(
                header,
                Header::Packet(_) | Header::Immediate(_) | Header::Put { .. } | Header::Part { .. }
            );
            let mut packet = header.encode().as_bytes().to_vec();
            let len = packet.len();
            packet.resize(len + body, 7);
            let first = &packet[..packet.len().min(Header::MAX)];
            match Header::decode(first, packet.len()) {
                Ok(decoded) => {
                    prop_assert!(has_body || body == 0);
                    prop_assert_eq!(decoded, (header, len));
                }
                Err(_) => prop_assert!(!has_body && body > 0),
            }
            for short in 0..len {
                let cut = Header::decode(&packet[..short], short);
                prop_assert!(cut.is_err(), "{short} of {len} bytes: {cut:?}");
            }
        }
    }
}
