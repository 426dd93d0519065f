//! Daemons of a job in one process, on a network in virtual time: how long it takes until all
//! processes have their neighbours' addresses, and what the nodes have to do for it.
//!
//! The engines are those of real daemons, their messages are encoded to know their lengths, and all
//! else is a model of few numbers ([`Model`]). Nothing is left to chance: each run is the same.

use super::rank::Way;
use petasos::{
    fabric::Time,
    wire::{Encoding, to_vec},
};
use petasos_pmix::{
    Entry, JobId, Node, Proc, Scope, Value,
    engine::{ClientId, Config, Engine, Output},
    job::{JobMap, JobSpec, NodeInfo, Run},
    message::{Message, Request},
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

/// What things take, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Model {
    /// On the way from a node to another.
    pub(super) latency_ns: u64,
    /// A daemon for a message that it sends or takes.
    pub(super) message_ns: u64,
    /// And for each byte of it.
    pub(super) byte_ns: f64,
    /// A process's question to its daemon, and the answer's way back.
    pub(super) request_ns: u64,
    /// Processes start within so long.
    pub(super) spread_ns: u64,
}

pub(super) const MODEL: Model = Model {
    latency_ns: 2_000,
    message_ns: 2_000,
    byte_ns: 0.2,
    request_ns: 10_000,
    spread_ns: 1_000_000,
};

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Found {
    /// From the start of the last process until all have their neighbours' addresses, nanoseconds.
    pub(super) ready_ns: f64,
    /// Bytes that the busiest daemon sends and takes, and a daemon on an average.
    pub(super) most_bytes: f64,
    pub(super) bytes: f64,
}

/// What happens at a node.
enum Plan {
    /// Its process asks.
    Ask,
    Arrive {
        from: Node,
        message: Message,
        len: usize,
    },
}

/// What a daemon has done.
#[derive(Clone, Copy, Default)]
struct Done {
    /// Until then it is at work.
    busy: u64,
    bytes: u64,
}

struct Net {
    way: Way,
    nodes: u32,
    engines: Vec<Engine>,
    done: Vec<Done>,
    /// How far each process is.
    steps: Vec<usize>,
    /// By time, and in the order in which they were made.
    plans: BTreeMap<(u64, u64), (Node, Plan)>,
    number: u64,
    ready: u64,
    waiting: u32,
}

/// A job of one process on each of so many nodes, whose processes learn their neighbours' addresses
/// in this way; nothing, if they do not get there.
pub(super) fn run(nodes: u32, way: Way) -> Option<Found> {
    let mut net = Net::new(nodes, way);
    while let Some(((at, number), (node, plan))) = net.plans.pop_first() {
        let busy = net.done[node.0 as usize].busy;
        if busy > at {
            // A daemon does one thing after the other, in the order in which they came.
            net.plans.insert((busy, number), (node, plan));
            continue;
        }
        net.happen(at, node, plan);
        if net.waiting == 0 {
            break;
        }
    }
    let last_start = MODEL.spread_ns;
    let bytes = || net.done.iter().map(|done| done.bytes);
    (net.waiting == 0).then(|| Found {
        ready_ns: net.ready.saturating_sub(last_start) as f64,
        most_bytes: bytes().max().unwrap_or_default() as f64,
        bytes: bytes().sum::<u64>() as f64 / f64::from(nodes),
    })
}

/// A job with one process on each node.
fn job(nodes: u32) -> Arc<JobMap> {
    let node = |at: u32| NodeInfo {
        name: format!("node{at}"),
        base: format!("tcp://10.{}.{}.{}:", at >> 16, at >> 8 & 255, at & 255),
        first: 9000,
    };
    let spec = JobSpec {
        id: JobId(0),
        name: "simulated".to_owned(),
        nodes: (0..nodes).map(node).collect(),
        runs: (0..nodes).map(|at| Run { node: Node(at), count: 1 }).collect(),
        info: Vec::new(),
    };
    Arc::new(JobMap::new(spec).expect("every node that has a process is there"))
}

impl Net {
    fn new(nodes: u32, way: Way) -> Net {
        let job = job(nodes);
        let engines = (0..nodes).map(|at| {
            let mut engine = Engine::new(Node(at), nodes, Config::default(), Time::ZERO);
            engine.add_job(job.clone());
            engine.client_opened(ClientId(u64::from(at)));
            engine
        });
        let mut net = Net {
            way,
            nodes,
            engines: engines.collect(),
            done: vec![Done::default(); nodes as usize],
            steps: vec![0; nodes as usize],
            plans: BTreeMap::new(),
            number: 0,
            ready: 0,
            waiting: nodes,
        };
        // Spread evenly, but not in the order of the ranks.
        for at in 0..nodes {
            let place = u64::from(at) * 7_919 % u64::from(nodes) + 1;
            net.plan(place * MODEL.spread_ns / u64::from(nodes), Node(at), Plan::Ask);
        }
        net
    }

