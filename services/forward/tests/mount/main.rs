//! The mount, with real servers and real programs. Each test has an export and mounts of its own,
//! in a private directory, and unmounts them whatever happens.

#![cfg(feature = "mount")]

mod calls;
mod corners;
mod databases;
mod ends;
mod full;
mod harness;
mod holes;
mod lengths;
mod model;
mod posix;
mod programs;
mod read_only;
mod sharing;
mod smoke;
mod users;
