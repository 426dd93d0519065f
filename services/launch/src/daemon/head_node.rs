//! What only the daemon of the head node does: it has the [`Controller`] of the job hear of what
//! happens, carries out its orders, and prints what the ranks write.

use super::{
    Daemon,
    control::{Control, Program, Setup, Starter},
    gathering::Roster,
    input::Input,
    output_files::OutputFiles,
    print::Printer,
    signals,
    staging::{ToStage, Work},
};
use crate::{
    controller::{Controller, Loss, Order},
    engine::{Config, Output},
    outcome::Outcome,
    plugins::Plugins,
    settings::Settings,
};
use nix::sys::signal::SigSet;
use petasos_fabric::Time;
use petasos_pmix::server::host_name;
use petasos_pmix::{
    Node, Termination,
    job::Run,
    server::{hex, random},
};
use std::{collections::BTreeSet, io, path::PathBuf};

/// A job to be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The hosts beside this one, by the names that the start command takes, from node 1 on.
    pub(crate) hosts: Vec<String>,
    pub(crate) runs: Vec<Run>,
    pub(crate) program: Program,
    pub(crate) starter: Starter,
    pub(crate) settings: Settings,
    /// The directory for what the ranks write, if that is not to be printed.
    pub(crate) output: Option<PathBuf>,
    /// Files that are brought to the nodes first.
    pub(crate) staging: Option<ToStage>,
    pub(crate) plugins: Plugins,
}

impl Plan {
    /// Whether all ranks are on one host, and will be.
    pub(super) fn ranks_are_alone(&self) -> bool {
        let with_ranks = self.runs.iter().filter(|run| run.count > 0);
        let hosts: BTreeSet<Node> = with_ranks.map(|run| run.node).collect();
        self.settings.spares == 0 && hosts.len() == 1
    }
}

#[derive(Debug)]
pub(super) struct HeadNode {
    pub(super) plan: Plan,
    /// The name of the job.
    pub(super) name: String,
    pub(super) controller: Controller,
    pub(super) roster: Roster,
    /// What the daemons are told of the job.
    pub(super) setup: Option<Setup>,
    /// What brings files to the nodes.
    pub(super) work: Option<Work>,
    pub(super) printer: Printer,
    pub(super) input: Input,
}

/// Runs a job from here, to its end.
pub(crate) fn run(plan: Plan) -> io::Result<Outcome> {
    let nodes = plan.hosts.len() as u32 + 1;
    let before = SigSet::thread_get_mask()?;
    let settings = &plan.settings;
    // No rank is restarted before all have been started.
    let config = Config {
        connect: settings.connect,
        restart_failed: settings.restart_failed,
        spares: settings.spares,
        ..Config::default()
    };
    let mut daemon = Daemon::new(Node::HEAD, nodes, random(), settings.silence, config)?;
    daemon.plugins = plan.plugins.clone();
    signals::take_users(daemon.waker.another()?)?;
    daemon.ranks.set_reader(settings.input);
    let ranks = plan.runs.iter().map(|run| run.count).sum();
    let files = plan.output.as_deref().map(|into| OutputFiles::create(into, ranks)).transpose()?;
    let printer = Printer::start(settings.labels, files, daemon.waker.another()?)?;
    let port = if nodes > 1 { Some(daemon.peers.listen()?) } else { None };
    let mut hosts = vec![host_name()];
    hosts.extend_from_slice(&plan.hosts);
    let (runs, now) = (plan.runs.clone(), daemon.clock.now());
    let stages = plan.staging.is_some();
    daemon.head = Some(Box::new(HeadNode {
        name: hex(&random()[..8]),
        controller: Controller::new(settings.clone(), stages, hosts, runs, now),
        roster: Roster::new(port),
        setup: None,
        work: None,
        printer,
        input: Input::new(settings.input.is_some()),
        plan,
    }));
    daemon.take_inventory();
    daemon.carry_out();
    daemon.live();
    daemon.end();
    // Nothing is left of the job here. What is to be printed may wait for its reader, and a signal
    // ends that.
    before.thread_set_mask()?;
    daemon.outcome()
}

