//! Other communication stacks, measured beside Petasos in the same run.
//!
//! A figure means little by itself: what a machine can do changes from one hour to the next. So the
//! bench measures these peers in turn with itself, in small rounds, on the same two cores:
//!
//! | peer | what it is | over | built with the feature |
//! |---|---|---|---|
//! | tonic | gRPC: HTTP/2 and protocol buffers | TCP, Unix sockets | `tonic` |
//! | tarpc | calls by serde | TCP, Unix sockets | `tarpc` |
//! | Cap'n Proto RPC | calls with promises and capabilities | TCP, Unix sockets | `capnp` |
//! | iceoryx2 | request-response in shared memory | shared memory | `iceoryx2` |
//! | `fi_pingpong` | libfabric's tagged messages, without calls | shared memory, TCP | always; a program |
//! | `ucx_perftest` | UCX's tagged messages, without calls | shared memory, TCP | always; a program |
//! | `hg_rate` | Mercury's calls | shared memory, TCP | always; a program |
//!
//! [`peers`] lists them. [`Peer::open`] starts the other side in a process of its own: this
//! executable, started again with the arguments in [`Setup::entry`], for which its `main` calls
//! [`serve`]. The two programs run as a whole for each measurement; where one is not installed,
//! opening says which package has it.
//!
//! Each peer is used as its documentation recommends for speed; how, and what was tried, is said in
//! the module of each. A call of a peer that is a crate carries `bytes` bytes there and the same
//! bytes back, and each answer is checked.
//!
//! Two pairs of modules know each other by design. What the asynchronous stacks have in common
//! chooses among them, as one executable has all; so does the other process, which is told what to
//! serve in words of the stack that started it.

#![forbid(unsafe_code)]

#[cfg(feature = "_async")]
mod asynchronous;
mod built_in;
#[cfg(feature = "capnp")]
mod capnp;
mod error;
mod fi_pingpong;
mod hg_rate;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
#[cfg(any(feature = "_async", feature = "iceoryx2"))]
mod payload;
mod peer;
mod process;
mod program;
#[cfg(feature = "tarpc")]
mod tarpc;
#[cfg(any(feature = "_async", feature = "iceoryx2"))]
mod timing;
#[cfg(feature = "tonic")]
mod tonic;
mod ucx_perftest;

/// Made by the Cap'n Proto compiler: see `schema/echo.capnp`.
#[cfg(feature = "capnp")]
#[path = "../schema/echo_capnp.rs"]
#[rustfmt::skip]
#[allow(clippy::all, missing_docs, unreachable_pub, unused)]
mod echo_capnp;

pub use built_in::peers;
pub use error::{Error, Unavailable};
pub use peer::{Peer, Session, Setup, Times, Transport, Waiting};
pub use process::serve;
