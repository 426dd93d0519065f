//! Settings of an interface, its limits, and what it has counted.

use std::time::Duration;

/// Settings of an interface; the defaults suit most.
///
/// ```
/// use petasos_portals::{Config, Idle, Limits};
///
/// // A process with a core of its own for communication, and few entries.
/// let limits = Limits { entries: 1000, ..Limits::default() };
/// let config = Config { idle: Idle::Spin, limits, ..Config::default() };
/// assert_eq!(config.eager, 16 << 10);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The user that requests name. It counts where the transport does not vouch for one. Default:
    /// the user of this process.
    pub user: u32,
    /// The job that requests name (Portals 3). Default: 0.
    pub job: u32,
    /// How many there can be of everything: see there.
    pub limits: Limits,
    /// Data up to so many bytes travels with its header; longer data is moved once it was matched,
    /// without a copy in between. At most what the transport can inject. Default: 16 KiB.
    pub eager: usize,
    /// Data of more bytes than this is moved by the transport's own remote access, if it has that:
    /// by one copy, from memory that is lent for the time of the operation. Default: 16 KiB.
    pub lend_above: usize,
    /// Whether the user that a request names is trusted, where the transport vouches for none. If
    /// not, such requests are of no user, and are served only where entries and access control are
    /// for all. Default: yes.
    pub trust_claimed_user: bool,
    /// Whether the directory may learn of this process after the interface was opened: then no
    /// message is taken in before [`Interface::directory_changed`] has found it, and none is lost.
    /// Default: no.
    ///
    /// [`Interface::directory_changed`]: crate::Interface::directory_changed
    pub named_later: bool,
    /// How long a process that has not started yet is waited for. Default: 10 s.
    pub patience: Duration,
    /// How a thread waits. Default: polls for 50 µs, then sleeps.
    pub idle: Idle,
    /// Messages and events that one pass takes in at most. Default: 64.
    pub budget: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            user: rustix::process::geteuid().as_raw(),
            job: 0,
            limits: Limits::default(),
            eager: 16 << 10,
            lend_above: 16 << 10,
            trust_claimed_user: true,
            named_later: false,
            patience: Duration::from_secs(10),
            idle: Idle::default(),
            budget: 64,
        }
    }
}

/// How many there can be of everything in one interface.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Portals. Default: 64.
    pub portals: u16,
    /// Entries in all lists. Default: 1,048,576.
    pub entries: usize,
    /// Entries in one list. Default: as many as in all.
    pub list: usize,
    /// Unexpected headers. Default: 1,048,576.
    pub headers: usize,
    /// Memory descriptors. Default: 65,536.
    pub descriptors: usize,
    /// Event queues. Default: 1024.
    pub queues: usize,
    /// Counters. Default: 65,536.
    pub counters: usize,
    /// Operations of this process that have not ended. Default: 65,536.
    pub operations: usize,
    /// Actions that wait for counters. Default: 65,536.
    pub triggered: usize,
    /// Bytes of an atomic operation or a get-put. Default: 4096, or what the transport can inject.
    pub atomic: usize,
    /// Bytes that wait for a peer that does not take them: beyond, operations to it are refused,
    /// and at one and a half times this it is cut off. Default: 64 MiB.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            portals: 64,
            entries: 1 << 20,
            list: usize::MAX,
            headers: 1 << 20,
            descriptors: 1 << 16,
            queues: 1024,
            counters: 1 << 16,
            operations: 1 << 16,
            triggered: 1 << 16,
            atomic: 4096,
            waiting: 64 << 20,
        }
    }
}

/// What an interface promises of its operations beyond the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promises {
    /// Long double, real and complex, are types of elements.
    pub long_double: bool,
    /// Atomics of aligned elements of up to eight bytes are coherent with the processor's, as far
    /// as those of the transport are.
    pub coherent_atomics: bool,
    /// Operations of up to so many bytes between two processes change and read memory in the order
    /// in which they were started.
    pub ordered: u64,
    /// The data of operations of up to so many bytes may be changed as soon as they were started.
    pub volatile: u64,
}

impl Default for Promises {
    fn default() -> Promises {
        Promises { long_double: false, coherent_atomics: true, ordered: 0, volatile: 0 }
    }
}

/// What a waiting thread, or the engine's, does while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Polls: the lowest latency, and a whole core.
    Spin,
    /// Polls for so long, then sleeps until something comes.
    Adaptive(Duration),
    /// Sleeps at once.
    Sleep,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle::Adaptive(Duration::from_micros(50))
    }
}

/// What an interface has counted since it was opened, and what there is now: its status registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Requests that no entry matched, or for a portal that is not open. In Portals 3 all requests
    /// that were refused, for whatever reason, and answers to nothing.
    pub dropped: u64,
    /// Requests that came to a disabled portal, or that disabled it.
    pub disabled: u64,
    /// Requests that matched an entry for another user.
    pub permission_violations: u64,
    /// Requests that matched an entry which does not allow the operation.
    pub operation_violations: u64,
    /// Frames without a meaning, and, but for Portals 3, answers to nothing.
    pub garbage: u64,
    /// Frames of endpoints that the directory does not know.
    pub unknown_endpoints: u64,
    /// Peers that were cut off because they took no answers.
    pub cut_off: u64,
    /// Triggered operations that could not be started.
    pub misfired: u64,
    /// Operations of this process that have not ended now.
    pub operations: u64,
    /// Entries now.
    pub entries: u64,
    /// Unexpected headers now.
    pub headers: u64,
    /// Peers of which something is kept now: those with a connection.
    pub peers: u64,
}
