//! The server, from the other side of each transport: a client made by hand of the protocol.

#[path = "../common/mod.rs"]
mod common;

mod basics;
mod fair;
mod hostile;
mod impostor;
mod local;
mod sessions;
mod vectored;
