//! NICs over a network library that stands in one thread, and does what it is told to.

mod common;
mod immediate;
mod lost;
mod nic;
mod released;
