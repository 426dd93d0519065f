//! A provider for libfabric: unmodified programs, those of MPI first, communicate by Petasos.
//! libfabric loads `libpetasos-fi.so` where `FI_PROVIDER_PATH` names its folder, and calls it the
//! provider `petasos`.
//!
//! # How it works
//!
//! An endpoint of libfabric (`FI_EP_RDM`) is one of the fabric, over shared memory in the node and
//! TCP between nodes. Two layers:
//!
//! * `face` is the border to C: tables of functions, objects, pointers that are checked and become
//!   slices. All `unsafe` is there.
//! * `state` is everything else: a domain's endpoints, queues, counters and address vectors, as one
//!   state machine behind one lock, which has no `unsafe`.
//!
//! A message is an unexpected message of the fabric, with a header that has its tag and its data;
//! the receiver matches it (`petasos-match`). Up to 16 KiB are sent at once. Longer messages stay
//! where they are, and are fetched by their receiver into the posted buffer: on a node by one copy
//! between the two processes.
//!
//! A key of libfabric is a number of 64 bits, and one of the fabric's is longer. So the first
//! access by a number asks its owner for the key. Then put, get and atomics are the fabric's own.
//!
//! # Threads and progress
//!
//! Any thread may call anything. Passes are made when a queue or counter is read, by a thread that
//! waits for one, or, in a domain that was opened with `FI_PROGRESS_AUTO`, by a thread of its own.
//!
//! # What is trusted
//!
//! The program, as any library trusts the one that calls it: pointers are checked for null, lengths
//! and objects for their kind, and no more can be. Peers are not: what they send is parsed once,
//! and what they can make grow is bounded (`limits`). They are authenticated as everywhere in
//! Petasos: in the node by the kernel, which knows their user, beyond by a secret, without which
//! there are no peers but those of the node. Memory that is registered is open to every peer that
//! knows, or guesses, its number.

mod face;
mod limits;
mod state;

pub use face::provider::fi_prov_ini;
