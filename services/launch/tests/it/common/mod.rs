//! The engines of daemons on a simulated network, in virtual time: latencies, losses and deaths
//! follow from a seed. Messages are encoded and decoded on the way.

pub(crate) mod lives;

use petasos_fabric::Time;
use petasos_launch::{
    engine::{ClientId, Config, Engine, Output},
    message::Message,
};
use petasos_pmix::{
    Error, Group, JobId, Missing, Node, Proc, Termination,
    event::Event,
    job::{JobMap, JobSpec, NodeInfo, Run},
    message::{Answer, Request},
};
use petasos_sim::Random;
use petasos_wire::{Encoding, from_bytes, to_vec};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

pub(crate) const JOB: JobId = JobId(0);

pub(crate) fn rank(rank: u32) -> Proc {
    Proc::new(JOB, rank)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A job whose nodes have these numbers of ranks.
pub(crate) fn job(id: JobId, ranks: &[u32]) -> Arc<JobMap> {
    let node =
        |at| NodeInfo { name: format!("n{at}"), base: "tcp://10.0.0.1:".into(), first: 9000 };
    let nodes = (0..ranks.len()).map(node).collect();
    let run = |(at, count): (usize, &u32)| Run { node: Node(at as u32), count: *count };
    let runs = ranks.iter().enumerate().map(run).collect();
    let (name, info) = (format!("job{}", id.0), Vec::new());
    Arc::new(JobMap::new(JobSpec { id, name, nodes, runs, info }).unwrap())
}

#[derive(Debug)]
enum Plan {
    Arrive {
        from: Node,
        to: Node,
        bytes: Vec<u8>,
    },
    Lost {
        at: Node,
        node: Node,
    },
    Wake(Node),
    Ask {
        proc: Proc,
        what: Request,
        life: usize,
    },
    Kill(Node),
    End {
        proc: Proc,
        why: Termination,
    },
    /// A process that was to be started again begins.
    Begin(Proc),
}

/// A request that was made.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) proc: Proc,
    pub(crate) what: Request,
    pub(crate) at: Time,
    /// The answer, and when it came.
    pub(crate) answer: Option<(Time, Result<Answer, Error>)>,
}

/// A delivered event: the client, the event, and the handler, if it is for one alone.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) proc: Proc,
    pub(crate) event: Event,
    pub(crate) only: Option<u64>,
}

pub(crate) struct Net {
    pub(crate) random: Random,
    pub(crate) now: Time,
    pub(crate) latency: Duration,
    /// How long it takes at most until a node notices that a peer is dead.
    pub(crate) detection: Duration,
    /// Whether messages of one pair may overtake each other.
    pub(crate) reorder: bool,
    pub(crate) engines: Vec<Option<Engine>>,
    pub(crate) jobs: Vec<Arc<JobMap>>,
    plans: BinaryHeap<Reverse<(Time, u64)>>,
    what: HashMap<u64, Plan>,
    number: u64,
    /// When the last message of a pair arrives.
    last: HashMap<(Node, Node), Time>,
    /// Until when messages of a dead node still arrive.
    cut: HashMap<Node, Time>,
    wakes: Vec<Time>,
    /// Processes, as their clients.
    pub(crate) dead: BTreeSet<Proc>,
    /// How many processes of each rank have ended: a new process does not continue the script of an
    /// old one.
    ended: Vec<Proc>,
    pub(crate) asked: Vec<Asked>,
    /// The next requests of a process, each sent when the one before is answered.
    pub(crate) scripts: BTreeMap<Proc, VecDeque<Request>>,
    pub(crate) told: Vec<Told>,
    pub(crate) aborts: Vec<(Proc, i32, String)>,
    pub(crate) never: Vec<Missing>,
    pub(crate) heard: Vec<Event>,
    pub(crate) orphaned: Vec<(Node, String)>,
    /// Signals that nodes send to their processes.
    pub(crate) signals: Vec<(Node, Group, i32)>,
    /// Restarts on the nodes of the ranks.
    pub(crate) restarted: Vec<(Proc, u32)>,
    /// Replacements, when each node heard of them.
    pub(crate) moved: Vec<(Node, Node)>,
    /// How many of these each node knows, and the highest of these numbers.
    took: Vec<usize>,
    most_took: usize,
    pub(crate) sent: u64,
    pub(crate) sent_by: Vec<u64>,
}

