//! The messages between daemons.

use crate::inventory::{Inventory, RoundTrip};
use petasos_macros::Wire;
use petasos_pmix::{
    BusinessCard, Error, Group, Missing, Node, Proc, Termination,
    event::{Event, Range},
    message::{Answer, Published},
};
use std::time::Duration;

/// A message from one daemon to another.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Message {
    /// A step of a fence.
    Fence {
        /// The processes that take part.
        group: Group,
        /// The number of the last replacement of a node of the group. Fences are counted anew with
        /// each.
        replaced: u32,
        /// The number of the fence among those of the group, from 0.
        nth: u64,
        /// The step.
        step: FenceStep,
    },
    /// Asks the daemon of a process for its business card.
    CardAsk {
        /// The number of the question, which the answer repeats.
        id: u64,
        /// The process.
        proc: Proc,
        /// The least number of restarts of the rank before the process that is meant.
        restarts: u32,
        /// How many replacements of nodes the asker knows of.
        replaced: u32,
        /// The wanted key.
        key: String,
        /// Whether to wait for the key beyond the first commit.
        wait: bool,
        /// How long to keep the question.
        patience: Duration,
    },
    /// The answer to a [`Message::CardAsk`].
    CardAnswer {
        /// The number of the question.
        id: u64,
        /// Everything that the asker's node may see, whatever the key.
        result: Result<BusinessCard, Error>,
    },
    /// A question for the head node or, in a query, for any node.
    Ask {
        /// The number of the question, which the answer repeats.
        id: u64,
        /// The process that asks.
        asker: Proc,
        /// The question.
        what: ControllerRequest,
    },
    /// The answer to a [`Message::Ask`].
    Answer {
        /// The number of the question.
        id: u64,
        /// The outcome.
        result: Result<Answer, Error>,
    },
    /// An event; forwarded if it is for all nodes.
    Event {
        /// The event.
        event: Event,
        /// Whether it is for all nodes.
        all: bool,
    },
    /// To the head node: a process of this node wants an environment event, or none wants it any
    /// more.
    Interest {
        /// The code of the event.
        code: i32,
        /// Whether it is wanted.
        wanted: bool,
    },
    /// These nodes are lost; forwarded.
    Lost(Vec<Node>),
    /// This process has failed; forwarded.
    Termination {
        /// The process.
        proc: Proc,
        /// How often its rank had been started again before it.
        restarts: u32,
        /// How it ended.
        why: Termination,
    },
    /// From the head node: this process is started again in place of one that failed; forwarded.
    Restarted {
        /// The process.
        proc: Proc,
        /// How often its rank was started again, this time included.
        restarts: u32,
    },
    /// From the head node: a node takes the place of another; forwarded.
    Replaced(Box<Replacement>),
    /// To the head node: a process of this node has connected. From the head node, forwarded: one
    /// has somewhere, so all must.
    Wired,
    /// To the head node: these never connected.
    NeverConnected(Missing),
    /// To the head node: this process has ended. What it published for its lifetime is dropped.
    Release(Proc),
    /// To the head node: what this node has.
    Inventory(Box<Inventory>),
    /// From the head node: measure how long messages to other nodes take.
    MeasureLinks,
    /// To the head node: the measured times.
    Links(Vec<RoundTrip>),
    /// A message that the other node returns at once.
    Echo {
        /// The number of the exchange.
        id: u64,
        /// Whether it is the returned one.
        back: bool,
    },
    /// From the head node: the processes of this group on the receiving node get a signal.
    Signal {
        /// The group.
        group: Group,
        /// The number of the signal.
        signal: i32,
    },
}

/// A lost node, and the node that has its ranks from now on.
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Replacement {
    /// The number of the replacement, from 1.
    pub number: u32,
    /// The lost node.
    pub node: Node,
    /// The node that has its ranks.
    pub by: Node,
    /// The processes that are started again, each with the number of restarts of its rank, this
    /// time included.
    pub again: Vec<(Proc, u32)>,
    /// The processes that had ended before, with the number of restarts of their ranks by then, and
    /// how they ended.
    pub ended: Vec<(Proc, u32, Termination)>,
}

/// A step of a fence. The nodes that take part form a tree.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum FenceStep {
    /// To the parent: all of this part of the tree have come, with their business cards.
    Up(Vec<(Proc, BusinessCard)>),
    /// To the children: the fence is over.
    Down(Result<Vec<(Proc, BusinessCard)>, Error>),
    /// To the root: the fence cannot succeed.
    Fail(Error),
    /// To the root: the time of a process is over.
    Late,
    /// To the children: which processes are missing?
    Count,
    /// To the parent: these are missing.
    Missing(Missing),
    /// To a node whose processes may have ended: does the fence lack one of them?
    Check,
}

/// A request to the head node, on behalf of a client.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum ControllerRequest {
    /// See [`Request::Publish`](petasos_pmix::message::Request::Publish).
    Publish(Published),
    /// See [`Request::Lookup`](petasos_pmix::message::Request::Lookup).
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
    /// See [`Request::Unpublish`](petasos_pmix::message::Request::Unpublish).
    Unpublish(Vec<String>),
    /// See [`Request::Query`](petasos_pmix::message::Request::Query).
    Query(Vec<String>),
    /// What a node knows of its processes.
    Processes,
    /// See [`Request::Abort`](petasos_pmix::message::Request::Abort).
    Abort {
        /// The exit code of the job.
        status: i32,
        /// The reason.
        message: String,
    },
    /// See [`Request::Restart`](petasos_pmix::message::Request::Restart).
    Restart {
        /// The process that failed.
        proc: Proc,
        /// How often its rank had been started again before it.
        after: u32,
    },
    /// See [`Request::Replace`](petasos_pmix::message::Request::Replace).
    Replace(Node),
    /// See [`Request::Signal`](petasos_pmix::message::Request::Signal).
    Signal {
        /// The processes.
        group: Group,
        /// The number of the signal.
        signal: i32,
    },
}
