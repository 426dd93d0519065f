//! The native wire: frames over streams, and how daemons prove a secret to each other.

mod frames;
pub(crate) mod handshake;

pub(crate) use frames::{Frames, Stream};
