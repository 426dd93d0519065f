//! The numbers of the provider.

use std::time::Duration;

/// Messages up to this length are copied into the fabric, and are complete at once; longer ones are
/// fetched by their receiver from where they lie. In bytes.
pub(crate) const EAGER: usize = 16 << 10;
/// What `fi_inject` and the like take, in bytes.
pub(crate) const INJECT: usize = 4 << 10;
/// Pieces of local memory in one operation.
pub(crate) const PIECES: usize = 8;
/// Long messages to one peer that have not been fetched.
pub(crate) const LONG: usize = 512;
/// Accesses to memory that wait for a key.
pub(crate) const WAITING: usize = 4096;
/// Answers to peers that ask for keys which wait for room.
pub(crate) const ANSWERS: usize = 4096;
/// Completions in a queue beyond which its endpoints take nothing in, unless it was opened for
/// more.
pub(crate) const QUEUED: usize = 65_536;
/// Messages for which no receive was posted that an endpoint copies, in bytes. What is beyond stays
/// in the fabric's leases, of which each peer has its share, and then with its sender.
pub(crate) const UNEXPECTED: usize = 256 << 20;
/// What `fi_info` says of the number of operations at a time.
pub(crate) const OPERATIONS: usize = 4096;
/// The least room in a buffer for several messages, unless the program sets it. In bytes.
pub(crate) const MIN_MULTI: usize = 64;

/// How long a peer that runs already is tried.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// After so long a key is asked for again.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long the end of an endpoint waits for what it has sent to arrive.
pub(crate) const FAREWELL: Duration = Duration::from_millis(500);
/// How long the end of an endpoint, or of a registration, waits for peers that use memory.
pub(crate) const LEAVE: Duration = Duration::from_secs(2);
