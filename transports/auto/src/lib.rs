//! One logical address over several transports: `auto://`. Shared memory to peers of this node, a
//! network to the others; neither side says which.
//!
//! [`Auto`] is an endpoint of the fabric made of other endpoints, its *members*. The caller opens
//! them, and this crate names no transport. Its address contains the addresses of all members, and
//! says which node it is on ([`AutoAddress`]):
//!
//! ```text
//! auto://9f3c2a7b11d04e55/shm://4711-0123456789abcdef,tcp://10.0.0.7:4040
//!        node             member                      member
//! ```
//!
//! # Which route is taken
//!
//! Each peer has one route. It is chosen when the peer is first resolved, from both addresses
//! alone; so both sides choose the same, whichever begins. A member of [`Scope::Node`] serves peers
//! on the same node: the same boot of the same kernel, the same network name space, the same user
//! ([`Node`]); a host's name tells none of that. Other peers are reached by the first network that
//! both have, in the order of the smaller address. A peer that cannot be reached by its route is
//! lost: nothing is sent again by another route, where it would arrive twice.
//!
//! `auto://HOST:PORT` is an address, too: the peer there is asked, by the last member, for its
//! whole address. Operations that are submitted meanwhile wait.
//!
//! # How it works
//!
//! The first message in each direction is a *handshake message*: the sender's whole address and its
//! incarnation. The side that connects sends it before all else, and the other side answers with
//! its own. A peer is up when its handshake message has arrived, and only then anything else is
//! sent to it. The member by which it came must have met it at one of the addresses in its whole
//! address. After that, messages are the members' own, and nothing is added to them: a message
//! costs a look-up in a table on each side. Handles and regions are translated; an
//! operation keeps its token. A region is
//! registered with all members; its key has a part for each.
//!
//! A pass polls members. A network over which nothing has come for a while is polled in few passes,
//! because to poll it takes longer than a message over shared memory: once in 64, or, while
//! messages come over shared memory, in 256 (or 20 microseconds, if that is less). A member that
//! was left out as others filled the budget is the first in the next pass. They are slept on
//! together.
//!
//! What the endpoint promises for every peer is the least of its members. What it can do with one
//! peer is what the member on its route can ([`Endpoint::capabilities_of`]): put and get with a
//! peer of this node are native, and its memory can be mapped, though another member emulates the
//! one and lacks the other.
//!
//! Expected messages are matched by the members: a receive from one peer by that on its route, into
//! whose hands it is given; one from any source is offered to all, and the first that has a message
//! takes it. A peek from any source asks one after the other, and begins with another one each
//! time; so the oldest message of a member is found, and not of all. A receive from
//! a peer that is being asked for its whole address waits for that, and receives from any source
//! that are posted behind it do, too.
//!
//! [`Endpoint::capabilities_of`]: petasos_fabric::Endpoint::capabilities_of
//!
//! # What is trusted
//!
//! The same as with the member by which a peer connects; a handshake message is parsed after the
//! member has accepted the peer. A peer that lies about its node is looked for over shared memory,
//! where the kernel tells whose process answers.

#![forbid(unsafe_code)]

mod address;
mod capabilities;
mod completions;
mod departed;
mod endpoint;
mod error;
mod expected;
mod greetings;
pub mod handshake;
mod keys;
mod meet;
mod member;
mod node;
mod outstanding;
mod pace;
mod peers;
mod receive;
mod regions;
mod state;
mod submit;
mod turn;

pub use address::{AutoAddress, SCHEME};
pub use error::OpenError;
pub use member::{Member, Scope};
pub use node::Node;
pub use state::{Auto, Chosen};
