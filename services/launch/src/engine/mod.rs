//! The engine of one daemon: a state machine without I/O.
//!
//! It takes messages of other daemons, requests of clients, the loss of a peer, a client or a
//! process, and time. It gives, by [`Engine::poll`], messages, answers, events for clients, and
//! what the daemon has to do. It opens no socket and reads no clock, so that thousands of them run
//! in one test.
//!
//! Every request ends, with success or with an error that names what is missing: each has a
//! deadline, and each thing that it waits for (a process, a node, the head node) is watched.
//!
//! * A **fence** goes up and down a tree of those nodes that host its participants. So the loss
//!   of any node of the tree is the loss of a participant, and there is nothing to repair.
//! * **News** for all nodes (events, losses) goes over another tree, of all nodes, which each node
//!   computes for itself around those that are lost. New neighbours repeat what may have been lost
//!   on the way, and each node drops what it has received before.
//! * The **controller** is the engine of the head node. It keeps what is published and what each
//!   node has, and knows which nodes want which events.

mod clients;
mod controller;
mod deferred;
mod early;
mod events;
mod fence;
mod inventory;
mod jobs;
mod lifecycle;
mod limits;
mod links;
mod members;
mod modex;
mod outbox;
mod premature;
mod process;
mod progress;
mod published;
mod queries;
mod replace;
mod requests;
mod restart;
mod signals;
mod timers;

use crate::{inventory::Inventory, message::Message};
use clients::Clients;
use jobs::Jobs;
pub(crate) use links::{LINKS, links_value};
use outbox::Outbox;
use petasos_fabric::Time;
use petasos_pmix::{
    Error, Group, JobId, Missing, Node, Proc, event::Event, job::JobMap, message::Answer,
};
pub(crate) use process::MAX_CARD;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use timers::{Timer, Timers};

/// A client's connection to its daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A client's name for a request.
pub type RequestId = u64;

/// Settings; the same on all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Children of a node in the trees. Default: 32.
    pub fanout: u32,
    /// How long a request that names no time may wait. Default: 5 minutes.
    pub patience: Duration,
    /// How long the other nodes may take to report missing processes, once a fence is late.
    /// Default: 2 s.
    pub census: Duration,
    /// After how long an open fence looks for participants that have finalized and will not come.
    /// Default: 1 s.
    pub probe: Duration,
    /// How long after the first process all others must have connected. Default: 60 s.
    pub connect: Duration,
    /// How many past events are kept for handlers that come later. Default: 512.
    pub cached_events: usize,
    /// For how long past events are kept. Default: 120 s.
    pub cached_for: Duration,
    /// At the head node: how often a rank whose process failed may be started again; `None`: never,
    /// since the job does not go on then. Default: `None`.
    pub restarts: Option<u32>,
    /// At the head node: whether failed ranks are started again without a request. Default: no.
    pub restart_failed: bool,
    /// At the head node: how many nodes, the last ones, have no ranks, and replace others that are
    /// lost. Default: 0.
    pub spares: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            fanout: 32,
            patience: Duration::from_secs(300),
            census: Duration::from_secs(2),
            probe: Duration::from_secs(1),
            connect: Duration::from_secs(60),
            cached_events: 512,
            cached_for: Duration::from_secs(120),
            restarts: None,
            restart_failed: false,
            spares: 0,
        }
    }
}

