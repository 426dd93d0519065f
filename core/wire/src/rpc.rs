//! The headers of remote calls: little-endian, fixed sizes, versioned in the first byte.
//!
//! | frame | layout (bytes) |
//! |---|---|
//! | request | version and kind 1, flags 1, provider 2, call 4, method 8, generation 4, time left 4 (µs, 0: none), signature 8 — then, as flagged, trace 24 and checksum 4 — then the arguments, or a [`Remote`] that says where they are |
//! | response | version and kind 1, flags 1, status 1, reserved 1, call 4, generation 4, window 2, reserved 2 — then, as flagged, checksum 4 — then the result, or a [`Remote`] |
//! | cancel, release | version and kind 1, reserved 3, call 4, generation 4 |
//! | give back | version and kind 1, reserved 3, the key to the memory |
//!
//! The checksum is the CRC-32 of all that precedes it and all that follows it.

use crate::{Encoding, checksum};

/// The version of these headers.
pub const VERSION: u8 = 1;
/// Length of a request's header without extensions.
pub const REQUEST_LEN: usize = 32;
/// Length of a response's header without extensions.
pub const RESPONSE_LEN: usize = 16;
/// The longest key that a [`Remote`] carries.
pub const MAX_KEY: usize = 512;

const REQUEST: u8 = VERSION << 4 | 1;
const ONE_WAY: u8 = VERSION << 4 | 2;
const RESPONSE: u8 = VERSION << 4 | 3;
const CANCEL: u8 = VERSION << 4 | 4;
const RELEASE: u8 = VERSION << 4 | 5;
const GIVE_BACK: u8 = VERSION << 4 | 6;

const XDR: u8 = 1;
const CHECKED: u8 = 2;
const OVERFLOW: u8 = 4;
const TRACED: u8 = 8;

/// Why a frame was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Shorter than its header says.
    #[error("cut short")]
    Short,
    /// Of another version of the protocol.
    #[error("version {0} of the call protocol, this side speaks {VERSION}")]
    Version(u8),
    /// No such kind of frame.
    #[error("unknown kind of frame {0}")]
    Kind(u8),
    /// A flag that means nothing here.
    #[error("unknown flags {0:#x}")]
    Flags(u8),
    /// The checksum does not match.
    #[error("the checksum does not match")]
    Checksum,
    /// A field with a value that it cannot have.
    #[error("bad {0}")]
    Field(&'static str),
}

/// Names a call: its slot at the caller, and how often that slot was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    /// The slot.
    pub slot: u32,
    /// How often it was used.
    pub generation: u32,
}

/// No call: the id of requests that get no answer.
pub const NO_CALL: CallId = CallId { slot: u32::MAX, generation: 0 };

/// What travels beside a call so that traces cross processes (as in W3C Trace Context).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The trace that the call belongs to; never zero.
    pub trace: u128,
    /// The caller's span.
    pub span: u64,
}

/// The header of a request or one-way call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether no response is wanted.
    pub one_way: bool,
    /// How arguments and result are encoded.
    pub encoding: Encoding,
    /// Whether a checksum guards the frame; the response then has one, too.
    pub checked: bool,
    /// Whether the body is a [`Remote`].
    pub overflow: bool,
    /// Trace context, if there is one.
    pub trace: Option<Trace>,
    /// Which provider of the interface.
    pub provider: u16,
    /// The call.
    pub call: CallId,
    /// Which method.
    pub method: u64,
    /// Hash of the method's signature as the caller knows it.
    pub signature: u64,
    /// Time left in microseconds; 0 for no deadline.
    pub left_us: u32,
}

/// The header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The call it answers.
    pub call: CallId,
    /// How it went.
    pub status: Status,
    /// Whether the body is a [`Remote`].
    pub overflow: bool,
    /// Whether a checksum guards the frame.
    pub checked: bool,
    /// How many calls the target takes from this caller at a time.
    pub window: u16,
}

/// How a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The body is the result.
    Ok = 0,
    /// No such method; no body.
    NoMethod = 1,
    /// The method is known, but not under this provider; no body.
    NoProvider = 2,
    /// The signature differs: the body is the target's (8 bytes).
    Signature = 3,
    /// Try again after the milliseconds in the body (4 bytes).
    Busy = 4,
    /// The arguments could not be decoded: the body says why.
    BadArguments = 5,
    /// The handler failed or gave up: the body says why.
    Failed = 6,
    /// The time was over; no body.
    Deadline = 7,
    /// The call was cancelled; no body.
    Cancelled = 8,
    /// Arguments or result are larger than the target allows: the body says why.
    TooLarge = 9,
}

