//! OpenPMIx 4.1's packing: numbers of variable length, texts with their length, and values of some
//! sixty types, each after the number of its type.
//!
//! What a client packed is read once, within its bounds. A value of a type that is not understood
//! here is measured, so that it can be kept and passed on.

mod numbers;

use crate::status;
use numbers::{take_signed, take_unsigned};

pub use numbers::{put_signed, put_unsigned};

/// Numbers of types (PMIx Standard 4.1, section 3.3, and `pmix_common.h`).
#[allow(missing_docs)] // The names are those of the Standard.
pub mod kind {
    pub const BOOL: u16 = 1;
    pub const STRING: u16 = 3;
    pub const SIZE: u16 = 4;
    pub const PID: u16 = 5;
    pub const INT: u16 = 6;
    pub const INT16: u16 = 8;
    pub const INT64: u16 = 10;
    pub const UINT: u16 = 11;
    pub const UINT16: u16 = 13;
    pub const UINT32: u16 = 14;
    pub const UINT64: u16 = 15;
    pub const FLOAT: u16 = 16;
    pub const DOUBLE: u16 = 17;
    pub const TIMEVAL: u16 = 18;
    pub const TIME: u16 = 19;
    pub const STATUS: u16 = 20;
    pub const VALUE: u16 = 21;
    pub const PROC: u16 = 22;
    pub const INFO: u16 = 24;
    pub const BYTES: u16 = 27;
    pub const PERSISTENCE: u16 = 30;
    pub const RANGE: u16 = 33;
    pub const PROC_INFO: u16 = 38;
    pub const ARRAY: u16 = 39;
    pub const RANK: u16 = 40;
    pub const COMPRESSED_TEXT: u16 = 42;
    pub const COMPRESSED_BYTES: u16 = 59;
    pub const REGEX: u16 = 60;
}

/// In place of a rank: all of the job.
pub const WILDCARD: u32 = u32::MAX - 1;
/// In place of a rank: any process that has the key.
pub const ANY_RANK: u32 = u32::MAX;
/// In place of a rank: all of the job on this node.
pub const LOCAL_NODE: u32 = u32::MAX - 2;
/// In place of a rank: all processes of the same namespace on this node.
pub const LOCAL_PEERS: u32 = u32::MAX - 4;

/// How deep values may be nested.
const MAX_DEPTH: u32 = 16;

/// Why something is refused: the status for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub i32);

/// What was read, or the refusal.
pub type Decoded<T> = Result<T, Refusal>;

/// It is not packed correctly.
pub const MALFORMED: Refusal = Refusal(status::UNPACK_FAILURE);
/// It is of a type that is not known here, or asks for what is not offered.
pub const UNSUPPORTED: Refusal = Refusal(status::NOT_SUPPORTED);
/// It is packed correctly and makes no sense.
pub const BAD: Refusal = Refusal(status::BAD_PARAM);

/// A text, with its length and a NUL at its end.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put_signed(out, text.len() as i64 + 1);
    out.extend(text.as_bytes());
    out.push(0);
}

/// Bytes, after their number.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_unsigned(out, bytes.len() as u64);
    out.extend(bytes);
}

/// A process: the namespace of its job, and its rank.
pub fn put_proc(out: &mut Vec<u8>, name: &str, rank: u32) {
    put_text(out, name);
    put_unsigned(out, u64::from(rank));
}

/// A count of things, and before the things themselves, if there are any, their count again.
pub fn put_size(out: &mut Vec<u8>, size: usize) {
    put_signed(out, 1);
    put_unsigned(out, size as u64);
    if size > 0 {
        put_signed(out, size as i64);
    }
}

/// A status that is packed alone.
pub fn put_status(out: &mut Vec<u8>, code: i32) {
    put_signed(out, 1);
    put_signed(out, i64::from(code));
}

/// Reads what a client packed. Missing bytes are an error.
#[derive(Clone, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

