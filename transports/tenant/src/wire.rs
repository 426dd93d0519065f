//! What a tenant and its broker say to each other.
//!
//! Through the ring, one message is: a byte that says which, the number of a connection (8 bytes,
//! little-endian), and what follows. A connection goes one way. The tenant numbers those that it
//! makes, and the broker those that it brings; no number is used again, so nothing that is under
//! way can be taken for something of a later connection. Which of the two it is follows from the
//! message.
//!
//! All of it is checked here, once, by the broker and by the tenant alike.

use crate::name::Name;
use smallvec::SmallVec;

/// Bytes before what follows.
pub const HEAD: usize = 9;
/// Data that its sender may have on its way on one connection: not consumed by the receiver.
pub const WINDOW: u32 = 512 << 10;
/// So much has to be consumed until its sender may have heard of it.
pub const CREDIT: u32 = WINDOW / 4;
/// What a packet takes of the window beside its bytes: small ones are not for nothing.
const PACKET_COST: u32 = 64;

/// What a packet takes of the window, or the header of one whose payload is lent: the same for its
/// sender, the broker and its receiver.
#[must_use]
pub const fn cost(len: usize) -> u32 {
    len as u32 + PACKET_COST
}

/// Pieces of memory on one side of a transfer in place.
pub const MAX_PIECES: usize = 16;
/// The longest header of a packet whose payload is lent, in bytes.
pub const MAX_HEADER: usize = 4096;
/// The longest text of a reason.
const MAX_WHY: usize = 300;

/// A part of a file that the tenant has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which file: a number of the tenant's.
    pub file: u64,
    /// Where in it, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// Pieces, in order.
pub type Pieces = SmallVec<[Piece; 2]>;

/// From a tenant to its broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Makes a connection to an endpoint.
    Connect {
        /// Its number, which is new.
        connection: u64,
        /// The endpoint.
        to: Name,
    },
    /// A packet on a connection that the tenant made.
    Data {
        /// The connection.
        connection: u64,
        /// The packet.
        bytes: &'a [u8],
    },
    /// A packet whose payload stays where it is, until [`Answer::Returned`].
    Lend {
        /// The connection.
        connection: u64,
        /// The beginning of the packet.
        header: &'a [u8],
        /// Where the rest lies.
        payload: Pieces,
    },
    /// Ends a connection that the tenant made, after what was sent.
    Close {
        /// The connection.
        connection: u64,
    },
    /// Ends a connection that the broker brought.
    Drop {
        /// The connection.
        connection: u64,
    },
    /// So many bytes of a connection that the broker brought were consumed.
    Credit {
        /// The connection.
        connection: u64,
        /// The bytes.
        bytes: u32,
    },
    /// The payload of what [`Answer::Lent`] announced shall go there; answered by
    /// [`Answer::Fetched`].
    Fetch {
        /// The connection.
        connection: u64,
        /// Where to: no pieces for "nowhere", else as many bytes as there are.
        into: Pieces,
    },
    /// The payload shall come through the ring, as [`Answer::Payload`].
    Take {
        /// The connection.
        connection: u64,
    },
    /// A file is of no more use: its number.
    Forget {
        /// The number.
        file: u64,
    },
}

/// From the broker to a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// An endpoint has made a connection to this one.
    Incoming {
        /// Its number.
        connection: u64,
        /// Whose it is.
        from: Name,
    },
    /// A packet.
    Data {
        /// The connection, which the broker brought.
        connection: u64,
        /// The packet.
        bytes: &'a [u8],
    },
    /// The beginning of a packet whose payload is lent.
    Lent {
        /// The connection, which the broker brought.
        connection: u64,
        /// The beginning.
        header: &'a [u8],
        /// Bytes of the payload.
        len: u64,
    },
    /// The payload is where it was to go.
    Fetched {
        /// The connection, which the broker brought.
        connection: u64,
        /// Whether it is; else the connection has ended.
        done: bool,
    },
    /// The payload itself.
    Payload {
        /// The connection, which the broker brought.
        connection: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A connection that the tenant made has ended, or was refused.
    Ended {
        /// The connection.
        connection: u64,
        /// Why, for people.
        why: String,
    },
    /// A connection that the broker brought has ended: no more comes.
    Over {
        /// The connection.
        connection: u64,
        /// Why, if it was not closed by the endpoint that made it.
        why: String,
    },
    /// So many bytes of a connection that the tenant made were consumed.
    Credit {
        /// The connection.
        connection: u64,
        /// The bytes.
        bytes: u32,
    },
    /// The memory of a payload that was lent is the tenant's again.
    Returned {
        /// The connection, which the tenant made.
        connection: u64,
    },
}

