//! Completions in 32 bytes, for programs that have many operations and few other events.

use crate::{Done, Endpoint, Event, OpError, Peeked, Peer, Region, Time, Token};
use smallvec::SmallVec;

/// The one completion of an operation, as [`Event::Done`] reports it, in 32 bytes: its token, how
/// it went, and how long it was. What few completions have lies apart: the failure with the peer's
/// address and its text ([`Completion::error`]), the message that a peek found, and old values of
/// more than 16 bytes. It is looked at, or taken, on demand ([`Completion::into_result`]).
///
/// [`Endpoint::poll_completion`] and [`Endpoint::next_completion`] give them.
///
/// ```
/// use petasos_fabric::{Completion, Done, OpError, OpErrorKind, Peer, Status, Token};
///
/// let peer = Peer { index: 3, generation: 0 };
/// let tagged = Completion::new(Token(7), Ok(Done::Tagged { peer, tag: 40, len: 1000 }));
/// assert_eq!((tagged.token(), tagged.status()), (Token(7), Status::Tagged));
/// assert_eq!((tagged.peer(), tagged.tag(), tagged.len()), (Some(peer), Some(40), 1000));
///
/// let failed = Completion::new(Token(8), Err(OpError::local(OpErrorKind::Cancelled)));
/// assert!(!failed.is_ok());
/// assert_eq!(failed.error().unwrap().to_string(), "this endpoint: cancelled");
/// assert_eq!(size_of::<Completion>(), 32);
/// ```
#[derive(Debug)]
pub struct Completion {
    token: Token,
    outcome: Outcome,
}

/// How an operation went: what [`Done`] says, without what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// [`Done::Sent`].
    Sent,
    /// [`Done::Received`].
    Received,
    /// [`Done::Discarded`].
    Discarded,
    /// [`Done::Tagged`].
    Tagged,
    /// [`Done::Peeked`].
    Peeked,
    /// [`Done::Put`].
    Put,
    /// [`Done::Got`].
    Got,
    /// [`Done::Atomic`].
    Atomic,
    /// [`Done::Fetched`].
    Fetched,
    /// [`Done::Mapped`].
    Mapped,
    /// [`Done::Flushed`].
    Flushed,
    /// [`Done::Deregistered`].
    Deregistered,
    /// [`Done::Revoked`].
    Revoked,
    /// It failed: [`Completion::error`] tells why.
    Failed,
}

/// A length below 2^56, in as many bytes as the place for it has. No memory is longer.
#[derive(Clone, Copy, Debug)]
struct Len([u8; 7]);

impl Len {
    #[inline]
    fn new(len: u64) -> Option<Len> {
        let [bytes @ .., 0] = len.to_le_bytes() else { return None };
        Some(Len(bytes))
    }

    #[inline]
    fn get(self) -> u64 {
        let [a, b, c, d, e, f, g] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }
}

/// The result of an operation, in 24 bytes.
#[derive(Debug)]
enum Outcome {
    Plain(Status),
    Received(u64),
    Tagged {
        len: Len,
        tag: u64,
        peer: Peer,
    },
    Peeked(Option<Box<Peeked>>),
    Fetched {
        len: u8,
        values: [u8; 16],
    },
    Mapped(Region),
    /// What has no room here.
    Apart(Box<Done>),
    Failed(OpError),
}

impl Completion {
    /// The completion of this operation.
    #[must_use]
    #[inline]
    pub fn new(token: Token, result: Result<Done, OpError>) -> Completion {
        let outcome = match result {
            Ok(done) => Outcome::of(done),
            Err(error) => Outcome::Failed(error),
        };
        Completion { token, outcome }
    }

    /// The completion of an operation that went well, and whose result is no more than that.
    #[inline]
    pub(crate) fn plain(token: Token, status: Status) -> Completion {
        Completion { token, outcome: Outcome::Plain(status) }
    }

    /// [`Done::Sent`].
    #[must_use]
    #[inline]
    pub fn sent(token: Token) -> Completion {
        Completion::plain(token, Status::Sent)
    }

    /// [`Done::Put`].
    #[must_use]
    #[inline]
    pub fn put(token: Token) -> Completion {
        Completion::plain(token, Status::Put)
    }

    /// [`Done::Got`].
    #[must_use]
    #[inline]
    pub fn got(token: Token) -> Completion {
        Completion::plain(token, Status::Got)
    }

