//! What only the daemon at the head does: it starts the others, has the job started when all are
//! ready, prints what it writes, and decides how it ends.

use super::{
    Daemon,
    control::{Bootstrap, Control, Program, Setup},
    networks::Said,
    print::{Printer, Unwritten},
    signals,
    staging::{self, ToStage, Work},
    tree::{self, Planned, Starter},
    wake::Waker,
};
use crate::{
    Node, Proc, Termination, Value,
    engine::{Config, Output},
    job::{JobSpec, NodeInfo, Run},
    launch::{Plugins, Staged},
    net::handshake::{hex, random},
};
use nix::sys::signal::{SigSet, Signal, raise};
use petasos_fabric::Time;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal},
    time::Duration,
};

/// How long processes get to end by themselves once the job is to end.
const GRACE: Duration = Duration::from_secs(3);
/// How long the other daemons may take to be there.
const START: Duration = Duration::from_secs(60);
/// The exit code of a job with a rank that could not be started, as in a shell.
const NOT_STARTED: i32 = 127;
/// How long it may take to tell the others that all stop.
const FLUSH: Duration = Duration::from_secs(1);
/// Input from a terminal is looked for again after this time where this process was in its background.
const BACKGROUND: Duration = Duration::from_millis(250);
/// Standard input that has not been taken, in bytes.
const WINDOW: u64 = 256 << 10;
const UNKNOWN: &str = "an unknown host";
const SIGTERM: i32 = Signal::SIGTERM as i32;
const SIGKILL: i32 = Signal::SIGKILL as i32;

/// A job to be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The hosts beside this one, by the names that the start command takes, from node 1 on.
    pub(crate) hosts: Vec<String>,
    pub(crate) runs: Vec<Run>,
    pub(crate) program: Program,
    pub(crate) starter: Starter,
    pub(crate) labels: bool,
    pub(crate) keep_going: bool,
    /// How often a rank may be started again, where that is offered.
    pub(crate) restarts: Option<u32>,
    /// Whether it is without anybody asking.
    pub(crate) restart_failed: bool,
    /// The last so many hosts have no ranks, and take the place of others that are lost.
    pub(crate) spares: u32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) log: Option<String>,
    pub(crate) connect: Duration,
    /// How long a machine may be silent.
    pub(crate) silence: Duration,
    /// Whether standard input goes to rank 0.
    pub(crate) input: bool,
    /// Files that are brought to the nodes first.
    pub(crate) staging: Option<ToStage>,
    pub(crate) plugins: Plugins,
    /// Whether it is measured how long messages between the nodes take, before ranks start.
    pub(crate) links: bool,
}

/// How a job ended.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// As an exit code.
    pub(crate) code: i32,
    /// Why, if not well.
    pub(crate) why: Option<String>,
    /// Whether the reader of its output has closed it.
    pub(crate) unread: bool,
    /// Why other output could not be written.
    pub(crate) output_lost: Option<String>,
    /// What became of each rank that ended: on which host, and how.
    pub(crate) ranks: BTreeMap<u32, (String, Termination)>,
    /// How often ranks were started again, if they were.
    pub(crate) restarts: BTreeMap<u32, u32>,
    /// Hosts that were lost, why, and those that took their place.
    pub(crate) replaced: Vec<(String, String, String)>,
    pub(crate) staged: Option<Staged>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Gathering,
    /// What networks want to know of the nodes is found out.
    Surveying,
    Preparing,
    /// Files are brought to the nodes.
    Staging,
    Running,
    /// The processes are being ended.
    Ending,
}