/// A frame: its header, and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A call.
    Request(Request, &'a [u8]),
    /// Its answer.
    Response(Response, &'a [u8]),
    /// The caller does not want the answer any more.
    Cancel(CallId),
    /// The caller has fetched the result that did not fit.
    Release(CallId),
    /// The sender is done with memory that was lent to it, whose key this is.
    GiveBack(&'a [u8]),
}

impl Request {
    /// Appends the header with its extensions. The body follows; then [`seal`] if it is checked.
    #[inline(always)]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = if self.one_way { ONE_WAY } else { REQUEST };
        let flags = flag(self.encoding == Encoding::Xdr, XDR)
            | flag(self.checked, CHECKED)
            | flag(self.overflow, OVERFLOW)
            | flag(self.trace.is_some(), TRACED);
        let start = u64::from(kind) | u64::from(flags) << 8;
        words(
            out,
            request_words(
                start,
                self.provider,
                self.call,
                self.left_us,
                self.method,
                self.signature,
            ),
        );
        if let Some(trace) = self.trace {
            out.extend_from_slice(&trace.trace.to_le_bytes());
            out.extend_from_slice(&trace.span.to_le_bytes());
        }
        if self.checked {
            out.extend_from_slice(&[0; 4]);
        }
    }

    /// How long the header is with its extensions.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        REQUEST_LEN + usize::from(self.trace.is_some()) * 24 + usize::from(self.checked) * 4
    }
}

impl Response {
    /// Appends the header. The body follows; then [`seal`] if it is checked.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        words(out, self.words());
        if self.checked {
            out.extend_from_slice(&[0; 4]);
        }
    }

    /// The header: all of it, if it is not checked.
    #[inline]
    #[must_use]
    pub fn header(&self) -> [u8; RESPONSE_LEN] {
        let mut header = [0; RESPONSE_LEN];
        let (chunks, _) = header.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(self.words()) {
            *chunk = word.to_le_bytes();
        }
        header
    }

    #[inline]
    fn words(&self) -> [u64; RESPONSE_LEN / 8] {
        let flags = flag(self.overflow, OVERFLOW) | flag(self.checked, CHECKED);
        let first =
            u64::from(RESPONSE) | u64::from(flags) << 8 | u64::from(self.status as u8) << 16;
        [
            first | u64::from(self.call.slot) << 32,
            u64::from(self.call.generation) | u64::from(self.window) << 32,
        ]
    }

    /// How long the header is with its extensions.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        response_len(self.checked)
    }
}

/// Appends the header of a request like most: see [`plain_request`].
#[inline(always)]
pub fn encode_plain_request(
    out: &mut Vec<u8>,
    (method, signature): (u64, u64),
    provider: u16,
    call: CallId,
    left_us: u32,
) {
    words(out, request_words(u64::from(REQUEST), provider, call, left_us, method, signature));
}

/// The header of a request without its extensions: kind and flags, and all else.
#[inline(always)]
fn request_words(
    start: u64,
    provider: u16,
    call: CallId,
    left_us: u32,
    method: u64,
    signature: u64,
) -> [u64; REQUEST_LEN / 8] {
    [
        start | u64::from(provider) << 16 | u64::from(call.slot) << 32,
        method,
        u64::from(call.generation) | u64::from(left_us) << 32,
        signature,
    ]
}

/// How long the header of a request is with its extensions, which was encoded here.
///
/// # Panics
/// If it was not.
#[must_use]
pub fn request_len(frame: &[u8]) -> usize {
    let flags = frame[1];
    REQUEST_LEN + usize::from(flags & TRACED != 0) * 24 + usize::from(flags & CHECKED != 0) * 4
}

/// Says of a request whose header was encoded here that its body is a [`Remote`].
///
/// # Panics
/// If it was not.
pub fn set_overflow(frame: &mut [u8]) {
    frame[1] |= OVERFLOW;
}

/// How long the header of a response is.
#[inline]
#[must_use]
pub fn response_len(checked: bool) -> usize {
    RESPONSE_LEN + usize::from(checked) * 4
}

