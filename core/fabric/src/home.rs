//! Which process something belongs to.
//!
//! A child that was forked begins with copies of all that its parent has. Its copy of an endpoint
//! is not one: the sockets, the shared memory and the objects of a library behind it are the
//! parent's. So what would say good-bye to peers, send what waits, or remove names when it is
//! dropped looks first whether it is at [`Home`].

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// This process.
    #[must_use]
    pub fn here() -> Home {
        Home(std::process::id())
    }

    /// Whether this is that process, and not a child with a copy. Costs a system call.
    #[must_use]
    pub fn is_here(self) -> bool {
        self.0 == std::process::id()
    }
}
