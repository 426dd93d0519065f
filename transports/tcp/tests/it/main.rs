//! Endpoints over TCP that run in the process of the tests.

mod attacks;
mod idle;
mod open;
mod senders;