/// Fills in the checksum of a whole frame whose header, extensions included, is `header` long.
pub fn seal(frame: &mut [u8], header: usize) {
    let at = header - 4;
    let sum = checksum(&[&frame[..at], &frame[header..]]);
    frame[at..header].copy_from_slice(&sum.to_le_bytes());
}

/// A cancel frame.
#[must_use]
pub fn cancel(call: CallId) -> [u8; 12] {
    short(CANCEL, call)
}

/// A release frame.
#[must_use]
pub fn release(call: CallId) -> [u8; 12] {
    short(RELEASE, call)
}

/// The header of a frame that gives memory back; the key to it follows.
#[must_use]
pub fn give_back() -> [u8; 4] {
    [GIVE_BACK, 0, 0, 0]
}

fn short(kind: u8, call: CallId) -> [u8; 12] {
    let mut frame = [0; 12];
    frame[0] = kind;
    frame[4..8].copy_from_slice(&call.slot.to_le_bytes());
    frame[8..12].copy_from_slice(&call.generation.to_le_bytes());
    frame
}

/// Appends words. Headers are made of words because they are copied by words soon: a processor
/// feeds a load from stores that it has not written yet only if one of them has all of its bytes.
#[inline]
fn words<const N: usize>(out: &mut Vec<u8>, words: [u64; N]) {
    out.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
}

#[inline]
fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// The request in a frame like most: whole, in native encoding, with an answer wanted and no
/// extension. Its arguments begin at [`REQUEST_LEN`]. `None` says nothing: ask [`decode`].
#[inline(always)]
#[must_use]
pub fn plain_request(frame: &[u8]) -> Option<Request> {
    let header = frame.first_chunk::<REQUEST_LEN>()?;
    (header[..2] == [REQUEST, 0]).then(|| request(header, None))
}

/// The response in a frame like most: a result, whole, with no extension. It begins at
/// [`RESPONSE_LEN`]. `None` says nothing: ask [`decode`].
#[inline(always)]
#[must_use]
pub fn plain_response(frame: &[u8]) -> Option<Response> {
    let header = frame.first_chunk::<RESPONSE_LEN>()?;
    (header[..3] == [RESPONSE, 0, Status::Ok as u8]).then(|| response(header, Status::Ok))
}

/// Reads a frame that came from outside. Never panics, allocates nothing.
#[inline]
pub fn decode(frame: &[u8]) -> Result<Frame<'_>, FrameError> {
    match frame.first() {
        Some(&RESPONSE) => decode_response(frame),
        Some(&kind @ (REQUEST | ONE_WAY)) => decode_request(frame, kind == ONE_WAY),
        Some(&kind @ (CANCEL | RELEASE)) => {
            let Some(header) = frame.first_chunk::<12>() else { return Err(FrameError::Short) };
            let call = CallId { slot: word(header, 4), generation: word(header, 8) };
            Ok(if kind == CANCEL { Frame::Cancel(call) } else { Frame::Release(call) })
        }
        Some(&GIVE_BACK) => match frame.get(4..) {
            Some(key) if !key.is_empty() && key.len() <= MAX_KEY => Ok(Frame::GiveBack(key)),
            Some(key) if !key.is_empty() => Err(FrameError::Field("key")),
            _ => Err(FrameError::Short),
        },
        Some(&kind) if kind >> 4 != VERSION => Err(FrameError::Version(kind >> 4)),
        Some(&kind) => Err(FrameError::Kind(kind & 15)),
        None => Err(FrameError::Short),
    }
}

#[inline]
fn decode_request(frame: &[u8], one_way: bool) -> Result<Frame<'_>, FrameError> {
    let Some((header, mut rest)) = frame.split_first_chunk::<REQUEST_LEN>() else {
        return Err(FrameError::Short);
    };
    let flags = header[1];
    let mut trace = None;
    if flags & !(XDR | OVERFLOW) != 0 {
        (trace, rest) = extensions(flags, frame, rest)?;
    }
    Ok(Frame::Request(Request { one_way, ..request(header, trace) }, rest))
}

