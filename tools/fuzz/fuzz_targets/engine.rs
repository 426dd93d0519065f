//! The engine of a daemon: messages of other daemons and requests of clients, in any order, while
//! time passes and others are lost. Nothing panics, memory is bounded, and a request is answered
//! once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_fabric::Time;
use petasos_fuzz::Cut;
use petasos_launch::engine::{ClientId, Config, Engine, Output};
use petasos_pmix::{
    JobId, Node, Proc,
    job::{JobMap, JobSpec, NodeInfo, Run},
    message::Request,
};
use petasos_wire::{Encoding, from_bytes};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Those with ranks; one more is a spare.
const NODES: u32 = 4;
const CLIENTS: u64 = 3;

fuzz_target!(|data: &[u8]| petasos_fuzz::bounded(16 << 20, || play(data)));

fn job() -> Arc<JobMap> {
    let node =
        |at| NodeInfo { name: format!("n{at}"), base: "tcp://10.0.0.1:".into(), first: 9000 };
    let (name, nodes) = ("job".to_owned(), (0..=NODES).map(node).collect());
    let runs = (0..NODES).map(|at| Run { node: Node(at), count: 2 }).collect();
    let spec = JobSpec { id: JobId(0), name, nodes, runs, info: Vec::new() };
    Arc::new(JobMap::new(spec).expect("a job"))
}

struct Play {
    engine: Engine,
    now: Time,
    open: BTreeSet<(ClientId, u64)>,
    closed: BTreeSet<ClientId>,
}

impl Play {
    fn ask(&mut self, client: ClientId, id: u64, what: Request) {
        if self.closed.contains(&client) {
            return;
        }
        self.open.insert((client, id));
        self.engine.request(self.now, client, id, what);
        self.poll();
    }

    fn poll(&mut self) {
        while let Some(output) = self.engine.poll() {
            if let Output::Answer { client, id, .. } = output {
                assert!(self.open.remove(&(client, id)), "request {id} is answered again");
            }
        }
    }
}

fn play(data: &[u8]) {
    let mut cut = Cut(data);
    let me = Node(u32::from(cut.u8()) % (NODES + 1));
    let now = Time(1_000_000_000);
    // The head's, where that is the node.
    let config = Config { fanout: 2, restarts: Some(2), spares: 1, ..Config::default() };
    let mut engine = Engine::new(me, NODES + 1, config, now);
    engine.add_job(job());
    let mut play = Play { engine, now, open: BTreeSet::new(), closed: BTreeSet::new() };
    for client in 0..CLIENTS {
        play.engine.client_opened(ClientId(client));
    }
    for rank in 0..2 {
        let proc = Proc::new(JobId(0), 2 * me.0 + rank);
        play.ask(ClientId(rank.into()), 0, Request::Connect(proc));
    }
    play.ask(ClientId(2), 0, Request::ConnectTool);
    for nth in 1..200 {
        if cut.is_over() {
            break;
        }
        let kind = cut.u8();
        let (from, client) = (Node(u32::from(kind >> 4)), ClientId(u64::from(kind >> 4) % CLIENTS));
        match kind & 15 {
            0 => {
                play.now = play.now.after(Duration::from_millis(cut.u16().into()));
                play.engine.advance(play.now);
            }
            1 => play.engine.peer_lost(play.now, from),
            2 => {
                play.engine.client_closed(play.now, client);
                play.closed.insert(client);
                play.open.retain(|(of, _)| *of != client);
            }
            3..=8 => {
                if let Ok(what) = from_bytes(Encoding::Native, cut.short()) {
                    play.ask(client, nth, what);
                }
            }
            _ => {
                if let Ok(message) = from_bytes(Encoding::Native, cut.short()) {
                    play.engine.message(play.now, from, message);
                }
            }
        }
        play.poll();
    }
    play.engine.advance(Time::NEVER);
    play.poll();
    assert!(play.open.is_empty(), "not answered: {:?}", play.open);
}