pub(crate) fn client_of(proc: Proc) -> ClientId {
    ClientId(u64::from(proc.job.0) << 32 | u64::from(proc.rank))
}

fn proc_of(client: ClientId) -> Proc {
    Proc::new(JobId((client.0 >> 32) as u32), client.0 as u32)
}

impl Net {
    pub(crate) fn new(seed: u64, config: Config, jobs: Vec<Arc<JobMap>>) -> Net {
        let nodes = jobs[0].spec().nodes.len() as u32;
        let start = Time(1_000_000_000);
        let engines = (0..nodes).map(|at| {
            let mut engine = Engine::new(Node(at), nodes, config, start);
            jobs.iter().for_each(|job| engine.add_job(job.clone()));
            Some(engine)
        });
        let engines = engines.collect();
        Net {
            random: Random::new(seed),
            now: start,
            latency: ms(1),
            detection: ms(100),
            reorder: false,
            engines,
            jobs,
            plans: BinaryHeap::new(),
            what: HashMap::new(),
            number: 0,
            last: HashMap::new(),
            cut: HashMap::new(),
            wakes: vec![Time::NEVER; nodes as usize],
            dead: BTreeSet::new(),
            ended: Vec::new(),
            asked: Vec::new(),
            scripts: BTreeMap::new(),
            told: Vec::new(),
            aborts: Vec::new(),
            never: Vec::new(),
            heard: Vec::new(),
            orphaned: Vec::new(),
            signals: Vec::new(),
            restarted: Vec::new(),
            moved: Vec::new(),
            took: vec![0; nodes as usize],
            most_took: 0,
            sent: 0,
            sent_by: vec![0; nodes as usize],
        }
    }

    /// All processes of all jobs.
    pub(crate) fn procs(&self) -> Vec<Proc> {
        let of = |job: &Arc<JobMap>| (0..job.size()).map(|r| job.proc(r)).collect::<Vec<_>>();
        self.jobs.iter().flat_map(of).collect()
    }

    pub(crate) fn node_of(&self, proc: Proc) -> Node {
        let job = self.jobs.iter().find(|job| job.id() == proc.job).unwrap();
        job.node_of(proc.rank).unwrap()
    }

    fn plan(&mut self, at: Time, plan: Plan) {
        self.number += 1;
        self.plans.push(Reverse((at, self.number)));
        self.what.insert(self.number, plan);
    }

    /// A process asks, after a time.
    pub(crate) fn ask(&mut self, after: Duration, proc: Proc, what: Request) {
        let life = self.life_of(proc);
        self.plan(self.now.after(after), Plan::Ask { proc, what, life });
    }

    fn life_of(&self, proc: Proc) -> usize {
        self.ended.iter().filter(|of| **of == proc).count()
    }

    pub(crate) fn kill(&mut self, after: Duration, node: Node) {
        self.plan(self.now.after(after), Plan::Kill(node));
    }

    /// A process ends by itself.
    pub(crate) fn end(&mut self, after: Duration, proc: Proc, why: Termination) {
        self.plan(self.now.after(after), Plan::End { proc, why });
    }

    /// A process sends these requests, one after the other.
    pub(crate) fn script(&mut self, proc: Proc, what: impl IntoIterator<Item = Request>) {
        let mut script: VecDeque<Request> = what.into_iter().collect();
        let first = script.pop_front().unwrap();
        self.scripts.insert(proc, script);
        let think = self.random.time(ms(3));
        self.ask(think, proc, first);
    }