#[allow(clippy::missing_errors_doc)] // Each refuses what is cut short or packed wrongly.
impl<'a> Reader<'a> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// So many bytes as they are.
    pub fn raw(&mut self, len: u64) -> Decoded<&'a [u8]> {
        let len = usize::try_from(len).map_err(|_| MALFORMED)?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(taken)
    }

    /// One byte.
    pub fn byte(&mut self) -> Decoded<u8> {
        Ok(self.raw(1)?[0])
    }

    /// A number.
    pub fn unsigned(&mut self) -> Decoded<u64> {
        take_unsigned(&mut self.0).ok_or(MALFORMED)
    }

    /// A number with a sign.
    pub fn signed(&mut self) -> Decoded<i64> {
        take_signed(&mut self.0).ok_or(MALFORMED)
    }

    /// The bytes of a text without its NUL; `None`: a null text.
    pub fn text_bytes(&mut self) -> Decoded<Option<&'a [u8]>> {
        let len = u64::try_from(self.signed()?).map_err(|_| MALFORMED)?;
        let bytes = self.raw(len)?;
        Ok((len > 0).then(|| bytes.strip_suffix(&[0]).unwrap_or(bytes)))
    }

    /// A text, such as a key. A null text is an empty one.
    pub fn text(&mut self) -> Decoded<String> {
        let bytes = self.text_bytes()?.unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Bytes that follow their number.
    pub fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let len = self.unsigned()?;
        self.raw(len)
    }

    /// The number of a type.
    pub fn kind(&mut self) -> Decoded<u16> {
        u16::try_from(self.unsigned()?).map_err(|_| MALFORMED)
    }

    /// A rank, or what stands in place of one.
    pub fn rank(&mut self) -> Decoded<u32> {
        u32::try_from(self.unsigned()?).map_err(|_| MALFORMED)
    }

    /// The count that precedes things that were packed together.
    pub fn begin(&mut self) -> Decoded<()> {
        self.signed().map(|_| ())
    }

    /// What [`put_size`] writes: at most `limit` things follow.
    pub fn size(&mut self, limit: usize) -> Decoded<usize> {
        self.begin()?;
        let size = usize::try_from(self.unsigned()?).map_err(|_| MALFORMED)?;
        if size > limit {
            return Err(BAD);
        }
        if size > 0 {
            self.begin()?;
        }
        Ok(size)
    }

    /// A status that was packed alone.
    pub fn status(&mut self) -> Decoded<i32> {
        self.begin()?;
        i32::try_from(self.signed()?).map_err(|_| MALFORMED)
    }

    /// Skips a value of a type, and gives its bytes.
    pub fn pass(&mut self, kind: u16) -> Option<&'a [u8]> {
        self.measure(kind).ok()
    }

    /// As [`Reader::pass`], with the reason if there is no such value.
    pub fn measure(&mut self, kind: u16) -> Decoded<&'a [u8]> {
        let all = self.0;
        self.skip(kind, 1, 0)?;
        Ok(&all[..all.len() - self.0.len()])
    }

    fn skip(&mut self, kind: u16, count: u64, depth: u32) -> Decoded<()> {
        let parts = parts(kind).ok_or(UNSUPPORTED)?;
        if depth > MAX_DEPTH {
            return Err(MALFORMED);
        }
        if parts == "b" {
            return self.raw(count).map(|_| ());
        }
        // Each takes a byte at least, so this ends with the message.
        for _ in 0..if parts.is_empty() { 0 } else { count } {
            for part in parts.bytes() {
                self.skip_part(part, depth + 1)?;
            }
        }
        Ok(())
    }

    fn skip_part(&mut self, part: u8, depth: u32) -> Decoded<()> {
        match part {
            b'b' => self.byte().map(|_| ()),
            b'v' => self.unsigned().map(|_| ()),
            b't' => self.text_bytes().map(|_| ()),
            b's' => self.bytes().map(|_| ()),
            b'x' => {
                let kind = self.kind()?;
                self.skip(kind, 1, depth)
            }
            b'D' => {
                let (kind, count) = (self.kind()?, self.unsigned()?);
                self.skip(kind, count, depth)
            }
            b'T' => {
                let count = u64::try_from(self.signed()?).map_err(|_| MALFORMED)?;
                self.skip(kind::STRING, count, depth)
            }
            b'V' => {
                let count = self.unsigned()?;
                self.skip(kind::UINT32, count, depth)
            }
            _ => {
                let count = self.unsigned()?;
                self.skip(kind::INFO, count, depth)
            }
        }
    }
}

