//! The engine of one daemon: a state machine without I/O.
//!
//! What comes in: messages of other daemons, requests of clients, word that a peer, a client or a
//! process is gone, and time. What goes out, by [`Engine::poll`]: messages, answers, events for
//! clients, and what the daemon has to do. It opens no socket and reads no clock, so that
//! thousands of them run in one test.
//!
//! Every request ends, with success or with an error that names who and what is missing: each
//! has a deadline, and each thing that it waits for, a process, a node, the head, is watched.
//!
//! * A **fence** goes up and down a tree of those nodes that host its participants. So the loss
//!   of any node of the tree is the loss of a participant, and there is nothing to repair.
//! * **News** for all nodes (events, losses) goes over another tree, of all nodes, which everybody
//!   computes for himself around those that are lost; new neighbours are told again what may have
//!   been lost on the way, and everybody drops what he has heard before.
//! * The **head** keeps what is published and what each node has, and knows which nodes want which events.

mod agenda;
mod cards;
mod control;
mod events;
mod fence;
mod head;
mod hearsay;
mod held;
mod inventory;
mod links;
mod members;
mod parked;
mod procs;
mod progress;
mod published;
mod replace;
mod requests;
mod restart;

use crate::{
    error::{Error, Termination},
    event::{Event, EventId},
    inventory::Inventory,
    job::JobMap,
    message::{Answer, Message},
    names::{JobId, Missing, Node, Proc},
    value::BusinessCard,
};
use agenda::Agenda;
pub(crate) use cards::MAX_CARD;
pub(crate) use links::{LINKS, links_value};
use petasos_fabric::Time;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

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
    /// How long the others get to say who is missing, once a fence is late. Default: 2 s.
    pub census: Duration,
    /// After how long an open fence looks for participants that are done and will not come.
    /// Default: 1 s.
    pub probe: Duration,
    /// How long after the first process all others must have connected. Default: 60 s.
    pub connect: Duration,
    /// How many past events are kept for handlers that come later. Default: 512.
    pub cached_events: usize,
    /// For how long. Default: 120 s.
    pub cached_for: Duration,
    /// At the head: how often a rank whose process failed may be started again; `None`: never, since the job does
    /// not go on then. Default: `None`.
    pub restarts: Option<u32>,
    /// At the head: whether it is without anybody asking. Default: no.
    pub restart_failed: bool,
    /// At the head: the last so many nodes have no ranks, and take the place of others that are lost. Default: 0.
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
    /// Send this to that daemon; if that cannot be, say so by [`Engine::peer_lost`].
    Send {
        /// Whom.
        to: Node,
        /// What.
        message: Message,
    },
    /// Answer a request.
    Answer {
        /// Whose.
        client: ClientId,
        /// Which.
        id: RequestId,
        /// What came of it.
        result: Result<Answer, Error>,
    },
    /// Tell a client of an event.
    Deliver {
        /// Whom.
        client: ClientId,
        /// Of what.
        event: Event,
        /// To this handler alone, which came later than the event.
        only: Option<u64>,
    },
    /// The card of a process, of this node or another, is not what it was: [`Engine::card_here`].
    CardChanged(Proc),
    /// At the head: somebody wants the job to end.
    Abort {
        /// Who.
        by: Proc,
        /// With which code.
        status: i32,
        /// Why.
        message: String,
    },
    /// At the head: these never connected, though others have.
    NeverConnected(Missing),
    /// At the head: an event, whatever its range.
    Heard(Event),
    /// A process is started again in place of one that is gone: here, if its rank is one of this node. All that is
    /// here of the other one is gone, too.
    Restarted {
        /// Who.
        proc: Proc,
        /// How often its rank has been by now.
        restarts: u32,
    },
    /// Those of these processes that run here get this signal.
    Signal {
        /// Who, here and elsewhere.
        group: crate::names::Group,
        /// By its number.
        signal: i32,
    },
    /// A node sends what it may not: it is lost, and nothing of it is taken any more.
    CutOff {
        /// Which.
        node: Node,
        /// What it does.
        why: String,
    },
    /// A node is lost.
    NodeLost(Node),
    /// The ranks of a node that is lost are now on another: [`Engine::map`]. Which of them are started again is said by
    /// [`Output::Restarted`], after this.
    Replaced {
        /// Which is lost.
        node: Node,
        /// Which has its ranks.
        by: Node,
    },
    /// At the head: what [`Engine::survey`] asked for is known, as far as nodes have said it in time.
    Surveyed,
    /// The head is lost, or the others hold this node for lost: end everything here.
    Orphaned(String),
}