#[derive(Debug)]
pub(crate) struct Head {
    pub(super) plan: Plan,
    phase: Phase,
    name: String,
    pub(super) hello: BTreeMap<Node, (NodeInfo, String)>,
    /// What networks offer there.
    offers: BTreeMap<Node, Said>,
    /// Who is ready, and where files are taken there.
    pub(super) prepared: BTreeMap<Node, Vec<u8>>,
    pub(super) work: Option<Work>,
    pub(super) staged: Option<Staged>,
    size: u32,
    /// Where each rank that has ended did, and how.
    ended: BTreeMap<u32, (Node, Termination)>,
    pub(super) restarts: BTreeMap<u32, u32>,
    /// Which nodes are lost, and why.
    lost: BTreeMap<Node, String>,
    /// Which took the place of which.
    pub(super) replaced: BTreeMap<Node, Node>,
    failure: Option<(i32, String)>,
    /// What failed while the job goes on, in order; a rank that is started again has not.
    failures: Vec<Failed>,
    pub(crate) printer: Printer,
    /// What could not be written.
    unwritten: Option<Unwritten>,
    /// Until when what is under way may take: coming up, the job, ending by itself.
    until: Time,
    /// The processes were made to end.
    killed: bool,
    signals: u32,
    input_open: bool,
    /// It is not read before: this process is in the background of a terminal, and what is typed there is for others.
    input_later: Time,
    input_untaken: u64,
}

/// Ranks that failed together, while the others go on.
#[derive(Debug)]
struct Failed {
    ranks: Vec<u32>,
    code: i32,
    why: String,
}

impl Head {
    /// A rank is started again, for the how manieth time: it has not ended, and not failed.
    pub(super) fn begins_again(&mut self, rank: u32, restarts: u32) {
        self.restarts.insert(rank, restarts);
        self.ended.remove(&rank);
        self.failures.iter_mut().for_each(|failed| failed.ranks.retain(|of| *of != rank));
        self.failures.retain(|failed| !failed.ranks.is_empty());
    }

    /// What was read of standard input and not taken is lost with rank 0. Says whether the input has ended.
    pub(super) fn lets_input_begin_again(&mut self) -> bool {
        self.input_untaken = 0;
        self.plan.input && !self.input_open
    }

    /// The host of a node, by the name that the user knows it by.
    fn host(&self, node: Node) -> String {
        let named = node.0.checked_sub(1).and_then(|at| self.plan.hosts.get(at as usize));
        named.cloned().unwrap_or_else(super::host_name)
    }

    fn hosts_with_ranks(&self) -> BTreeSet<Node> {
        self.plan.runs.iter().filter(|run| run.count > 0).map(|run| run.node).collect()
    }

    /// Whether all ranks are on one host, and will be.
    fn ranks_are_alone(&self) -> bool {
        self.plan.spares == 0 && self.hosts_with_ranks().len() == 1
    }

    pub(super) fn is_staging(&self) -> bool {
        self.phase == Phase::Staging
    }

    /// Whether the ranks were started, and the job is not ending.
    pub(super) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    pub(super) fn all(&self) -> Vec<Node> {
        (0..=self.plan.hosts.len() as u32).map(Node).collect()
    }
}

/// Runs a job from here, to its end.
pub(crate) fn run(plan: Plan) -> io::Result<Verdict> {
    let nodes = plan.hosts.len() as u32 + 1;
    let (connect, restart_failed, spares) = (plan.connect, plan.restart_failed, plan.spares);
    let before = SigSet::thread_get_mask()?;
    // Nobody is started again before all have been started.
    let config = Config { connect, restart_failed, spares, ..Config::default() };
    let mut daemon = Daemon::new(Node::HEAD, nodes, random(), plan.silence, config)?;
    daemon.plugins = plan.plugins.clone();
    take_signals(daemon.waker.another()?)?;
    let printer = Printer::start(plan.labels, daemon.waker.another()?)?;
    let size = plan.runs.iter().map(|run| run.count).sum();
    let name = hex(&random()[..8]);
    daemon.head = Some(Box::new(Head {
        until: daemon.clock.now().after(START),
        input_open: plan.input,
        input_later: Time::default(),
        plan,
        phase: Phase::Gathering,
        name,
        hello: BTreeMap::new(),
        offers: BTreeMap::new(),
        prepared: BTreeMap::new(),
        work: None,
        staged: None,
        size,
        ended: BTreeMap::new(),
        restarts: BTreeMap::new(),
        lost: BTreeMap::new(),
        replaced: BTreeMap::new(),
        failure: None,
        failures: Vec::new(),
        printer,
        unwritten: None,
        killed: false,
        signals: 0,
        input_untaken: 0,
    }));
    daemon.take_inventory();
    if nodes > 1 {
        daemon.start_remotes()?;
    } else {
        daemon.all_here();
    }
    daemon.live();
    daemon.end();
    // Nothing is left of the job here. What is to be printed may wait for its reader, and a signal ends that.
    before.thread_set_mask()?;
    daemon.head_ends()
}

