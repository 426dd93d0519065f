//! An export as a file system, through FUSE.
//!
//! Five threads do it. One takes the kernel's requests and does not wait for anything; the engine's
//! thread has a future for each, which asks the server and answers the kernel; one tells the
//! kernel what to give up, which the engine's thread cannot, for the kernel may have to wait for an
//! answer of its own first, and one has the kernel ask how long a file is, as a program would. The last
//! one knows what is to be done later.
//!
//! What is kept where, and for how long:
//!
//! * The kernel keeps attributes and names for [`MountOptions::attr_timeout`], and pages of files as
//!   long as no other client changes them. At each opening the server is asked: what it has now is seen
//!   from then on, exactly. So what was closed on one machine is seen at the next opening on another.
//! * What is written is answered when it is here, and sent on within moments, by blocks where there is
//!   much ([`MountOptions::write_behind`] bounds how much that is). It is at the server when `close`, `fsync` or the release of a lock
//!   returns; `fsync` puts it onto the disk there. Errors are told by the next write, `fsync`, or
//!   `close`.
//! * The kernel's own cache of written data is not used: with it, the kernel takes its own word for
//!   the length of a file, forever, and would never see that another client changed it.
//! * Locks of `fcntl` and `flock` are the server's. A process that gets one sees what was written
//!   before it was given up elsewhere.
//!
//! When the server is lost, requests fail in bounded time: those of open files with `EIO`, and these
//! files stay unusable; others with `ENOTCONN`, until the server is there again, which is looked for
//! with each request.

mod ahead;
mod ask;
mod attach;
mod behind;
mod convert;
mod dirs;
mod error;
mod files;
mod front;
mod fs;
mod intake;
mod link;
mod locks;
mod mountinfo;
mod options;
mod pool;
mod rest;
mod session;
mod table;
mod tell;
mod xattrs;

pub use attach::{is_dead, recover, recover_by, silent, take_away};
pub use error::MountError;
pub use mountinfo::{MountId, is_mounted, mounted_on};
pub use options::{Cache, MountOptions};
pub use session::{Kept, Mounted, Unmounted};
