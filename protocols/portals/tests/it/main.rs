//! Tests of what an interface does, in one program. Apart are those that need a process of their
//! own: `idle` (processor time) and `sockets` (descriptors); and `seeds`, which is run by its name
//! with more seeds.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod crowd;
mod edges;
mod ends;
mod foreign;
mod garbage;
mod model;
mod portals3;
mod rules;
mod rules3;
mod rules4;
mod thresholds;
