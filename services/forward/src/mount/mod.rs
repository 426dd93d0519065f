//! An export as a file system, through FUSE.
//!
//! It has five threads. The dispatcher takes the kernel's requests and never waits. The engine's
//! thread has a future for each request, which asks the server and answers the kernel. A third one
//! notifies the kernel of what to invalidate; the engine's thread cannot, for the kernel may have
//! to wait for an answer of that thread first. A fourth one has the kernel ask how long a file is,
//! as a program would. The last one is the timer.
//!
//! What is kept where, and for how long:
//!
//! * The kernel keeps attributes and names for [`MountOptions::attr_timeout`], and pages of files
//!   as long as no other client changes them. At each opening the server is asked: what it has now
//!   is seen from then on, exactly. So what was closed on one machine is seen at the next opening
//!   on another.
//! * A write is answered when its data is here. The data is sent on within moments, in blocks where
//!   there is much of it ([`MountOptions::write_behind`] bounds how much). It is at the server when
//!   `close`, `fsync` or the release of a lock returns; `fsync` puts it onto the disk there. Errors
//!   are reported by the next write, `fsync`, or `close`.
//! * The kernel's own cache of written data is not used: with it, the kernel trusts its own
//!   length of a file, forever, and would never see that another client changed it.
//! * Locks of `fcntl` and `flock` are the server's. A process that gets one sees what was written
//!   before it was given up elsewhere.
//!
//! The file system is one `Fs` on the engine's thread. `dirs`, `files`, `read_ahead` and
//! `write_back` have its operations on what they are named for, each with the state of that. `Fs`
//! owns the states, and the operations call each other: these parts know each other by design.
//!
//! When the server is lost, requests fail in bounded time: those of open files with `EIO`, and
//! these files stay unusable; others with `ENOTCONN`, until the server is there again, which is
//! looked for with each request.

mod attach;
mod connection;
mod convert;
mod dirs;
mod dispatcher;
mod error;
mod files;
mod fs;
mod locks;
mod mountinfo;
mod notify;
mod options;
mod pool;
mod read_ahead;
mod refresh;
mod request_queue;
mod session;
mod table;
mod tasks;
mod trim;
mod write_back;
mod xattrs;

pub use attach::{is_dead, recover, recover_by, silent, take_away};
pub use error::MountError;
pub use fs::MountUsage;
pub use mountinfo::{MountId, is_mounted, mounted_on};
pub use options::{Cache, MountOptions};
pub use session::{Mounted, Unmounted};
