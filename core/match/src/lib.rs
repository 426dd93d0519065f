//! Matching of tagged messages, in both directions and in constant time.
//!
//! A message has an [`Envelope`]: its source, and 64 match bits. A [`Pattern`] says which envelopes
//! it takes: bits that it ignores and parts of the source that may be any are wildcards.
//!
//! * [`PatternList`] has patterns in an order that the program chooses: posted receives, or the
//!   entries of a match list. It gives the *first in order* that takes an envelope.
//! * [`MessageQueue`] has messages in the order of their arrival: those for which nothing was
//!   posted. It gives the *oldest* that a pattern takes.
//!
//! ```
//! use petasos_match::{Envelope, MessageQueue, Pattern, PatternList};
//!
//! let (mut posted, mut unexpected) = (PatternList::default(), MessageQueue::default());
//!
//! // A receive from source 3 with any tag of which the upper half is 7.
//! let pattern = Pattern::new(Some(3), 7 << 32, u64::from(u32::MAX));
//! assert!(unexpected.take(&pattern).is_none());
//! posted.push_back(pattern, "receive");
//!
//! // Its message comes; the next one finds nothing, and waits.
//! let envelope = Envelope::new(3, 7 << 32 | 9);
//! assert_eq!(posted.take(envelope).map(|(_, receive)| receive), Some("receive"));
//! assert!(posted.take(envelope).is_none());
//! unexpected.push(envelope, "message");
//! assert_eq!(unexpected.take(&pattern), Some((envelope, "message")));
//! ```
//!
//! A source is one word: a rank, the bits of a handle, or a pair of numbers of which either may be
//! any ([`Pattern::of_parts`]). Payloads are what the program likes.
//!
//! # Cost
//!
//! Up to 32 patterns or messages are scanned: they lie in one array with their values.
//!
//! More patterns are kept in *classes*, by which bits they ignore and which parts of the source
//! count. An envelope costs one hash look-up for each class, however many patterns there are;
//! receives of MPI are of one to four classes. Where classes are as many as a quarter of the
//! patterns, the list is walked. A class that is empty is dropped.
//!
//! In a queue of more messages a pattern without wildcards costs one look-up. One with wildcards
//! walks the queue from its oldest message.
//!
//! Hashes are seeded with a secret of the process: other processes choose the bits of messages, and
//! must not be able to bring them all into one chain. Memory is that of the most patterns or
//! messages that there were since the list was last short.
//!
//! # Reading the source
//!
//! `rows` has what is short. What is long lies in `nodes`, with doubly linked lists through it;
//! `classes` is the index of patterns.

#![forbid(unsafe_code)]

mod classes;
mod hash;
mod indexed;
mod list;
mod nodes;
mod pattern;
mod queue;
mod rows;

pub use hash::{SeededHasher, SeededState};
pub use list::{At, PatternList, Scan};
pub use nodes::Key;
pub use pattern::{Envelope, Pattern};
pub use queue::MessageQueue;
