//! What other daemons and clients may say at most: work, memory and answers are bounded, and whoever is within the bounds
//! notices nothing.

mod common;

use common::{JOB, job, ms, rank};
use petasos_fabric::Time;
use petasos_pmix::{
    Card, Entry, Error, Group, Node, Proc, Scope,
    engine::{ClientId, Config, Engine, Output},
    message::{FenceStep, Message, Replacement, Request},
};

/// The daemon of a node among nodes with so many ranks each.
struct Daemon {
    engine: Engine,
    now: Time,
    next: u64,
}

impl Daemon {
    fn new(me: u32, ranks: &[u32], config: Config) -> Daemon {
        let now = Time(1_000_000_000);
        let mut engine = Engine::new(Node(me), ranks.len() as u32, config, now);
        engine.add_job(job(JOB, ranks));
        Daemon { engine, now, next: 0 }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.engine.poll()).collect()
    }

    /// What comes of a message.
    fn hears(&mut self, from: u32, message: Message) -> Vec<Output> {
        self.engine.message(self.now, Node(from), message);
        self.outputs()
    }

    /// A client, which is this process.
    fn client(&mut self, proc: Proc) -> ClientId {
        let client = ClientId(u64::from(proc.rank));
        self.engine.client_opened(client);
        self.asks(client, Request::Connect(proc));
        client
    }

    /// What comes of a request.
    fn asks(&mut self, client: ClientId, what: Request) -> Vec<Output> {
        self.next += 1;
        self.engine.request(self.now, client, self.next, what);
        self.outputs()
    }
}

fn card(bytes: usize) -> Card {
    let mut card = Card::default();
    let entry = Entry { scope: Scope::Global, value: vec![0; bytes].into() };
    card.commit([("k".to_owned(), entry)]);
    card
}

fn spares(spares: u32) -> Config {
    Config { restarts: Some(1), spares, ..Config::default() }
}

fn replacement(number: u32, node: u32, by: u32, again: u32) -> Message {
    let (node, by, again) = (Node(node), Node(by), vec![(rank(again), 1)]);
    Message::Replaced(Box::new(Replacement { number, node, by, again, ended: Vec::new() }))
}

fn question(id: u64, of: u32, replaced: u32) -> Message {
    let (proc, patience) = (rank(of), ms(1000));
    Message::CardAsk { id, proc, restarts: 0, replaced, key: "k".into(), wait: false, patience }
}

fn cut_off(outputs: &[Output], node: u32) -> bool {
    outputs.iter().any(|out| matches!(out, Output::CutOff { node: n, .. } if *n == Node(node)))
}

#[test]
fn a_node_is_lost_once_however_often_it_is_named() {
    let mut daemon = Daemon::new(0, &[1, 1, 1], Config::default());
    let came = daemon.hears(1, Message::Lost(vec![Node(2); 100_000]));
    let lost = came.iter().filter(|out| **out == Output::NodeLost(Node(2)));
    assert_eq!(lost.count(), 1);
    for out in came {
        if let Output::Send { message: Message::Lost(nodes), .. } = out {
            assert_eq!(nodes, [Node(2)]);
        }
    }
}

#[test]
fn what_waits_for_a_replacement_goes_on_though_a_later_one_makes_no_sense() {
    let mut daemon = Daemon::new(1, &[1, 1, 1, 0, 0], spares(2));
    let client = daemon.client(rank(1));
    daemon.asks(client, Request::Commit(vec![]));
    // A node does not replace itself.
    assert_eq!(daemon.hears(0, replacement(2, 2, 2, 2)), []);
    assert_eq!(daemon.hears(3, question(7, 1, 1)), []);
    let came = daemon.hears(0, replacement(1, 2, 3, 2));
    let answers = |out: &Output| {
        matches!(out, Output::Send { to: Node(3), message: Message::CardAnswer { id: 7, result: Ok(_) } })
    };
    assert!(came.iter().any(answers), "{came:?}");
}

#[test]
fn what_waits_for_a_replacement_is_bounded_in_bytes_and_goes_with_its_node() {
    let mut daemon = Daemon::new(0, &[1, 1, 0], spares(1));
    let group = Group::all(JOB, 2);
    let cards = vec![(rank(1), card(64 << 20))];
    let up = |nth, cards| {
        let (group, step) = (group.clone(), FenceStep::Up(cards));
        Message::Fence { group, replaced: 1, nth, step }
    };
    // As much as a fence may have is none of its business.
    assert_eq!(daemon.hears(1, up(0, [cards.clone(), cards.clone()].concat())), []);
    let came = daemon.hears(1, up(1, cards));
    assert!(cut_off(&came, 1), "{:?}", came.len());
    // Nothing of it is left to be heard once the replacement has come.
    assert!(daemon.engine.lost().contains(&Node(1)));
    // A question has an answer.
    for id in 0..1 << 14 {
        assert_eq!(daemon.hears(2, question(id, 0, 1)), []);
    }
    match &daemon.hears(2, question(9, 0, 1))[..] {
        [Output::Send { to: Node(2), message: Message::CardAnswer { id: 9, result } }] => {
            assert!(matches!(result, Err(Error::Limit { .. })), "{result:?}");
        }
        other => panic!("{other:?}"),
    }
}
