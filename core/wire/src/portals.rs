//! The headers of matching one-sided messages: little-endian, versioned in the first byte.
//!
//! | frame | layout (bytes) |
//! |---|---|
//! | request | version and kind 1, flags 1, portal 2, user 4, operation 8, match bits 8 — then, as flagged, offset 8, header data 8, length 8, job 4 and cookie 4, operator 1, type 1, reserved 6 and operand 16 — then the data |
//! | response | version and kind 1, flags 1, status 1, reserved 5, operation 8 — then, as flagged, length 8 and offset 8 — then the data |
//!
//! So an 8-byte put and its acknowledgement are a cache line each, as transports count them. The
//! header does not repeat the length of the data that follows it; a get says how much it wants.
//!
//! Data that is long may be *lent* instead: then the request says its length, and has a key of the
//! fabric in place of the data. That of a put names memory to fetch it from, that of a get memory
//! to bring it to. The lender always asks for an answer, and waits for it before the memory is used
//! again.
//!
//! The numbers of operators and types are not checked here: they mean something to the protocol
//! only.

/// The version of these headers.
pub const VERSION: u8 = 2;
/// The longest header.
pub const MAX: usize = 24 + 8 + 8 + 8 + 8 + 8 + OPERAND;
/// Room for the operand of a swap.
pub const OPERAND: usize = 16;

const RESPONSE: u8 = VERSION << 4 | 8;

const OFFSET: u8 = 1;
const DATA: u8 = 2;
const LENGTH: u8 = 4;
const JOB: u8 = 8;
const ATOMIC: u8 = 16;
const WANTS: u8 = 32;
const LENT: u8 = 64;

const DIFFERS: u8 = 1;

/// Why a header was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Shorter than its header says.
    #[error("cut short")]
    Short,
    /// Of another version of the protocol.
    #[error("version {0} of the protocol, this side speaks {VERSION}")]
    Version(u8),
    /// No such kind of frame.
    #[error("unknown kind of frame {0}")]
    Kind(u8),
    /// Flags that mean nothing here, or that its kind does not have.
    #[error("bad flags {0:#x}")]
    Flags(u8),
    /// A field with a value that it cannot have.
    #[error("bad {0}")]
    Field(&'static str),
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The data is for the target.
    Put = 1,
    /// Data of the target.
    Get = 2,
    /// Both, in exchange.
    GetPut = 3,
    /// Elements are to be changed.
    Atomic = 4,
    /// The same, and those of before are wanted.
    FetchAtomic = 5,
    /// An answer, no more: it says that all that was sent before has come in.
    Fence = 6,
}

impl Kind {
    fn from_u8(kind: u8) -> Option<Kind> {
        use Kind::*;
        [Put, Get, GetPut, Atomic, FetchAtomic, Fence]
            .get(usize::from(kind).checked_sub(1)?)
            .copied()
    }
}

/// What an atomic operation does: see the protocol for the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// The operator.
    pub operator: u8,
    /// The type of elements.
    pub datatype: u8,
    /// The operand of a swap; else zeroes.
    pub operand: [u8; OPERAND],
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it wants.
    pub kind: Kind,
    /// Whether an answer is wanted, by this number of the initiator's.
    pub operation: Option<u64>,
    /// The portal.
    pub portal: u16,
    /// The user of the initiator.
    pub user: u32,
    /// The match bits.
    pub bits: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// What the initiator sends along.
    pub header_data: u64,
    /// How much is wanted of a get, or lent for a put, in bytes; else 0.
    pub length: u64,
    /// Whether a key follows: of a put in place of the data, of a get to where its data goes.
    pub lent: bool,
    /// The job, and the index of the access control entry.
    pub job: (u32, u32),
    /// Of atomic operations.
    pub atomic: Option<Atomic>,
}

/// The header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The initiator's number for what it answers.
    pub operation: u64,
    /// How it went: 0 is well, 6 is well in the overflow list.
    pub status: u8,
    /// Bytes moved, and where, if that is not as it was asked for.
    pub moved: Option<(u64, u64)>,
}

/// A frame: its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A request.
    Request(Request),
    /// A response.
    Response(Response),
}

