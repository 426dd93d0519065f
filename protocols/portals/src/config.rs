//! What can be set for an interface.

use std::time::Duration;

/// Settings of an interface; the defaults suit most.
#[derive(Clone, Debug)]
pub struct Config {
    /// The user whose name operations carry, which counts where the transport does not know better.
    /// Default: the user of this process.
    pub user: u32,
    /// The job whose name operations carry (Portals 3). Default: 0.
    pub job: u32,
    /// How many there can be of everything.
    pub limits: Limits,
    /// Data up to so many bytes travels with its header; longer data is moved when the target knows
    /// where it goes, with no copy in between. At most what the transport takes. Default: 16 KiB.
    pub eager: usize,
    /// Data longer than this is moved by the transport's own remote access, where it has that: by
    /// one copy, from memory that is lent for the time of the operation. Default: 16 KiB.
    pub lend_above: usize,
    /// Whether a user that only the other process names is believed: one that the transport does
    /// not know of. If not, such requests are of no user, and served only where entries, and access
    /// control, are for all. Default: yes.
    pub believe: bool,
    /// Whether the directory may get to know this process after the interface was opened: then
    /// nothing that others send is taken in before [`Interface::directory_changed`] has found it,
    /// and nothing of that is lost. Default: no.
    ///
    /// [`Interface::directory_changed`]: crate::Interface::directory_changed
    pub named_later: bool,
    /// How long a process that has not started yet is waited for. Default: 10 s.
    pub patience: Duration,
    /// What to do while there is nothing to do.
    pub idle: Idle,
    /// Messages taken in one pass. Default: 64.
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
            believe: true,
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
    /// Operations under way that were started here. Default: 65,536.
    pub operations: usize,
    /// Operations that wait for counters. Default: 65,536.
    pub triggered: usize,
    /// Bytes of an atomic operation. Default: 4096, or what the transport takes.
    pub atomic: usize,
    /// Bytes that wait because a peer does not read: one's own operations are refused beyond, and a
    /// peer that does not take its answers is cut off. Default: 64 MiB.
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

/// What an interface promises of its operations beyond what all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promises {
    /// Long double, real and complex, are types of elements.
    pub long_double: bool,
    /// Atomics of elements of up to eight bytes that are aligned are coherent with the processor's,
    /// as far as those of the transport are.
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

/// What a waiting thread, or the engine's, does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Look again at once: the lowest latency, a whole core.
    Spin,
    /// Look again for so long, then sleep until something comes.
    Adaptive(Duration),
    /// Sleep at once.
    Sleep,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle::Adaptive(Duration::from_micros(50))
    }
}

/// What an interface has counted: its status registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Requests that nothing matched, or for a portal that there is not. In Portals 3 all requests
    /// that were refused, whyever, and answers to nothing.
    pub dropped: u64,
    /// Requests that came to a disabled portal, or disabled it.
    pub disabled: u64,
    /// Requests that the user was not permitted.
    pub permission_violations: u64,
    /// Requests that the matching entry does not let be done.
    pub operation_violations: u64,
    /// Frames that were not understood, and answers to nothing (of the latter see `dropped`, too).
    pub garbage: u64,
    /// Frames of processes that are not in the directory.
    pub strangers: u64,
    /// Peers that were cut off because they took no answers.
    pub cut_off: u64,
    /// Triggered operations that could not be started.
    pub misfired: u64,
    /// Operations of this process under way now.
    pub operations: u64,
    /// Entries now.
    pub entries: u64,
    /// Unexpected headers now.
    pub headers: u64,
    /// Peers about which something is kept now: those with a connection.
    pub peers: u64,
}