/// How a message broke the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too short, or too long.
    #[error("a message of the kind {kind} with {len} bytes")]
    Length {
        /// Which it said it was.
        kind: u8,
        /// Its bytes.
        len: usize,
    },
    /// Of no kind that there is.
    #[error("a message of the kind {0}, which is none")]
    Kind(u8),
    /// A name that is none.
    #[error("a name that is none")]
    Name,
    /// Pieces that are too many, or whose sum is no length.
    #[error("pieces of memory that cannot be")]
    Pieces,
}

mod kind {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const DATA: u8 = 2;
    pub(super) const LEND: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const DROP: u8 = 5;
    pub(super) const CREDIT: u8 = 6;
    pub(super) const FETCH: u8 = 7;
    pub(super) const TAKE: u8 = 8;
    pub(super) const FORGET: u8 = 9;
    pub(super) const INCOMING: u8 = 65;
    pub(super) const LENT: u8 = 67;
    pub(super) const FETCHED: u8 = 68;
    pub(super) const PAYLOAD: u8 = 69;
    pub(super) const ENDED: u8 = 70;
    pub(super) const OVER: u8 = 71;
    pub(super) const RETURNED: u8 = 72;
}

/// A message in two parts: its beginning, and bytes that are copied into the ring from where they
/// are.
#[derive(Debug)]
pub struct Encoded<'a> {
    /// The beginning.
    pub head: SmallVec<[u8; 64]>,
    /// What follows.
    pub rest: &'a [u8],
}

impl<'a> Encoded<'a> {
    fn new(kind: u8, connection: u64, more: &[&[u8]], rest: &'a [u8]) -> Encoded<'a> {
        let mut head = SmallVec::new();
        head.push(kind);
        head.extend_from_slice(&connection.to_le_bytes());
        more.iter().for_each(|more| head.extend_from_slice(more));
        Encoded { head, rest }
    }

    /// Its bytes, in one piece.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        [&self.head[..], self.rest].concat()
    }
}

/// The bytes of all pieces together.
///
/// # Errors
/// [`Malformed::Pieces`] if there is no such number.
pub fn total(pieces: &[Piece]) -> Result<u64, Malformed> {
    let sum = |sum: u64, piece: &Piece| sum.checked_add(piece.len);
    pieces.iter().try_fold(0, sum).ok_or(Malformed::Pieces)
}

fn put_pieces(pieces: &[Piece]) -> SmallVec<[u8; 64]> {
    let mut out = SmallVec::new();
    out.push(pieces.len() as u8);
    for Piece { file, offset, len } in pieces {
        [file, offset, len].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
    out
}

/// Pieces, and what follows them.
fn take_pieces(bytes: &[u8]) -> Result<(Pieces, &[u8]), Malformed> {
    let (count, mut rest) = bytes.split_first().ok_or(Malformed::Pieces)?;
    let count = usize::from(*count);
    if count > MAX_PIECES {
        return Err(Malformed::Pieces);
    }
    let mut pieces = Pieces::new();
    for _ in 0..count {
        let (words, more) = rest.split_first_chunk::<24>().ok_or(Malformed::Pieces)?;
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("8 bytes"));
        let piece = Piece { file: word(0), offset: word(8), len: word(16) };
        piece.offset.checked_add(piece.len).ok_or(Malformed::Pieces)?;
        pieces.push(piece);
        rest = more;
    }
    total(&pieces)?;
    Ok((pieces, rest))
}

fn name(bytes: &[u8]) -> Result<Name, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::Name)?;
    text.parse().map_err(|_| Malformed::Name)
}

/// A text for people: whatever is in it, it is printable, and not long.
fn plain(bytes: &[u8]) -> String {
    let plain = |byte: &u8| match byte {
        byte if byte.is_ascii_graphic() || *byte == b' ' => *byte as char,
        _ => '?',
    };
    bytes.iter().take(MAX_WHY).map(plain).collect()
}

fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(MAX_WHY)]
}

