//! The fabric over shared memory of one node.
mod ring;
mod sync;
