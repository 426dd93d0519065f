//! Matching one-sided messages, with the semantics of Portals 4 and, in [`v3`], of Portals 3.3:
//! what the runtimes of MPI, SHMEM and PGAS languages want below them.
//!
//! A process sends, fetches, or changes data *at a portal* of another, and shows match bits; which
//! memory that is, the target has said before by appending entries to lists. The target's program
//! has no part in it: a thread that waits on the interface, or an [`Engine`], answers. Nothing is
//! kept of processes without a connection.
//!
//! ```
//! use petasos_portals::{
//!     Ack, Config, Descriptor, Event, Interface, List, MatchEntry, Operation, Part, Target,
//!     PortalOptions, ProcessId, ProcessMap,
//! };
//! use petasos_fabric::{Endpoint, Region};
//! use std::{sync::Arc, time::Duration};
//!
//! let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
//! let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
//! let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
//!
//! // The target: a portal, and memory for messages with bits 7.
//! let queue = interface.queue(64)?;
//! let portal = interface.portal(PortalOptions { queue: Some(queue), ..Default::default() })?;
//! let memory = Region::zeroed(64);
//! let entry = MatchEntry { bits: 7, ..MatchEntry::new(memory.clone()) };
//! interface.append(portal, List::Priority, entry)?;
//!
//! // The initiator, here the same process: memory, and a put from it.
//! let done = interface.queue(64)?;
//! let source = Descriptor { queue: Some(done), ..Descriptor::new(b"hello".to_vec()) };
//! let part = Part::of(interface.bind(source)?, 5);
//! let target = Target { bits: 7, ..Target::new(ProcessId::rank(0), portal) };
//! interface.start(Operation { ack: Ack::Full, ..Operation::put(part, target) })?;
//!
//! let second = Duration::from_secs(1);
//! assert!(matches!(interface.wait_event(done, second)?.event, Event::Send(_)));
//! assert!(matches!(interface.wait_event(done, second)?.event, Event::Ack(ack) if ack.result.is_ok()));
//! assert_eq!(&memory.to_vec()[..5], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is where
//!
//! The matching core (`matching`) is a state machine without I/O: lists in which an entry is found
//! without walking, headers of messages that came too early, what is used up and what goes. Around
//! it one state behind one lock has the queues, counters and tables (`state`), the initiator's side
//! (`initiator`), the target's (`target`), and the connected peers (`peers`). `drive` is a pass
//! over it, `wait` says which thread drives and which sleep. Headers are fixed in
//! [`petasos_wire::portals`].
//!
//! Entries of a list lie in one hash table for each class of entries that look at the same bits,
//! and have labels that grow along the list, with gaps: a look-up probes each class, and the lowest
//! label wins. So order is the standard's, an entry can come in anywhere, and appending looks
//! through the messages that came before it and links, in one step.
//!
//! A thread that waits drives the interface; an engine's thread drives when none does, and sleeps
//! when there is nothing. Long data is a long message of the fabric: its header is matched in turn
//! with short ones, and then the body goes from memory to memory, so there are no keys to exchange
//! and order holds across sizes. Where the transport has remote access of its own, the header
//! carries a key to the initiator's memory instead, and the end is told only when that memory is
//! closed again. What an operation needs of a threshold is taken off when it starts. An interface
//! is flushed by a fence behind all that was sent, which the other side answers. Triggered
//! operations go to a queue when their counter is reached, and run from there, so that what they
//! set off does not recurse. A process that does not take its answers is cut off.
//!
//! # Cost of matching
//!
//! A list of up to 32 entries is scanned. A longer one costs a hash look-up for each *class* of
//! entries: those that ignore the same bits and leave the same parts of the source open. Under MPI
//! there are one to four; when every entry ignores bits of its own, the list is walked. Headers are
//! found at once by an entry without wildcards, and by walking in the order of arrival by one with.
//!
//! # Memory
//!
//! Lent memory is a [`Memory`]: counted regions without references into them. The interface holds
//! it until the entry is unlinked, or the descriptor released, and nothing is under way; then it
//! can become plain memory again ([`petasos_fabric::Region::into_exclusive`]).
//!
//! # How operations end
//!
//! Each event that a successful operation would raise comes exactly once, with a result: of a put
//! [`Event::Send`], then, if an acknowledgement was asked for, [`Event::Ack`]; of a get
//! [`Event::Reply`]. After a `Send` that failed no `Ack` follows. So it is also when the other
//! process dies.
//!
//! # Trust
//!
//! The transport says which endpoint a message is from, the [`Directory`] which process of the job
//! that is; what strangers send is dropped. The *user* is what the other process says it is:
//! processes of one job trust each other that far. Frames are checked once; what makes no sense is
//! dropped and counted ([`Status::garbage`]). An answer counts only if it comes from the process
//! that was asked.

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
mod portals;
mod search;
mod state;
mod target;
pub mod v3;
mod wait;

pub use access::Permit;
pub use atomic::{Datatype, Operator};
pub use config::{Config, Idle, Limits, Promises, Status};
pub use counter::{Count, Counter};
pub use descriptor::{Descriptor, Part};
pub use engine::Engine;
pub use error::Error;
pub use event::{Completed, Event, EventQueue, Failure, Left, Listed, Served, Taken};
pub use flags::{Accepts, Counts, Quiet};
pub use handle::{Handle, InterfaceId};
pub use id::{ANY_PART, Directory, ProcessId, ProcessMap};
pub use interface::{Interface, PortalOptions};
pub use matching::{List, MatchEntry};
pub use memory::Memory;
pub use message::{Arrival, Request};
pub use operation::{Ack, Action, Operation, Target};

/// The guide's code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/portals.md")]
struct Guide;
