//! The tests that can share a process, in one program.

mod bulk;
mod calls;
mod common;
mod driving;
mod eager;
mod loans;
mod pieces;
mod reached;
mod released;
mod service;
mod sleep;
mod unfetched;
mod waiting;
