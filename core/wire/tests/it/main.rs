//! Round trips and layouts of the encodings. What counts allocations is in `hostile`.

mod derived;
mod xdr;
mod zoo;
