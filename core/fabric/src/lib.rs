//! The *fabric*: the one contract between protocols (remote calls, matching one-sided messages)
//! and transports (shared memory, TCP, RDMA networks, a simulated network).
//!
//! A protocol holds a `Box<dyn `[`Endpoint`]`>` and needs to know no transport. It
//!
//! 1. names peers by [`Address`] and gets a [`Peer`] from [`Endpoint::resolve`];
//! 2. sends short messages with [`Endpoint::inject`], and everything else by submitting
//!    [`Operation`]s, each with a [`Token`] of its own choosing;
//! 3. drives the endpoint with [`Endpoint::progress`], which never blocks and fills a vector of
//!    [`Event`]s: messages that came in, and the one completion of each operation;
//! 4. sleeps, when it wants to, on what [`Endpoint::arm`] says.
//!
//! The promises that every transport keeps, and that the conformance suite checks:
//!
//! * **Every accepted operation completes exactly once**, with a result or with an [`OpError`]
//!   that names the peer, also when it is cancelled or the peer dies.
//! * Operations own their memory (a [`Slice`] keeps its [`Region`] alive) until they complete.
//! * Messages between two endpoints arrive in the order in which they were injected or submitted.
//!   Remote access is ordered only as far as [`Capabilities`] say.
//! * A peer is an address *and* an [`Incarnation`]: keys, replies and handles of an earlier life
//!   of the same address fail, they never reach the new one.
//! * Nothing blocks, and nothing reads the clock: time comes in with each call of `progress`.
//!
//! What a transport lacks is added by the layers of this crate: see [`two_sided`].

#![warn(clippy::missing_errors_doc)]

pub mod acceptor;
pub mod address;
pub mod capability;
pub mod cursor;
mod delegate;
pub mod doorbell;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod eventcount;
pub mod handoff;
pub mod home;
pub mod key;
pub mod lease;
pub mod memory;
pub mod notify;
pub mod operation;
pub mod owner;
pub mod peer;
pub mod pool;
pub mod quota;
pub mod share;
pub mod time;
pub mod tuning;
pub mod two_sided;

pub use acceptor::{Accepted, Acceptor};
pub use address::{Address, AddressError};
pub use capability::{Access, Capabilities, Credential, Enforcement, Limits, Support};
pub use cursor::{Cursor, SpanCursor, Stretch};
pub use doorbell::{Doorbell, EventFd};
pub use endpoint::{Endpoint, Sleep};
pub use error::{
    AllocError, ExportError, ImportError, InjectError, LostReason, OpError, OpErrorKind,
    RegisterError, ResolveError,
};
pub use event::{Body, Done, Event, Refusal};
pub use eventcount::EventCount;
pub use handoff::{Handoff, NotSubmitted, Submitter};
pub use home::Home;
pub use key::Key;
pub use lease::Lease;
pub use memory::{
    Exclusive, Region, RegionId, Slice, WeakRegion, retain_freed_memory, return_freed_memory,
};
pub use notify::{Notifier, Notify};
pub use operation::{
    AtomicOp, AtomicType, Level, Operation, Payload, Remote, RemoteSpan, Slices, Spans, Token,
};
pub use owner::Owners;
pub use peer::{Incarnation, Peer, PeerInfo, PeerState};
pub use pool::{Buffer, Pool, spare_vec};
pub use quota::Quota;
pub use share::Share;
pub use time::{Clock, Patience, Time};
pub use tuning::{Tuning, TuningError};
