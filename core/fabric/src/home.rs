//! The process to which a resource belongs.
//!
//! A child that was forked begins with copies of all that its parent has. Its copy of an endpoint
//! is not usable: the sockets, the shared memory and the objects of a library behind it are the
//! parent's. So code that would close connections, send what waits, or remove names when it is
//! dropped first checks whether it runs in its [`Home`] process.

/// The process in which something was made.
///
/// ```
/// use petasos_fabric::Home;
///
/// struct Session {
///     home: Home,
/// }
///
/// impl Drop for Session {
///     fn drop(&mut self) {
///         // A forked child's copy must not end the session of its parent.
///         if self.home.is_current() {
///             println!("the session ends");
///         }
///     }
/// }
///
/// drop(Session { home: Home::current() });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// The process that calls this.
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
