//! The fabric over the shared memory of one machine: `shm://NAME`.
//!
//! Any two endpoints that talk have a mapping of their own, a sealed file without a name, with a
//! ring of cache-line cells each way ([`Config::ring`]). A short message is one cache line, or two,
//! that move from one processor to the other; no system call, lock, clock or allocation is involved
//! while the receiver is awake and lets go of what it received. A message of more than 8 KiB goes
//! in parts through a second ring ([`Config::long_ring`]), so that both sides copy at the same
//! time. Nothing that one peer writes reaches another.
//!
//! The usual design is one queue per receiver into which all senders write. Here one process that
//! scribbles would ruin the messages of all others; with a mapping per pair the worst that a
//! hostile peer can do is to end its own connection. Ring pages are touched only when used, so that
//! an idle peer costs little; those of the second ring go back to the system when it is not used.
//!
//! Put and get move data once: by reaching into the other process (`process_vm_readv`), or, for
//! memory from [`Endpoint::alloc`](petasos_fabric::Endpoint::alloc), through a mapping, which a
//! peer can also read in place. Where the system refuses the first, the owner serves the access
//! through the ring. All other operations are the two-sided engine's.
//!
//! # Trust
//!
//! A process that connects is checked by the kernel's word: this user's processes only, or those of
//! [`Config::admit`]. Whatever a peer writes, sends, or leaves undone harms at most what is between
//! the two. Rights and bounds of regions are kept by the library of the *initiator*: processes of
//! one user can reach each other's memory anyway. A peer of another user reaches only what it is
//! given: the pair, and segments of the transport for which it has a key, which it can then map
//! whole. Segments of which such a peer has the key of a region that it may only read are sealed
//! against writing, for good; peers that may reach into this process anyway do not cause that.
//!
//! # Closing memory
//!
//! A peer announces the region that it reaches into, for each slice of a copy. A region is
//! deregistered once nothing announces it. A peer that is stopped within a slice may go on with it
//! at any time, and nothing but its end, or that of its program, prevents it, so after the patience
//! of the operation the answer is [`StillReached`](petasos_fabric::OpErrorKind::StillReached); to
//! cut that peer off would not help, and is not done. An endpoint that is dropped waits for no
//! peer: memory in which a peer is then stays until it has left, and is let go by a thread of its
//! own (`petasos-shm-left`), on which the release callback of the memory runs, too.
//!
//! # A peer that becomes another program
//!
//! `exec` runs no destructor, and keeps the process and its number: a peer that reaches into that
//! process by number would find the next program. So before each slice of a copy (up to 4 MiB) the
//! initiator asks the system whether the peer's socket, which `exec` closes, and its process are
//! still there; if not, the peer is lost. Between that question and the copy is a moment in which
//! no check is possible: if the initiator is stopped or preempted just there, and the owner calls
//! `exec` and its next program has mapped memory at the same address before the initiator goes on,
//! then a put lands in that. A copy that has begun keeps the old program's memory and does not meet
//! the new one's; and the system closes the socket before it maps anything of the new program but
//! its stack. A program that can must end the endpoint before `exec`: dropped, it has taken all
//! memory back, and what is left in a copy then is the old program's. Memory of
//! [`alloc`](petasos_fabric::Endpoint::alloc) is not concerned: it is reached through a mapping of
//! its own.
//!
//! # Leftovers
//!
//! None: there are no files with names but a socket where a path was asked for, which its
//! successor removes. The kernel takes the rest back with the last process.
//!
//! An endpoint is used in the process that opened it: a child that is forked may drop its copy, and
//! no more.

#![warn(clippy::missing_errors_doc)]

mod access;
mod arrivals;
mod assembly;
mod attempts;
mod channel;
mod channels;
mod closing;
mod completions;
mod config;
mod control;
mod counters;
mod cross_memory;
mod doorbell;
mod endpoint;
mod error;
mod exports;
mod hazard;
pub mod link;
mod name;
mod pair;
mod peer_segments;
mod poller;
mod privileges;
mod probe;
mod process;
mod ring;
mod schedule;
mod segment;
mod socket;
mod sync;
mod table;
mod watchlist;

pub use config::Config;
pub use counters::Counters;
pub use endpoint::Shm;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use endpoint::fuzzing;
pub use error::OpenError;
pub use probe::{Probe, probe};
