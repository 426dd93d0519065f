//! Headers of packets: little-endian, of a length fixed by their kind, at most [`MAX`] bytes.
//!
//! Each begins with the same eight bytes ([`PREFIX`]):
//!
//! | bytes | what |
//! |---|---|
//! | 0 | kind |
//! | 1 | version of the format ([`VERSION`]) |
//! | 2, 3 | flags of the kind; unknown ones are refused |
//! | 4..8 | length of the payload |
//!
//! A plain message has nothing else ([`message_header`]).

use super::violation::Violation;
use crate::{AtomicOp, AtomicType};
use std::ops::Deref;

/// The longest header in bytes.
pub const MAX: usize = 64;
/// What all headers have in common, in bytes; enough for [`frame`].
pub const PREFIX: usize = 8;
/// The version of the format.
pub const VERSION: u8 = 3;

const MESSAGE: u8 = 1;
const MESSAGE_ASKING: u8 = 2;
const LONG: u8 = 3;
const TAGGED: u8 = 4;
const TAGGED_ASKING: u8 = 5;
const TAGGED_BODY: u8 = 6;
const CREDIT: u8 = 7;
const PUT: u8 = 8;
const PUT_EVENT: u8 = 9;
const PUT_ABORT: u8 = 10;
const GET: u8 = 11;
const PULL: u8 = 12;
const DATA: u8 = 13;
const REPLY: u8 = 14;
const BODY_DONE: u8 = 15;
const ATOMIC: u8 = 16;
const ROOM: u8 = 17;
const GRANT: u8 = 18;
const ASK: u8 = 19;
const RECALL: u8 = 20;
const RETURN: u8 = 21;
const ROOM_ASK: u8 = 22;
const REFUSED: u8 = 23;
const FLUSH: u8 = 24;
const MODE: u8 = 25;

/// Lengths by kind; zero for what is no kind.
const LENGTHS: [u8; 26] = [
    0, 8, 16, 24, 16, 24, 32, 16, 40, 64, 16, 48, 40, 24, 16, 16, 48, 16, 16, 8, 8, 16, 8, 16, 16,
    8,
];

/// The header of a plain unexpected message of `len` bytes, for transports that send those
/// without the engine.
#[inline]
#[must_use]
pub fn message_header(len: u32) -> [u8; PREFIX] {
    let word = u64::from(len) << 32 | u64::from(VERSION) << 8 | u64::from(MESSAGE);
    word.to_le_bytes()
}

/// The length of the plain unexpected message whose header this is; `None` for any other header.
/// Compare it with `limits.max_message` before use.
#[inline]
#[must_use]
pub fn message_len(prefix: [u8; PREFIX]) -> Option<u32> {
    let word = u64::from_le_bytes(prefix);
    let plain = word as u32 == u32::from(VERSION) << 8 | u32::from(MESSAGE);
    plain.then_some((word >> 32) as u32)
}

/// The length of the header of an eager expected message.
pub const EXPECTED: usize = 16;

/// The header of an expected message of `len` bytes that travels with its data and wants no answer.
#[inline]
pub(super) fn expected_header(tag: u64, len: u32) -> [u8; EXPECTED] {
    let word = u64::from(len) << 32 | u64::from(VERSION) << 8 | u64::from(TAGGED);
    let mut header = [0; EXPECTED];
    header[..PREFIX].copy_from_slice(&word.to_le_bytes());
    header[PREFIX..].copy_from_slice(&tag.to_le_bytes());
    header
}

/// Tag and length of the expected message whose header this is; `None` for any other header.
#[inline]
pub(super) fn expected_message(header: [u8; EXPECTED]) -> Option<(u64, u32)> {
    let [word, tag] = {
        let (words, _) = header.as_chunks::<8>();
        [words[0], words[1]].map(u64::from_le_bytes)
    };
    let expected = word as u32 == u32::from(VERSION) << 8 | u32::from(TAGGED);
    expected.then_some((tag, (word >> 32) as u32))
}