    fn plan(&mut self, at: u64, node: Node, plan: Plan) {
        self.number += 1;
        self.plans.insert((at, self.number), (node, plan));
    }

    /// What the process of a node asks next; nothing, if it has all that it wants.
    fn request(&self, node: Node) -> Option<Request> {
        let proc = |rank: u32| Proc::new(JobId(0), rank % self.nodes);
        let get = |rank: u32| {
            let key = "address".to_owned();
            Request::Get { proc: proc(rank), key, timeout: None, immediate: false, wait: false }
        };
        let commit = || {
            let value = Value::from("tcp://10.0.0.1:9000".to_owned());
            Request::Commit(vec![("address".to_owned(), Entry { scope: Scope::Global, value })])
        };
        let (next, previous) = (|| get(node.0 + 1), || get(node.0 + self.nodes - 1));
        match (self.way, self.steps[node.0 as usize]) {
            (_, 0) => Some(Request::Connect(proc(node.0))),
            (Way::InstantOn, _) => None,
            (_, 1) => Some(commit()),
            (Way::Direct, 2) => Some(next()),
            (Way::Direct, 3) => Some(previous()),
            (Way::Full, 2) => Some(Request::Fence { group: None, collect: true, timeout: None }),
            (Way::Full, 3) => Some(next()),
            (Way::Full, 4) => Some(previous()),
            _ => None,
        }
    }

    fn happen(&mut self, at: u64, node: Node, plan: Plan) {
        let now = Time(at);
        match plan {
            Plan::Ask => match self.request(node) {
                Some(request) => {
                    let step = self.steps[node.0 as usize];
                    let client = ClientId(u64::from(node.0));
                    let engine = &mut self.engines[node.0 as usize];
                    engine.request(now, client, step as u64, request);
                }
                None => {
                    self.ready = self.ready.max(at);
                    self.waiting -= 1;
                }
            },
            Plan::Arrive { from, message, len } => {
                self.works(node, at, len);
                self.engines[node.0 as usize].message(now, from, message);
            }
        }
        self.pump(at, node);
    }

    /// A daemon sends or takes a message; says when it is done.
    fn works(&mut self, node: Node, at: u64, len: usize) -> u64 {
        let done = &mut self.done[node.0 as usize];
        let takes = MODEL.message_ns + (len as f64 * MODEL.byte_ns) as u64;
        done.busy = done.busy.max(at) + takes;
        done.bytes += len as u64;
        done.busy
    }

    fn pump(&mut self, at: u64, node: Node) {
        while let Some(output) = self.engines[node.0 as usize].poll() {
            match output {
                Output::Send { to, message } => {
                    let len = to_vec(Encoding::Native, &message).len();
                    let sent = self.works(node, at, len);
                    let arrives = sent + MODEL.latency_ns;
                    self.plan(arrives, to, Plan::Arrive { from: node, message, len });
                }
                // Whoever is refused does not get there, and so the run has no result.
                Output::Answer { result: Ok(_), .. } => {
                    self.steps[node.0 as usize] += 1;
                    let done = self.done[node.0 as usize].busy.max(at) + MODEL.request_ns;
                    self.plan(done, node, Plan::Ask);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_assigned_costs_nothing_and_a_fence_grows_with_the_job() {
        let [instant, direct, full] = Way::ALL.map(|way| [8, 64].map(|n| run(n, way).unwrap()));
        assert!(instant[1].ready_ns <= direct[1].ready_ns);
        assert!(direct[1].ready_ns < full[1].ready_ns);
        // A card's way there and back for each neighbour, and the news that the job is connected.
        assert!(direct[1].bytes < 2.0 * direct[0].bytes, "{direct:?}");
        assert!(full[1].bytes > 6.0 * full[0].bytes, "{full:?}");
    }

    #[test]
    fn each_run_is_the_same() {
        let twice = [0, 1].map(|_| run(50, Way::Full).unwrap());
        assert_eq!(twice[0].ready_ns, twice[1].ready_ns);
        assert_eq!(twice[0].bytes, twice[1].bytes);
    }
}
