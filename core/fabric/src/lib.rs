//! The *fabric*: the one contract between protocols (remote calls, matching one-sided messages)
//! and transports (shared memory, TCP, RDMA networks, a simulated network).
//!
//! A protocol holds a `Box<dyn `[`Endpoint`]`>` and needs to know no transport; a transport
//! implements [`Endpoint`] and needs to know no protocol.
//!
//! ```
//! use petasos_fabric::{
//!     Access, Clock, Done, Endpoint, Event, Operation, Region, RemoteSpan, Token,
//! };
//! use std::collections::VecDeque;
//!
//! // Any transport will do: this one connects endpoints of one process.
//! let mut owner: Box<dyn Endpoint> = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
//! let mut reader: Box<dyn Endpoint> = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
//!
//! // The owner opens memory. It sends the key to the reader by any means, as in a message.
//! let region = owner.register(&Region::from_vec(b"hello".to_vec()).whole(), Access::READ)?;
//! let key = owner.export(region)?;
//!
//! let into = Region::zeroed(5);
//! let get = Operation::Get {
//!     token: Token(1),
//!     remote: reader.import(&key)?,
//!     local: [into.whole()].into(),
//!     spans: [RemoteSpan { offset: 0, len: 5 }].into(),
//! };
//! reader.submit(&mut VecDeque::from([get]));
//!
//! // Nothing moves unless both endpoints are driven.
//! let (clock, mut events) = (Clock::start(), Vec::new());
//! let result = loop {
//!     owner.progress(clock.now(), 64, &mut Vec::new());
//!     reader.progress(clock.now(), 64, &mut events);
//!     if let Some(Event::Done { result, .. }) = events.pop() {
//!         break result;
//!     }
//! };
//! assert!(matches!(result, Ok(Done::Got)));
//! assert_eq!(into.to_vec(), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How to use an endpoint
//!
//! 1. Name peers by [`Address`], and get a [`Peer`] from [`Endpoint::resolve`].
//! 2. Send short messages with [`Endpoint::inject`], and everything else by submitting
//!    [`Operation`]s, each with a [`Token`] of the program's choice.
//! 3. Drive the endpoint with [`Endpoint::progress`], which never blocks and fills a vector of
//!    [`Event`]s: messages that arrived, and the one completion of each operation.
//! 4. To sleep, call [`Endpoint::arm`], and wait for its descriptor if that allows it.
//!
//! [`driver`] does 3 and 4 for any number of threads that submit, wait and read at once: one
//! drives, the others sleep until there is something for them. Protocols are driven by it.
//!
//! # What every transport promises
//!
//! The conformance suite checks these promises:
//!
//! * **Every accepted operation completes exactly once**, with a result or with an [`OpError`]
//!   that names the peer, also when it is cancelled or the peer dies.
//! * Operations own their memory (a [`Slice`] keeps its [`Region`] alive) until they complete; what
//!   its program keeps ([`Slice::raw`]) is not touched from the completion on.
//! * Messages between two endpoints arrive in the order in which they were injected or submitted.
//!   Remote access is ordered only as far as [`Capabilities`] say, and where an operation carries a
//!   fence ([`Fenced`]).
//! * A peer is an address *and* an [`Incarnation`]: keys, replies and handles of an earlier
//!   incarnation of the same address fail, and never reach the new one.
//! * Nothing blocks, and nothing reads the clock: `progress` gets the time with each call.
//!
//! # How a transport provides it
//!
//! A transport that can only carry ordered packets gets the whole contract from the engine in
//! [`two_sided`]; one that does some of it natively leaves the rest to that engine.
//! [`Capabilities`] say which is which. Pools, quotas, doorbells, lists of what was dropped and
//! shared mappings, which most transports need, are in modules of their own.

#![warn(clippy::missing_errors_doc)]

pub mod acceptor;
pub mod address;
pub mod atomic;
#[cfg(not(all(loom, test)))]
pub mod attended;
pub mod buffer;
pub mod capability;
pub mod channel_use;
pub mod completion;
pub mod cursor;
mod delegate;
pub mod doorbell;
pub mod drain;
pub mod driver;
pub mod dropped;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod eventcount;
pub mod fence;
pub mod handoff;
pub mod home;
pub mod key;
pub mod lease;
pub mod memory;
pub mod notify;
pub mod offer;
pub mod operation;
pub mod owner;
pub mod peer;
pub mod peer_quota;
pub mod pool;
pub mod quota;
pub mod room;
pub mod share;
pub mod time;
pub mod tuning;
pub mod two_sided;

pub use acceptor::{Accepted, Acceptor};
pub use address::{Address, AddressError};
pub use atomic::{AtomicOp, AtomicType};
#[cfg(not(all(loom, test)))]
pub use attended::{AttendError, Attended, AttendedConfig};
pub use buffer::{Buffer, spare_vec};
pub use capability::{Access, Capabilities, Credential, Enforcement, Limits, Support};
pub use channel_use::{ChannelCredit, ChannelState, ChannelUse};
pub use completion::{Completion, Status, Streak};
pub use cursor::{Cursor, SpanCursor, Stretch};
pub use doorbell::{Doorbell, EventFd};
pub use drain::{Drain, InUse, StillUsed};
pub use endpoint::{Endpoint, Sleep};
pub use error::{
    AllocError, ExportError, ImportError, InjectError, LostReason, OpError, OpErrorKind, OpFailure,
    RegisterError, ResolveError,
};
pub use event::{Done, Event, Peeked, Refusal};
pub use eventcount::EventCount;
pub use fence::Fenced;
pub use handoff::{Handoff, NotSubmitted, Submitter};
pub use home::Home;
pub use key::{Key, KeyId};
pub use lease::Lease;
pub use memory::{
    Exclusive, Region, RegionId, Slice, WeakRegion, retain_freed_memory, return_freed_memory,
};
pub use notify::{Notifier, Notify};
pub use offer::{Offer, Offered};
pub use operation::{
    Body, Claimed, Level, Operation, Payload, Remote, RemoteSpan, Slices, Spans, Token,
};
pub use owner::Owners;
pub use peer::{Incarnation, Peer, PeerInfo, PeerState};
pub use peer_quota::{PeerQuota, PeerUsage, QuotaError};
pub use pool::Pool;
pub use quota::Quota;
pub use room::{Full, Refused, submit_each};
pub use share::Share;
pub use time::{Clock, Patience, Time};
pub use tuning::{Setting, Tuning, TuningError};
