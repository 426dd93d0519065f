//! Loans: arrays of plain numbers that one side builds in memory of its transport, and the other
//! reads where they lie.
//!
//! An [`Array`] is its owner's. Its [`Loan`] is an argument or a result as any other; who gets it
//! borrows the array with [`Engine::borrow`](crate::Engine::borrow), and reads the [`Borrowed`] one
//! in place if the transport maps its owner's memory, or else a copy that was pulled.
//!
//! The owner may change the array at any time, also if it promised not to: no reference into it is
//! given out. A reader gets copies of parts, which fit the nearest cache, so that the array itself
//! is read once.

mod array;
mod borrowed;
mod number;

pub use array::{Array, Loan};
pub use borrowed::Borrowed;
pub use number::Number;
