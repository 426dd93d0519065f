//! `petasos bench`, as a user runs it.

#[path = "../../../../faces/cli/tests/common/mod.rs"]
mod common;
mod forward;
mod launch;
mod manners;
mod mpi;
mod networks;
mod peers;
mod suite;
