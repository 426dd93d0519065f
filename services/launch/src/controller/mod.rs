//! Control of a job, at its head node: a state machine without I/O.
//!
//! What comes in: that daemons are there and ready, that files are on the nodes, how ranks end,
//! which nodes are lost, what the engine restarts and replaces, signals, and time. What goes out,
//! by [`Controller::poll`]: orders for the daemon of the head node, which passes them on to the
//! other daemons. In the end there is one [`Outcome`].
//!
//! * `begin`: the phases from the start of the daemons to the start of the ranks.
//! * `faults`: ranks that end or are restarted, nodes that are lost or replaced, and what of that
//!   fails the job.
//! * `end`: how the job ends, by itself, for a failure, a signal, or because its time is over.
//! * `ranks` keeps what became of ranks and nodes, `failures` what failed, and so the exit code.
//!
//! A job ends in one of two ways. Before the ranks start there is nothing to wait for: the daemons
//! are released at once. Later the ranks are asked to end, then made to, and at last a daemon that
//! does not say that its ranks have ended is given up with them.

mod begin;
mod end;
mod failures;
mod faults;
mod ranks;
#[cfg(test)]
mod tests;

use crate::{outcome::Staged, settings::Settings};
use failures::Failures;
pub(crate) use failures::Unwritten;
pub(crate) use faults::Loss;
use petasos_fabric::Time;
use petasos_pmix::{Node, job::Run};
use ranks::Ranks;
use std::collections::{BTreeSet, VecDeque};

/// Which node starts the daemon of another. That of the head node is started by none.
pub(crate) fn parent(node: Node, fan_out: u32) -> Node {
    Node(node.0.saturating_sub(1).checked_div(fan_out).unwrap_or_default())
}

/// What the daemon of the head node is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start the daemons of the other hosts. Each is heard of by [`Controller::daemon_arrived`].
    StartDaemons,
    /// Find out what has to be known of the nodes, and then call [`Controller::surveyed`].
    Survey,
    /// Make the description of the job, which [`Order::SetUp`] sends.
    Describe,
    /// Describe the job to this node, which answers with [`Controller::prepared`].
    SetUp(Node),
    /// Bring the files to the nodes, and then call [`Controller::staged`].
    Stage,
    /// The files are not needed any more.
    StopStaging,
    /// This node is to watch its neighbours from now on.
    Watch(Node),
    /// From now on the engine may restart a rank so often.
    AllowRestarts(Option<u32>),
    /// Start the ranks of this node.
    Start(Node),
    /// Send this signal to all ranks of this node.
    Signal(Node, i32),
    /// Stop this process as the terminal would have; when it goes on, call [`Controller::resumed`].
    Pause,
    /// Hold this node for lost, for this reason.
    GiveUp(Node, &'static str),
    /// Print this line.
    Say(String),
    /// The job is over: this node's daemon may end.
    Release(Node),
    /// The job is over; [`Controller::outcome`] says how it ended. There is no other order after
    /// this.
    Finish,
}

impl Order {
    /// Which node it is about.
    fn node(&self) -> Option<Node> {
        match self {
            Order::SetUp(node)
            | Order::Watch(node)
            | Order::Start(node)
            | Order::Signal(node, _)
            | Order::GiveUp(node, _)
            | Order::Release(node) => Some(*node),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Daemons are being started.
    Gathering,
    /// What networks want to know of the nodes is being found out.
    Surveying,
    /// Daemons get ready to start ranks.
    Preparing,
    /// Files are being brought to the nodes.
    Staging,
    Running,
    /// The ranks are being ended.
    Ending,
    Finished,
}

/// The control state of a job. See the [module](self).
#[derive(Debug)]
pub(crate) struct Controller {
    settings: Settings,
    /// Whether files are brought to the nodes before ranks start.
    stages: bool,
    /// The names of the hosts, by node.
    hosts: Vec<String>,
    phase: Phase,
    /// The daemons that are there.
    arrived: BTreeSet<Node>,
    /// Those that can start ranks.
    ready: BTreeSet<Node>,
    ranks: Ranks,
    failures: Failures,
    staged: Option<Staged>,
    /// Until when the phase may last.
    until: Time,
    /// The ranks were made to end.
    killed: bool,
    /// An ending signal came.
    interrupted: bool,
    orders: VecDeque<Order>,
}

impl Controller {
    /// The controller of a job with ranks on these nodes, which has just begun. The first host is
    /// the head node's. `stages`: files are brought to the nodes before ranks start.
    pub(crate) fn new(
        settings: Settings,
        stages: bool,
        hosts: Vec<String>,
        runs: Vec<Run>,
        now: Time,
    ) -> Controller {
        let mut controller = Controller {
            settings,
            stages,
            hosts,
            phase: Phase::Gathering,
            arrived: BTreeSet::new(),
            ready: BTreeSet::new(),
            ranks: Ranks::new(runs),
            failures: Failures::default(),
            staged: None,
            until: now.after(begin::START),
            killed: false,
            interrupted: false,
            orders: VecDeque::new(),
        };
        controller.begin();
        controller
    }

    /// What is to be done next.
    pub(crate) fn poll(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// When [`Controller::time`] is wanted at the latest.
    pub(crate) fn deadline(&self) -> Time {
        self.until
    }

    /// The names of the hosts, by node.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Whether files are on their way to the nodes.
    pub(crate) fn is_staging(&self) -> bool {
        self.phase == Phase::Staging
    }

    /// Whether the ranks were started, and the job is not ending.
    pub(crate) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether the rank that standard input goes to runs, and reads what it is sent.
    pub(crate) fn feeds_reader(&self) -> bool {
        let reader = self.settings.input;
        self.is_running() && reader.is_some_and(|reader| !self.ranks.has_ended(reader))
    }

    /// The host of a node, by the name that the user knows it by.
    fn host(&self, node: Node) -> &str {
        self.hosts.get(node.0 as usize).map_or("an unknown host", String::as_str)
    }

    /// The host of a rank.
    fn host_of(&self, rank: u32) -> &str {
        self.host(self.ranks.node_of(rank).unwrap_or(Node(u32::MAX)))
    }

    fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.hosts.len() as u32).map(Node)
    }

    /// Gives an order about each node that is not lost.
    fn order_all(&mut self, order: impl Fn(Node) -> Order) {
        let living = self.nodes().filter(|node| !self.ranks.is_lost(*node));
        self.orders.extend(living.map(order).collect::<Vec<_>>());
    }
}