/// Reads the extensions at the front of `rest`, the end of `frame`, and gives what follows them.
/// Apart, as few requests have any.
#[cold]
fn extensions<'a>(
    flags: u8,
    frame: &[u8],
    mut rest: &'a [u8],
) -> Result<(Option<Trace>, &'a [u8]), FrameError> {
    if flags & !(XDR | CHECKED | OVERFLOW | TRACED) != 0 {
        return Err(FrameError::Flags(flags));
    }
    let mut trace = None;
    if flags & TRACED != 0 {
        let Some((bytes, after)) = rest.split_first_chunk::<24>() else {
            return Err(FrameError::Short);
        };
        let id = u128::from(long(bytes, 0)) | u128::from(long(bytes, 8)) << 64;
        trace = Some(Trace { trace: id, span: long(bytes, 16) });
        rest = after;
    }
    if flags & CHECKED != 0 {
        rest = check(frame, rest)?;
    }
    Ok((trace, rest))
}

#[inline(always)]
fn request(header: &[u8; REQUEST_LEN], trace: Option<Trace>) -> Request {
    let flags = header[1];
    Request {
        one_way: false,
        encoding: if flags & XDR != 0 { Encoding::Xdr } else { Encoding::Native },
        checked: flags & CHECKED != 0,
        overflow: flags & OVERFLOW != 0,
        trace,
        provider: u16::from_le_bytes([header[2], header[3]]),
        call: CallId { slot: word(header, 4), generation: word(header, 16) },
        method: long(header, 8),
        signature: long(header, 24),
        left_us: word(header, 20),
    }
}

#[inline]
fn decode_response(frame: &[u8]) -> Result<Frame<'_>, FrameError> {
    let Some((header, mut rest)) = frame.split_first_chunk::<RESPONSE_LEN>() else {
        return Err(FrameError::Short);
    };
    let flags = header[1];
    if flags & !(CHECKED | OVERFLOW) != 0 {
        return Err(FrameError::Flags(flags));
    }
    if flags & CHECKED != 0 {
        rest = check(frame, rest)?;
    }
    let status = Status::from_u8(header[2]).ok_or(FrameError::Field("status"))?;
    Ok(Frame::Response(response(header, status), rest))
}

#[inline(always)]
fn response(header: &[u8; RESPONSE_LEN], status: Status) -> Response {
    let flags = header[1];
    Response {
        call: CallId { slot: word(header, 4), generation: word(header, 8) },
        status,
        overflow: flags & OVERFLOW != 0,
        checked: flags & CHECKED != 0,
        window: u16::from_le_bytes([header[12], header[13]]),
    }
}

/// Checks the checksum at the front of `rest`, the end of `frame`, and gives what follows it.
fn check<'a>(frame: &[u8], rest: &'a [u8]) -> Result<&'a [u8], FrameError> {
    let Some((sum, body)) = rest.split_first_chunk::<4>() else { return Err(FrameError::Short) };
    let before = &frame[..frame.len() - rest.len()];
    if checksum(&[before, body]) != u32::from_le_bytes(*sum) {
        return Err(FrameError::Checksum);
    }
    Ok(body)
}

impl Status {
    fn from_u8(number: u8) -> Option<Status> {
        use Status::*;
        const ALL: [Status; 10] = [
            Ok,
            NoMethod,
            NoProvider,
            Signature,
            Busy,
            BadArguments,
            Failed,
            Deadline,
            Cancelled,
            TooLarge,
        ];
        ALL.get(usize::from(number)).copied()
    }
}

/// Where a body lies that did not fit its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote<'a> {
    /// Its length in bytes.
    pub len: u64,
    /// The key to it.
    pub key: &'a [u8],
}

