//! What daemons say to each other, and what clients ask of theirs.

use crate::{
    error::{Error, Termination},
    event::{Event, EventId, Range},
    inventory::{Inventory, RoundTrip},
    names::{Group, Missing, Node, Proc},
    value::{BusinessCard, Entry, Info, Value},
};
use petasos_macros::Wire;
use std::time::Duration;

/// From daemon to daemon.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Message {
    /// About a fence: the `nth` of this group.
    Fence {
        /// The processes that take part.
        group: Group,
        /// After the how manieth replacement of a node, of those of the group: fences are counted
        /// anew with each.
        replaced: u32,
        /// The how manieth of the group.
        nth: u64,
        /// What.
        step: FenceStep,
    },
    /// Asks the daemon of a process for its card.
    CardAsk {
        /// Comes back in the answer.
        id: u64,
        /// Of which process.
        proc: Proc,
        /// Of which of the processes of its rank, at least: how often that was started again.
        restarts: u32,
        /// How many replacements of nodes are known to the asker.
        replaced: u32,
        /// The key that is wanted of it.
        key: String,
        /// Whether to wait for the key beyond the first commit.
        wait: bool,
        /// How long to keep the question.
        patience: Duration,
    },
    /// The answer.
    CardAnswer {
        /// Of the question.
        id: u64,
        /// All that may be seen, whatever key was asked for.
        result: Result<BusinessCard, Error>,
    },
    /// Asks the head node, or (queries) a node.
    Ask {
        /// Comes back in the answer.
        id: u64,
        /// On behalf of which process.
        asker: Proc,
        /// What.
        what: ControllerRequest,
    },
    /// The answer.
    Answer {
        /// Of the question.
        id: u64,
        /// What came of it.
        result: Result<Answer, Error>,
    },
    /// An event; handed on if it is for all nodes.
    Event {
        /// The event.
        event: Event,
        /// Whether it is for all nodes.
        all: bool,
    },
    /// To the head node: a process of this node wants an environment event, or none does any more.
    Interest {
        /// Which.
        code: i32,
        /// Whether it is wanted.
        wanted: bool,
    },
    /// These nodes are lost; handed on.
    Lost(Vec<Node>),
    /// This process is gone, not as it should be; handed on.
    Termination {
        /// The process.
        proc: Proc,
        /// How often its rank had been started again by then.
        restarts: u32,
        /// What became of it.
        why: Termination,
    },
    /// From the head node: this process is started again in place of one that is gone; handed on.
    Restarted {
        /// The process.
        proc: Proc,
        /// How often its rank has been by now.
        restarts: u32,
    },
    /// From the head node: a node takes the place of another; handed on.
    Replaced(Box<Replacement>),
    /// To the head node: a process of this node has connected. From the head node, handed on:
    /// somewhere one has, so that all must.
    Wired,
    /// To the head node: these never connected.
    NeverConnected(Missing),
    /// To the head node: this process is gone, and what it published goes with it.
    Release(Proc),
    /// To the head node: what this node has, now.
    Inventory(Box<Inventory>),
    /// From the head node: how long do messages to other nodes take?
    MeasureLinks,
    /// To the head node: so long.
    Links(Vec<RoundTrip>),
    /// Goes there, and back at once.
    Echo {
        /// Comes back as it is.
        id: u64,
        /// Whether it is on its way back.
        back: bool,
    },
    /// From the head node: those of these processes that are there get this signal.
    Signal {
        /// The process.
        group: Group,
        /// By its number.
        signal: i32,
    },
}

/// A node that is lost, and another that has its ranks from now on.
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Replacement {
    /// The how manieth of all, from 1 on.
    pub number: u32,
    /// Which is lost.
    pub node: Node,
    /// Which has its ranks.
    pub by: Node,
    /// Those that are started again there, each with how often its rank has been by then.
    pub again: Vec<(Proc, u32)>,
    /// Those that had ended before, with how often their ranks had been started again by then, and
    /// how they ended.
    pub ended: Vec<(Proc, u32, Termination)>,
}

/// A step of a fence. The nodes that take part form a tree.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum FenceStep {
    /// To the parent: all of this part of the tree have come, with these cards.
    Up(Vec<(Proc, BusinessCard)>),
    /// To the children: it is over.
    Down(Result<Vec<(Proc, BusinessCard)>, Error>),
    /// To the root: it cannot succeed.
    Fail(Error),
    /// To the root: the time of a process is over.
    Late,
    /// To the children: which processes are missing?
    Count,
    /// To the parent: these are.
    Missing(Missing),
    /// To a node whose processes may be gone: does one of them lack here?
    Check,
}