impl Daemon {
    /// Has the controller, if it is here, hear of something, and carries out what it orders.
    pub(super) fn tell_controller(&mut self, tell: impl FnOnce(&mut Controller, Time)) {
        let now = self.clock.now();
        if let Some(head) = &mut self.head {
            tell(&mut head.controller, now);
            self.carry_out();
        }
    }

    /// Does what the controller orders. An order may lead to more: those come after all that are
    /// there.
    pub(super) fn carry_out(&mut self) {
        while let Some(order) = self.head.as_mut().and_then(|head| head.controller.poll()) {
            match order {
                Order::StartDaemons => self.start_remotes(),
                Order::Survey => self.survey(),
                Order::Describe => self.describe(),
                Order::SetUp(node) => {
                    let setup = self.head.as_ref().and_then(|head| head.setup.clone());
                    setup.into_iter().for_each(|to| self.order(node, Control::Setup(Box::new(to))));
                }
                Order::Stage => self.begin_staging(),
                Order::StopStaging => self.give_up_staging(),
                Order::Watch(node) => self.order(node, Control::Watch),
                Order::AllowRestarts(restarts) => self.engine.allow_restarts(restarts),
                Order::Start(node) => self.order(node, Control::Start),
                Order::Signal(node, signal) => self.order(node, Control::Signal(signal)),
                Order::Pause => self.pause(),
                Order::GiveUp(node, why) => self.lost(node, why),
                Order::Say(line) => self.log(&line),
                // Whether it can be told that is of no consequence any more.
                Order::Release(node) => drop(self.peers.send(node, Control::Bye, &self.waker)),
                Order::Finish => drop(self.over.get_or_insert(Ok(()))),
            }
        }
    }

    /// What a daemon says to that of the head node.
    pub(super) fn report_came(&mut self, from: Node, what: Control) {
        let now = self.clock.now();
        let Some(head) = &mut self.head else { return };
        match what {
            Control::Hello { host, port, offers } => {
                if !head.controller.daemon_arrived(from) {
                    return;
                }
                let address = match host.contains(':') {
                    true => format!("[{host}]:{port}"),
                    false => format!("{host}:{port}"),
                };
                head.roster.arrived(from, address.clone(), offers);
                self.peers.found_at(from, vec![address]);
                self.begin_watching();
            }
            Control::NotStarted { node, why } => {
                head.controller.daemon_not_started(now, from, node, &why);
            }
            Control::Prepared(result) => {
                let result = result.map(|files| head.roster.takes_files(from, files));
                head.controller.prepared(now, from, result);
            }
            Control::Output { rank, error, bytes } => {
                let len = bytes.len() as u64;
                head.printer.print(rank, error, bytes);
                if from != self.me {
                    self.send(from, Control::OutputTaken(len));
                }
            }
            Control::InputTaken(bytes) => head.input.taken(bytes),
            Control::Ended { rank, restarts, finalized, why } => {
                self.rank_end_came(from, rank, restarts, finalized, why);
            }
            _ => {}
        }
        self.carry_out();
    }

    /// What the engine has to say at the head node alone.
    pub(super) fn engine_reports(&mut self, output: Output) {
        self.tell_controller(|controller, now| match output {
            Output::Abort { by, status, message } => controller.aborted(now, by, status, &message),
            Output::NeverConnected(missing) => controller.never_connected(now, &missing),
            Output::Surveyed => controller.surveyed(),
            _ => {}
        });
    }