impl<'a> Remote<'a> {
    /// Appends it: the length (8 bytes), and the key to the end.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(self.key);
    }

    /// Reads it from outside.
    pub fn decode(body: &'a [u8]) -> Result<Remote<'a>, FrameError> {
        let Some((len, key)) = body.split_first_chunk::<8>() else {
            return Err(FrameError::Short);
        };
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(FrameError::Field("key"));
        }
        Ok(Remote { len: u64::from_le_bytes(*len), key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = Request> {
        let trace = any::<Option<(u128, u64)>>();
        (any::<[bool; 4]>(), trace, any::<(u16, u32, u32, u64, u64, u32)>()).prop_map(
            |(flags, trace, (provider, slot, generation, method, signature, left_us))| Request {
                one_way: flags[0],
                encoding: if flags[1] { Encoding::Xdr } else { Encoding::Native },
                checked: flags[2],
                overflow: flags[3],
                trace: trace.map(|(trace, span)| Trace { trace, span }),
                provider,
                call: CallId { slot, generation },
                method,
                signature,
                left_us,
            },
        )
    }

    proptest! {
        #[test]
        fn requests_come_back(request in request(), body in any::<Vec<u8>>(), spoil in any::<u16>()) {
            let mut frame = Vec::new();
            request.encode(&mut frame);
            prop_assert_eq!(frame.len(), request.header_len());
            prop_assert_eq!(request_len(&frame), request.header_len());
            let mut plain = Vec::new();
            let Request { provider, call, method, signature, left_us, .. } = request;
            encode_plain_request(&mut plain, (method, signature), provider, call, left_us);
            prop_assert_eq!(plain_request(&frame).is_some(), plain == frame);
            let (mut marked, mut lent) = (frame.clone(), Vec::new());
            set_overflow(&mut marked);
            Request { overflow: true, ..request }.encode(&mut lent);
            prop_assert_eq!(marked, lent);
            frame.extend_from_slice(&body);
            if request.checked {
                seal(&mut frame, request.header_len());
            }
            prop_assert_eq!(decode(&frame), Ok(Frame::Request(request, &body[..])));
            let plain = Request { one_way: false, encoding: Encoding::Native, checked: false, overflow: false, trace: None, ..request };
            prop_assert_eq!(plain_request(&frame), (request == plain).then_some(request));
            if request.checked {
                let at = 1 + usize::from(spoil) % (frame.len() - 1);
                frame[at] ^= 1 << (spoil % 8);
                prop_assert!(decode(&frame) != Ok(Frame::Request(request, &body[..])));
            }
        }

        #[test]
        fn responses_come_back(
            status in 0u8..10, flags in any::<[bool; 2]>(), (slot, generation) in any::<(u32, u32)>(),
            window in any::<u16>(), body in any::<Vec<u8>>(),
        ) {
            let status = Status::from_u8(status).unwrap();
            let call = CallId { slot, generation };
            let response =
                Response { call, status, overflow: flags[0], checked: flags[1], window };
            let mut frame = Vec::new();
            response.encode(&mut frame);
            frame.extend_from_slice(&body);
            if response.checked {
                seal(&mut frame, response.header_len());
            }
            prop_assert_eq!(decode(&frame), Ok(Frame::Response(response, &body[..])));
            let plain = Response { status: Status::Ok, overflow: false, checked: false, ..response };
            prop_assert_eq!(plain_response(&frame), (response == plain).then_some(response));
        }

        #[test]
        fn garbage_does_no_harm(mut frame in any::<Vec<u8>>(), kind in 0u8..8) {
            let _ = (decode(&frame), plain_request(&frame), plain_response(&frame));
            if let Some(first) = frame.first_mut() {
                *first = VERSION << 4 | kind;
            }
            if let Ok(Frame::Request(_, body) | Frame::Response(_, body)) = decode(&frame) {
                let _ = Remote::decode(body);
            }
        }
    }

    #[test]
    fn short_frames() {
        let plain = [[REQUEST, 0], [RESPONSE, 0]].map(|start| [&start[..], &[0; 30]].concat());
        assert!(plain_request(&plain[0]).is_some() && plain_response(&plain[1]).is_some());
        assert!(plain_request(&plain[0][..31]).is_none() && plain_response(&plain[0]).is_none());
        assert!(plain_response(&plain[1][..15]).is_none() && plain_request(&plain[1]).is_none());
        let call = CallId { slot: 3, generation: 9 };
        assert_eq!(decode(&cancel(call)), Ok(Frame::Cancel(call)));
        assert_eq!(decode(&release(call)), Ok(Frame::Release(call)));
        assert_eq!(decode(&cancel(call)[..11]), Err(FrameError::Short));
        let given = |len| [&give_back()[..], &vec![7; len]].concat();
        for len in [1, 2, MAX_KEY] {
            assert_eq!(decode(&given(len)), Ok(Frame::GiveBack(&vec![7; len])));
        }
        assert_eq!(decode(&given(0)), Err(FrameError::Short));
        assert_eq!(decode(&give_back()[..3]), Err(FrameError::Short));
        assert_eq!(decode(&given(MAX_KEY + 1)), Err(FrameError::Field("key")));
        assert_eq!(decode(&[0x21]), Err(FrameError::Version(2)));
        assert_eq!(decode(&[]), Err(FrameError::Short));
    }
}
