//! Calls with bulk data between processes: the one crate to depend on
