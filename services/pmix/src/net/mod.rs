//! The native wire: frames over streams, how daemons prove a secret to each other, and how long one
//! looks for what comes before sleep.

mod frames;
pub(crate) mod handshake;
mod looking;

pub(crate) use frames::{Frames, Stream};
pub(crate) use looking::Looking;
