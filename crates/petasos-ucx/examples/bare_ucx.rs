//! A message of 64 bytes there and back, and puts of a megabyte: by UCX alone, and by the contract over it, in turns in
//! one run.
//!
//! `cargo run --release -p petasos-ucx --example bare_ucx -- ucx+posix 5` (the kind of address, and how many turns).

fn main() -> Result<(), Box<dyn std::error::Error>> {
    petasos_datagram::bare::compare::main::<petasos_ucx::Net>("UCX", "ucx+posix")
}