/// A node whose ranks have no addresses yet.
fn node_info(name: String) -> NodeInfo {
    NodeInfo { name, base: String::new(), first: 0 }
}

fn take_signals(waker: Waker) -> io::Result<()> {
    let wanted = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGTSTP,
    ];
    // As with `nohup`, and where nobody could let this process go on.
    let is_left = |signal: &Signal| {
        [Signal::SIGHUP, Signal::SIGTSTP].contains(signal) && signals::is_ignored(*signal)
    };
    let wanted = wanted.into_iter().filter(|signal| !is_left(signal));
    // In the background of a terminal it is not stopped, with all that its ranks rely on: it reads nothing there.
    let blocked = [Signal::SIGTTIN, Signal::SIGTTOU];
    signals::take(wanted, blocked, waker)
}

/// Stops this process as the terminal would have; returns when it goes on.
fn stop() {
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTSTP);
    if stops.thread_unblock().is_ok() {
        // It is done to this thread, which so does not go on before; without a shell that could let it, nothing is.
        let _ = raise(Signal::SIGTSTP);
        let _ = stops.thread_block();
    }
}

impl Daemon {
    fn start_remotes(&mut self) -> io::Result<()> {
        let port = self.peers.listen()?;
        let Some(head) = &mut self.head else { return Ok(()) };
        let alone = head.ranks_are_alone();
        let mut addresses: Vec<String> = own_addresses();
        addresses.iter_mut().for_each(|address| {
            *address = match address.contains(':') {
                true => format!("[{address}]:{port}"),
                false => format!("{address}:{port}"),
            }
        });
        let mut counts: BTreeMap<Node, u32> = BTreeMap::new();
        for run in &head.plan.runs {
            *counts.entry(run.node).or_default() += run.count;
        }
        // A spare keeps what the node with the most ranks would need.
        let most = counts.iter().filter(|(node, _)| **node != Node::HEAD);
        let most = most.map(|(_, count)| *count).max().unwrap_or_default();
        let spares = head.plan.hosts.len() - head.plan.spares as usize;
        let planned = |(at, host): (usize, &String)| {
            let node = Node(at as u32 + 1);
            let ranks = counts.get(&node).copied().unwrap_or_default();
            let ranks = if at >= spares { most } else { ranks };
            Planned { node, host: host.clone(), ranks }
        };
        let below = head.plan.hosts.iter().enumerate().map(planned).collect();
        let own = Bootstrap {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            secret: self.secret,
            node: self.me,
            nodes: head.plan.hosts.len() as u32 + 1,
            ranks: 0,
            alone,
            head: addresses,
            connect: head.plan.connect,
            silence: head.plan.silence,
            log: head.plan.log.clone(),
            starter: head.plan.starter.clone(),
            below,
        };
        self.start_daemons(&own);
        Ok(())
    }

    /// All daemons are there: what has to be known of them is found out, and they are told of the job.
    fn all_here(&mut self) {
        let Some(head) = &self.head else { return };
        let here = head.plan.runs.iter().filter(|run| run.node == Node::HEAD);
        let (here, alone) = (here.map(|run| run.count).sum(), head.ranks_are_alone());
        let own = node_info(super::host_name());
        let offers = match self.reserve(here, alone) {
            Ok(offers) => offers,
            Err(why) => return self.fail(1, format!("{}: {why}", own.name)),
        };
        let Some(head) = &mut self.head else { return };
        head.offers.insert(Node::HEAD, offers);
        head.hello.insert(Node::HEAD, (own, String::new()));
        match self.begin_survey() {
            true => self.head_surveys(),
            false => self.describe(),
        }
    }

