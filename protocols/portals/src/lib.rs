//! Matching one-sided messages with the semantics of Portals 4 and, in [`v3`], of Portals 3.3: the
//! layer that runtimes of MPI, SHMEM and PGAS languages use below them. A process puts, gets, or
//! changes data *at a portal* of another process; the target has said before, by match entries,
//! which memory that is, and its program has no part in the operation.
//!
//! ```
//! use petasos_fabric::{Endpoint, Region};
//! use petasos_portals::{
//!     Ack, Config, Descriptor, Event, Interface, List, MatchEntry, Operation, Part, PortalOptions,
//!     ProcessId, ProcessMap, Target,
//! };
//! use std::{sync::Arc, time::Duration};
//!
//! let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
//! let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
//! let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
//!
//! // The target: a portal, and 64 bytes for messages with match bits 7.
//! let arrivals = interface.queue(64)?;
//! let options = PortalOptions { queue: Some(arrivals), ..PortalOptions::default() };
//! let portal = interface.portal(options)?;
//! let memory = Region::zeroed(64);
//! let entry = MatchEntry { bits: 7, ..MatchEntry::new(memory.clone()) };
//! interface.append(portal, List::Priority, entry)?;
//!
//! // The initiator, here the same process: memory, and a put of it.
//! let done = interface.queue(64)?;
//! let source = Descriptor { queue: Some(done), ..Descriptor::new(b"hello".to_vec()) };
//! let data = Part::of(interface.bind(source)?, 5);
//! let target = Target { bits: 7, ..Target::new(ProcessId::rank(0), portal) };
//! interface.start(Operation { ack: Ack::Full, ..Operation::put(data, target) })?;
//!
//! // Waiting drives the interface.
//! let second = Duration::from_secs(1);
//! assert!(matches!(interface.wait_event(done, second)?.event, Event::Send(_)));
//! let Event::Ack(ack) = interface.wait_event(done, second)?.event else { panic!() };
//! assert!(ack.result.is_ok());
//! assert_eq!(&memory.to_vec()[..5], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The parts
//!
//! In the order in which a program meets them, with the section of the Portals 4 specification
//! (Sandia National Laboratories, version 4.3) that rules each, and the call that it describes.
//! Each has an example.
//!
//! | part | what it is | section, call |
//! |---|---|---|
//! | [`Directory`] | which process is where | Process identification, `PtlSetMap` |
//! | [`Interface`] | one endpoint, and all below | Network interfaces, `PtlNIInit` |
//! | [`PortalOptions`] | two lists, an event queue | Portal table entries, `PtlPTAlloc` |
//! | [`MatchEntry`] | memory for messages that match | Match list entries, `PtlMEAppend` |
//! | [`Descriptor`] | memory of an initiator | Memory descriptors, `PtlMDBind` |
//! | [`EventQueue`] | what has happened | Events and event queues, `PtlEQAlloc` |
//! | [`Counter`] | how often it has happened | Lightweight counting events, `PtlCTAlloc` |
//! | [`Operation`] | a put, get or atomic | Data movement operations, `PtlPut` |
//! | [`Action`] | runs when a counter is reached | Triggered operations, `PtlTriggeredPut` |
//!
//! # When nothing comes
//!
//! - *A wait ends with [`Error::Timeout`].* Waiting drives only the interface that is waited on.
//!   The target has to be driven as well, by a thread of its own process that waits, by
//!   [`Interface::progress`] or by an [`Engine`]. The same holds for [`Interface::close`], which
//!   waits for answers.
//! - *`Send` succeeds and `Ack` fails with [`Failure::Dropped`].* No entry matched when the
//!   message came, so it was dropped. Append entries before other processes are told to send, or
//!   append a block of memory to the overflow list ([`List::Overflow`]), which keeps such
//!   messages.
//! - *A get fails with [`Failure::Operation`].* [`MatchEntry::new`] lets other processes put, and
//!   no more: set [`MatchEntry::accepts`].
//! - *No event comes, and no error.* Events go to the queue of the [`Descriptor`], [`MatchEntry`]
//!   or portal; without a queue there are none. With neither a queue nor a counter that counts
//!   them, acknowledgements are not requested. [`Interface::status`] counts what was dropped or
//!   refused.
//!
//! # How it works
//!
//! **Driving.** An interface does nothing unless driven: by a thread that waits on it, by
//! [`Interface::progress`], or by the thread of an [`Engine`], so that a process that computes
//! still answers. All of its state lies behind one lock, which is not held while a thread sleeps.
//! An engine drives when no other thread does.
//!
//! **Matching.** A request goes to the first entry of the priority list that matches its bits and
//! its source, then to that of the overflow list. What the overflow list took leaves a *header*; an
//! entry that is appended later gets the headers that it matches, in the same step in which it is
//! linked. A list of up to 32 entries is scanned. A longer one costs a hash look-up for each
//! *class* of entries: those that ignore the same bits and leave the same parts of the source open.
//! Under MPI there are one to four. When classes are as many as a quarter of the entries the list
//! is walked. Entries have labels that grow along the list, with gaps, and of the entries that the
//! look-ups find the one with the lowest label is taken: so order is the standard's, and an entry
//! can be inserted anywhere. Headers are found at once by an entry without wildcards, and by
//! walking in the order of arrival by one with wildcards.
//!
//! **Data.** Up to [`Config::eager`] bytes travel with the request. Longer data is a long message
//! of the fabric: its header is matched in turn with short ones, and then the body goes from memory
//! to memory, so there are no keys to exchange and order holds across sizes. Where the transport
//! has remote access of its own, data beyond [`Config::lend_above`] bytes goes by one copy: the
//! request carries a key to the initiator's memory, and the operation ends only when that memory is
//! closed again. Headers have a fixed layout ([`petasos_wire::portals`]).
//!
//! **The end of operations.** An operation that succeeds raises each of its events once, with a
//! result: a put [`Event::Send`] and then, if an acknowledgement was asked for, [`Event::Ack`]; a
//! get [`Event::Reply`]. After a `Send` that failed no `Ack` follows. The same holds when the other
//! process dies: its operations end with [`Failure::Unreachable`]. [`Interface::flush`] sends a
//! fence behind all that was sent, which the other side answers.
//!
//! **Triggered operations** wait in the order of their thresholds. They run from a queue, so that
//! what they set off does not recurse.
//!
//! # Memory
//!
//! Memory for operations is a [`Memory`]: counted regions without references into them. The
//! interface holds it until the entry is unlinked, or the descriptor released, and nothing is under
//! way; then it can become plain memory again ([`petasos_fabric::Region::into_exclusive`]).
//!
//! # Bounds
//!
//! Everything that another process can make grow has a number in [`Limits`]. Nothing is kept of
//! processes without a connection. A peer that does not take its answers is cut off when
//! one and a half times [`Limits::waiting`] bytes wait for it.
//!
//! # Trust
//!
//! The transport says which endpoint a message is from, the [`Directory`] which process of the job
//! that is; messages of other endpoints are dropped and counted. The *user* is the one that the
//! transport vouches for, or else what the other process says, if [`Config::trust_claimed_user`] is
//! set: processes of one job trust each other that far. Frames are checked once; a frame without a
//! meaning is dropped and counted ([`Status::garbage`]). An answer counts only if it comes from the
//! process that was asked.
//!
//! # Reading the source
//!
//! The matching core (`matching`) is a state machine without I/O; its lists are those of
//! [`petasos_match`]. Around it, `state` holds the parts that own what lies behind the lock:
//! `network` (the endpoint, its peers, and what waits to be sent), `portals`, `descriptor`,
//! `events`. A put is followed at its initiator in `initiator`, and at its target in `target`. What
//! both need lies below them: the record of an operation (`outstanding`), what the endpoint moves
//! (`transfer`), the statuses of answers (`response`). `drive` is a pass over the interface, `wait`
//! how threads wait for it, and `drivers` which of them drives.