    /// A process ended. Where it is restarted at once, that is decided before it counts as failed.
    fn rank_end_came(
        &mut self,
        on: Node,
        rank: u32,
        restarts: u32,
        finalized: bool,
        why: Termination,
    ) {
        if let Some(proc) = self.job.as_ref().map(|job| job.proc(rank)) {
            let now = self.clock.now();
            if !finalized && !why.is_clean() {
                self.engine.report_remote_failure(now, proc, restarts, why.clone());
            } else {
                let how = if finalized { Termination::Finalized } else { why.clone() };
                self.engine.report_remote_end(now, proc, restarts, how);
            }
        }
        self.handle_outputs();
        self.head.iter_mut().for_each(|head| head.printer.ended(rank));
        self.tell_controller(|controller, now| {
            controller.rank_ended(now, on, rank, restarts, why);
        });
    }

    /// A daemon cannot be reached any more.
    pub(super) fn lost(&mut self, node: Node, why: &str) {
        if self.over.is_some() {
            return;
        }
        self.peers.down(node);
        let now = self.clock.now();
        let Some(head) = &mut self.head else { return self.engine.peer_lost(now, node) };
        if !head.controller.loss_heard(node, why) {
            return;
        }
        // Where another node can take its place, that is decided before its ranks count as failed.
        // Otherwise it is named first, for those that it was to start cannot be reached, either.
        if head.controller.is_running() {
            self.engine.peer_lost(now, node);
            self.handle_outputs();
            self.tell_loss(node, why);
        } else {
            self.tell_loss(node, why);
            self.engine.peer_lost(now, node);
        }
    }

    fn tell_loss(&mut self, node: Node, why: &str) {
        let Some(head) = &self.head else { return };
        let loss = Loss {
            node,
            why: why.to_owned(),
            ended_above: self.ended_above(node, head.plan.settings.fan_out),
            file: head.work.as_ref().and_then(|work| work.under_way(node)),
            not_replaced: self.engine.why_not_replaced(node).map(|why| why.to_string()),
        };
        self.tell_controller(|controller, now| controller.node_lost(now, loss));
    }

    /// A node has taken the place of another: what is still here of its ranks ends.
    pub(super) fn node_replaced(&mut self, node: Node, by: Node) {
        let ranks = self.job.as_ref().map_or_else(Vec::new, |job| job.ranks_on(by).to_vec());
        let Some(head) = &mut self.head else { return };
        head.controller.replaced(node, by);
        ranks.iter().for_each(|rank| head.printer.ended(*rank));
        // What was on its way to the rank that reads input is lost; the end of it is told again.
        let reads = head.plan.settings.input.is_some_and(|reader| ranks.contains(&reader));
        if reads && head.input.begin_again() {
            self.order(by, Control::Input(Vec::new()));
        }
    }

    /// When the head node has something to do.
    pub(super) fn head_deadline(&self) -> Time {
        let Some(head) = &self.head else { return Time::NEVER };
        head.controller.deadline().min(head.input.deadline(self.clock.now()))
    }

    /// Whether standard input is read now.
    pub(super) fn takes_input(&self) -> bool {
        let now = self.clock.now();
        self.head
            .as_ref()
            .is_some_and(|head| head.input.is_wanted(now) && head.controller.feeds_reader())
    }

    /// There is standard input.
    pub(super) fn read_input(&mut self) {
        let reader = self.head.as_ref().and_then(|head| head.plan.settings.input);
        let node = reader.and_then(|reader| self.node_of_rank(reader)).unwrap_or_default();
        let now = self.clock.now();
        let read = self.head.as_mut().and_then(|head| head.input.read(now));
        read.into_iter().for_each(|bytes| self.order(node, Control::Input(bytes)));
    }

    /// After the end: the others go, or are made to.
    fn outcome(mut self) -> io::Result<Outcome> {
        let Some(mut head) = self.head.take() else {
            return Err(io::Error::other("this is not the head node"));
        };
        let unwritten = head.printer.finish();
        self.leave_remotes();
        Ok(head.controller.outcome(unwritten))
    }
}