/// The kind, the number, and what follows.
fn split(message: &[u8]) -> Result<(u8, u64, &[u8]), Malformed> {
    let kind = message.first().copied().unwrap_or_default();
    let short = Malformed::Length { kind, len: message.len() };
    let (connection, rest) = message.get(1..).and_then(<[u8]>::split_first_chunk).ok_or(short)?;
    Ok((kind, u64::from_le_bytes(*connection), rest))
}

impl<'a> Request<'a> {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Encoded<'a> {
        let none: &[u8] = &[];
        match self {
            Request::Connect { connection, to } => {
                Encoded::new(kind::CONNECT, *connection, &[to.to_string().as_bytes()], none)
            }
            Request::Data { connection, bytes } => {
                Encoded::new(kind::DATA, *connection, &[], bytes)
            }
            Request::Lend { connection, header, payload } => {
                Encoded::new(kind::LEND, *connection, &[&put_pieces(payload)], header)
            }
            Request::Close { connection } => Encoded::new(kind::CLOSE, *connection, &[], none),
            Request::Drop { connection } => Encoded::new(kind::DROP, *connection, &[], none),
            Request::Credit { connection, bytes } => {
                Encoded::new(kind::CREDIT, *connection, &[&bytes.to_le_bytes()], none)
            }
            Request::Fetch { connection, into } => {
                Encoded::new(kind::FETCH, *connection, &[&put_pieces(into)], none)
            }
            Request::Take { connection } => Encoded::new(kind::TAKE, *connection, &[], none),
            Request::Forget { file } => Encoded::new(kind::FORGET, *file, &[], none),
        }
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(message: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let (kind, connection, rest) = split(message)?;
        let length = Malformed::Length { kind, len: message.len() };
        let bare = |request| if rest.is_empty() { Ok(request) } else { Err(length) };
        match kind {
            kind::CONNECT => Ok(Request::Connect { connection, to: name(rest)? }),
            kind::DATA if rest.is_empty() => Err(length),
            kind::DATA => Ok(Request::Data { connection, bytes: rest }),
            kind::LEND => {
                let (payload, header) = take_pieces(rest)?;
                if total(&payload)? == 0 || header.is_empty() || header.len() > MAX_HEADER {
                    return Err(length);
                }
                Ok(Request::Lend { connection, header, payload })
            }
            kind::CLOSE => bare(Request::Close { connection }),
            kind::DROP => bare(Request::Drop { connection }),
            kind::CREDIT => {
                let bytes = u32::from_le_bytes(rest.try_into().map_err(|_| length)?);
                Ok(Request::Credit { connection, bytes })
            }
            kind::FETCH => match take_pieces(rest)? {
                (into, []) => Ok(Request::Fetch { connection, into }),
                _ => Err(length),
            },
            kind::TAKE => bare(Request::Take { connection }),
            kind::FORGET => bare(Request::Forget { file: connection }),
            other => Err(Malformed::Kind(other)),
        }
    }
}

