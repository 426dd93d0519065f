//! `petasos forward`, with real processes.

mod claims;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod export;
mod file_limit;
mod full_scale;
mod interrupted;
mod mounting;
mod reach;
mod relay;
mod retry;
mod storm;
mod tree;
mod whole;
