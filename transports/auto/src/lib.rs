//! One logical address over several transports: `auto://`. Shared memory to peers of this node, a network to the
//! others, and neither side says which.
//!
//! [`Auto`] is an endpoint of the fabric made of others, its *members*, which are opened by who makes it: this crate
//! names no transport. Its address carries all of theirs, and says which node it is on ([`Places`]):
//!
//! ```text
//! auto://9f3c2a7b11d04e55/shm://4711-0123456789abcdef,tcp://10.0.0.7:4040
//!        node             way                         way
//! ```
//!
//! # Which way is taken
//!
//! One per peer, chosen when the peer is first asked for, from both addresses alone; so both sides choose the same,
//! whoever begins. A member of [`Reach::Node`] goes to peers on the same node: the same boot of the same kernel, the same
//! network name space, the same user ([`Node`]); a host's name says none of that. To others goes the first network
//! that both have, in the order of the smaller address. What cannot be reached by its way is lost: nothing is tried
//! again by another one, where it would come twice.
//!
//! `auto://HOST:PORT` is an address, too: of somebody who is asked, by the last member, for the whole one. What is
//! submitted meanwhile waits.
//!
//! # How it works
//!
//! The first message each way is a *card*: the whole address, and the incarnation, of who sends it. The one who
//! connects sends it before all else, the other one answers with his. A peer is up when its card came, and only then
//! anything else goes to it; its place in the address has to be where the member met it. After that messages are the
//! members' own, and nothing is added to them: a message costs a look into a table each way. Handles, tokens and
//! regions are translated. A region is registered with all members, its key has a route for each.
//!
//! The members take turns: one over which nothing has come for a while is looked at now and then, for a look at a
//! network takes longer than a message over shared memory. They are slept on together.
//!
//! Expected messages are not offered, as a receive from anybody would have to be posted with several members at once;
//! nor is mapping a peer's memory, unless all members can.
//!
//! # Who is trusted
//!
//! As with the member by which a peer comes; a card is parsed after the member let the peer in. Who lies about its
//! node is asked for over shared memory, where the kernel answers whose process that is.

#![forbid(unsafe_code)]

mod endpoint;
mod error;
pub mod handshake;
mod keys;
mod meet;
mod node;
mod peers;
mod places;
mod receive;
mod state;
mod submit;

pub use error::OpenError;
pub use node::Node;
pub use places::{Places, SCHEME};
pub use state::{Auto, Chosen, Member, Reach};
