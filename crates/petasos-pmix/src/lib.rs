//! Launch, wire-up and events of parallel jobs.

#![forbid(unsafe_code)]

pub mod chain;
pub mod engine;
mod error;
pub mod event;
pub mod job;
pub mod message;
mod names;
pub mod status;
mod value;

pub use error::{Error, Gone};
pub use names::{Group, JobId, Missing, Node, Proc, Span};
pub use value::{Card, Entry, Info, MAX_KEY, MAX_VALUE, RESERVED, Scope, Value};
