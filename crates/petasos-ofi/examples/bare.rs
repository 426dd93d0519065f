//! A message of 64 bytes there and back, and puts of a megabyte: by libfabric alone, and by the contract over it, in
//! turns in one run.
//!
//! `cargo run --release -p petasos-ofi --example bare -- ofi+shm 5` (the kind of address, and how many turns).

fn main() -> Result<(), Box<dyn std::error::Error>> {
    petasos_datagram::bare::compare::main::<petasos_ofi::Net>("libfabric", "ofi+shm")
}