    /// Lets everything happen that will within a time.
    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now.after(time);
        while let Some(Reverse((at, number))) = self.plans.peek().copied() {
            if at > until {
                break;
            }
            self.plans.pop();
            self.now = at;
            let plan = self.what.remove(&number).unwrap();
            self.happen(plan);
        }
        self.now = until;
    }

    fn happen(&mut self, plan: Plan) {
        let now = self.now;
        match plan {
            Plan::Arrive { from, to, bytes } => {
                if self.cut.get(&from).is_some_and(|cut| *cut < now) {
                    return;
                }
                let message: Message = from_bytes(Encoding::Native, &bytes).unwrap();
                self.with(to, |engine| engine.message(now, from, message));
            }
            Plan::Lost { at, node } => self.with(at, |engine| engine.peer_lost(now, node)),
            Plan::Wake(node) => {
                self.wakes[node.0 as usize] = Time::NEVER;
                self.with(node, |engine| engine.advance(now));
            }
            Plan::Ask { proc, what, life } => {
                let node = self.node_of(proc);
                if self.dead.contains(&proc) || life != self.life_of(proc) {
                    return;
                }
                let id = self.asked.len() as u64;
                self.asked.push(Asked { proc, what: what.clone(), at: now, answer: None });
                let opening = matches!(what, Request::Connect(_));
                self.with(node, |engine| {
                    if opening {
                        engine.client_opened(client_of(proc));
                    }
                    engine.request(now, client_of(proc), id, what);
                });
            }
            Plan::Kill(node) => {
                let lost = self.engines[node.0 as usize].take();
                if lost.is_none() {
                    return;
                }
                let cut = now.after(self.random.time(self.latency * 2));
                self.cut.insert(node, cut);
                let gone: Vec<Proc> =
                    self.procs().into_iter().filter(|p| self.node_of(*p) == node).collect();
                // Also one that was only about to begin there.
                self.dead.extend(gone.iter().copied());
                self.ended.extend(gone);
                let knows = |engine: &Engine| engine.neighbours().contains(&node);
                let who: Vec<Node> =
                    self.engines.iter().flatten().filter(|e| knows(e)).map(Engine::node).collect();
                for at in who {
                    let notice = now.after(self.latency * 2 + self.random.time(self.detection));
                    self.plan(notice, Plan::Lost { at, node });
                }
            }
            Plan::Begin(proc) => {
                let node = self.node_of(proc);
                if self.engines[node.0 as usize].is_some() {
                    self.dead.remove(&proc);
                }
                self.with(node, |engine| {
                    engine.advance(now);
                    engine.proc_started(proc, 1);
                });
            }
            Plan::End { proc, why } => {
                if !self.dead.insert(proc) {
                    return;
                }
                self.ended.push(proc);
                let node = self.node_of(proc);
                self.with(node, |engine| {
                    let restarts = engine.restarts_of(proc);
                    engine.proc_ended(now, proc, restarts, why);
                    engine.client_closed(now, client_of(proc));
                });
            }
        }
    }

    pub(crate) fn with(&mut self, node: Node, act: impl FnOnce(&mut Engine)) {
        let at = node.0 as usize;
        let Some(mut engine) = self.engines[at].take() else { return };
        act(&mut engine);
        while let Some(output) = engine.poll() {
            if matches!(output, Output::Replaced { .. }) {
                self.took[at] += 1;
                if self.took[at] > self.most_took {
                    // This replacement is new to all nodes.
                    self.most_took = self.took[at];
                    for job in &mut self.jobs {
                        *job = engine.map(job.id()).unwrap().clone();
                    }
                }
            }
            // A process whose node has not heard of its restart begins later. One that has been
            // replaced since then does not begin: as in the daemon.
            if let Output::Restarted { proc, restarts } = output
                && (engine.map(proc.job).unwrap().node_of(proc.rank) != Some(node)
                    || engine.restarts_of(proc) != restarts)
            {
                continue;
            }
            self.output(node, output);
        }
        let deadline = engine.deadline();
        if deadline < self.wakes[at] {
            self.wakes[at] = deadline;
            self.plan(deadline.max(self.now), Plan::Wake(node));
        }
        self.engines[at] = Some(engine);
    }

    fn output(&mut self, node: Node, output: Output) {
        match output {
            Output::Send { to, message } => {
                assert_ne!(to, node, "{node} sends itself {message:?}");
                self.sent += 1;
                self.sent_by[node.0 as usize] += 1;
                // `to` may be the node that is being driven: then it lives.
                if self.cut.contains_key(&to) {
                    let notice = self.now.after(self.random.time(self.detection));
                    return self.plan(notice, Plan::Lost { at: node, node: to });
                }
                let bytes = to_vec(Encoding::Native, &message);
                let mut at = self.now.after(self.latency / 2 + self.random.time(self.latency));
                if !self.reorder {
                    let last = self.last.entry((node, to)).or_default();
                    at = at.max(*last);
                    *last = at;
                }
                self.plan(at, Plan::Arrive { from: node, to, bytes });
            }
            Output::Answer { client, id, result } => {
                let proc = proc_of(client);
                let asked = &mut self.asked[id as usize];
                assert_eq!(asked.proc, proc);
                assert!(asked.answer.is_none(), "answered twice: {asked:?}, {result:?}");
                asked.answer = Some((self.now, result));
                let next = self.scripts.get_mut(&proc).and_then(VecDeque::pop_front);
                if let Some(what) = next {
                    let think = self.random.time(ms(2));
                    self.ask(think, proc, what);
                }
            }
            Output::Deliver { client, event, only } => {
                self.told.push(Told { proc: proc_of(client), event, only });
            }
            Output::Abort { by, status, message } => self.aborts.push((by, status, message)),
            Output::NeverConnected(missing) => self.never.push(missing),
            Output::Heard(event) => self.heard.push(event),
            Output::Restarted { proc, restarts } => {
                self.restarted.push((proc, restarts));
                let start = self.now.after(ms(1) + self.random.time(ms(3)));
                self.plan(start, Plan::Begin(proc));
            }
            Output::Replaced { node: lost, by } if by == node => self.moved.push((lost, by)),
            Output::Signal { group, signal } => self.signals.push((node, group, signal)),
            Output::Orphaned(why) => self.orphaned.push((node, why)),
            _ => {}
        }
    }

    /// The answers to a process's requests, in order; all have come.
    #[track_caller]
    pub(crate) fn answers(&self, proc: Proc) -> Vec<Result<Answer, Error>> {
        let own = self.asked.iter().filter(|asked| asked.proc == proc);
        own.map(|asked| match &asked.answer {
            Some((_, result)) => result.clone(),
            None => panic!("no answer to {asked:?}"),
        })
        .collect()
    }

    /// The last answer to a process.
    #[track_caller]
    pub(crate) fn last(&self, proc: Proc) -> Result<Answer, Error> {
        self.answers(proc).pop().expect("it asked")
    }

    /// Whether a process waits for an answer.
    pub(crate) fn is_waiting(&self, proc: Proc) -> bool {
        self.asked.iter().any(|asked| asked.proc == proc && asked.answer.is_none())
    }

    /// The codes of the events of each process.
    pub(crate) fn codes(&self, proc: Proc) -> Vec<i32> {
        self.told.iter().filter(|t| t.proc == proc).map(|t| t.event.code).collect()
    }
}

pub(crate) fn fence() -> Request {
    Request::Fence { group: None, collect: false, timeout: None }
}

pub(crate) fn collect() -> Request {
    Request::Fence { group: None, collect: true, timeout: None }
}

pub(crate) fn get(of: Proc, key: &str) -> Request {
    Request::Get { proc: of, key: key.into(), timeout: None, immediate: false, wait: false }
}
