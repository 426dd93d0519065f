//! Loans: arrays of plain numbers that one side builds in memory of its transport, and the other
//! reads where they lie.
//!
//! An [`Array`] is its owner's. Its [`Loan`] is an argument or a result as any other; who gets it
//! borrows the array with [`Engine::borrow`](crate::Engine::borrow), and reads the [`Borrowed`] one
//! in place if the transport maps its owner's memory, or else a copy that was pulled.
//!
//! An array that was made for one caller is *given* to it ([`Array::give`]): the engine keeps it
//! until that says that it is done ([`Engine::give_back`](crate::Engine::give_back)), is lost, or a
//! time is over. So neither a reader that is killed nor one that is stopped costs the owner its
//! memory.
//!
//! The owner may change the array at any time, also if it promised not to: no reference into it is
//! given out. A reader gets copies of parts, which fit the nearest cache, so that the array itself
//! is read once.

mod array;
mod borrowed;
mod given;
mod number;

pub use array::{Array, Loan};
pub use borrowed::Borrowed;
pub(crate) use given::Given;
pub use number::Number;
