//! What precedes the payload of a request or a response: 24 bytes, little-endian.
//!
//! ```text
//! 0       1     2      3          4          5..8  8..16  16..24
//! version kind  flags  target     origin     zero  id     sequence      a request
//! version kind  flags  return code zero      zero  zero   sequence      a response
//! version 2     zero                                                    "all has come so far"
//! ```
//!
//! Target and origin are the numbers of contexts. The sender is known from the fabric, never from
//! here; the sequence names an entry of the origin's table, which is checked against that.

/// Bytes of a header: what inline functions of the headers leave free for both kinds.
pub(crate) const LEN: usize = 24;
/// Beyond the core header of 16 bytes: `na_in_header_offset`.
pub(crate) const NA: usize = LEN - 16;
/// Bytes of the header of the upper layer, the checksum of the payload.
pub(crate) const SUM: usize = 4;

const VERSION: u8 = 0xb1;
const REQUEST: u8 = 0;
const RESPONSE: u8 = 1;
const PROBE: u8 = 2;

/// The payload travels as the body of a long message.
pub(crate) const MORE: u8 = 1;
/// No response is waited for.
pub(crate) const NO_RESPONSE: u8 = 1 << 1;

/// A code as it travels, and what is made of one that came: none that Mercury does not have.
pub(crate) fn code(code: u32) -> u8 {
    code.min(crate::abi::OTHER_ERROR) as u8
}

/// A header that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Request { flags: u8, target: u8, origin: u8, id: u64, sequence: u64 },
    Response { flags: u8, code: u8, sequence: u64 },
    Probe,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0] = VERSION;
        match *self {
            Header::Request { flags, target, origin, id, sequence } => {
                (out[1], out[2], out[3], out[4]) = (REQUEST, flags, target, origin);
                out[8..16].copy_from_slice(&id.to_le_bytes());
                out[16..].copy_from_slice(&sequence.to_le_bytes());
            }
            Header::Response { flags, code, sequence } => {
                (out[1], out[2], out[3]) = (RESPONSE, flags, code);
                out[16..].copy_from_slice(&sequence.to_le_bytes());
            }
            Header::Probe => out[1] = PROBE,
        }
        out
    }

    /// The header of a message, and its payload. `None` if it is none of ours.
    pub(crate) fn decode(message: &[u8]) -> Option<(Header, &[u8])> {
        let (head, payload) = message.split_at_checked(LEN)?;
        let word = |at: usize| {
            let bytes = head[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let flags = head[2];
        if head[0] != VERSION || flags & !(MORE | NO_RESPONSE) != 0 || head[5..8] != [0; 3] {
            return None;
        }
        let header = match head[1] {
            REQUEST => Header::Request {
                flags,
                target: head[3],
                origin: head[4],
                id: word(8),
                sequence: word(16),
            },
            RESPONSE if flags & NO_RESPONSE == 0 && head[4] == 0 && word(8) == 0 => {
                Header::Response { flags, code: code(head[3].into()), sequence: word(16) }
            }
            PROBE if message[2..].iter().all(|byte| *byte == 0) => Header::Probe,
            _ => return None,
        };
        Some((header, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for header in [
            Header::Request { flags: 3, target: 7, origin: 1, id: u64::MAX - 1, sequence: 77 },
            Header::Response { flags: MORE, code: 21, sequence: u64::MAX },
            Header::Probe,
        ] {
            let mut bytes = header.encode().to_vec();
            assert_eq!(Header::decode(&bytes), Some((header, &[][..])));
            if header != Header::Probe {
                bytes.extend([1, 2]);
                assert_eq!(Header::decode(&bytes), Some((header, &[1, 2][..])));
            }
        }
    }

    #[test]
    fn no_failure_is_a_success() {
        // What a handler returns may be any number.
        assert_eq!((code(0), code(21), code(256), code(u32::MAX)), (0, 21, 26, 26));
        let unknown = Header::Response { flags: 0, code: 200, sequence: 5 }.encode();
        let known = Header::Response { flags: 0, code: 26, sequence: 5 };
        assert_eq!(Header::decode(&unknown), Some((known, &[][..])));
    }

    #[test]
    fn garbage_is_no_header() {
        let good = Header::Response { flags: 0, code: 0, sequence: 5 }.encode();
        for len in 0..LEN {
            assert_eq!(Header::decode(&good[..len]), None);
        }
        // Version, kind, flags that are unknown or make no sense, and bytes that are to be zero.
        for (at, byte) in [(0, 0), (1, 3), (1, 2), (2, 4), (2, NO_RESPONSE), (4, 1), (6, 1), (9, 1)]
        {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Header::decode(&bad), None, "byte {at}");
        }
        // Whatever the bytes are, nothing panics.
        let mut state = 1u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut bytes = [0; LEN + 8];
            bytes[..8].copy_from_slice(&state.to_le_bytes());
            (bytes[0], bytes[1]) = (VERSION, bytes[1] & 3);
            let _ = Header::decode(&bytes[..(state >> 40) as usize % 33]);
        }
    }
}
