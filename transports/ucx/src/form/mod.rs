//! The form of what UCX packs: addresses of workers, and keys of memory.
//!
//! UCX reads both from a pointer without a length. It goes from field to field by the lengths and
//! flags that it finds there, and takes numbers for indices of its tables. So whatever a peer said
//! is read here first, by the same grammar, and compared with what this library packed for this
//! endpoint: whatever steers UCX's way through the bytes has to be what it is in ours. What is left
//! to the peer is what UCX takes for a value: ids, ports, places in shared memory.
//!
//! The grammar is that of UCX 1.13 to 1.22 (`ucp/wireup/address.c`, `ucp/core/ucp_rkey.c`). What is
//! not said there is learned from our own: whether an address has an index for each transport, how
//! long the transports' addresses are, and all of the keys. A library whose own address has another
//! form is not used.

mod address;
mod bytes;
mod grammar;
mod key;
mod segment;

pub use address::AddressForm;
pub use key::KeyForm;

/// Zeroes behind what a peer said, which is checked before: for texts in it, and should UCX look
/// further all the same.
pub(crate) const SLACK: [u8; 512] = [0; 512];
