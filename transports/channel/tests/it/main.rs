//! Endpoints over the simulated device: what one program can test, as the tests share nothing.

#[path = "../common/mod.rs"]
mod common;

mod credit;
mod crowd;
mod garbage;
mod late;
mod limits;
mod rendezvous;
mod sizes;
