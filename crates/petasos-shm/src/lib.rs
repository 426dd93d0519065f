//! The fabric over shared memory of one node