/// How long the parts of a packet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header, its first eight bytes included.
    pub header: usize,
    /// The payload.
    pub payload: usize,
}

/// Reads the lengths from the first eight bytes of a packet: for streams.
///
/// # Errors
/// [`Violation`] if no packet can have these lengths.
#[inline]
pub fn frame(prefix: [u8; PREFIX]) -> Result<Frame, Violation> {
    let [kind, version, _, _, a, b, c, d] = prefix;
    if version != VERSION {
        return Err(Violation::new("unknown version", version.into()));
    }
    match LENGTHS.get(usize::from(kind)) {
        Some(&len) if len > 0 => Ok(Frame {
            header: usize::from(len),
            payload: u32::from_le_bytes([a, b, c, d]) as usize,
        }),
        _ => Err(Violation::new("unknown kind of packet", kind.into())),
    }
}

/// The bytes of a header.
#[derive(Clone, Copy)]
pub struct Encoded {
    bytes: [u8; MAX],
    len: u8,
}

impl Deref for Encoded {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Encoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Header::decode(self) {
            Ok((header, payload)) => write!(f, "{header:?}+{payload}"),
            Err(violation) => write!(f, "{violation}"),
        }
    }
}

/// Names a region of the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Slot in its table.
    pub(super) slot: u32,
    /// How often that slot was used before.
    pub(super) generation: u32,
    /// Drawn when the region was registered.
    pub(super) secret: u64,
}

impl Target {
    pub(super) const LEN: usize = 16;

    /// As it stands in headers, and in the route of a key.
    pub(super) fn to_bytes(self) -> [u8; Target::LEN] {
        let mut out = [0; Target::LEN];
        out[..4].copy_from_slice(&self.slot.to_le_bytes());
        out[4..8].copy_from_slice(&self.generation.to_le_bytes());
        out[8..].copy_from_slice(&self.secret.to_le_bytes());
        out
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Target> {
        let mut fields = Fields(bytes);
        let target = (bytes.len() == Target::LEN).then(|| fields.target())?;
        Some(target)
    }
}

/// The meaning of a header. Ids are the sender's unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// An unexpected message.
    Message,
    /// The same, to be answered when it has arrived.
    MessageAsking { id: u64 },
    /// A long message; the payload is its header.
    Long { body: u64, len: u64 },
    /// An expected message with its data.
    Tagged { tag: u64 },
    /// The same, to be answered when it has arrived.
    TaggedAsking { tag: u64, id: u64 },
    /// An expected message whose body is to be pulled.
    TaggedBody { tag: u64, body: u64, len: u64 },
    /// Asks for places for eager expected messages; the answer is `Credit`, which may be of none.
    RoomAsk,
    /// Places for eager expected messages, given or given back.
    Credit { count: u64 },
    /// Places for more announcements of expected messages.
    Room { count: u64 },
    /// So many more messages may be sent that need a lease.
    Grant { count: u64 },
    /// A message waits for a grant.
    Ask,
    /// Grants that are not needed are wanted back.
    Recall,
    /// So many of them are given back.
    Return { count: u64 },
    /// A fragment of a put. The last one may ask for an answer; then all have `asking` set.
    Put { id: u64, target: Target, offset: u64, last: bool, asking: bool },
    /// The last fragment of a put with event, always to be answered.
    PutEvent { id: u64, target: Target, offset: u64, data: u64, begin: u64, total: u64 },
    /// No more comes of a put that asked for an answer, and no answer is wanted.
    PutAbort { id: u64 },
    /// Asks for part of a region.
    Get { id: u64, target: Target, offset: u64, len: u64 },
    /// Asks for part of a body of the receiver's.
    Pull { id: u64, body: u64, offset: u64, len: u64 },
    /// Part of the answer to `Get` or `Pull`, from `offset` in it on. The id is the asker's.
    Data { id: u64, offset: u64 },
    /// The answer to everything else, and to a `Get` or `Pull` that fails. The id is the asker's.
    Reply { id: u64, status: Status },
    /// A body of the receiver's is not needed any more.
    BodyDone { body: u64 },
    /// So many fragments of puts that asked for no answer were refused, the first of them so.
    Refused { count: u64, status: Status },
    /// Asks whether fragments of puts that asked for no answer were refused since this was last
    /// asked; the answer is `Reply`.
    Flush { id: u64 },
    /// How the sender takes things in, from now on: whether messages and puts with event are held
    /// back, and whether a thread drives it while its program does not.
    Mode { held: bool, attended: bool },
    /// An atomic operation; the payload is the operand, and behind it what to compare with.
    Atomic { id: u64, target: Target, offset: u64, op: AtomicOp, kind: AtomicType, fetch: bool },
}

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Good = 0,
    Stale = 1,
    Denied = 2,
    OutOfBounds = 3,
    Misaligned = 4,
    Unsupported = 5,
    Withdrawn = 6,
}

