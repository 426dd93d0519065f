//! What a controller controls, simulated: daemons that come up, ranks that end, nodes that are
//! lost, an engine that restarts and replaces, a user with signals; all from a seed, in virtual
//! time. Each order is checked when it comes, and a model that knows only what happened says which
//! exit code is right.

use super::*;
use petasos_sim::Random;
use std::collections::BTreeMap;

/// By then the user has lost patience with a job that hangs.
const PATIENCE: u64 = 1000;

#[derive(Clone, Debug)]
enum Event {
    Arrives(Node),
    NotStarted(Node),
    Surveyed,
    Prepared(Node, Result<(), String>),
    Staged(Result<(), String>),
    /// The process of a rank that was restarted so often ends.
    Ends(u32, u32, Termination),
    /// What was told of a process is told again.
    Repeated(Node, u32, u32, Termination),
    /// A rank asks for another one to be restarted, or for a node to be replaced.
    AsksForRank(u32),
    AsksForNode(Node),
    Lost(Node),
    Signal(i32),
    Unwritten(Unwritten),
    Abort(i32),
    NeverConnected,
    TooEarly,
}

/// How far the job is, as far as orders tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Gathering,
    Surveying,
    Preparing,
    Staging,
    Running,
    Finished,
}

/// A process of a rank.
#[derive(Clone, Debug)]
struct Process {
    on: Node,
    restarts: u32,
}

