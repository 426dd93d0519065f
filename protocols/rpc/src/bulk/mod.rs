//! Bulk memory: the origin describes it, the target moves the data.
//!
//! The *origin* of a call makes a [`Bulk`] of its memory and sends the [`BulkHandle`] as an
//! argument; the *target* opens it as a [`RemoteBulk`] and pulls or pushes what it needs, in pieces
//! of its choice, several at a time. So the target controls the flow and how much memory it spends.
//! A handle may be passed on: any process that has it and reaches the origin can open it.

mod closing;
mod descriptor;
mod lending;
mod pieces;
mod remote;
mod stream;

pub use closing::Released;
pub(crate) use closing::{Lending, Lendings};
pub use descriptor::{Bulk, BulkHandle};
pub use lending::{BulkCall, Destination, Lent};
pub use pieces::Pieces;
pub use remote::{RemoteBulk, release_while};
pub use stream::{Block, BlockStream, Sink};