impl Status {
    fn from_u64(number: u64) -> Result<Status, Violation> {
        use Status::*;
        [Good, Stale, Denied, OutOfBounds, Misaligned, Unsupported, Withdrawn]
            .into_iter()
            .find(|status| *status as u64 == number)
            .ok_or(Violation::new("unknown status", number))
    }
}

const LAST: u16 = 1;
const ASKING: u16 = 2;
const HELD: u16 = 1;
const ATTENDED: u16 = 2;

impl Header {
    /// The header of a packet with `payload` bytes of payload.
    pub(super) fn encode(&self, payload: usize) -> Encoded {
        let mut out = Encoded { bytes: [0; MAX], len: PREFIX as u8 };
        let mut flags = 0;
        let kind = match *self {
            Header::Message => MESSAGE,
            Header::MessageAsking { id } => {
                out.numbers(&[id]);
                MESSAGE_ASKING
            }
            Header::Long { body, len } => {
                out.numbers(&[body, len]);
                LONG
            }
            Header::Tagged { tag } => {
                out.numbers(&[tag]);
                TAGGED
            }
            Header::TaggedAsking { tag, id } => {
                out.numbers(&[tag, id]);
                TAGGED_ASKING
            }
            Header::TaggedBody { tag, body, len } => {
                out.numbers(&[tag, body, len]);
                TAGGED_BODY
            }
            Header::Credit { count } => {
                out.numbers(&[count]);
                CREDIT
            }
            Header::Room { count } => {
                out.numbers(&[count]);
                ROOM
            }
            Header::Grant { count } => {
                out.numbers(&[count]);
                GRANT
            }
            Header::Ask => ASK,
            Header::RoomAsk => ROOM_ASK,
            Header::Recall => RECALL,
            Header::Return { count } => {
                out.numbers(&[count]);
                RETURN
            }
            Header::Put { id, target, offset, last, asking } => {
                flags = if last { LAST } else { 0 } | if asking { ASKING } else { 0 };
                out.numbers(&[id]).target(target).numbers(&[offset]);
                PUT
            }
            Header::PutEvent { id, target, offset, data, begin, total } => {
                out.numbers(&[id]).target(target);
                out.numbers(&[offset, data, begin, total]);
                PUT_EVENT
            }
            Header::PutAbort { id } => {
                out.numbers(&[id]);
                PUT_ABORT
            }
            Header::Get { id, target, offset, len } => {
                out.numbers(&[id]).target(target).numbers(&[offset, len]);
                GET
            }
            Header::Pull { id, body, offset, len } => {
                out.numbers(&[id, body, offset, len]);
                PULL
            }
            Header::Data { id, offset } => {
                out.numbers(&[id, offset]);
                DATA
            }
            Header::Reply { id, status } => {
                flags = status as u16;
                out.numbers(&[id]);
                REPLY
            }
            Header::BodyDone { body } => {
                out.numbers(&[body]);
                BODY_DONE
            }
            Header::Refused { count, status } => {
                flags = status as u16;
                out.numbers(&[count]);
                REFUSED
            }
            Header::Flush { id } => {
                out.numbers(&[id]);
                FLUSH
            }
            Header::Mode { held, attended } => {
                flags = if held { HELD } else { 0 } | if attended { ATTENDED } else { 0 };
                MODE
            }
            Header::Atomic { id, target, offset, op, kind, fetch } => {
                let what = u64::from(op as u8) | u64::from(kind as u8) << 8;
                let what = what | u64::from(fetch) << 16;
                out.numbers(&[id]).target(target).numbers(&[offset, what]);
                ATOMIC
            }
        };
        debug_assert_eq!(out.len, LENGTHS[usize::from(kind)]);
        out.bytes[0] = kind;
        out.bytes[1] = VERSION;
        out.bytes[2..4].copy_from_slice(&flags.to_le_bytes());
        out.bytes[4..8].copy_from_slice(&(payload as u32).to_le_bytes());
        out
    }