/// The parts of a value of a type: `b` a byte, `v` a number, `t` a text, `s` bytes, `x` a type and
/// a value of it, `D` a type and values of it, `T` texts, `V` numbers, `I` infos. `None`: an
/// unknown type, or one that only its own machine understands.
fn parts(kind: u16) -> Option<&'static str> {
    Some(match kind {
        0 => "",
        kind::BOOL | 2 | 7 | 12 | 30..=34 | 37 | 43 | 50 | 51 => "b",
        kind::STRING | kind::FLOAT | kind::DOUBLE | kind::REGEX => "t",
        kind::SIZE | kind::INT | 8..=11 | 13..=15 | 19 | 20 | 35 | 36 | kind::RANK => "v",
        45 | 57 | 58 | 66..=69 => "v",
        // A number of the process, which has its type before it, and a time in two parts.
        kind::PID | kind::TIMEVAL => "vv",
        kind::VALUE => "x",
        kind::PROC => "tv",
        23 => "tTTtvI",
        kind::INFO => "tvx",
        25 => "tvtx",
        kind::BYTES | kind::COMPRESSED_TEXT | kind::COMPRESSED_BYTES | 65 => "s",
        28 => "tx",
        kind::PROC_INFO => "tvttvvb",
        kind::ARRAY => "D",
        41 => "TI",
        46 => "ttb",
        47 => "bV",
        48 => "ttvT",
        54 => "ttvvv",
        55 => "tts",
        61 => "ttvvvtbvvvvtttvvv",
        _ => return None,
    })
}

/// The number in a packed value, if it is one.
pub fn number(kind: u16, packed: &[u8]) -> Option<i128> {
    let mut from = Reader(packed);
    let number = match kind {
        kind::SIZE | kind::UINT..=kind::UINT64 | kind::TIME | kind::RANK if kind != 12 => {
            from.unsigned().ok()?.into()
        }
        kind::INT | kind::INT16..=kind::INT64 | kind::STATUS => from.signed().ok()?.into(),
        // A number of the system has its real type before it.
        kind::PID => {
            let real = from.kind().ok().filter(|real| *real != kind::PID)?;
            return self::number(real, from.0);
        }
        35 | 36 | 45 | 57 | 58 => from.unsigned().ok()?.into(),
        7 => i128::from(from.byte().ok()? as i8),
        // Bytes: scopes, states and the like.
        2 | 12 | 32 | 34 | 37 | 43 | 50 | 51 | kind::PERSISTENCE | kind::RANGE => {
            from.byte().ok()?.into()
        }
        _ => return None,
    };
    Some(number)
}

/// Whether numbers of this type can be negative.
pub fn is_signed(kind: u16) -> bool {
    matches!(kind, kind::INT..=kind::INT64 | kind::STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive() {
        for number in [0, 1, 127, 128, 300, 1 << 35, (1 << 56) - 1, 1 << 56, u64::MAX] {
            let mut bytes = Vec::new();
            put_unsigned(&mut bytes, number);
            let mut reader = Reader(&bytes);
            assert_eq!(reader.unsigned().unwrap(), number);
            assert!(reader.0.is_empty() && bytes.len() <= 9);
        }
        for number in [0, -1, 1, -46, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, number);
            assert_eq!(Reader(&bytes).signed().unwrap(), number);
        }
        assert!(Reader(&[0x80, 0x80]).unsigned().is_err());
    }

    #[test]
    fn what_is_deep_or_endless_is_refused() {
        // Arrays of one array each.
        let deep: Vec<u8> = [kind::ARRAY as u8, 1].repeat(100);
        assert_eq!(Reader(&deep).measure(kind::ARRAY), Err(MALFORMED));
        let mut endless = vec![kind::UINT32 as u8];
        put_unsigned(&mut endless, u64::MAX);
        assert_eq!(Reader(&endless).measure(kind::ARRAY), Err(MALFORMED));
        // Empty values may be as many as the message says.
        endless[0] = 0;
        assert_eq!(Reader(&endless).measure(kind::ARRAY).unwrap().len(), endless.len());
        assert_eq!(Reader(&[]).measure(52), Err(UNSUPPORTED));
    }
}