pub(super) struct World {
    seed: u64,
    random: Random,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    settings: Settings,
    stages: bool,
    hosts: u32,
    controller: Controller,
    stage: Stage,
    arrived: BTreeSet<Node>,
    lost: BTreeSet<Node>,
    /// Nodes whose daemon is stopped: it says nothing any more.
    stuck: BTreeSet<Node>,
    /// Where ranks were started.
    started: BTreeSet<Node>,
    released: BTreeSet<Node>,
    /// By rank, the process that runs.
    running: BTreeMap<u32, Process>,
    /// By rank, the node of its last process, and how often it was restarted.
    last: BTreeMap<u32, Process>,
    /// What the engine may do.
    allowed: Option<u32>,
    replaced: BTreeMap<Node, Node>,
    /// Ranks that were lost with a node, and not restarted.
    lost_with: BTreeMap<Node, Vec<u32>>,
    /// The ending orders have begun.
    ends: bool,
    /// What is the exit code in the end: of what ended the job, of ranks that failed while it went
    /// on, of output.
    fatal: Option<i32>,
    tolerated: Vec<(Vec<u32>, i32)>,
    unwritten: Option<Unwritten>,
    /// What happens comes with this chance, in percent.
    trouble: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let hosts = 1 + random.below(5) as u32;
        let mut spares = if random.one_in(2) { random.below(u64::from(hosts)) as u32 } else { 0 };
        let (keep_going, restart_failed) = (random.one_in(2), random.one_in(2));
        if !keep_going && !restart_failed {
            spares = 0;
        }
        let settings = Settings {
            keep_going,
            restarts: random.below(4) as u32,
            restart_failed,
            spares,
            timeout: random.one_in(3).then(|| Duration::from_secs(1 + random.below(60))),
            fan_out: random.below(3) as u32,
            ..Settings::default()
        };
        let stages = random.one_in(3);
        let with_ranks = hosts - spares;
        let mut runs: Vec<Run> = (0..1 + random.below(6))
            .map(|_| Run {
                node: Node(random.below(u64::from(with_ranks)) as u32),
                count: random.below(3) as u32,
            })
            .collect();
        runs[0].count += 1;
        let names = (0..hosts).map(|host| format!("h{host}")).collect();
        let mut last = BTreeMap::new();
        for run in &runs {
            for _ in 0..run.count {
                last.insert(last.len() as u32, Process { on: run.node, restarts: 0 });
            }
        }
        let now = Time(random.below(1_000_000_000));
        let mut world = World {
            seed,
            now,
            events: BTreeMap::new(),
            number: 0,
            controller: Controller::new(settings.clone(), stages, names, runs, now),
            settings,
            stages,
            hosts,
            stage: Stage::Gathering,
            arrived: [Node::HEAD].into(),
            lost: BTreeSet::new(),
            stuck: BTreeSet::new(),
            started: BTreeSet::new(),
            released: BTreeSet::new(),
            running: BTreeMap::new(),
            last,
            allowed: None,
            replaced: BTreeMap::new(),
            lost_with: BTreeMap::new(),
            ends: false,
            fatal: None,
            tolerated: Vec::new(),
            unwritten: None,
            trouble: [0, 2, 10, 30][random.below(4) as usize],
            random,
        };
        world.plan_troubles();
        world
    }

    /// What happens whatever the job does.
    fn plan_troubles(&mut self) {
        self.plan(PATIENCE, Event::Signal(2));
        for node in 1..self.hosts {
            let may_be_replaced = self.settings.spares > 0 && self.random.one_in(3);
            if may_be_replaced || self.trouble() {
                self.plan_soon(40, Event::Lost(Node(node)));
            }
            if self.trouble() {
                self.stuck.insert(Node(node));
            }
        }
        for signal in [2, 15, 1, 10, 12, 20] {
            if self.trouble() {
                self.plan_soon(60, Event::Signal(signal));
            }
        }
        let refused = Unwritten::Refused { error: true, why: "full".to_owned() };
        for event in [
            Event::Unwritten(Unwritten::Closed),
            Event::Unwritten(refused),
            Event::Abort(self.random.below(300) as i32),
            Event::NeverConnected,
        ] {
            if self.trouble() {
                self.plan_soon(60, event);
            }
        }
        (0..3).for_each(|_| self.plan_soon(60, Event::TooEarly));
    }

    fn trouble(&mut self) -> bool {
        self.random.below(100) < self.trouble
    }

    fn plan(&mut self, seconds: u64, event: Event) {
        self.number += 1;
        self.events.insert((self.now.after(Duration::from_secs(seconds)), self.number), event);
    }

    /// At any moment within so many seconds.
    fn plan_soon(&mut self, seconds: u64, event: Event) {
        self.number += 1;
        let after = self.random.time(Duration::from_secs(seconds));
        self.events.insert((self.now.after(after), self.number), event);
    }

    /// Runs the job to its end, and gives what must be true of that.
    pub(super) fn run(mut self) {
        self.carry_out();
        let mut steps = 0;
        while self.stage != Stage::Finished {
            steps += 1;
            assert!(steps < 10_000, "seed {}: the job does not end", self.seed);
            self.check_deadline();
            let deadline = self.controller.deadline();
            match self.events.first_key_value().map(|((at, _), _)| *at) {
                Some(at) if at < deadline => {
                    let Some(((at, _), event)) = self.events.pop_first() else { return };
                    self.now = self.now.max(at);
                    self.happens(event);
                }
                _ => {
                    self.now = self.now.max(deadline);
                    match self.stage {
                        Stage::Staging | Stage::Running if !self.ends => self.fails(124),
                        _ => self.fails(1),
                    }
                    self.controller.time(self.now);
                }
            }
            self.carry_out();
        }
        self.check_end();
    }

    /// While something is awaited that may never come there is a deadline.
    fn check_deadline(&self) {
        let may_last =
            !self.ends && self.stage >= Stage::Staging && self.settings.timeout.is_none();
        let is_set = self.controller.deadline() != Time::NEVER;
        assert!(is_set || may_last, "seed {}: no deadline: {:?}", self.seed, self.stage);
    }

    /// The job fails for this, if it does not end already.
    fn fails(&mut self, code: i32) {
        if self.stage != Stage::Finished {
            self.fatal.get_or_insert(code);
        }
    }

    fn ranks_fail(&mut self, ranks: Vec<u32>, code: i32) {
        match self.settings.keep_going {
            true => self.tolerated.push((ranks, code)),
            false => self.fails(code),
        }
    }

    fn happens(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Arrives(node) if !self.lost.contains(&node) => {
                self.arrived.insert(node);
                self.controller.daemon_arrived(node);
            }
            Event::NotStarted(node) => {
                if self.stage == Stage::Gathering {
                    self.fails(1);
                }
                self.controller.daemon_not_started(now, Node::HEAD, node, "it failed");
            }
            Event::Surveyed => self.controller.surveyed(),
            Event::Prepared(node, result) if !self.lost.contains(&node) => {
                if result.is_err() {
                    self.fails(1);
                }
                self.controller.prepared(now, node, result);
            }
            Event::Staged(result) if self.controller.is_staging() => match result {
                Ok(()) => {
                    let took = Duration::ZERO;
                    self.controller.staged(now, Staged { files: 1, bytes: 1, hosts: 1, took });
                }
                Err(why) => {
                    self.fails(1);
                    self.controller.fail(now, 1, why);
                }
            },
            Event::Ends(rank, restarts, why) => self.process_ends(rank, restarts, why),
            Event::Repeated(on, rank, restarts, why) if !self.lost.contains(&on) => {
                self.controller.rank_ended(now, on, rank, restarts, why);
            }
            Event::AsksForRank(rank) => self.asks_for_rank(rank),
            Event::AsksForNode(node) => self.replace(node),
            Event::Lost(node) => self.lose(node),
            Event::Signal(signal) => {
                if [1, 2, 15].contains(&signal) {
                    self.fails(128 + signal);
                }
                self.controller.signal(now, signal);
            }
            Event::Unwritten(lost) => {
                self.unwritten.get_or_insert(lost.clone());
                if !self.settings.keep_going {
                    self.fails(if lost == Unwritten::Closed { 141 } else { 1 });
                }
                self.controller.output_unwritten(now, lost);
            }
            Event::Abort(status) => {
                self.fails(if status % 256 == 0 { 1 } else { status % 256 });
                self.controller.aborted(now, Proc::new(JobId(0), 0), status, "enough");
            }
            Event::NeverConnected => {
                self.fails(1);
                self.controller.never_connected(now, &Missing::default());
            }
            Event::TooEarly if now < self.controller.deadline() => self.controller.time(now),
            _ => {}
        }
    }

    /// A process ends, and its daemon says so, unless it is stopped or lost.
    fn process_ends(&mut self, rank: u32, restarts: u32, why: Termination) {
        let is_it = |process: &&Process| process.restarts == restarts;
        let Some(process) = self.running.get(&rank).filter(is_it).cloned() else { return };
        if self.stuck.contains(&process.on) {
            return;
        }
        self.running.remove(&rank);
        let code = match &why {
            Termination::Exited(code) => *code,
            Termination::Signalled(signal) => 128 + signal,
            Termination::NotStarted(_) => 127,
            _ => 1,
        };
        let may = self.allowed.is_some_and(|most| restarts < most);
        let again = code != 0 && may && self.settings.restart_failed;
        if again && !matches!(why, Termination::NotStarted(_)) {
            self.restart(rank, process.on);
        } else if code != 0 && self.fatal.is_none() {
            self.ranks_fail(vec![rank], code);
        }
        if code != 0 && self.random.one_in(3) {
            self.plan_soon(5, Event::AsksForRank(rank));
        }
        if self.random.one_in(4) {
            self.plan_soon(5, Event::Repeated(process.on, rank, restarts, why.clone()));
        }
        self.controller.rank_ended(self.now, process.on, rank, restarts, why);
    }

    fn asks_for_rank(&mut self, rank: u32) {
        let last = self.last[&rank].clone();
        let may = self.allowed.is_some_and(|most| last.restarts < most);
        if may && !self.running.contains_key(&rank) && !self.lost.contains(&last.on) {
            self.restart(rank, last.on);
        }
    }

    fn restart(&mut self, rank: u32, on: Node) {
        let restarts = self.last[&rank].restarts + 1;
        self.tolerated.iter_mut().for_each(|(ranks, _)| ranks.retain(|of| *of != rank));
        self.tolerated.retain(|(ranks, _)| !ranks.is_empty());
        self.controller.restarted(rank, restarts);
        self.process_begins(rank, on, restarts);
    }

    fn process_begins(&mut self, rank: u32, on: Node, restarts: u32) {
        let process = Process { on, restarts };
        self.last.insert(rank, process.clone());
        self.running.insert(rank, process);
        let why = match self.random.below(100) {
            fail if fail < self.trouble => match self.random.below(9) {
                0 => Termination::Signalled(11),
                1 => Termination::NotFinalized,
                2 => Termination::NotStarted("none".to_owned()),
                3 => Termination::Failed("cut".to_owned()),
                // It hangs.
                4 => return,
                code => Termination::Exited(code as i32),
            },
            _ => Termination::Exited(0),
        };
        self.plan_soon(40, Event::Ends(rank, restarts, why));
    }

    /// A node is lost, and the daemon of the head node hears of that.
    fn lose(&mut self, node: Node) {
        if self.stage == Stage::Finished || !self.controller.loss_heard(node, "cut") {
            return;
        }
        self.lost.insert(node);
        let ranks = self.running.iter().filter(|(_, process)| process.on == node);
        let ranks: Vec<u32> = ranks.map(|(rank, _)| *rank).collect();
        // What had ended where the daemon could not say so is lost as well.
        let ran = self.stage == Stage::Running;
        self.running.retain(|rank, _| !ranks.contains(rank));
        self.lost_with.insert(node, ranks.clone());
        let is_running = self.controller.is_running();
        if is_running && self.settings.restart_failed {
            self.replace(node);
        }
        match ran {
            false => self.fails(1),
            true if ranks.is_empty() || self.replaced.contains_key(&node) => {}
            true => {
                self.ranks_fail(ranks, 1);
                self.plan_soon(5, Event::AsksForNode(node));
            }
        }
        let (why, file) = ("cut".to_owned(), None);
        let loss = Loss { node, why, ended_above: None, file, not_replaced: None };
        self.controller.node_lost(self.now, loss);
    }

    /// The engine has a lost node replaced, where that can be.
    fn replace(&mut self, node: Node) {
        let Some(most) = self.allowed.filter(|_| !self.replaced.contains_key(&node)) else {
            return;
        };
        let ranks = self.lost_with.get(&node).cloned().unwrap_or_default();
        let few = ranks.iter().all(|rank| self.last[rank].restarts < most);
        let mut spares = (self.hosts - self.settings.spares..self.hosts).map(Node);
        let is_free = |spare: &Node| {
            !self.lost.contains(spare) && self.replaced.values().all(|by| by != spare)
        };
        let Some(by) = spares.find(is_free).filter(|_| few && !ranks.is_empty()) else { return };
        self.replaced.insert(node, by);
        self.controller.replaced(node, by);
        ranks.iter().for_each(|rank| self.restart(*rank, by));
    }

    /// Does what the controller orders, and checks it.
    fn carry_out(&mut self) {
        while let Some(order) = self.controller.poll() {
            let seed = self.seed;
            assert_ne!(self.stage, Stage::Finished, "seed {seed}: after the end: {order:?}");
            if let Some(node) = order.node() {
                assert!(!self.lost.contains(&node), "seed {seed}: {node} is lost: {order:?}");
                assert!(
                    self.arrived.contains(&node),
                    "seed {seed}: {node} is not there: {order:?}"
                );
            }
            if self.fatal.is_some() {
                let ends = matches!(
                    order,
                    Order::StopStaging
                        | Order::AllowRestarts(None)
                        | Order::Signal(..)
                        | Order::Pause
                        | Order::GiveUp(..)
                        | Order::Say(_)
                        | Order::Release(_)
                        | Order::Finish
                );
                assert!(ends, "seed {seed}: the job is ending: {order:?}");
            }
            self.carry_out_one(order);
        }
    }

    fn carry_out_one(&mut self, order: Order) {
        let seed = self.seed;
        match order {
            Order::StartDaemons => {
                for node in (1..self.hosts).map(Node) {
                    match self.random.below(4) {
                        0 if self.trouble() => self.plan_soon(10, Event::NotStarted(node)),
                        // It never comes.
                        1 if self.trouble() => {}
                        _ => self.plan_soon(10, Event::Arrives(node)),
                    }
                }
            }
            Order::Survey => {
                self.stage = Stage::Surveying;
                match self.random.below(4) {
                    0 if self.trouble() => {
                        self.fails(1);
                        self.controller.fail(self.now, 1, "it offers nothing".to_owned());
                    }
                    0 | 1 => self.controller.surveyed(),
                    2 if self.trouble() => self.controller.survey_began(self.now),
                    _ => {
                        self.controller.survey_began(self.now);
                        self.plan_soon(5, Event::Surveyed);
                    }
                }
            }
            Order::Describe => {
                self.stage = Stage::Preparing;
                if self.random.one_in(3) && self.trouble() {
                    self.fails(1);
                    self.controller.fail(self.now, 1, "no network".to_owned());
                }
            }
            Order::SetUp(node) => match self.random.below(4) {
                0 if self.trouble() => {
                    self.plan_soon(5, Event::Prepared(node, Err("no room".to_owned())));
                }
                1 if self.trouble() => {}
                _ => self.plan_soon(5, Event::Prepared(node, Ok(()))),
            },
            Order::Stage => {
                assert!(self.stages, "seed {seed}");
                self.stage = Stage::Staging;
                match self.random.below(4) {
                    0 if self.trouble() => {
                        self.plan_soon(5, Event::Staged(Err("it changed".to_owned())));
                    }
                    1 if self.trouble() => {}
                    _ => self.plan_soon(20, Event::Staged(Ok(()))),
                }
            }
            Order::StopStaging => assert!(self.stage < Stage::Running, "seed {seed}"),
            Order::Watch(_) => assert_eq!(self.stage, Stage::Staging, "seed {seed}"),
            Order::AllowRestarts(restarts) => {
                self.ends |= restarts.is_none() && self.stage == Stage::Running;
                self.stage = Stage::Running;
                self.allowed = restarts;
            }
            Order::Start(node) => {
                assert!(self.started.insert(node), "seed {seed}: {node} starts twice");
                let ranks = self.last.iter().filter(|(_, process)| process.on == node);
                let ranks: Vec<u32> = ranks.map(|(rank, _)| *rank).collect();
                ranks.iter().for_each(|rank| self.process_begins(*rank, node, 0));
            }
            Order::Signal(node, signal) => {
                assert!(self.started.contains(&node), "seed {seed}: {node} has no ranks yet");
                let on = self.running.iter().filter(|(_, process)| process.on == node);
                let on: Vec<(u32, u32)> =
                    on.map(|(rank, process)| (*rank, process.restarts)).collect();
                for (rank, restarts) in on {
                    if signal == 9 || [1, 2, 15].contains(&signal) && self.random.one_in(2) {
                        let why = Termination::Signalled(signal);
                        self.plan_soon(1, Event::Ends(rank, restarts, why));
                    }
                }
            }
            Order::Pause => {
                let stopped = Duration::from_secs(self.random.below(20));
                self.now = self.now.after(stopped);
                self.controller.resumed(stopped);
            }
            Order::GiveUp(node, _) => {
                assert_ne!(node, Node::HEAD, "seed {seed}");
                self.lose(node);
            }
            Order::Say(_) => {}
            Order::Release(node) => {
                assert!(self.released.insert(node), "seed {seed}: {node} is released twice");
            }
            Order::Finish => self.stage = Stage::Finished,
        }
    }

    /// When the job is over: nothing runs, all that live are released, nothing more is ordered, and
    /// the code is right.
    fn check_end(mut self) {
        let seed = self.seed;
        assert!(self.running.is_empty(), "seed {seed}: {:?} run", self.running);
        let others = self.arrived.iter().filter(|node| **node != Node::HEAD);
        let living: BTreeSet<Node> =
            others.filter(|node| !self.lost.contains(node)).copied().collect();
        assert_eq!(self.released, living, "seed {seed}");
        let unwritten = self.unwritten.clone();
        for event in [
            Event::Lost(Node(1)),
            Event::Signal(2),
            Event::Signal(20),
            Event::Abort(3),
            Event::Prepared(Node(1), Err("late".to_owned())),
        ] {
            self.happens(event);
            self.controller.time(self.now.after(Duration::from_secs(PATIENCE)));
            assert_eq!(self.controller.poll(), None, "seed {seed}");
            assert_eq!(self.controller.deadline(), Time::NEVER, "seed {seed}");
        }
        let output = match unwritten {
            None => 0,
            Some(Unwritten::Closed) if self.settings.keep_going => 0,
            Some(Unwritten::Closed) => 141,
            Some(Unwritten::Refused { .. } | Unwritten::File(_)) => 1,
        };
        let tolerated = self.tolerated.first().map(|(_, code)| *code);
        let right = self.fatal.or(tolerated).unwrap_or(output);
        let outcome = self.controller.outcome(None);
        assert_eq!(outcome.code, right, "seed {seed}: {outcome:?}");
        assert_eq!(outcome.why.is_some(), right != 0, "seed {seed}: {outcome:?}");
        let ran = if self.started.is_empty() { 0 } else { self.last.len() };
        assert_eq!(outcome.ranks.len(), ran, "seed {seed}");
        assert_eq!(outcome.replaced.len(), self.replaced.len(), "seed {seed}");
        let restarts = self.last.iter().filter(|(_, process)| process.restarts > 0);
        let restarts = restarts.map(|(rank, process)| (*rank, process.restarts)).collect();
        assert_eq!(outcome.restarts, restarts, "seed {seed}");
    }
}
