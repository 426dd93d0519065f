//! Tenants of one broker: endpoints over real sockets, rings and memory.

mod common;
mod conformance;
mod hostile;
mod tenants;
