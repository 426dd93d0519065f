//! Whole files and trees, in parallel.

mod remove;

pub use remove::remove_tree;