/// What the daemon is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a message to another daemon; if that fails, call [`Engine::peer_lost`].
    Send {
        /// The node of that daemon.
        to: Node,
        /// The message.
        message: Message,
    },
    /// Answer a request.
    Answer {
        /// The client that asked.
        client: ClientId,
        /// The client's number for the request.
        id: RequestId,
        /// The outcome.
        result: Result<Answer, Error>,
    },
    /// Deliver an event to a client.
    Deliver {
        /// The client.
        client: ClientId,
        /// The event.
        event: Event,
        /// For this handler alone, which was registered after the event came.
        only: Option<u64>,
    },
    /// The business card of a process, of this node or another, has changed:
    /// [`Engine::known_business_card`].
    CardChanged(Proc),
    /// At the head node: a process asks for the job to end.
    Abort {
        /// The process that asks.
        by: Proc,
        /// The exit status of the job.
        status: i32,
        /// The reason.
        message: String,
    },
    /// At the head node: these never connected, though others have.
    NeverConnected(Missing),
    /// At the head node: an event, whatever its range.
    Heard(Event),
    /// A process replaces one that has ended: start it, if its rank is one of this node. Drop
    /// whatever this node has of the old process.
    Restarted {
        /// The process.
        proc: Proc,
        /// How often its rank was started again, this time included.
        restarts: u32,
    },
    /// Send a signal to the processes of a group that run on this node.
    Signal {
        /// The group, on this node and others.
        group: Group,
        /// The number of the signal.
        signal: i32,
    },
    /// A node violated the protocol: it is lost, and its messages are no longer taken.
    CutOff {
        /// The node.
        node: Node,
        /// What it did.
        why: String,
    },
    /// A node is lost.
    NodeLost(Node),
    /// The ranks of a lost node are now on another: [`Engine::map`]. An [`Output::Restarted`]
    /// follows for each that is started again.
    Replaced {
        /// The lost node.
        node: Node,
        /// The node that has its ranks.
        by: Node,
    },
    /// At the head node: the answer to [`Engine::survey`] is known, as far as nodes have answered
    /// in time.
    Surveyed,
    /// The head node is lost, or the others consider this node lost: end everything here.
    Orphaned(String),
}

/// The engine. See the [module](self).
#[derive(Debug)]
pub struct Engine {
    me: Node,
    config: Config,
    timers: Timers<Timer>,
    out: Outbox,
    members: members::Members,
    jobs: Jobs,
    clients: Clients,
    fences: fence::Fences,
    fetches: modex::Fetches,
    deferred: deferred::DeferredGets,
    events: events::Events,
    controller: controller::Controller,
    replacements: replace::Replacements,
    early: early::EarlyMessages,
    /// What this node has, as its daemon last reported.
    inventory: Option<Inventory>,
    links: links::Measurement,
    progress: progress::ProgressMonitor,
}

impl Engine {
    /// The engine of node `me` among `nodes`.
    #[must_use]
    pub fn new(me: Node, nodes: u32, config: Config, now: Time) -> Engine {
        Engine {
            me,
            config,
            timers: Timers::new(now),
            out: Outbox::new(me),
            members: members::Members::new(me, nodes, config.fanout),
            jobs: Jobs::default(),
            clients: Clients::default(),
            fences: fence::Fences::default(),
            fetches: modex::Fetches::default(),
            deferred: deferred::DeferredGets::default(),
            events: events::Events::default(),
            controller: controller::Controller::default(),
            replacements: replace::Replacements::default(),
            early: early::EarlyMessages::default(),
            inventory: None,
            links: links::Measurement::default(),
            progress: progress::ProgressMonitor::default(),
        }
    }

    /// Makes a job known: before any of its processes connects, and before any message of another
    /// daemon about it is taken.
    pub fn add_job(&mut self, map: Arc<JobMap>) {
        self.jobs.add(map, self.me);
    }

    /// What is known of a job, with its ranks where they are now.
    #[must_use]
    pub fn map(&self, job: JobId) -> Option<&Arc<JobMap>> {
        self.jobs.get(job).map(jobs::Job::map)
    }

    /// The node of this engine.
    #[must_use]
    pub fn node(&self) -> Node {
        self.me
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// The time by which [`Engine::advance`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.timers.next()
    }

