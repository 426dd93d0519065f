//! All operations of the contract over a reliable, ordered channel of packets per peer.
//!
//! [`Engine`] is a state machine: it opens no socket, reads no clock and blocks nowhere. A
//! transport that can carry packets (a small header, and a payload that lies in memory or goes
//! there) gets messages, long messages, expected messages, put, get, atomics, cancellation and the
//! end of everything when a peer dies. Transports that do some of it themselves give the engine
//! what is left.
//!
//! # What the transport does
//!
//! *Peers.* The engine keeps the table: [`Engine::add_peer`] for an address, [`Engine::peer_up`]
//! when packets may flow, [`Engine::peer_lost`] when they do not any more. [`Peer::index`] is
//! dense and reused, so it can index the transport's own table.
//!
//! *Out.* [`Engine::next_output`] names peers with packets to send, [`Engine::poll_transmit`]
//! gives the packets one by one, in the order in which they must arrive. When the bytes of the
//! oldest packet have been taken, so that their memory may change, say [`Engine::sent`]. Each peer
//! that `next_output` gave is the transport's to serve until `poll_transmit` says `None`; only
//! then it is named again. With no room in its channel the transport waits for room, and goes on.
//!
//! *In.* [`Engine::accept`] takes a header and says where the payload shall go ([`Placement`]);
//! when all of it is there, [`Engine::landed`] gives the placement back. One packet of a peer at a
//! time, in order. [`Engine::deliver`] does both for a packet that is in memory already.
//! The engine takes every packet when it comes: there is no reason to stop reading. A [`Violation`]
//! means that the peer breaks the protocol: close it, and tell with `peer_lost`.
//!
//! *Closing memory.* A region is deregistered, and a key to a part of one revoked, once no packet
//! has its memory any more, in either direction. While [`Engine::is_closing`], call
//! [`Engine::keep_time`] in each pass, and do not sleep beyond [`Engine::deadline`]. A transport
//! that moves the bytes itself need not wait for its peers: it takes the memory out of the packets
//! that it has, by [`Engine::divert`] and [`Engine::detach`].
//!
//! *Flushes.* The engine counts the accesses that it carries out. A transport that carries out some
//! itself says when one begins and is over ([`Engine::begin_access`], [`Engine::end_access`]), and
//! leaves [`Operation::Flush`](crate::Operation::Flush) to the engine.
//!
//! *Fences.* Where the engine carries out all operations, it knows what a fence waits for
//! ([`Config::in_order`]). A transport that carries out some itself asks about each that it is
//! given ([`Engine::is_deferred`], [`Engine::defer`]), and takes those that go on from
//! [`Engine::next_released`].
//!
//! *Events.* [`Engine::take_events`] moves what happened to the vector of `progress`. Nothing is
//! raised by the engine in any other way. Take them before reading packets, and read none while
//! they are more than the budget: then what waits here stays bounded. While peers wait for leases
//! ([`Engine::has_waiting`]) take events again soon, for a lease that is dropped wakes no thread. A
//! transport that handles plain messages itself ([`header::message_header`],
//! [`header::message_len`]) must take the engine's events first ([`Engine::has_events`]), and gets
//! leases from [`Engine::lend`]; it may send around the engine only what [`Engine::may_send`]
//! allows, and says so ([`Engine::sent_around`]). Then the order among messages holds, and credit
//! is right. The same holds for short expected messages, of which [`Engine::expected_around`] says
//! which may go; [`Engine::take_expected`] takes them in one step.
//!
//! # How it works
//!
//! Every request that wants an answer costs one of [`MAX_REQUESTS`] credits per peer, which the
//! answer returns; a peer that overdraws breaks the protocol. So the answers that wait for a slow
//! peer are bounded, and no side needs to stop reading in order to be safe: two sides that both
//! have much to send cannot block each other. Messages that need a lease of the receiver's pool
//! cost credit, which it grants each peer as far as it has leases (the page of `credit.rs` says
//! how), so that no answer is ever behind a message that waits for one. Remote memory is named by
//! slot, generation and a random secret, and each fragment is checked by the owner by itself. Long
//! bodies and gets are pulled in a pipeline of bounded depth; puts are pushed, and each fragment
//! says where it goes. Short expected messages travel eagerly as long as the target has promised a
//! place for them ([`EAGER_CREDITS`], asked for with the first one), and then as bodies that are
//! pulled once they are matched; of these, too, only so many are announced as the target has room
//! for ([`TAGGED_ROOM`] at first). What was cancelled keeps its id until the peer has answered, so
//! that no answer is ever unknown.
//!
//! The files `accept`, `land`, `submit`, `serve`, `transmit`, `credit`, `quota`, `flush`, `fence`
//! and `closing` are operations of one [`Engine`] and its connections, which own the state of them
//! all: they know each other by design. What has a state of its own (`expected`, `incoming`,
//! `outstanding`, `queues`, `registry`, `matching`) knows neither.
//!
//! [`Peer::index`]: crate::Peer::index

mod accept;
mod around;
mod claims;
mod closing;
mod config;
mod connection;
mod credit;
mod engine;
mod expected;
mod fence;
mod flush;
pub mod header;
mod in_use;
mod incoming;
mod land;
mod ledger;
mod loopback;
mod matching;
mod operations;
mod outstanding;
mod packet;
mod parts;
mod peers;
mod queues;
mod quota;
mod registry;
mod room;
mod serve;
mod submit;
#[cfg(all(test, not(loom)))]
mod tests;
mod transmit;
mod violation;

pub use around::ExpectedBuffer;
pub use config::{
    Config, Counters, EAGER_CREDITS, MAX_BODIES, MAX_EAGER, MAX_REQUESTS, TAGGED_ROOM,
};
pub use engine::Engine;
pub use fence::Released;
pub use flush::Batch;
pub use packet::{Outgoing, Packet, Placement};
pub use registry::Imported;
pub use violation::Violation;