    fn head_surveys(&mut self) {
        let until = self.clock.now().after(START);
        if let Some(head) = &mut self.head {
            (head.phase, head.until) = (Phase::Surveying, until);
        }
    }

    /// All that was to be found out of the nodes is known.
    fn surveyed(&mut self) {
        if self.head.as_ref().is_some_and(|head| head.phase == Phase::Surveying) {
            self.describe();
        }
    }

    /// The daemons are told of the job.
    fn describe(&mut self) {
        let (known, measured) = self.surveyed_nodes();
        let Some(head) = &mut self.head else { return };
        let command = head.plan.program.arguments.join(" ");
        let mut info = vec![("petasos.command".to_owned(), Value::from(command))];
        info.extend(head.plan.staging.iter().flat_map(staging::described));
        info.extend(measured);
        let spares = head.plan.spares;
        info.extend((spares > 0).then(|| (crate::job::SPARES.to_owned(), spares.into())));
        let job = JobSpec {
            id: crate::JobId(0),
            name: head.name.clone(),
            nodes: head.hello.values().map(|(node, _)| node.clone()).collect(),
            runs: head.plan.runs.clone(),
            info,
        };
        let offers = std::mem::take(&mut head.offers);
        let blobs = match self.blobs(&job, &offers, &known) {
            Ok(blobs) => blobs,
            Err(why) => return self.fail(1, why),
        };
        let Some(head) = &mut self.head else { return };
        let daemons = head.hello.iter().filter(|(node, _)| **node != Node::HEAD);
        let daemons = daemons.map(|(node, (_, address))| (*node, address.clone())).collect();
        let program = head.plan.program.clone();
        let coming = head.plan.staging.as_ref().map(|staging| staging.coming.clone());
        let setup = Setup { job, program, daemons, blobs, spares, coming };
        head.phase = Phase::Preparing;
        for node in head.all() {
            self.order(node, Control::Setup(Box::new(setup.clone())));
        }
    }

    /// What a daemon says to the head.
    pub(crate) fn head_control(&mut self, from: Node, what: Control) {
        let now = self.clock.now();
        let Some(head) = &mut self.head else { return };
        match what {
            Control::Hello { host, port, offers } if head.phase == Phase::Gathering => {
                let name = head.host(from);
                let address = match host.contains(':') {
                    true => format!("[{host}]:{port}"),
                    false => format!("{host}:{port}"),
                };
                head.offers.insert(from, offers);
                head.hello.insert(from, (node_info(name), address.clone()));
                let all = head.hello.len() == head.plan.hosts.len();
                self.peers.found_at(from, vec![address]);
                self.begin_watching();
                if all {
                    self.all_here();
                }
            }
            Control::NotStarted { node, why } => self.not_started(from, node, &why),
            Control::Prepared(Ok(address)) if head.phase == Phase::Preparing => {
                head.prepared.insert(from, address);
                if head.prepared.len() <= head.plan.hosts.len() {
                    return;
                }
                head.phase = Phase::Staging;
                head.until = head.plan.timeout.map_or(Time::NEVER, |time| now.after(time));
                if !self.begin_staging() {
                    self.head_starts();
                }
            }
            Control::Prepared(Err(why)) => {
                let name = head.hello.get(&from).map_or_else(String::new, |(n, _)| n.name.clone());
                self.fail(1, format!("{name}: {why}"));
            }
            Control::Output { rank, error, bytes } => {
                let len = bytes.len() as u64;
                head.printer.print(rank, error, bytes);
                if from != self.me {
                    self.send(from, Control::OutputTaken(len));
                }
            }
            Control::InputTaken(bytes) => {
                head.input_untaken = head.input_untaken.saturating_sub(bytes);
            }
            Control::Ended { rank, restarts, finalized, why } => {
                self.head_hears_end(from, rank, restarts, finalized, why);
            }
            _ => {}
        }
    }