impl<'a> Answer<'a> {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Encoded<'a> {
        let none: &[u8] = &[];
        match self {
            Answer::Incoming { connection, from } => {
                Encoded::new(kind::INCOMING, *connection, &[from.to_string().as_bytes()], none)
            }
            Answer::Data { connection, bytes } => Encoded::new(kind::DATA, *connection, &[], bytes),
            Answer::Lent { connection, header, len } => {
                Encoded::new(kind::LENT, *connection, &[&len.to_le_bytes()], header)
            }
            Answer::Fetched { connection, done } => {
                Encoded::new(kind::FETCHED, *connection, &[&[u8::from(*done)]], none)
            }
            Answer::Payload { connection, bytes } => {
                Encoded::new(kind::PAYLOAD, *connection, &[], bytes)
            }
            Answer::Ended { connection, why } => {
                Encoded::new(kind::ENDED, *connection, &[cut(why)], none)
            }
            Answer::Over { connection, why } => {
                Encoded::new(kind::OVER, *connection, &[cut(why)], none)
            }
            Answer::Credit { connection, bytes } => {
                Encoded::new(kind::CREDIT, *connection, &[&bytes.to_le_bytes()], none)
            }
            Answer::Returned { connection } => Encoded::new(kind::RETURNED, *connection, &[], none),
        }
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(message: &'a [u8]) -> Result<Answer<'a>, Malformed> {
        let (kind, connection, rest) = split(message)?;
        let length = Malformed::Length { kind, len: message.len() };
        match kind {
            kind::INCOMING => Ok(Answer::Incoming { connection, from: name(rest)? }),
            kind::DATA if rest.is_empty() => Err(length),
            kind::DATA => Ok(Answer::Data { connection, bytes: rest }),
            kind::LENT => {
                let (len, header) = rest.split_first_chunk().ok_or(length)?;
                if header.is_empty() || header.len() > MAX_HEADER {
                    return Err(length);
                }
                Ok(Answer::Lent { connection, header, len: u64::from_le_bytes(*len) })
            }
            kind::FETCHED => match rest {
                [done @ (0 | 1)] => Ok(Answer::Fetched { connection, done: *done == 1 }),
                _ => Err(length),
            },
            kind::PAYLOAD => Ok(Answer::Payload { connection, bytes: rest }),
            kind::ENDED => Ok(Answer::Ended { connection, why: plain(rest) }),
            kind::OVER => Ok(Answer::Over { connection, why: plain(rest) }),
            kind::CREDIT => {
                let bytes = u32::from_le_bytes(rest.try_into().map_err(|_| length)?);
                Ok(Answer::Credit { connection, bytes })
            }
            kind::RETURNED if rest.is_empty() => Ok(Answer::Returned { connection }),
            kind::RETURNED => Err(length),
            other => Err(Malformed::Kind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> Vec<Request<'static>> {
        let connection = 7;
        let piece = Piece { file: 3, offset: 4096, len: 100 };
        vec![
            Request::Connect { connection, to: "a@b".parse().unwrap() },
            Request::Data { connection, bytes: b"data" },
            Request::Lend { connection, header: b"head", payload: [piece, piece].into() },
            Request::Close { connection },
            Request::Drop { connection },
            Request::Credit { connection, bytes: 9 },
            Request::Fetch { connection, into: [piece; MAX_PIECES].into_iter().collect() },
            Request::Fetch { connection, into: Pieces::new() },
            Request::Take { connection },
            Request::Forget { file: u64::MAX },
        ]
    }

    fn answers() -> Vec<Answer<'static>> {
        let connection = u64::MAX;
        vec![
            Answer::Incoming { connection, from: "a@b".parse().unwrap() },
            Answer::Data { connection, bytes: b"data" },
            Answer::Lent { connection, header: b"head", len: 1 << 40 },
            Answer::Fetched { connection, done: true },
            Answer::Payload { connection, bytes: b"body" },
            Answer::Ended { connection, why: "no rule".to_owned() },
            Answer::Over { connection, why: String::new() },
            Answer::Credit { connection, bytes: 9 },
            Answer::Returned { connection },
        ]
    }

    #[test]
    fn there_and_back() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode().to_vec()), Ok(request));
        }
        for answer in answers() {
            assert_eq!(Answer::decode(&answer.encode().to_vec()), Ok(answer));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let piece = Piece { file: 1, offset: u64::MAX, len: 1 };
        let halves = [Piece { offset: 0, len: u64::MAX / 2 + 1, ..piece }; 2];
        let many = [Piece { offset: 0, len: 1, ..piece }; MAX_PIECES + 1];
        let connection = 1;
        for into in [Pieces::from_slice(&[piece]), halves.into(), many.into_iter().collect()] {
            let bytes = Request::Fetch { connection, into }.encode().to_vec();
            assert_eq!(Request::decode(&bytes), Err(Malformed::Pieces));
        }
        let nothing = Request::Lend { connection, header: b"h", payload: Pieces::new() };
        assert!(Request::decode(&nothing.encode().to_vec()).is_err());
        assert_eq!(Request::decode(&[99; 9]), Err(Malformed::Kind(99)));
        assert!(Request::decode(&[2; 8]).is_err() && Answer::decode(&[]).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn garbage_is_refused_or_valid(
            nth in 0usize..19, at in 0usize..500, byte: u8, cut in 0usize..500
        ) {
            let sample = |nth: usize| match requests().get(nth) {
                Some(request) => request.encode().to_vec(),
                None => answers()[nth - 10].encode().to_vec(),
            };
            let mut bytes = sample(nth);
            let len = bytes.len();
            bytes[at % len] = byte;
            bytes.truncate(len - cut % len);
            if let Ok(request) = Request::decode(&bytes) {
                let again = request.encode().to_vec();
                prop_assert_eq!(Request::decode(&again), Ok(request));
            }
            if let Ok(answer) = Answer::decode(&bytes) {
                let again = answer.encode().to_vec();
                prop_assert_eq!(Answer::decode(&again), Ok(answer));
            }
        }
    }
}
