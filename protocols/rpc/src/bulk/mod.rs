//! Bulk memory: described here, moved by the other side.
//!
//! The *origin* of a call makes a [`Bulk`] of its memory and sends the [`BulkHandle`] as an
//! argument; the *target* opens it as a [`RemoteBulk`] and pulls or pushes what it likes, in pieces
//! of its choice, many at a time. So the target controls the flow, and how much memory it spends. A
//! handle may be passed on: a process that has it can open it, if it reaches the origin.

mod descriptor;
mod lending;
mod remote;
mod stream;

pub use descriptor::{Bulk, BulkHandle};
pub use lending::{BulkCall, Destination, Lent};
pub use remote::RemoteBulk;
pub use stream::{Block, BlockStream, Sink};
