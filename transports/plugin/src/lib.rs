//! Transports that are loaded at run time.
//!
//! The environment variable `PETASOS_TRANSPORTS` lists shared objects, by their whole paths or by
//! directories with files `libpetasos_transport_*.so`, separated by `:`. Each serves addresses of
//! its own scheme, beside the transports that the program has.
//!
//! # For authors
//!
//! Implement [`Medium`] and [`Transport`], and export the type by [`export!`]: the page of the
//! macro has the smallest one, `docs/writing-a-transport.md` walks through a useful one. Depend on
//! this crate with `default-features = false`; it has no dependencies then. In C, include
//! `petasos_transport.h`, which is in the folder `include` of this crate.
//!
//! # What crosses the border
//!
//! Packets, and nothing above them. The fabric's contract (messages, put and get, matching,
//! completion, leases, keys) is `petasos_fabric::two_sided` in the program, over the lines of the
//! plug-in. So a plug-in knows nothing of operations, holds no memory of the program beyond a call,
//! and is independent of the version of all that is above the packets: whoever writes one writes
//! ten functions. The price is one copy of each packet on each side, and no access to memory by the
//! network itself; [`table`] says how functions for that can be appended.
//!
//! * The program calls, the plug-in answers ([`table`]); nothing is called in the other direction.
//!   Panics of a plug-in end its endpoint, with an error; there are none to be caught in it.
//! * Each side frees what it has allocated: bytes go into room that the program provides.
//! * A plug-in is trusted as code of the process is, but not to be right: versions, sizes, texts,
//!   numbers and lengths are checked where they enter ([`load`], [`Foreign`]).
//!
//! # How endpoints meet
//!
//! [`Packets`] is the endpoint over any medium, of a plug-in or of a type in the program
//! ([`Packets::open`]). A pair has two lines, and each side sends on the one that it connected.
//! Each side says on it its address, and proves that it received what the other side said: so no
//! process can claim an address at which it does not listen, and it does not matter which side
//! connects first. With a secret ([`Prover`]) the proof includes that. Packets after it are as the
//! medium carries them, neither encrypted nor authenticated.

#![warn(clippy::missing_errors_doc)]

#[cfg(feature = "host")]
mod endpoint;
mod export;
#[cfg(feature = "host")]
mod foreign;
#[cfg(feature = "host")]
mod greeting;
#[cfg(feature = "host")]
mod load;
mod medium;
pub mod table;

#[cfg(feature = "host")]
pub use endpoint::{OpenError, Packets};
#[doc(hidden)]
pub use export::table_of;
#[cfg(feature = "host")]
pub use foreign::Foreign;
#[cfg(feature = "host")]
pub use greeting::{Hello, Prover};
#[cfg(feature = "host")]
pub use load::{Found, LoadError, Plugin, VARIABLE, listed, load};
#[cfg(feature = "host")]
pub use medium::Lent;
pub use medium::{
    ConnectError, MAX_PACKET, MIN_PACKET, Medium, Readiness, Received, Sent, Transport,
};