    /// Everything is where it is to be: the ranks start.
    pub(super) fn head_starts(&mut self) {
        let now = self.clock.now();
        let Some(head) = &mut self.head else { return };
        head.phase = Phase::Running;
        self.engine.allow_restarts(head.plan.restarts);
        head.until = head.plan.timeout.map_or(Time::NEVER, |time| now.after(time));
        for node in head.all() {
            self.order(node, Control::Start);
        }
        self.check_ended();
    }

    /// The host of a rank, by name.
    fn host_of(&self, rank: u32) -> String {
        self.node_of_rank(rank).map_or_else(|| UNKNOWN.to_owned(), |node| self.name_of(node))
    }

    fn name_of(&self, node: Node) -> String {
        let info = self.job.as_ref().and_then(|job| job.node(node));
        info.map_or_else(|| UNKNOWN.to_owned(), |node| node.name.clone())
    }

    pub(super) fn rank_is_over(&mut self, on: Node, rank: u32, restarts: u32, why: Termination) {
        let host = self.name_of(on);
        let Some(head) = &mut self.head else { return };
        head.printer.ended(rank);
        let before = head.restarts.get(&rank).copied().unwrap_or_default();
        // Of one that was replaced meanwhile this is no news.
        if head.ended.contains_key(&rank) || restarts < before {
            return;
        }
        head.ended.insert(rank, (on, why.clone()));
        let code = match &why {
            Termination::Exited(code) => *code,
            Termination::Signalled(signal) => 128 + signal,
            Termination::NotStarted(_) => NOT_STARTED,
            _ => 1,
        };
        if code != 0 && head.failure.is_none() {
            let why = match before {
                0 => format!("rank {rank} on {host}: {why}"),
                1 => format!("rank {rank} on {host}: {why}, after it was restarted once"),
                n => format!("rank {rank} on {host}: {why}, after it was restarted {n} times"),
            };
            match head.plan.keep_going {
                true => head.failures.push(Failed { ranks: vec![rank], code, why }),
                false => self.fail(code, why),
            }
        }
        self.check_ended();
    }

    /// The job is to end, for this reason; the first one counts.
    pub(super) fn fail(&mut self, code: i32, why: String) {
        let Some(head) = &mut self.head else { return };
        head.failure.get_or_insert((code, why));
        self.end_job(SIGTERM);
    }

    /// The processes are asked to end by this signal, and made to if they do not.
    fn end_job(&mut self, signal: i32) {
        let now = self.clock.now();
        let Some(head) = &mut self.head else { return };
        let started = head.phase == Phase::Running;
        if head.phase == Phase::Ending {
            return;
        }
        head.phase = Phase::Ending;
        head.until = now.after(GRACE);
        self.engine.allow_restarts(None);
        if !started {
            self.give_up_staging();
            return self.say_bye();
        }
        self.signal_all(signal);
        self.check_ended();
    }

    fn signal_all(&mut self, signal: i32) {
        let nodes = self.head.as_ref().map_or_else(Vec::new, |head| head.all());
        let lost = self.engine.lost().clone();
        for node in nodes.into_iter().filter(|node| !lost.contains(node)) {
            self.order(node, Control::Signal(signal));
        }
    }

    /// When the last rank has ended, everybody may go.
    fn check_ended(&mut self) {
        let Some(head) = &self.head else { return };
        let over = head.ended.len() as u64 >= u64::from(head.size);
        if over && matches!(head.phase, Phase::Running | Phase::Ending) {
            self.say_bye();
        }
    }

    fn say_bye(&mut self) {
        if self.over.is_some() {
            return;
        }
        let nodes = self.head.as_ref().map_or_else(Vec::new, |head| head.all());
        for node in nodes.into_iter().filter(|node| *node != Node::HEAD) {
            if !self.engine.lost().contains(&node) {
                self.peers.send(node, Control::Bye, &self.waker);
            }
        }
        self.over = Some(Ok(()));
    }

