//! The native wire: frames over streams, the handshake of daemons, and how long a thread polls
//! before it sleeps.

mod frames;
pub(crate) mod handshake;
mod spin;

pub(crate) use frames::{Frames, Stream};
pub(crate) use spin::Spin;