    /// Checks a header, and gives its meaning and the length of the payload.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Header, usize), Violation> {
        let short = Violation::new("header cut short", bytes.len() as u64);
        let prefix = *bytes.first_chunk::<PREFIX>().ok_or(short)?;
        let frame = frame(prefix)?;
        if frame.header != bytes.len() {
            return Err(short);
        }
        let flags = u16::from_le_bytes([prefix[2], prefix[3]]);
        let mut f = Fields(&bytes[PREFIX..]);
        let mut known = 0;
        let header = match prefix[0] {
            MESSAGE => Header::Message,
            MESSAGE_ASKING => Header::MessageAsking { id: f.u64() },
            LONG => Header::Long { body: f.u64(), len: f.u64() },
            TAGGED => Header::Tagged { tag: f.u64() },
            TAGGED_ASKING => Header::TaggedAsking { tag: f.u64(), id: f.u64() },
            TAGGED_BODY => Header::TaggedBody { tag: f.u64(), body: f.u64(), len: f.u64() },
            CREDIT => Header::Credit { count: f.u64() },
            ROOM => Header::Room { count: f.u64() },
            GRANT => Header::Grant { count: f.u64() },
            ASK => Header::Ask,
            ROOM_ASK => Header::RoomAsk,
            RECALL => Header::Recall,
            RETURN => Header::Return { count: f.u64() },
            PUT => {
                known = LAST | ASKING;
                Header::Put {
                    id: f.u64(),
                    target: f.target(),
                    offset: f.u64(),
                    last: flags & LAST != 0,
                    asking: flags & ASKING != 0,
                }
            }
            PUT_EVENT => Header::PutEvent {
                id: f.u64(),
                target: f.target(),
                offset: f.u64(),
                data: f.u64(),
                begin: f.u64(),
                total: f.u64(),
            },
            PUT_ABORT => Header::PutAbort { id: f.u64() },
            GET => Header::Get { id: f.u64(), target: f.target(), offset: f.u64(), len: f.u64() },
            PULL => Header::Pull { id: f.u64(), body: f.u64(), offset: f.u64(), len: f.u64() },
            DATA => Header::Data { id: f.u64(), offset: f.u64() },
            REPLY => {
                known = flags;
                Header::Reply { id: f.u64(), status: Status::from_u64(flags.into())? }
            }
            BODY_DONE => Header::BodyDone { body: f.u64() },
            REFUSED => {
                known = flags;
                Header::Refused { count: f.u64(), status: Status::from_u64(flags.into())? }
            }
            FLUSH => Header::Flush { id: f.u64() },
            MODE => {
                known = HELD | ATTENDED;
                Header::Mode { held: flags & HELD != 0, attended: flags & ATTENDED != 0 }
            }
            _ => {
                let (id, target, offset, what) = (f.u64(), f.target(), f.u64(), f.u64());
                let bad = Violation::new("unknown atomic operation", what);
                if what >> 17 != 0 {
                    return Err(bad);
                }
                Header::Atomic {
                    id,
                    target,
                    offset,
                    op: AtomicOp::from_u8(what as u8).ok_or(bad)?,
                    kind: AtomicType::from_u8((what >> 8) as u8).ok_or(bad)?,
                    fetch: what >> 16 == 1,
                }
            }
        };
        if flags & !known != 0 {
            return Err(Violation::new("unknown flags", flags.into()));
        }
        Ok((header, frame.payload))
    }
}

