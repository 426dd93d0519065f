//! The border to C.

mod access;
mod counter;
mod domain;
mod endpoint;
mod events;
mod fabric;
mod format;
mod host;
mod hosts;
mod info;
mod local;
mod log;
mod memory;
mod message;
mod object;
pub(crate) mod provider;
mod queue;
mod refuse;
mod vector;
