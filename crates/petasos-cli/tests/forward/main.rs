//! `petasos forward`, with real processes.

#[path = "../common/mod.rs"]
mod common;
mod commands;
mod export;
mod interrupted;
mod tree;
mod whole;
