//! What the command's servers answer: ping and measurements ([`Bench`]), and files ([`Store`]).

mod bench;
mod place;
mod store;

pub use bench::{Bench, BenchClient, Flow, MESSAGE, Measured, Way, sum};
pub use store::{Entry, Kind, Place, Store, StoreClient, Stored};
