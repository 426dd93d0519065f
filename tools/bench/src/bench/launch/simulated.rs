//! Daemons of a job in one process, on a network in virtual time: how long it takes until all
//! processes have their neighbours' addresses, and how many bytes the nodes move for it.
//!
//! The engines are those of real daemons, their messages are encoded to know their lengths, and all
//! else is a model of few numbers ([`Model`]). There is no randomness: each run is the same.

use super::rank::Modex;
use petasos::{
    fabric::Time,
    wire::{Encoding, to_vec},
};
use petasos_launch::{
    engine::{ClientId, Config, Engine, Output},
    message::Message,
};
use petasos_pmix::{
    Entry, JobId, Node, Proc, Scope, Value,
    job::{JobMap, JobSpec, NodeInfo, Run},
    message::Request,
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

/// Times of the model, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Model {
    /// From a node to another.
    pub(super) latency_ns: u64,
    /// A daemon for a message that it sends or receives.
    pub(super) message_ns: u64,
    /// And for each byte of it.
    pub(super) byte_ns: f64,
    /// A process's request to its daemon, and the answer.
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

/// The results.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Found {
    /// From the start of the last process until all have their neighbours' addresses, nanoseconds.
    pub(super) ready_ns: f64,
    /// Bytes that the busiest daemon sends and receives, and a daemon on average.
    pub(super) most_bytes: f64,
    pub(super) bytes: f64,
}

/// What happens at a node.
enum NodeEvent {
    /// Its process asks.
    Ask,
    Arrive {
        from: Node,
        message: Message,
        len: usize,
    },
}

/// The load of a daemon.
#[derive(Clone, Copy, Default)]
struct Load {
    /// Until then it is busy.
    busy: u64,
    bytes: u64,
}

struct Net {
    modex: Modex,
    nodes: u32,
    engines: Vec<Engine>,
    loads: Vec<Load>,
    /// The step of each process.
    steps: Vec<usize>,
    /// By time, and in the order in which they were made.
    events: BTreeMap<(u64, u64), (Node, NodeEvent)>,
    number: u64,
    ready: u64,
    waiting: u32,
}

/// A job of one process on each of so many nodes, whose processes learn their neighbours' addresses
/// by this exchange; nothing, if not all get them.
pub(super) fn run(nodes: u32, modex: Modex) -> Option<Found> {
    let mut net = Net::new(nodes, modex);
    while let Some(((at, number), (node, event))) = net.events.pop_first() {
        let busy = net.loads[node.0 as usize].busy;
        if busy > at {
            // A daemon handles one event after the other, in the order in which they came.
            net.events.insert((busy, number), (node, event));
            continue;
        }
        net.handle(at, node, event);
        if net.waiting == 0 {
            break;
        }
    }
    let last_start = MODEL.spread_ns;
    let bytes = || net.loads.iter().map(|done| done.bytes);
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
    fn new(nodes: u32, modex: Modex) -> Net {
        let job = job(nodes);
        let engines = (0..nodes).map(|at| {
            let mut engine = Engine::new(Node(at), nodes, Config::default(), Time::ZERO);
            engine.add_job(job.clone());
            engine.client_opened(ClientId(u64::from(at)));
            engine
        });
        let mut net = Net {
            modex,
            nodes,
            engines: engines.collect(),
            loads: vec![Load::default(); nodes as usize],
            steps: vec![0; nodes as usize],
            events: BTreeMap::new(),
            number: 0,
            ready: 0,
            waiting: nodes,
        };
        // Spread evenly, but not in the order of the ranks.
        for at in 0..nodes {
            let start = u64::from(at) * 7_919 % u64::from(nodes) + 1;
            net.schedule(start * MODEL.spread_ns / u64::from(nodes), Node(at), NodeEvent::Ask);
        }
        net
    }

    fn schedule(&mut self, at: u64, node: Node, event: NodeEvent) {
        self.number += 1;
        self.events.insert((at, self.number), (node, event));
    }

    /// The next request of a node's process; nothing, if it has all addresses.
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
        match (self.modex, self.steps[node.0 as usize]) {
            (_, 0) => Some(Request::Connect(proc(node.0))),
            (Modex::InstantOn, _) => None,
            (_, 1) => Some(commit()),
            (Modex::Direct, 2) => Some(next()),
            (Modex::Direct, 3) => Some(previous()),
            (Modex::Full, 2) => Some(Request::Fence { group: None, collect: true, timeout: None }),
            (Modex::Full, 3) => Some(next()),
            (Modex::Full, 4) => Some(previous()),
            _ => None,
        }
    }

    fn handle(&mut self, at: u64, node: Node, event: NodeEvent) {
        let now = Time(at);
        match event {
            NodeEvent::Ask => match self.request(node) {
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
            NodeEvent::Arrive { from, message, len } => {
                self.account(node, at, len);
                self.engines[node.0 as usize].message(now, from, message);
            }
        }
        self.send_outputs(at, node);
    }

    /// A daemon sends or receives a message; returns when it is done.
    fn account(&mut self, node: Node, at: u64, len: usize) -> u64 {
        let done = &mut self.loads[node.0 as usize];
        let takes = MODEL.message_ns + (len as f64 * MODEL.byte_ns) as u64;
        done.busy = done.busy.max(at) + takes;
        done.bytes += len as u64;
        done.busy
    }

    fn send_outputs(&mut self, at: u64, node: Node) {
        while let Some(output) = self.engines[node.0 as usize].poll() {
            match output {
                Output::Send { to, message } => {
                    let len = to_vec(Encoding::Native, &message).len();
                    let sent = self.account(node, at, len);
                    let arrives = sent + MODEL.latency_ns;
                    self.schedule(arrives, to, NodeEvent::Arrive { from: node, message, len });
                }
                // A process whose request is refused never gets its addresses: the run has no
                // result.
                Output::Answer { result: Ok(_), .. } => {
                    self.steps[node.0 as usize] += 1;
                    let done = self.loads[node.0 as usize].busy.max(at) + MODEL.request_ns;
                    self.schedule(done, node, NodeEvent::Ask);
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
        let [instant, direct, full] =
            Modex::ALL.map(|modex| [8, 64].map(|n| run(n, modex).unwrap()));
        assert!(instant[1].ready_ns <= direct[1].ready_ns);
        assert!(direct[1].ready_ns < full[1].ready_ns);
        // A request and a card for each neighbour, and the message that the job is connected.
        assert!(direct[1].bytes < 2.0 * direct[0].bytes, "{direct:?}");
        assert!(full[1].bytes > 6.0 * full[0].bytes, "{full:?}");
    }

    #[test]
    fn each_run_is_the_same() {
        let twice = [0, 1].map(|_| run(50, Modex::Full).unwrap());
        assert_eq!(twice[0].ready_ns, twice[1].ready_ns);
        assert_eq!(twice[0].bytes, twice[1].bytes);
    }
}