impl Encoded {
    fn put(&mut self, bytes: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    fn numbers(&mut self, numbers: &[u64]) -> &mut Encoded {
        for number in numbers {
            self.put(&number.to_le_bytes());
        }
        self
    }

    fn target(&mut self, target: Target) -> &mut Encoded {
        self.put(&target.to_bytes());
        self
    }
}

/// Takes fields from bytes whose length was checked against the kind's.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) =
            self.0.split_first_chunk::<N>().expect("the length of the kind was checked");
        self.0 = rest;
        *head
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn target(&mut self) -> Target {
        Target { slot: self.u32(), generation: self.u32(), secret: self.u64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Header> {
        let target = Target { slot: 1, generation: 2, secret: 3 };
        vec![
            Header::Message,
            Header::MessageAsking { id: 4 },
            Header::Long { body: 5, len: 6 },
            Header::Tagged { tag: 7 },
            Header::TaggedAsking { tag: 8, id: 9 },
            Header::TaggedBody { tag: 10, body: 11, len: 12 },
            Header::Credit { count: 13 },
            Header::Room { count: 35 },
            Header::Grant { count: 36 },
            Header::Ask,
            Header::RoomAsk,
            Header::Recall,
            Header::Return { count: 37 },
            Header::Put { id: 14, target, offset: 15, last: true, asking: false },
            Header::PutEvent { id: 16, target, offset: 17, data: 18, begin: 19, total: 20 },
            Header::PutAbort { id: 21 },
            Header::Get { id: 22, target, offset: 23, len: 24 },
            Header::Pull { id: 25, body: 26, offset: 27, len: 28 },
            Header::Data { id: 29, offset: 30 },
            Header::Reply { id: 31, status: Status::Withdrawn },
            Header::BodyDone { body: 32 },
            Header::Refused { count: 38, status: Status::Stale },
            Header::Flush { id: 39 },
            Header::Mode { held: true, attended: false },
            Header::Mode { held: false, attended: true },
            Header::Atomic {
                id: 33,
                target,
                offset: 34,
                op: AtomicOp::CompareSwap,
                kind: AtomicType::F64,
                fetch: true,
            },
        ]
    }

    #[test]
    fn there_and_back() {
        for header in samples() {
            let encoded = header.encode(77);
            assert_eq!(Header::decode(&encoded), Ok((header, 77)));
            let prefix = *encoded.first_chunk().unwrap();
            let parts = frame(prefix).unwrap();
            assert_eq!((parts.header, parts.payload), (encoded.len(), 77));
            let plain = (header == Header::Message).then_some(77);
            assert_eq!(message_len(prefix), plain);
            for len in 0..encoded.len() {
                assert!(Header::decode(&encoded[..len]).is_err());
            }
        }
        assert_eq!(&Header::Message.encode(9)[..], &message_header(9)[..]);
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for header in samples() {
            for (at, byte) in [(0, 0), (0, LENGTHS.len() as u8), (1, 1), (3, 0x80)] {
                let mut bytes = header.encode(0).to_vec();
                bytes[at] = byte;
                assert!(Header::decode(&bytes).is_err(), "{header:?} {at} {byte}");
            }
        }
    }
}
