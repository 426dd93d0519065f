//! Mercury 2.4's interface for programs of C: `libmercury.so.2` with its headers, over the fabric.
//! How a program is built and started is in `docs/mercury.md`.
//!
//! # How it works
//!
//! * `face` is the border to C: the functions of the headers, which check pointers and numbers. A
//!   panic ends there, as `HG_FAULT`. `util` is the same for `mercury_util`.
//! * `class` has classes and contexts. A class is an endpoint; contexts are queues of it.
//! * `engine` is the driven part of a class: calls that wait for a response, transfers, memory that
//!   is open. It is behind one lock, and driven by whichever thread makes progress
//!   (`petasos_fabric::driver`).
//! * `queue` is what a context has to call back; `trigger` does that, without any lock.
//! * `handle`, `address`, `bulk` and `proc` are what programs hold. Their first parts have the
//!   layout of the headers, whose inline functions read and write them.
//! * `wire` is what precedes a payload. A request has the number of its entry in the table of its
//!   origin; the response has it, too, and is taken if it comes from the peer that was asked.
//!
//! Input or output that is longer than a message travels as the body of a long message, which the
//! other side fetches. Bulk data is put and get on the memory of the origin, by a key that travels
//! in the descriptor.
//!
//! # What is trusted
//!
//! The program: pointers are checked for null, not for what is behind. Peers are not: messages and
//! descriptors are parsed once, with bounds, and what a peer may have here is a number in `engine`.
//! How far a key protects memory is the transport's to say (`petasos_fabric::Enforcement`).

// Names of C.
#![allow(non_snake_case, non_camel_case_types)]
#![allow(clippy::too_many_arguments, reason = "as Mercury has them")]

mod abi;
mod address;
mod bulk;
mod class;
mod engine;
mod face;
mod handle;
mod log;
mod names;
mod proc;
mod queue;
mod quick;
mod trigger;
mod util;
mod wire;