impl Request {
    /// A fence, to be answered by this number.
    #[must_use]
    pub fn fence(operation: u64) -> Request {
        Request {
            kind: Kind::Fence,
            operation: Some(operation),
            portal: 0,
            user: 0,
            bits: 0,
            offset: 0,
            header_data: 0,
            length: 0,
            lent: false,
            job: (0, 0),
            atomic: None,
        }
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut room = [0; MAX];
        let len = self.write(&mut room);
        out.extend_from_slice(&room[..len]);
    }

    /// Writes the header to the beginning of `room`, and says how long it is, in bytes. What lies
    /// behind it there may have changed, too.
    #[inline]
    pub fn write(&self, room: &mut [u8; MAX]) -> usize {
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let flags = flag(self.offset != 0, OFFSET)
            | flag(self.header_data != 0, DATA)
            | flag(self.kind == Kind::Get || self.lent, LENGTH)
            | flag(self.lent, LENT)
            | flag(self.job != (0, 0), JOB)
            | flag(self.atomic.is_some(), ATOMIC)
            | flag(self.operation.is_some(), WANTS);
        let first = u64::from(VERSION << 4 | self.kind as u8)
            | u64::from(flags) << 8
            | u64::from(self.portal) << 16
            | u64::from(self.user) << 32;
        let (words, _) = room.as_chunks_mut::<8>();
        words[0] = first.to_le_bytes();
        words[1] = self.operation.unwrap_or(0).to_le_bytes();
        words[2] = self.bits.to_le_bytes();
        let job = u64::from(self.job.0) | u64::from(self.job.1) << 32;
        let mut len = 3;
        for (flag, word) in
            [(OFFSET, self.offset), (DATA, self.header_data), (LENGTH, self.length), (JOB, job)]
        {
            if flags & flag != 0 {
                words[len] = word.to_le_bytes();
                len += 1;
            }
        }
        if let Some(atomic) = &self.atomic {
            words[len] = [atomic.operator, atomic.datatype, 0, 0, 0, 0, 0, 0];
            words[len + 1..].as_flattened_mut()[..OPERAND].copy_from_slice(&atomic.operand);
            len += 1 + OPERAND / 8;
        }
        len * 8
    }
}

impl Response {
    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut room = [0; MAX];
        let len = self.write(&mut room);
        out.extend_from_slice(&room[..len]);
    }

    /// Writes the header to the beginning of `room`, and says how long it is, in bytes. What lies
    /// behind it there may have changed, too.
    #[inline]
    pub fn write(&self, room: &mut [u8; MAX]) -> usize {
        let flags = if self.moved.is_some() { DIFFERS } else { 0 };
        let first = u64::from_le_bytes([RESPONSE, flags, self.status, 0, 0, 0, 0, 0]);
        let (len, offset) = self.moved.unwrap_or_default();
        let words = [first, self.operation, len, offset].map(u64::to_le_bytes);
        room[..32].copy_from_slice(words.as_flattened());
        if self.moved.is_some() { 32 } else { 16 }
    }
}

fn word(from: &mut &[u8]) -> Result<u64, HeaderError> {
    let (word, rest) = from.split_first_chunk().ok_or(HeaderError::Short)?;
    *from = rest;
    Ok(u64::from_le_bytes(*word))
}

/// Reads a frame like most requests, a put with no optional field: its header, and the data. Gives
/// nothing for any other frame, which is for [`decode`].
#[inline(always)]
pub fn plain_put(frame: &[u8]) -> Option<(Request, &[u8])> {
    let (header, data) = frame.split_first_chunk::<24>()?;
    let (words, _) = header.as_chunks::<8>();
    let [first, operation, bits] = [words[0], words[1], words[2]].map(u64::from_le_bytes);
    let plain = u16::from_le_bytes([VERSION << 4 | Kind::Put as u8, 0]);
    let wants = u16::from(WANTS) << 8;
    if first as u16 & !wants != plain {
        return None;
    }
    let request = Request {
        kind: Kind::Put,
        operation: (first as u16 & wants != 0).then_some(operation),
        portal: (first >> 16) as u16,
        user: (first >> 32) as u32,
        bits,
        offset: 0,
        header_data: 0,
        length: 0,
        lent: false,
        job: (0, 0),
        atomic: None,
    };
    Some((request, data))
}