    /// What the engine tells the head.
    pub(crate) fn head_output(&mut self, output: Output) {
        match output {
            Output::Abort { by, status: code, message } => {
                let by = match by.rank {
                    rank if by.job == crate::JobId(0) => {
                        format!("rank {rank} on {}", self.host_of(rank))
                    }
                    _ => by.to_string(),
                };
                let code = if code & 0xff == 0 { 1 } else { code & 0xff };
                self.fail(code, format!("{by} aborted the job: {message}"));
            }
            Output::NeverConnected(missing) => {
                let ranks: Vec<String> = missing
                    .procs
                    .iter()
                    .map(|proc| {
                        let Proc { rank, .. } = *proc;
                        format!("rank {rank} on {}", self.host_of(rank))
                    })
                    .collect();
                let more = match missing.more {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let text =
                    format!("{}{more} never connected, though others have", ranks.join(", "));
                self.fail(1, text);
            }
            Output::Surveyed => self.surveyed(),
            _ => {}
        }
    }

    /// A daemon is lost. Says whether that is news to the head; elsewhere it always is.
    pub(super) fn head_hears_loss(&mut self, node: Node, why: &str) -> bool {
        let Some(head) = &mut self.head else { return true };
        if head.lost.contains_key(&node) {
            return false;
        }
        head.lost.insert(node, why.to_owned());
        true
    }

    /// A daemon is lost, and its ranks with it.
    pub(crate) fn head_lost_node(&mut self, node: Node, why: &str) {
        let on_the_way = self.lost_on_the_way(node);
        let Some(head) = &self.head else { return };
        let name = head.host(node);
        if matches!(head.phase, Phase::Gathering | Phase::Surveying | Phase::Preparing) {
            let (name, why) = match self.ended_above(node, head.plan.starter.fan_out) {
                Some(first) => (head.host(first), "it has ended"),
                None => (name, why),
            };
            return self.fail(1, format!("{name}: the daemon there is lost: {why}"));
        }
        if head.phase == Phase::Staging {
            let what = on_the_way.map_or_else(String::new, |file| format!("{}: ", file.display()));
            return self.fail(1, format!("{name}: {what}the daemon there is lost: {why}"));
        }
        if self.engine.is_spare(node) {
            return self.spare_lost(&name, why);
        }
        let Some(head) = &mut self.head else { return };
        let ranks: Vec<u32> =
            self.job.as_ref().map_or_else(Vec::new, |job| job.ranks_on(node).to_vec());
        let lost: Vec<u32> =
            ranks.into_iter().filter(|rank| !head.ended.contains_key(rank)).collect();
        lost.iter().for_each(|rank| {
            head.ended.insert(*rank, (node, Termination::NodeLost));
        });
        if !lost.is_empty() {
            let names: Vec<String> = lost.iter().map(u32::to_string).collect();
            let mut text = format!("{name} is lost ({why}), and with it rank {}", names.join(", "));
            // Who was to see to it without anybody asking could not.
            if head.plan.spares > 0
                && head.plan.restart_failed
                && let Some(why) = self.engine.why_not_replaced(node)
            {
                text = format!("{text}; {why}");
            }
            match head.plan.keep_going {
                true => head.failures.push(Failed { ranks: lost, code: 1, why: text }),
                false => self.fail(1, text),
            }
        }
        self.check_ended();
    }

    /// A daemon is not there, and will not be.
    fn not_started(&mut self, by: Node, node: Node, why: &str) {
        let Some(head) = &self.head else { return };
        if head.phase != Phase::Gathering {
            return;
        }
        let host = head.host(node);
        let by = match by {
            Node::HEAD => String::new(),
            by => format!(" (by the one on {})", head.host(by)),
        };
        let what = match head.hello.contains_key(&node) {
            true => "the daemon there has ended",
            false => "no daemon was started there",
        };
        self.fail(1, format!("{host}: {what}{by}: {why}"));
    }

    pub(crate) fn head_signal(&mut self, signal: i32) {
        let Some(head) = &mut self.head else { return };
        if [Signal::SIGUSR1 as i32, Signal::SIGUSR2 as i32].contains(&signal) {
            return self.signal_all(signal);
        }
        if signal == Signal::SIGTSTP as i32 {
            return self.pause();
        }
        head.signals += 1;
        if head.signals > 1 {
            return self.signal_all(SIGKILL);
        }
        let name = Signal::try_from(signal).map_or("a signal", Signal::as_str);
        head.failure.get_or_insert((128 + signal, format!("interrupted by {name}")));
        self.end_job(signal);
    }

    /// The job stops as the user has asked for at the terminal, and this process with it; then all goes on. Ranks cannot
    /// be asked to stop by themselves: without a terminal of their own the system would not do it.
    fn pause(&mut self) {
        self.signal_all(Signal::SIGSTOP as i32);
        let until = self.clock.now().after(FLUSH);
        self.flush();
        while self.peers.total_backlog() > 0 && self.clock.now() < until {
            std::thread::sleep(Duration::from_millis(1));
            self.flush();
        }
        let stopped = self.clock.now();
        stop();
        // The time of the job stood still as well.
        let took = self.clock.now().since(stopped);
        if let Some(head) = &mut self.head {
            head.until = head.until.after(took);
        }
        self.signal_all(Signal::SIGCONT as i32);
    }

    /// Output could not be written: the job ends, for what else it would write is lost as well, unless it was told to
    /// go on.
    pub(crate) fn head_unwritten(&mut self, lost: Unwritten) {
        let Some(head) = &mut self.head else { return };
        head.unwritten.get_or_insert_with(|| lost.clone());
        if !head.plan.keep_going {
            self.fail(code_of(&lost), lost.to_string());
        }
    }

    pub(crate) fn head_deadline(&self) -> Time {
        let Some(head) = &self.head else { return Time::NEVER };
        let later = head.input_later > self.clock.now() && head.input_open;
        if later { head.until.min(head.input_later) } else { head.until }
    }

    pub(crate) fn head_time(&mut self, now: Time) {
        let Some(head) = &mut self.head else { return };
        if now < head.until || self.over.is_some() {
            return;
        }
        let missing = |here: &dyn Fn(&Node) -> bool| -> String {
            let hosts = head.plan.hosts.iter().enumerate();
            let late = hosts.filter(|(at, _)| !here(&Node(*at as u32 + 1)));
            late.map(|(_, host)| host.as_str()).collect::<Vec<_>>().join(", ")
        };
        match head.phase {
            Phase::Gathering => {
                // Those that another one had to start are not there because of that one.
                let starts = |node: &Node| tree::parent(*node, head.plan.starter.fan_out);
                let here = |node: &Node| *node == Node::HEAD || head.hello.contains_key(node);
                let text = missing(&|node| here(node) || !here(&starts(node)));
                let late = head.plan.hosts.len() - head.hello.len();
                let all =
                    if late > 1 { format!(" ({late} are missing in all)") } else { String::new() };
                self.fail(1, format!("{text}: no daemon came up within {START:?}{all}"));
            }
            Phase::Surveying => {
                self.fail(1, format!("the nodes have not said what they have within {START:?}"));
            }
            Phase::Preparing => {
                let text = missing(&|node| head.prepared.contains_key(node));
                self.fail(1, format!("{text}: not ready within {START:?}"));
            }
            Phase::Staging => {
                let time = head.plan.timeout.unwrap_or_default();
                self.fail(124, format!("the files were not on all nodes within {time:?}"));
            }
            Phase::Running => {
                let time = head.plan.timeout.unwrap_or_default();
                let left: Vec<String> = (0..head.size)
                    .filter(|rank| !head.ended.contains_key(rank))
                    .take(16)
                    .map(|rank| rank.to_string())
                    .collect();
                let left = left.join(", ");
                self.fail(124, format!("the time of {time:?} is over; running: rank {left}"));
            }
            Phase::Ending => {
                head.until = now.after(GRACE);
                if std::mem::replace(&mut head.killed, true) {
                    return self.give_up_daemons();
                }
                self.signal_all(SIGKILL);
            }
        }
    }

    /// The processes of a node were to be ended, and its daemon has not said that they are: it is stopped, or stands still.
    fn give_up_daemons(&mut self) {
        let Some((head, job)) = self.head.as_ref().zip(self.job.as_ref()) else { return };
        let left = (0..head.size).filter(|rank| !head.ended.contains_key(rank));
        let nodes: BTreeSet<Node> = left.filter_map(|rank| job.node_of(rank)).collect();
        for node in nodes.into_iter().filter(|node| *node != Node::HEAD) {
            self.lost(node, "the daemon there does not end its processes");
        }
    }

    /// Whether standard input is read now.
    pub(crate) fn head_takes_input(&self) -> bool {
        self.head.as_ref().is_some_and(|head| {
            let room = head.input_untaken < WINDOW && self.clock.now() >= head.input_later;
            head.input_open && head.phase == Phase::Running && room && !head.ended.contains_key(&0)
        })
    }

    pub(crate) fn head_read_input(&mut self) {
        let mut bytes = vec![0; 32 << 10];
        let read = match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return,
            Err(rustix::io::Errno::IO) if io::stdin().is_terminal() => {
                let later = self.clock.now().after(BACKGROUND);
                return self.head.iter_mut().for_each(|head| head.input_later = later);
            }
            read => read.unwrap_or(0),
        };
        bytes.truncate(read);
        let node = self.node_of_rank(0).unwrap_or_default();
        let Some(head) = &mut self.head else { return };
        head.input_untaken += read as u64;
        head.input_open = read > 0;
        self.order(node, Control::Input(bytes));
    }