    /// Which operation.
    #[must_use]
    #[inline]
    pub fn token(&self) -> Token {
        self.token
    }

    /// How it went.
    #[must_use]
    #[inline]
    pub fn status(&self) -> Status {
        match &self.outcome {
            Outcome::Plain(status) => *status,
            Outcome::Received(_) => Status::Received,
            Outcome::Tagged { .. } => Status::Tagged,
            Outcome::Peeked(_) => Status::Peeked,
            Outcome::Fetched { .. } => Status::Fetched,
            Outcome::Mapped(_) => Status::Mapped,
            Outcome::Failed(_) => Status::Failed,
            Outcome::Apart(done) => match **done {
                Done::Tagged { .. } => Status::Tagged,
                _ => Status::Fetched,
            },
        }
    }

    /// Whether it went well.
    #[must_use]
    #[inline]
    pub fn is_ok(&self) -> bool {
        !matches!(self.outcome, Outcome::Failed(_))
    }

    /// In bytes: what was received ([`Status::Received`], [`Status::Tagged`]), how long the message
    /// is that was found ([`Status::Peeked`]; 0 if none was), the old values
    /// ([`Status::Fetched`]) or the memory ([`Status::Mapped`]). Of the others, 0: their programs
    /// know how long they are.
    #[must_use]
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        match &self.outcome {
            Outcome::Plain(_) | Outcome::Failed(_) | Outcome::Peeked(None) => 0,
            Outcome::Received(len) => *len,
            Outcome::Tagged { len, .. } => len.get(),
            Outcome::Peeked(Some(peeked)) => peeked.len,
            Outcome::Fetched { len, .. } => u64::from(*len),
            Outcome::Mapped(region) => region.len() as u64,
            Outcome::Apart(done) => match &**done {
                Done::Tagged { len, .. } => *len,
                Done::Fetched(values) => values.len() as u64,
                _ => 0,
            },
        }
    }

    /// The tag of a message that was received or found.
    #[must_use]
    #[inline]
    pub fn tag(&self) -> Option<u64> {
        match &self.outcome {
            Outcome::Tagged { tag, .. } => Some(*tag),
            Outcome::Peeked(peeked) => peeked.as_ref().map(|peeked| peeked.tag),
            Outcome::Apart(done) => match **done {
                Done::Tagged { tag, .. } => Some(tag),
                _ => None,
            },
            _ => None,
        }
    }

    /// The sender of a message that was received or found. Of a failure [`Completion::error`] has
    /// the peer's address.
    #[must_use]
    #[inline]
    pub fn peer(&self) -> Option<Peer> {
        match &self.outcome {
            Outcome::Tagged { peer, .. } => Some(*peer),
            Outcome::Peeked(peeked) => peeked.as_ref().map(|peeked| peeked.peer),
            Outcome::Apart(done) => match **done {
                Done::Tagged { peer, .. } => Some(peer),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it names no peer, and is no failure, which may: then it is the same at every endpoint.
    /// For endpoints that are made of others. False of values that are [long](Status::Fetched), too.
    #[must_use]
    #[inline]
    pub fn is_plain(&self) -> bool {
        match &self.outcome {
            Outcome::Plain(_)
            | Outcome::Received(_)
            | Outcome::Fetched { .. }
            | Outcome::Mapped(_) => true,
            Outcome::Tagged { .. }
            | Outcome::Peeked(_)
            | Outcome::Apart(_)
            | Outcome::Failed(_) => false,
        }
    }

    /// Names the sender of a message that was received or found, and of its claim, by another
    /// handle: for endpoints that are made of others.
    #[inline]
    pub fn set_peer(&mut self, ours: Peer) {
        match &mut self.outcome {
            Outcome::Tagged { peer, .. } => *peer = ours,
            Outcome::Peeked(Some(peeked)) => {
                peeked.peer = ours;
                if let Some(claimed) = &mut peeked.claimed {
                    claimed.peer = ours;
                }
            }
            Outcome::Apart(done) => {
                if let Done::Tagged { peer, .. } = &mut **done {
                    *peer = ours;
                }
            }
            _ => {}
        }
    }

    /// Why it failed, with the address of the peer; `None` if it went well. The text is made when
    /// it is displayed.
    #[must_use]
    #[inline]
    pub fn error(&self) -> Option<&OpError> {
        match &self.outcome {
            Outcome::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// The whole result, as [`Event::Done`] has it: old values, mapped memory, what a peek found,
    /// the error.
    ///
    /// # Errors
    /// The operation's own.
    #[inline]
    pub fn into_result(self) -> Result<Done, OpError> {
        Ok(match self.outcome {
            Outcome::Plain(status) => plain(status),
            Outcome::Received(len) => Done::Received { len },
            Outcome::Tagged { len, tag, peer } => Done::Tagged { peer, tag, len: len.get() },
            Outcome::Peeked(peeked) => Done::Peeked(peeked),
            Outcome::Fetched { len, values } => {
                Done::Fetched(SmallVec::from_buf_and_len(values, usize::from(len)))
            }
            Outcome::Mapped(region) => Done::Mapped(region),
            Outcome::Apart(done) => *done,
            Outcome::Failed(error) => return Err(error),
        })
    }

    /// The completion that the event is.
    ///
    /// # Errors
    /// The event, if it is no completion.
    #[inline]
    #[allow(clippy::result_large_err, reason = "the event itself, which is not boxed elsewhere")]
    pub fn from_event(event: Event) -> Result<Completion, Event> {
        match event {
            Event::Done { token, result } => Ok(Completion::new(token, result)),
            other => Err(other),
        }
    }
}

impl From<Completion> for Event {
    #[inline]
    fn from(completion: Completion) -> Event {
        Event::Done { token: completion.token, result: completion.into_result() }
    }
}

impl Outcome {
    #[inline]
    fn of(done: Done) -> Outcome {
        match done {
            Done::Sent => Outcome::Plain(Status::Sent),
            Done::Discarded => Outcome::Plain(Status::Discarded),
            Done::Put => Outcome::Plain(Status::Put),
            Done::Got => Outcome::Plain(Status::Got),
            Done::Atomic => Outcome::Plain(Status::Atomic),
            Done::Flushed => Outcome::Plain(Status::Flushed),
            Done::Deregistered => Outcome::Plain(Status::Deregistered),
            Done::Revoked => Outcome::Plain(Status::Revoked),
            Done::Received { len } => Outcome::Received(len),
            Done::Peeked(peeked) => Outcome::Peeked(peeked),
            Done::Mapped(region) => Outcome::Mapped(region),
            Done::Tagged { peer, tag, len } => match Len::new(len) {
                Some(len) => Outcome::Tagged { len, tag, peer },
                None => Outcome::Apart(Box::new(Done::Tagged { peer, tag, len })),
            },
            Done::Fetched(old) => {
                let mut values = [0; 16];
                let Some(room) = values.get_mut(..old.len()) else {
                    return Outcome::Apart(Box::new(Done::Fetched(old)));
                };
                room.copy_from_slice(&old);
                Outcome::Fetched { len: old.len() as u8, values }
            }
        }
    }
}

/// What a status says that stands for itself.
#[inline]
fn plain(status: Status) -> Done {
    match status {
        Status::Discarded => Done::Discarded,
        Status::Put => Done::Put,
        Status::Got => Done::Got,
        Status::Atomic => Done::Atomic,
        Status::Flushed => Done::Flushed,
        Status::Deregistered => Done::Deregistered,
        Status::Revoked => Done::Revoked,
        // The others carry more, and are not among them.
        _ => Done::Sent,
    }
}

/// So much is taken in by a pass that looks for a completion: what is behind the first one moves.
const BUDGET: usize = 16;

/// What [`Endpoint::next_completion`] does unless a transport has another way.
pub(crate) fn next_completion<E: Endpoint + ?Sized>(
    endpoint: &mut E,
    now: Time,
    events: &mut Vec<Event>,
) -> Option<Completion> {
    if events.is_empty() {
        if let Some(completion) = endpoint.poll_completion() {
            return Some(completion);
        }
        endpoint.progress(now, BUDGET, events);
    }
    take_first(events)
}

/// Takes the first event out if it is a completion.
#[inline]
fn take_first(events: &mut Vec<Event>) -> Option<Completion> {
    let Some(Event::Done { .. }) = events.first() else { return None };
    Completion::from_event(events.remove(0)).ok()
}

/// How many completions were polled since the last pass of an endpoint: after
/// [`Streak::MOST`] there is a pass, as whoever always finds one would never drive it. For
/// transports that have [`Endpoint::poll_completion`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Streak(u32);

impl Streak {
    /// So many completions come without a pass between.
    pub const MOST: u32 = 16;

    /// Whether another one may come before the next pass.
    #[must_use]
    #[inline]
    pub fn goes_on(&self) -> bool {
        self.0 < Streak::MOST
    }

    /// One was polled.
    #[inline]
    pub fn count(&mut self) {
        self.0 += 1;
    }

    /// A pass.
    #[inline]
    pub fn end(&mut self) {
        self.0 = 0;
    }
}

// Two for each cache line; and a poll that finds none is told by the same bytes.
const _: () = assert!(size_of::<Completion>() == 32);
const _: () = assert!(size_of::<Option<Completion>>() == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpErrorKind, memory::Region};

    const PEER: Peer = Peer { index: u32::MAX, generation: 7 };

    fn all() -> Vec<Result<Done, OpError>> {
        let found = Peeked::new(PEER, 9, u64::MAX);
        vec![
            Ok(Done::Sent),
            Ok(Done::Received { len: u64::MAX }),
            Ok(Done::Discarded),
            Ok(Done::Tagged { peer: PEER, tag: u64::MAX, len: (1 << 56) - 1 }),
            Ok(Done::Tagged { peer: PEER, tag: 3, len: 1 << 56 }),
            Ok(Done::Tagged { peer: PEER, tag: 3, len: 0 }),
            Ok(Done::Peeked(None)),
            Ok(Done::Peeked(Some(Box::new(found)))),
            Ok(Done::Put),
            Ok(Done::Got),
            Ok(Done::Atomic),
            Ok(Done::Fetched(SmallVec::new())),
            Ok(Done::Fetched((0..16).collect())),
            Ok(Done::Fetched((0..17).collect())),
            Ok(Done::Mapped(Region::zeroed(12))),
            Ok(Done::Flushed),
            Ok(Done::Deregistered),
            Ok(Done::Revoked),
            Err(OpError::local(OpErrorKind::Truncated { sent: 5, posted: 4 })),
        ]
    }

    #[test]
    fn it_has_32_bytes() {
        assert_eq!(size_of::<Completion>(), 32);
        assert_eq!(size_of::<Option<Completion>>(), 32);
    }

    #[test]
    fn nothing_of_a_result_is_lost() {
        for (n, result) in all().into_iter().enumerate() {
            let (before, token) = (format!("{result:?}"), Token(n as u64));
            let (ok, len) = (result.is_ok(), len_of(&result));
            let completion = Completion::new(token, result);
            assert_eq!(completion.token(), token);
            assert_eq!((completion.is_ok(), completion.len()), (ok, len), "{before}");
            assert_eq!(completion.error().is_some(), !ok);
            let status = format!("{:?}", completion.status());
            let expected = if ok { &before["Ok(".len()..] } else { "Failed" };
            assert!(expected.starts_with(&status), "{status} of {before}");
            let back = Event::from(completion);
            let Event::Done { result, .. } = &back else { panic!("{back:?}") };
            assert_eq!(format!("{result:?}"), before);
            let again = Completion::from_event(back).expect("a completion");
            assert_eq!(format!("{:?}", again.into_result()), before);
        }
    }

    fn len_of(result: &Result<Done, OpError>) -> u64 {
        match result {
            Ok(Done::Received { len } | Done::Tagged { len, .. }) => *len,
            Ok(Done::Peeked(Some(peeked))) => peeked.len,
            Ok(Done::Fetched(values)) => values.len() as u64,
            Ok(Done::Mapped(region)) => region.len() as u64,
            _ => 0,
        }
    }

    #[test]
    fn other_events_are_given_back_and_stay_in_their_order() {
        let done = |n| Event::Done { token: Token(n), result: Ok(Done::Put) };
        let mut events = vec![done(1), done(2), Event::Writable { peer: PEER }, done(3)];
        let mut taken = || take_first(&mut events).map(|completion| completion.token().0);
        assert_eq!([taken(), taken(), taken(), taken()], [Some(1), Some(2), None, None]);
        assert!(matches!(
            events[..],
            [Event::Writable { .. }, Event::Done { token: Token(3), .. }]
        ));
        let other = Completion::from_event(events.remove(0));
        assert!(matches!(other, Err(Event::Writable { peer: PEER })));
    }
}