/// What of a request is waited for.
#[derive(Clone, Debug)]
enum Waiting {
    Fence {
        group: crate::names::Group,
        nth: u64,
        late: bool,
    },
    BusinessCard {
        proc: Proc,
        key: String,
    },
    /// A key that any process may put.
    Any,
    Head {
        ask: u64,
        what: &'static str,
    },
}

/// What lies open for a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Request(ClientId, RequestId),
    Census(crate::names::Group, u64),
    Probe(crate::names::Group, u64),
    Parked,
    Lookups,
    Gathering(u64),
    Connect,
    Hearsay,
    Progress,
    /// This node has not answered so far.
    Echo(Node),
}

#[derive(Debug)]
struct Client {
    proc: Option<Proc>,
    /// What it waits for.
    pending: BTreeMap<RequestId, Waiting>,
    /// Its event handlers, by its own names for them.
    handlers: BTreeMap<u64, Vec<i32>>,
    /// It is of a library that finalizes and begins again: see [`Engine::may_return`].
    returns: bool,
    /// It is of the process that has been its rank before: see [`Engine::is_again`].
    again: bool,
}

/// A process of this node.
#[derive(Debug, Default)]
struct Local {
    client: Option<ClientId>,
    connected: bool,
    pid: u32,
    gone: Option<Termination>,
    /// When its process took the place of another; 0: it is the first.
    since: Time,
    card: BusinessCard,
    /// It has published, or waited for what others publish.
    known_at_head: bool,
    progress: Option<progress::Progress>,
    /// It has finalized, its process still runs, and may begin again.
    may_return: bool,
}

impl Local {
    /// What became of it, if it will not come any more.
    fn gone_for_good(&self) -> Option<&Termination> {
        self.gone.as_ref().filter(|_| !self.may_return)
    }
}

#[derive(Debug)]
struct Job {
    map: Arc<JobMap>,
    locals: BTreeMap<u32, Local>,
    /// Cards of processes on other nodes, as far as they came here.
    cards: HashMap<u32, BusinessCard>,
    /// Processes of other nodes that are known to be gone.
    gone: BTreeMap<u32, Termination>,
    /// How often each rank was started again, if it was.
    restarts: BTreeMap<u32, u32>,
    /// At the head: processes of other nodes that ended as they should.
    done: BTreeMap<u32, Termination>,
}

/// The engine. See the [module](self).
#[derive(Debug)]
pub struct Engine {
    me: Node,
    config: Config,
    now: Time,
    out: VecDeque<Output>,
    agenda: Agenda<Timer>,
    members: members::Members,
    jobs: BTreeMap<JobId, Job>,
    clients: BTreeMap<ClientId, Client>,
    signatures: HashMap<crate::names::Group, fence::Signature>,
    /// Questions for cards under way, and who waits for them.
    asks: cards::Asks,
    /// Requests that wait for a card of a process of this node.
    parked: parked::Parked,
    /// Questions to the head under way.
    head_asks: BTreeMap<u64, (ClientId, RequestId)>,
    next_id: u64,
    events: events::Events,
    head: head::Head,
    replaced: replace::Replaced,
    held: held::Held,
    /// What this node has, as it was last told.
    inventory: Option<Inventory>,
    /// How long messages to others take, while that is being measured.
    links: links::Links,
    /// Somewhere a process has connected.
    wired: bool,
    /// When the next process that is watched has to have made progress.
    progress_at: Time,
    /// Everything is over, for this reason.
    over: Option<String>,
}

impl Engine {
    /// The engine of node `me` among `nodes`.
    #[must_use]
    pub fn new(me: Node, nodes: u32, config: Config, now: Time) -> Engine {
        Engine {
            me,
            config,
            now,
            out: VecDeque::new(),
            agenda: Agenda::default(),
            members: members::Members::new(me, nodes, config.fanout),
            jobs: BTreeMap::new(),
            clients: BTreeMap::new(),
            signatures: HashMap::new(),
            asks: cards::Asks::default(),
            parked: parked::Parked::default(),
            head_asks: BTreeMap::new(),
            next_id: 0,
            events: events::Events::default(),
            head: head::Head::default(),
            replaced: replace::Replaced::default(),
            held: held::Held::default(),
            inventory: None,
            links: links::Links::default(),
            wired: false,
            progress_at: Time::NEVER,
            over: None,
        }
    }

    /// Makes a job known: before any of its processes connects, and before any message of another
    /// daemon about it is taken.
    pub fn add_job(&mut self, map: Arc<JobMap>) {
        let locals = map.ranks_on(self.me).iter().map(|rank| (*rank, Local::default())).collect();
        let (cards, gone, restarts) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        let job = Job { map, locals, cards, gone, restarts, done: BTreeMap::new() };
        self.jobs.insert(job.map.id(), job);
    }