#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

mod access;
mod atomic;
mod config;
mod counter;
mod descriptor;
mod drive;
mod engine;
mod error;
mod event;
mod events;
mod fences;
mod flags;
mod flush;
mod handle;
mod id;
mod initiator;
mod interface;
#[doc(hidden)]
pub mod matcher;
mod matching;
mod memory;
mod message;
mod network;
mod operation;
mod outstanding;
mod portals;
mod queue;
mod response;
mod search;
mod state;
mod target;
mod transfer;
mod triggered;
pub mod v3;
mod wait;

pub use access::Permit;
pub use atomic::{Datatype, Operator};
pub use config::{Config, Idle, Limits, Promises, Status};
pub use counter::Count;
pub use descriptor::{Descriptor, Part};
pub use engine::Engine;
pub use error::{Error, Failure};
pub use event::{Completed, Event, Listed, Served};
pub use flags::{Accepts, Counts, Quiet};
pub use handle::{Counter, EventQueue, Handle, InterfaceId};
pub use id::{ANY_PART, Directory, ProcessId, ProcessMap};
pub use interface::Interface;
pub use matching::{Left, List, MatchEntry};
pub use memory::Memory;
pub use message::{Ack, Arrival, Request};
pub use operation::{Operation, Target};
pub use portals::PortalOptions;
pub use queue::Taken;
pub use triggered::Action;

/// The guide's code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/portals.md")]
struct Guide;
