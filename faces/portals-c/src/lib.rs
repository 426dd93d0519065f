//! Portals 4.3 for programs of C: `libportals.so.4` with `portals4.h`, over `petasos-portals`. How
//! a program is built and started is in `docs/portals-c.md`.
//!
//! # How it works
//!
//! * `face` is the border to C: the functions of the header, which check pointers, handles and
//!   numbers, and call the crate's interface. A panic ends there, as `PTL_FAIL`.
//! * `interface` has the interfaces of the process: at most four, one of each combination of
//!   matching and naming, each with an endpoint and an engine's thread of its own, so that a
//!   process that computes answers.
//! * `handle` makes 32 bits of the crate's handles, and recognises those that are stale, of another
//!   kind, or of an interface that was ended.
//! * `place` computes addresses: node and process number give that of the endpoint. So nothing is
//!   exchanged but what programs exchange themselves, the physical ids, and nothing is kept of
//!   processes without a connection. `directory` is what the crate asks.
//! * `job` is the job of a process, for programs that do not speak with their launcher themselves
//!   (`portals4_job.h`).
//!
//! A call holds the lock of its interface for reading, which stops nothing but the interface's end;
//! a wait holds a share of the interface instead, and ends with it.
//!
//! # What is trusted
//!
//! The program: pointers are checked for null and alignment, handles and numbers for what they can
//! be. Peers are not: what they send is parsed once, by the crate; on a node they are of the same
//! user, as the kernel says, and beyond they know the secret. Memory of an entry is open to them as
//! the entry says. For an entry with all memory of the process the kernel copies, so that a bad
//! address is `PTL_NI_SEGV` at the initiator, and harms nothing here.

// Names of C.
#![allow(non_snake_case, non_camel_case_types)]
#![allow(clippy::too_many_arguments, reason = "as the specification has them")]

mod abi;
mod directory;
mod face;
mod handle;
mod interface;
mod job;
mod place;
