//! What the command's servers answer: ping and measurements ([`Bench`]), and files ([`Store`]).

mod bench;
mod place;
mod store;

pub(crate) use bench::{Bench, BenchClient, MESSAGE, Measured, Way};
pub(crate) use store::{Entry, Kind, Place, Store, StoreClient, Stored};