    /// Tells the engine what time it is.
    pub fn advance(&mut self, now: Time) {
        self.timers.advance(now);
        while let Some(timer) = self.timers.pop_due() {
            match timer {
                Timer::Request(client, id) => self.request_late(client, id),
                Timer::Census(group, nth) => self.census_over(&group, nth),
                Timer::Probe(group, nth) => self.probe_fence(&group, nth),
                Timer::DeferredGets => self.expire_deferred(),
                Timer::Lookups => self.expire_lookups(),
                Timer::Query(id) => self.finish_query(id),
                Timer::Connect => self.check_connected(),
                Timer::Premature => self.expire_premature(),
                Timer::Progress => self.check_progress(),
                Timer::Echo(node) => self.echo_late(node),
            }
        }
        if self.timers.is_crowded() {
            let (clients, fences) = (&self.clients, &self.fences);
            self.timers.retain(|timer| match timer {
                Timer::Request(client, id) => clients.waiting(*client, *id).is_some(),
                Timer::Census(group, nth) | Timer::Probe(group, nth) => fences.is_open(group, *nth),
                Timer::Progress => false,
                _ => true,
            });
            self.progress.set_timer_again(&mut self.timers);
        }
    }

    /// A message came from another daemon.
    pub fn message(&mut self, now: Time, from: Node, message: Message) {
        self.advance(now);
        self.take(from, message);
    }

    fn take(&mut self, from: Node, message: Message) {
        if self.members.is_over() || self.members.is_lost(from) {
            return;
        }
        if self.is_early(from, &message) {
            return;
        }
        match message {
            Message::Fence { group, replaced, nth, step } => {
                self.fence_message(from, &group, replaced, nth, step);
            }
            Message::BusinessCardRequest { id, proc, restarts, key, wait, patience, .. } => {
                let asked = modex::RemoteGet { of: proc, restarts, key, wait };
                self.card_asked(from, id, asked, patience);
            }
            Message::BusinessCardAnswer { id, result } => self.card_answered(id, result),
            Message::Ask { id, asker, what } => self.question_came(from, id, asker, what),
            Message::Answer { id, result } => self.answer_came(from, id, result),
            Message::Event { event, all } => self.event_came(from, event, all),
            Message::Interest { code, wanted } => self.interest(from, code, wanted),
            Message::Lost(nodes) => self.nodes_lost(&nodes, Some(from)),
            Message::Termination { proc, restarts, why } => {
                self.remote_proc_failed(proc, restarts, why, Some(from));
            }
            Message::Restarted { proc, restarts } => self.restarted(proc, restarts, Some(from)),
            Message::Replaced(what) if !self.is_controller() => self.replaced(*what, Some(from)),
            Message::Replaced(_) => {}
            Message::Wired => self.wired_somewhere(Some(from)),
            Message::NeverConnected(missing) => self.never_connected(missing),
            Message::Release(proc) => self.release(proc),
            Message::Inventory(found) => self.inventory_came(from, *found),
            Message::MeasureLinks if from == Node::HEAD => self.measure_links(),
            Message::MeasureLinks => {}
            Message::Links(found) => self.links_came(from, found),
            Message::Echo { id, back } => self.echo_came(from, id, back),
            Message::Signal { group, signal } if from == Node::HEAD => {
                self.deliver_signal(group, signal);
            }
            Message::Signal { .. } => {}
        }
    }

    /// A daemon cannot be reached any more.
    pub fn peer_lost(&mut self, now: Time, node: Node) {
        self.advance(now);
        self.nodes_lost(&[node], None);
    }

    /// The nodes that are known to be lost.
    #[must_use]
    pub fn lost(&self) -> &BTreeSet<Node> {
        self.members.lost()
    }

    /// Whether this is the engine of the head node.
    fn is_controller(&self) -> bool {
        self.me == Node::HEAD
    }

    fn now(&self) -> Time {
        self.timers.now()
    }

    fn send(&mut self, to: Node, message: Message) {
        self.out.send(to, message);
    }

    /// Sends to all neighbours in the tree of all nodes but one.
    fn spread(&mut self, message: &Message, but: Option<Node>) {
        for to in self.members.neighbours() {
            if Some(to) != but {
                self.send(to, message.clone());
            }
        }
    }
}
