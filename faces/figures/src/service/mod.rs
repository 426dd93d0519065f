//! What the command's servers answer beside files: ping and measurements ([`Bench`]).

mod bench;

pub use bench::{Bench, BenchClient, Flow, MESSAGE, Measured, Way, sum};