/// The same for a response that says no more than that all went as it was asked for.
#[inline(always)]
pub fn plain_response(frame: &[u8]) -> Option<Response> {
    let (words, []) = frame.as_chunks::<8>() else { return None };
    let [first, operation] = words else { return None };
    let plain = *first == [RESPONSE, 0, 0, 0, 0, 0, 0, 0];
    plain.then(|| Response { operation: u64::from_le_bytes(*operation), status: 0, moved: None })
}

/// Reads a frame that came from outside: its header, and what follows. Never panics, allocates
/// nothing.
#[inline]
pub fn decode(frame: &[u8]) -> Result<(Frame, &[u8]), HeaderError> {
    let mut rest = frame;
    let first = word(&mut rest)?;
    let [kind, flags, ..] = first.to_le_bytes();
    if kind >> 4 != VERSION {
        return Err(HeaderError::Version(kind >> 4));
    }
    let operation = word(&mut rest)?;
    if kind == RESPONSE {
        if flags & !DIFFERS != 0 {
            return Err(HeaderError::Flags(flags));
        }
        let moved = match flags & DIFFERS {
            0 => None,
            _ => Some((word(&mut rest)?, word(&mut rest)?)),
        };
        let status = (first >> 16) as u8;
        return Ok((Frame::Response(Response { operation, status, moved }), rest));
    }
    let kind = Kind::from_u8(kind & 15).ok_or(HeaderError::Kind(kind & 15))?;
    let atomic = matches!(kind, Kind::Atomic | Kind::FetchAtomic);
    let lent = flags & LENT != 0;
    let may_lend = matches!(kind, Kind::Put | Kind::Get) && flags & WANTS != 0;
    let sound = flags & !(OFFSET | DATA | LENGTH | JOB | ATOMIC | WANTS | LENT) == 0
        && (flags & LENGTH != 0) == (kind == Kind::Get || lent)
        && (flags & ATOMIC != 0) == atomic
        && (!lent || may_lend)
        && (kind != Kind::Fence || flags == WANTS);
    if !sound {
        return Err(HeaderError::Flags(flags));
    }
    let bits = word(&mut rest)?;
    let mut optional = |flag| if flags & flag == 0 { Ok(0) } else { word(&mut rest) };
    let (offset, header_data) = (optional(OFFSET)?, optional(DATA)?);
    let (length, job) = (optional(LENGTH)?, optional(JOB)?);
    let atomic = match flags & ATOMIC {
        0 => None,
        _ => {
            let [operator, datatype, ..] = word(&mut rest)?.to_le_bytes();
            let (operand, after) = rest.split_first_chunk().ok_or(HeaderError::Short)?;
            rest = after;
            Some(Atomic { operator, datatype, operand: *operand })
        }
    };
    if kind == Kind::Get && !lent && !rest.is_empty() {
        return Err(HeaderError::Field("data of a get"));
    }
    if kind == Kind::Fence && !rest.is_empty() {
        return Err(HeaderError::Field("data of a fence"));
    }
    let request = Request {
        kind,
        operation: (flags & WANTS != 0).then_some(operation),
        portal: (first >> 16) as u16,
        user: (first >> 32) as u32,
        bits,
        offset,
        header_data,
        length,
        lent,
        job: (job as u32, (job >> 32) as u32),
        atomic,
    };
    Ok((Frame::Request(request), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = Request> {
        let numbers = any::<(u64, u64, u64, u64, u32, u32, u32)>();
        let small = any::<(u8, u8, [u8; OPERAND], u16, [bool; 5])>();
        (1_u8..6, numbers, small).prop_map(|(kind, numbers, small)| {
            let (bits, offset, header_data, length, user, job, cookie) = numbers;
            let (operator, datatype, operand, portal, flags) = small;
            let kind = Kind::from_u8(kind).unwrap();
            let atomic = Atomic { operator, datatype, operand };
            let lent = flags[4] && flags[0] && matches!(kind, Kind::Put | Kind::Get);
            Request {
                kind,
                operation: flags[0].then_some(bits ^ length),
                portal,
                user,
                bits,
                offset: if flags[1] { offset } else { 0 },
                header_data: if flags[2] { header_data } else { 0 },
                length: if kind == Kind::Get || lent { length } else { 0 },
                lent,
                job: if flags[3] { (job, cookie) } else { (0, 0) },
                atomic: matches!(kind, Kind::Atomic | Kind::FetchAtomic).then_some(atomic),
            }
        })
    }

    proptest! {
        #[test]
        fn requests_come_back(request in request(), data in any::<Vec<u8>>(), cut in any::<usize>()) {
            let data = if request.kind == Kind::Get && !request.lent { vec![] } else { data };
            let mut frame = Vec::new();
            request.encode(&mut frame);
            prop_assert!(frame.len() <= MAX && frame.len().is_multiple_of(8));
            let header = frame.len();
            frame.extend_from_slice(&data);
            prop_assert_eq!(decode(&frame), Ok((Frame::Request(request), &data[..])));
            let plain = request.kind == Kind::Put
                && (request.offset, request.header_data, request.job) == (0, 0, (0, 0))
                && !request.lent;
            prop_assert_eq!(plain_put(&frame), plain.then_some((request, &data[..])));
            prop_assert_eq!(plain_response(&frame), None);
            prop_assert_eq!(decode(&frame[..cut % header]), Err(HeaderError::Short));
        }

        #[test]
        fn fences_come_back(operation in any::<u64>(), flags in any::<u8>(), more in 1_usize..9) {
            let fence = Request::fence(operation);
            let mut frame = Vec::new();
            fence.encode(&mut frame);
            prop_assert_eq!(decode(&frame), Ok((Frame::Request(fence), &[][..])));
            prop_assert_eq!((plain_put(&frame), plain_response(&frame)), (None, None));
            frame.resize(frame.len() + more, 0);
            prop_assert_eq!(decode(&frame), Err(HeaderError::Field("data of a fence")));
            frame[1] = flags;
            prop_assert_eq!(decode(&frame).is_err(), true);
        }

        #[test]
        fn responses_come_back(
            operation in any::<u64>(), status in any::<u8>(), moved in any::<Option<(u64, u64)>>(),
            data in any::<Vec<u8>>(),
        ) {
            let response = Response { operation, status, moved };
            let mut frame = Vec::new();
            response.encode(&mut frame);
            frame.extend_from_slice(&data);
            prop_assert_eq!(decode(&frame), Ok((Frame::Response(response), &data[..])));
            let plain = response.status == 0 && moved.is_none() && data.is_empty();
            prop_assert_eq!(plain_response(&frame), plain.then_some(response));
            prop_assert_eq!(plain_put(&frame), None);
        }

        #[test]
        fn garbage_does_no_harm(mut frame in any::<Vec<u8>>(), kind in 0_u8..16) {
            let _ = decode(&frame);
            if let Some(first) = frame.first_mut() {
                *first = VERSION << 4 | kind;
            }
            if let Some((put, data)) = plain_put(&frame) {
                prop_assert_eq!(decode(&frame), Ok((Frame::Request(put), data)));
            }
            if let Some(response) = plain_response(&frame) {
                prop_assert_eq!(decode(&frame), Ok((Frame::Response(response), &[][..])));
            }
            if let Ok((_, rest)) = decode(&frame) {
                prop_assert!(frame.len() - rest.len() <= MAX);
            }
        }
    }

    #[test]
    fn short_frames_and_their_length() {
        let request = Request {
            kind: Kind::Put,
            operation: Some(1),
            portal: 4,
            user: 1000,
            bits: 7,
            offset: 64,
            header_data: 9,
            length: 0,
            lent: false,
            job: (0, 0),
            atomic: None,
        };
        let mut frame = Vec::new();
        request.encode(&mut frame);
        assert_eq!(frame.len(), 40);
        frame[1] |= LENGTH;
        assert_eq!(decode(&frame), Err(HeaderError::Flags(frame[1])));
        assert_eq!(decode(&[VERSION << 4 | 7; 24]), Err(HeaderError::Kind(7)));
        assert_eq!(decode(&[0x11; 24]), Err(HeaderError::Version(1)));
        assert_eq!(decode(&[]), Err(HeaderError::Short));
    }
}
