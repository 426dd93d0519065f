//! The fabric over TCP
