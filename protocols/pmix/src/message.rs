//! The messages between a client and the daemon of its node.

use crate::{
    event::{EventId, Range},
    names::{Group, Node, Proc},
    value::{BusinessCard, Entry, Info, Value},
};
use petasos_macros::Wire;
use std::time::Duration;

/// How long something stays published (PMIx Standard 4.1, section 3.4.24).
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Until it has been looked up once.
    FirstRead,
    /// Until the process that published it ends.
    Process,
    /// Until the last job ends.
    Session,
}

/// A value that a process publishes.
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Published {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// The processes that may look it up, as a range around the publisher.
    pub range: Range,
    /// How long it stays published.
    pub persistence: Persistence,
}

/// A request of a client to its daemon.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Request {
    /// The client is this process.
    Connect(Proc),
    /// The client is a tool, such as `petasos ps`.
    ConnectTool,
    /// Makes these entries of the process's business card visible.
    Commit(Vec<(String, Entry)>),
    /// Comes to a fence of a group, and waits for all of it.
    Fence {
        /// The processes; `None`: all of its job.
        group: Option<Group>,
        /// Whether to spread the business cards of all.
        collect: bool,
        /// How long to wait; `None`: as long as the daemon allows.
        timeout: Option<Duration>,
    },
    /// Gets the value that a process has put under a key.
    Get {
        /// The process; [`Proc::JOB`] for keys of the job.
        proc: Proc,
        /// The key; empty: everything that the process has put.
        key: String,
        /// How long to wait; `None`: as long as the daemon allows.
        timeout: Option<Duration>,
        /// Answer at once: what is not known on this node is not found.
        immediate: bool,
        /// Wait for the key even if the process has committed without it.
        wait: bool,
    },
    /// Publishes a value for others to look up.
    Publish(Published),
    /// Looks up published values.
    Lookup {
        /// The keys.
        keys: Vec<String>,
        /// How long to wait for keys that are not published; `None`: not at all.
        wait: Option<Duration>,
        /// How many of the keys are enough; 0: all.
        least: u32,
        /// Only what these processes have published, as a range around the asker.
        within: Range,
    },
    /// Removes what this process has published under these keys.
    Unpublish(Vec<String>),
    /// Queries the running jobs by these keys.
    Query(Vec<String>),
    /// Registers an event handler for these codes (none: a default handler).
    Register {
        /// The client's number for the handler.
        handler: u64,
        /// The codes.
        codes: Vec<i32>,
    },
    /// Removes the event handler of this number.
    Deregister(u64),
    /// Raises an event.
    Notify {
        /// The code.
        code: i32,
        /// The processes that are told.
        range: Range,
        /// Whether default handlers are left out.
        non_default: bool,
        /// Further information.
        info: Info,
    },
    /// Ends the job.
    Abort {
        /// The exit code of the job.
        status: i32,
        /// The reason.
        message: String,
    },
    /// The process is done.
    Finalize,
    /// From now on the client sends [`Request::Progress`] at least this often. If it does not, an
    /// event tells the others; `None`: it need not any more.
    Watch(Option<Duration>),
    /// The process makes progress.
    Progress,
    /// Starts a failed process again. The answer is how often its rank was started again: one more
    /// than `after`, however many ask.
    Restart {
        /// The process.
        proc: Proc,
        /// How often its rank had been started again before it failed; `None`: as the daemon knows.
        after: Option<u32>,
    },
    /// Starts the ranks of a lost node again on a spare one. The answer is the number of that node,
    /// however many ask.
    Replace(Node),
    /// Sends a signal to processes of the job that have not ended, and to what they have started.
    /// It is answered when the signal is on its way.
    Signal {
        /// The processes; `None`: all of its job.
        group: Option<Group>,
        /// The number of the signal, from 1 to 31.
        signal: i32,
    },
}

/// The answer of a daemon to its client.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Answer {
    /// The request is done.
    Done,
    /// The client is connected as this process, on this node.
    Welcome {
        /// The process.
        proc: Proc,
        /// The node. The client reads the job's data from the memory that all processes of the node
        /// share.
        node: Node,
        /// How often its rank was started again.
        restarts: u32,
    },
    /// The business card of a process, as far as this node may see it. The client keeps it.
    BusinessCard(BusinessCard),
    /// A value of job data.
    Value(Value),
    /// The values that were looked up, with the processes that published them.
    Found(Vec<(String, Value, Proc)>),
    /// The answer to a query.
    Info(Info),
    /// The name of the raised event.
    Notified(EventId),
}