    /// After the end: the others go, or are made to.
    fn head_ends(mut self) -> io::Result<Verdict> {
        let Some(mut head) = self.head.take() else {
            return Err(io::Error::other("this is not the head"));
        };
        if let Some(lost) = head.printer.finish() {
            head.unwritten.get_or_insert(lost);
        }
        self.leave_remotes();
        let ranks = std::mem::take(&mut head.ended);
        let ended = |(rank, (on, why))| (rank, (self.name_of(on), why));
        let ranks = ranks.into_iter().map(ended);
        let ranks = ranks.collect();
        let replaced = head.replaced.iter().map(|(node, by)| {
            let why = head.lost.get(node).cloned().unwrap_or_default();
            (head.host(*node), why, head.host(*by))
        });
        let replaced = replaced.collect();
        let first = head.failures.into_iter().next().map(|failed| (failed.code, failed.why));
        // Which was told to go on without a reader has gone well.
        let unwritten = head.unwritten.as_ref();
        let lost = unwritten.filter(|lost| !head.plan.keep_going || **lost != Unwritten::Closed);
        let lost = lost.map(|lost| (code_of(lost), lost.to_string()));
        let failure = head.failure.or(first).or(lost);
        let (code, why) = failure.map_or((0, None), |(code, why)| (code, Some(why)));
        let unread = unwritten == Some(&Unwritten::Closed);
        let output_lost = unwritten.filter(|_| !unread).map(Unwritten::to_string);
        let (restarts, staged) = (head.restarts, head.staged);
        Ok(Verdict { code, why, unread, output_lost, ranks, restarts, replaced, staged })
    }
}

/// The exit code of a job whose output was lost: without a reader that of a program in a pipeline.
fn code_of(lost: &Unwritten) -> i32 {
    match lost {
        Unwritten::Closed => 128 + Signal::SIGPIPE as i32,
        Unwritten::Refused { .. } => 1,
    }
}

/// The addresses of this machine that others may reach.
fn own_addresses() -> Vec<String> {
    let interfaces = nix::ifaddrs::getifaddrs();
    let mut found = Vec::new();
    for interface in interfaces.into_iter().flatten() {
        let Some(address) = interface.address else { continue };
        if let Some(v4) = address.as_sockaddr_in() {
            found.push(v4.ip().to_string());
        } else if let Some(v6) = address.as_sockaddr_in6()
            && v6.ip().segments()[0] & 0xffc0 != 0xfe80
        {
            found.push(v6.ip().to_string());
        }
    }
    // This machine's own last: other hosts find others there.
    found.sort_by_key(|address| address.starts_with("127.") || address == "::1");
    found
}