/// What the head node does for all.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum ControllerRequest {
    /// See [`Request::Publish`].
    Publish(Published),
    /// See [`Request::Lookup`].
    Lookup {
        /// Which.
        keys: Vec<String>,
        /// How long to wait for those that are not there.
        wait: Option<Duration>,
        /// How many of them are waited for; 0: all.
        least: u32,
        /// Only what one of these has published, seen from the asker.
        within: Range,
    },
    /// See [`Request::Unpublish`].
    Unpublish(Vec<String>),
    /// See [`Request::Query`].
    Query(Vec<String>),
    /// What a node knows of its processes.
    Processes,
    /// See [`Request::Abort`].
    Abort {
        /// The code that the job ends with.
        status: i32,
        /// Why.
        message: String,
    },
    /// See [`Request::Restart`].
    Restart {
        /// The process that is gone.
        proc: Proc,
        /// How often its rank had been started again by then.
        after: u32,
    },
    /// See [`Request::Replace`].
    Replace(Node),
    /// See [`Request::Signal`].
    Signal {
        /// The process.
        group: Group,
        /// By its number.
        signal: i32,
    },
}

/// How long something stays published (PMIx Standard 4.1, section 3.4.24).
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Until it was looked up once.
    FirstRead,
    /// Until the process that published it ends.
    Process,
    /// As long as anything runs.
    Session,
}

/// What a process publishes.
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Published {
    /// Under which key.
    pub key: String,
    /// What.
    pub value: Value,
    /// The processes that may look it up, in terms of events' ranges.
    pub range: Range,
    /// For how long.
    pub persistence: Persistence,
}

/// From a client to its daemon.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Request {
    /// It is this process.
    Connect(Proc),
    /// It is a command that looks on.
    ConnectTool,
    /// What it has put is to be seen.
    Commit(Vec<(String, Entry)>),
    /// It waits for all of a group to come.
    Fence {
        /// The processes; `None`: all of its job.
        group: Option<Group>,
        /// Whether all cards are to be spread.
        collect: bool,
        /// How long it waits; `None`: as long as the daemon allows.
        timeout: Option<Duration>,
    },
    /// It wants a key of a process.
    Get {
        /// Of which process; [`Proc::JOB`] for keys of the job.
        proc: Proc,
        /// Which; the empty one: all that it has put.
        key: String,
        /// How long it waits; `None`: as long as the daemon allows.
        timeout: Option<Duration>,
        /// What is not known here at once is not found.
        immediate: bool,
        /// It waits for the key, even if the process has committed without it.
        wait: bool,
    },
    /// Publishes a value for others to look up.
    Publish(Published),
    /// Looks up what was published.
    Lookup {
        /// Which.
        keys: Vec<String>,
        /// How long to wait for those that are not there; `None`: not at all.
        wait: Option<Duration>,
        /// How many of them are waited for; 0: all.
        least: u32,
        /// Only what one of these has published, seen from the asker.
        within: Range,
    },
    /// Takes back what it published.
    Unpublish(Vec<String>),
    /// Asks about the running jobs.
    Query(Vec<String>),
    /// It has an event handler, for these codes (none: a default handler).
    Register {
        /// Its name for the handler.
        handler: u64,
        /// For which events.
        codes: Vec<i32>,
    },
    /// It has no longer.
    Deregister(u64),
    /// Something happened.
    Notify {
        /// What.
        code: i32,
        /// The processes that are told.
        range: Range,
        /// Whether default handlers are left out.
        non_default: bool,
        /// More about it.
        info: Info,
    },
    /// The job is to end.
    Abort {
        /// With which code.
        status: i32,
        /// Why.
        message: String,
    },
    /// It is done.
    Finalize,
    /// From now on it says [`Request::Progress`] at least this often, or an event tells the others
    /// that it does not; `None`: no longer.
    Watch(Option<Duration>),
    /// It makes progress.
    Progress,
    /// A process that failed is to be started again. The answer is how often its rank has been,
    /// which is one more than `after`, however many ask.
    Restart {
        /// The process.
        proc: Proc,
        /// How often its rank had been started again when it failed; `None`: as the daemon knows.
        after: Option<u32>,
    },
    /// The ranks of a node that is lost are to be started again on a spare one. The answer is that
    /// one's number, however many ask.
    Replace(Node),
    /// Processes of its job are to get a signal, those of them that have not ended, with what they
    /// have started. It is done when the signal is on its way.
    Signal {
        /// The processes; `None`: all of its job.
        group: Option<Group>,
        /// By its number, from 1 to 31.
        signal: i32,
    },
}

/// From the daemon to its client.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The client is known, as this process on this node.
    Welcome {
        /// Which process it is.
        proc: Proc,
        /// Where. What its job is like, it has read before from what all processes of the node
        /// share.
        node: Node,
        /// How often its rank was started again.
        restarts: u32,
    },
    /// The card of a process, as far as it may be seen: kept by the client.
    BusinessCard(BusinessCard),
    /// A value of job data.
    Value(Value),
    /// What was looked up, with the process that published it.
    Found(Vec<(String, Value, Proc)>),
    /// What was queried.
    Info(Info),
    /// The event has this name.
    Notified(EventId),
}
