//! The process to which a resource belongs.
//!
//! A child that was forked begins with copies of all that its parent has. Its copy of an endpoint
//! is not usable: the sockets, the shared memory and the objects of a library behind it are the
//! parent's. So code that would close connections, send what waits, or remove names when it is
//! dropped first checks whether it is in its [`Home`] process.

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// This process.
    #[must_use]
    pub fn current() -> Home {
        Home(std::process::id())
    }

    /// Whether this is that process, and not a child with a copy. Costs a system call.
    #[must_use]
    pub fn is_current(self) -> bool {
        self.0 == std::process::id()
    }
}