    /// What is known of a job, with its ranks where they are now.
    #[must_use]
    pub fn map(&self, job: JobId) -> Option<&Arc<JobMap>> {
        self.jobs.get(&job).map(|job| &job.map)
    }

    /// Which node it is.
    #[must_use]
    pub fn node(&self) -> Node {
        self.me
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Engine::advance`] is wanted at the latest.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.agenda.next()
    }

    /// It is this time now.
    pub fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(timer) = self.agenda.due(self.now) {
            match timer {
                Timer::Request(client, id) => self.request_late(client, id),
                Timer::Census(group, nth) => self.census_over(&group, nth),
                Timer::Probe(group, nth) => self.probe_fence(&group, nth),
                Timer::Parked => self.expire_parked(),
                Timer::Lookups => self.expire_lookups(),
                Timer::Gathering(id) => self.gathered(id),
                Timer::Connect => self.check_connected(),
                Timer::Hearsay => self.expire_hearsay(),
                Timer::Progress => self.check_progress(),
                Timer::Echo(node) => self.echo_late(node),
            }
        }
        if self.agenda.is_crowded() {
            let (clients, signatures) = (&self.clients, &self.signatures);
            self.agenda.tidy(|timer| match timer {
                Timer::Request(client, id) => {
                    clients.get(client).is_some_and(|client| client.pending.contains_key(id))
                }
                Timer::Census(group, nth) | Timer::Probe(group, nth) => {
                    signatures.get(group).is_some_and(|signature| signature.is_open(*nth))
                }
                Timer::Progress => false,
                _ => true,
            });
            let next = std::mem::replace(&mut self.progress_at, Time::NEVER);
            self.look_at_progress(next);
        }
    }

    /// A message came from another daemon.
    pub fn message(&mut self, now: Time, from: Node, message: Message) {
        self.advance(now);
        self.take(from, message);
    }

    fn take(&mut self, from: Node, message: Message) {
        if self.over.is_some() || self.members.is_lost(from) {
            return;
        }
        if self.held(from, &message) {
            return;
        }
        match message {
            Message::Fence { group, replaced, nth, step } => {
                self.fence_message(from, &group, replaced, nth, step);
            }
            Message::CardAsk { id, proc, restarts, key, wait, patience, .. } => {
                self.card_asked(from, id, cards::Asked { of: proc, restarts, key, wait }, patience);
            }
            Message::CardAnswer { id, result } => self.card_answered(id, result),
            Message::Ask { id, asker, what } => self.head_asked(from, id, asker, what),
            Message::Answer { id, result } => self.head_answered(from, id, result),
            Message::Event { event, all } => self.event_came(from, event, all),
            Message::Interest { code, wanted } => self.interest(from, code, wanted),
            Message::Lost(nodes) => self.nodes_lost(&nodes, Some(from)),
            Message::Termination { proc, restarts, why } => {
                self.proc_known_gone(proc, restarts, why, Some(from));
            }
            Message::Restarted { proc, restarts } => self.restarted(proc, restarts, Some(from)),
            Message::Replaced(what) if self.me != Node::HEAD => self.replaced(*what, Some(from)),
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
                self.signalled(group, signal);
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

    fn send(&mut self, to: Node, message: Message) {
        self.out.push_back(Output::Send { to, message });
    }

    /// Sends to all neighbours in the tree of all nodes but one.
    fn spread(&mut self, message: &Message, but: Option<Node>) {
        for to in self.members.neighbours() {
            if Some(to) != but {
                self.send(to, message.clone());
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn event_id(&mut self) -> EventId {
        EventId { node: self.me, number: self.number() }
    }

    /// Where a process runs.
    fn node_of(&self, proc: Proc) -> Option<Node> {
        self.jobs.get(&proc.job)?.map.node_of(proc.rank)
    }

    fn local(&self, proc: Proc) -> Option<&Local> {
        self.jobs.get(&proc.job)?.locals.get(&proc.rank)
    }

    fn local_mut(&mut self, proc: Proc) -> Option<&mut Local> {
        self.jobs.get_mut(&proc.job)?.locals.get_mut(&proc.rank)
    }

    /// The processes of a node that are in a group, or (without one) in any job.
    fn procs_on(&self, node: Node, group: Option<&crate::names::Group>) -> Missing {
        let mut missing = Missing::default();
        for job in self.jobs.values() {
            for rank in job.map.ranks_on(node) {
                let proc = job.map.proc(*rank);
                if group.is_none_or(|group| group.contains(proc)) {
                    missing.add(proc);
                }
            }
        }
        missing
    }
}
