//! Where the two sides run.

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{panic, thread};

use super::Plan;

/// The cores of the two sides of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The side that measures; `None` where this system does not tell.
    pub client: Option<usize>,
    /// The side that answers.
    pub server: Option<usize>,
}

impl Cores {
    /// The first two cores that this process may use, or the only one twice.
    ///
    /// Looks at the main thread, so that a caller that has pinned itself is no hindrance.
    pub fn pick() -> Self {
        let Ok(set) = sched_getaffinity(Some(getpid())) else {
            return Self { client: None, server: None };
        };
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
        let client = allowed.next();
        Self { client, server: allowed.next().or(client) }
    }

    /// The cores that this process may use, but for the server's: for many clients.
    pub fn of_clients(&self) -> Vec<usize> {
        let Ok(set) = sched_getaffinity(Some(getpid())) else { return Vec::new() };
        let allowed = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
        allowed.filter(|core| Some(*core) != self.server).collect()
    }

    /// Both sides share one core: a side that spins must yield, and figures mean little.
    pub fn alone(&self) -> bool {
        match (self.client, self.server) {
            (Some(client), Some(server)) => client == server,
            _ => std::thread::available_parallelism().is_ok_and(|n| n.get() == 1),
        }
    }

    /// The placement in words, for the line that says how a limit was measured.
    pub fn describe(&self, sides: &str) -> String {
        match (self.client, self.server) {
            (Some(client), Some(server)) if client == server => {
                format!("two {sides} sharing core {client}, which yield to each other")
            }
            (Some(client), Some(server)) => {
                format!("two {sides} on cores {client} and {server}")
            }
            _ => format!("two {sides} wherever the system puts them"),
        }
    }
}

/// Keeps the calling thread on `core`; false where that is not to be had.
pub fn pin(core: Option<usize>) -> bool {
    let Some(core) = core.filter(|&core| core < CpuSet::MAX_CPU) else { return false };
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).is_ok()
}

/// Works on a thread of its own on the client's core: the caller's stays where it was.
///
/// A helper process started there dies with the thread, whatever happens.
pub fn on_client_core<T: Send>(plan: &Plan, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        pin(plan.cores.client);
        work()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|died| panic::resume_unwind(died)))
}
