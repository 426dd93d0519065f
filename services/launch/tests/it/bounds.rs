//! Limits on other daemons and clients: work, memory and answers are bounded, and peers within the
//! bounds are not affected.

use super::common::{JOB, Net, collect, fence, job, ms, rank};
use petasos_fabric::Time;
use petasos_launch::{
    engine::{ClientId, Config, Engine, Output},
    message::{ControllerRequest, FenceStep, Message, Replacement},
};
use petasos_pmix::{
    BusinessCard, Entry, Error, Group, Node, Proc, Scope, Value,
    event::Range,
    message::{Answer, Persistence, Published, Request},
};
use std::time::Duration;

/// The daemon of a node, among nodes with these numbers of ranks.
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

    /// What the engine does about a message.
    fn hears(&mut self, from: u32, message: Message) -> Vec<Output> {
        self.engine.message(self.now, Node(from), message);
        self.outputs()
    }

    /// A client that is this process.
    fn client(&mut self, proc: Proc) -> ClientId {
        let client = ClientId(u64::from(proc.rank));
        self.engine.client_opened(client);
        self.asks(client, Request::Connect(proc));
        client
    }

    /// What the engine does about a request.
    fn asks(&mut self, client: ClientId, what: Request) -> Vec<Output> {
        self.next += 1;
        self.engine.request(self.now, client, self.next, what);
        self.outputs()
    }
}

fn card(bytes: usize) -> BusinessCard {
    let mut card = BusinessCard::default();
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
    Message::BusinessCardRequest {
        id,
        proc,
        restarts: 0,
        replaced,
        key: "k".into(),
        wait: false,
        patience,
    }
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
fn early_messages_go_on_though_a_later_replacement_is_invalid() {
    let mut daemon = Daemon::new(1, &[1, 1, 1, 0, 0], spares(2));
    let client = daemon.client(rank(1));
    daemon.asks(client, Request::Commit(vec![]));
    // A node does not replace itself.
    assert_eq!(daemon.hears(0, replacement(2, 2, 2, 2)), []);
    assert_eq!(daemon.hears(3, question(7, 1, 1)), []);
    let came = daemon.hears(0, replacement(1, 2, 3, 2));
    let answers = |out: &Output| {
        matches!(
            out,
            Output::Send {
                to: Node(3),
                message: Message::BusinessCardAnswer { id: 7, result: Ok(_) }
            }
        )
    };
    assert!(came.iter().any(answers), "{came:?}");
}

#[test]
fn early_messages_are_bounded_in_bytes_and_dropped_with_their_node() {
    let mut daemon = Daemon::new(0, &[1, 1, 0], spares(1));
    let group = Group::all(JOB, 2);
    let cards = vec![(rank(1), card(64 << 20))];
    let up = |nth, cards| {
        let (group, step) = (group.clone(), FenceStep::Up(cards));
        Message::Fence { group, replaced: 1, nth, step }
    };
    // Messages up to the size of a fence's cards are accepted.
    assert_eq!(daemon.hears(1, up(0, [cards.clone(), cards.clone()].concat())), []);
    let came = daemon.hears(1, up(1, cards));
    assert!(cut_off(&came, 1), "{:?}", came.len());
    // Nothing of it is processed once the replacement has come.
    assert!(daemon.engine.lost().contains(&Node(1)));
    // A question has an answer.
    for id in 0..1 << 14 {
        assert_eq!(daemon.hears(2, question(id, 0, 1)), []);
    }
    match &daemon.hears(2, question(9, 0, 1))[..] {
        [Output::Send { to: Node(2), message: Message::BusinessCardAnswer { id: 9, result } }] => {
            assert!(matches!(result, Err(Error::Limit { .. })), "{result:?}");
        }
        other => panic!("{other:?}"),
    }
}

fn publish(key: &str, bytes: usize) -> Request {
    let (range, persistence) = (Range::Session, Persistence::FirstRead);
    let (key, value) = (key.to_owned(), vec![0; bytes].into());
    Request::Publish(Published { key, value, range, persistence })
}

fn head(from: u64, what: ControllerRequest) -> Message {
    Message::Ask { id: from, asker: rank(1), what }
}

fn lookup(keys: Vec<String>, wait: Option<u64>) -> ControllerRequest {
    ControllerRequest::Lookup { keys, wait: wait.map(ms), least: 0, within: Range::Global }
}

/// The answer to a question of another daemon.
#[track_caller]
fn answer(outputs: &[Output]) -> Result<Answer, Error> {
    let answer = outputs.iter().find_map(|out| match out {
        Output::Send { message: Message::Answer { result, .. }, .. } => Some(result.clone()),
        _ => None,
    });
    answer.expect("an answer")
}

#[track_caller]
fn limited<T: std::fmt::Debug>(result: Result<T, Error>, what: &str) {
    match result {
        Err(Error::Limit { what: of, .. }) => assert_eq!(of, what),
        other => panic!("{other:?}"),
    }
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

#[test]
fn a_key_is_found_once_and_an_answer_is_bounded() {
    let mut daemon = Daemon::new(0, &[1, 1], Config::default());
    let client = daemon.client(rank(0));
    daemon.asks(client, publish("k0", 4 << 20));
    let came = daemon.hears(1, head(1, lookup(vec!["k0".to_owned(); 4096], None)));
    match answer(&came) {
        Ok(Answer::Found(found)) => assert_eq!(found.len(), 1),
        other => panic!("{other:?}"),
    }
    let many = daemon.hears(1, head(1, lookup(vec!["k0".to_owned(); 4097], None)));
    limited(answer(&many), "keys in one request");
    let long = daemon.hears(1, head(1, lookup(vec!["k".repeat(1 << 20)], None)));
    limited(answer(&long), "bytes of a key");
    // It was to be read once. It did not fit an answer, so it is still there.
    keys(12).iter().for_each(|key| drop(daemon.asks(client, publish(key, 4 << 20))));
    let came = daemon.hears(1, head(1, lookup(keys(12), None)));
    limited(answer(&came), "bytes in one answer");
    let came = daemon.hears(1, head(1, lookup(keys(6), None)));
    assert!(matches!(answer(&came), Ok(Answer::Found(found)) if found.len() == 6));
    // The same holds for one that waits.
    let all = (6..18).map(|n| format!("k{n}")).collect();
    assert_eq!(daemon.hears(1, head(1, lookup(all, Some(1000)))), []);
    (12..17).for_each(|n| drop(daemon.asks(client, publish(&format!("k{n}"), 4 << 20))));
    let came = daemon.asks(client, publish("k17", 4 << 20));
    limited(answer(&came), "bytes in one answer");
}

#[test]
fn lookups_that_wait_are_bounded_and_end_with_the_asker() {
    let mut daemon = Daemon::new(0, &[1, 1, 1], Config::default());
    for round in 0..4 {
        assert_eq!(daemon.hears(1, head(round, lookup(keys(4096), Some(10_000)))), [], "{round}");
    }
    let one = || lookup(keys(1), Some(u64::MAX));
    limited(answer(&daemon.hears(1, head(9, one()))), "keys that a node's lookups wait for");
    // Other nodes have bounds of their own, and once these lookups are over there is room again.
    assert_eq!(daemon.hears(2, head(1, one())), []);
    daemon.now = daemon.now.after(ms(10_000));
    assert_eq!(daemon.hears(1, head(5, one())).len(), 4);
    // No lookup waits longer than a year, and one timer at a time is set.
    daemon.now = daemon.now.after(ms(400 * 24 * 3600 * 1000));
    daemon.engine.advance(daemon.now);
    assert_eq!(daemon.outputs().len(), 2);
    assert_eq!(daemon.hears(1, head(9, one())), []);
    assert_eq!(daemon.hears(1, Message::Release(rank(1))), []);
    let client = daemon.client(rank(0));
    assert_eq!(daemon.asks(client, publish("k0", 1)).len(), 1, "no client waits any more");
}

#[test]
fn the_lookups_of_a_closed_client_are_dropped() {
    let mut daemon = Daemon::new(1, &[1, 1], Config::default());
    let client = daemon.client(rank(1));
    let (keys, wait) = (keys(1), Some(ms(10_000)));
    daemon.asks(client, Request::Lookup { keys, wait, least: 0, within: Range::Global });
    daemon.engine.client_closed(daemon.now, client);
    let released = Output::Send { to: Node(0), message: Message::Release(rank(1)) };
    assert!(daemon.outputs().contains(&released));
}

#[test]
fn a_query_answers_each_key_once() {
    let mut daemon = Daemon::new(0, &[1, 1], Config::default());
    let query = |key: &str| ControllerRequest::Query(vec![key.to_owned(); 4096]);
    match answer(&daemon.hears(1, head(1, query("petasos.nodes")))) {
        Ok(Answer::Info(info)) => assert_eq!(info.len(), 1),
        other => panic!("{other:?}"),
    }
    // The reports of nodes on their processes are bounded, too.
    let came = daemon.hears(1, head(1, query("petasos.processes")));
    let [Output::Send { to: Node(1), message: Message::Ask { id, .. } }] = came[..] else {
        panic!("{came:?}");
    };
    let info = vec![(String::new(), Value::Bytes(vec![0; 41 << 20]))];
    let came = daemon.hears(1, Message::Answer { id, result: Ok(Answer::Info(info)) });
    limited(answer(&came), "bytes in one answer");
    // So are queries under way.
    for id in 0..1024 {
        daemon.hears(1, head(id, query("petasos.processes")));
    }
    let came = daemon.hears(1, head(9, query("petasos.processes")));
    limited(answer(&came), "queries of a node about others");
}

/// The answer to a question for a card.
fn cards(outputs: &[Output]) -> Vec<Result<BusinessCard, Error>> {
    let answer = |out: &Output| match out {
        Output::Send { message: Message::BusinessCardAnswer { result, .. }, .. } => {
            Some(result.clone())
        }
        _ => None,
    };
    outputs.iter().filter_map(answer).collect()
}

#[test]
fn questions_for_cards_that_are_not_there_are_bounded() {
    let mut daemon = Daemon::new(0, &[1, 1, 1], Config::default());
    let most = 1 << 14;
    for id in 0..most {
        assert_eq!(daemon.hears(1, question(id, 0, 0)), []);
    }
    let came = daemon.hears(1, question(most, 0, 0));
    limited(cards(&came).remove(0), "questions of a node for business cards that are not there");
    let long = |patience| {
        let (proc, key) = (rank(0), "k".to_owned());
        Message::BusinessCardRequest {
            id: 5,
            proc,
            restarts: 0,
            replaced: 0,
            key,
            wait: false,
            patience,
        }
    };
    assert_eq!(daemon.hears(2, long(Duration::MAX)), []);
    // Once they are over there is room, and one timer drops them all.
    let looks = |daemon: &mut Daemon, time: Duration| {
        let end = daemon.now.after(time);
        let mut looks = 0;
        while daemon.engine.deadline() <= end {
            looks += 1;
            daemon.engine.advance(daemon.engine.deadline());
        }
        daemon.now = end;
        looks
    };
    assert_eq!(looks(&mut daemon, ms(1_000)), 1);
    assert_eq!(daemon.hears(1, question(0, 0, 0)), []);
    // No question waits longer than a year and a moment.
    assert_eq!(looks(&mut daemon, ms(400 * 24 * 3600 * 1000)), 2);
    let client = daemon.client(rank(0));
    assert_eq!(cards(&daemon.asks(client, Request::Commit(vec![]))), []);
}

#[test]
fn a_lost_node_asks_nothing_any_more() {
    let mut daemon = Daemon::new(0, &[1, 1, 1], Config::default());
    let client = daemon.client(rank(0));
    daemon.hears(1, question(1, 0, 0));
    daemon.hears(2, question(2, 0, 0));
    daemon.engine.peer_lost(daemon.now, Node(1));
    daemon.outputs();
    let came = daemon.asks(client, Request::Commit(vec![]));
    assert_eq!(cards(&came).len(), 1, "{came:?}");
}

fn step(nth: u64, step: FenceStep) -> Message {
    Message::Fence { group: Group::all(JOB, 3), replaced: 0, nth, step }
}

/// Node 1 of three in a row.
fn between() -> Daemon {
    Daemon::new(1, &[1, 1, 1], Config { fanout: 1, ..Config::default() })
}

#[test]
fn fences_that_others_begin_are_bounded() {
    for begin in [FenceStep::Up(vec![]), FenceStep::Check] {
        let mut daemon = between();
        let client = daemon.client(rank(1));
        for nth in 0..8192 {
            // Any numbers, in any order.
            let came = daemon.hears(2, step(nth * (1 << 40), begin.clone()));
            assert!(!cut_off(&came, 2), "{begin:?} {nth}");
        }
        // A process at the limit is neither refused nor cut off.
        let came = daemon.asks(client, fence());
        assert!(!came.iter().any(|out| matches!(out, Output::Answer { .. })), "{came:?}");
        assert!(!cut_off(&daemon.hears(2, step(8191, begin.clone())), 2));
        assert!(cut_off(&daemon.hears(2, step(u64::MAX, begin)), 2));
    }
}

#[test]
fn a_process_is_only_so_many_fences_ahead() {
    let mut daemon = between();
    let client = daemon.client(rank(1));
    // Fences that fail while the first is open count as well.
    let failed = || FenceStep::Down(Err(Error::Ending("enough".to_owned())));
    for nth in 0..4096 {
        assert_eq!(daemon.asks(client, fence()), [], "{nth}");
        if nth > 0 {
            assert_eq!(daemon.hears(0, step(nth, failed())).len(), 2, "{nth}");
        }
    }
    let refused = daemon.asks(client, fence());
    let [Output::Answer { result: Err(Error::Limit { .. }), .. }] = refused[..] else {
        panic!("{refused:?}");
    };
    daemon.hears(0, step(0, failed()));
    assert_eq!(daemon.asks(client, fence()), []);
}

#[test]
fn only_the_parent_says_how_a_fence_ends() {
    let mut daemon = between();
    let client = daemon.client(rank(1));
    daemon.asks(client, fence());
    let late = || Error::Ending("lies".to_owned());
    for wrong in [FenceStep::Down(Ok(vec![])), FenceStep::Fail(late()), FenceStep::Count] {
        assert_eq!(daemon.hears(2, step(0, wrong)), []);
    }
    for wrong in [FenceStep::Up(vec![]), FenceStep::Fail(late()), FenceStep::Late] {
        assert_eq!(daemon.hears(0, step(0, wrong)), []);
    }
    assert_eq!(daemon.hears(2, step(0, FenceStep::Up(vec![]))).len(), 1);
    assert_eq!(daemon.hears(0, step(0, FenceStep::Down(Ok(vec![])))).len(), 2);
}

#[test]
fn the_cards_of_a_fence_are_bounded_and_all_hear_of_it() {
    let mut net = Net::new(1, Config { fanout: 1, ..Config::default() }, vec![job(JOB, &[1; 4])]);
    for proc in net.procs() {
        net.ask(ms(0), proc, Request::Connect(proc));
    }
    net.run(ms(20));
    // The sum is too much on the way up: 15 values of 4 MiB each.
    for proc in net.procs().into_iter().skip(1) {
        let entry = || Entry { scope: Scope::Global, value: vec![0; 4 << 20].into() };
        let entries = keys(15).into_iter().map(|key| (key, entry())).collect();
        net.ask(ms(0), proc, Request::Commit(entries));
    }
    net.run(ms(20));
    net.procs().into_iter().for_each(|proc| net.ask(ms(0), proc, collect()));
    net.run(ms(50));
    for proc in net.procs() {
        limited(net.last(proc), "bytes of business cards in a fence");
    }
    // The next fence is not affected.
    net.procs().into_iter().for_each(|proc| net.ask(ms(0), proc, fence()));
    net.run(ms(50));
    net.procs().into_iter().for_each(|proc| assert_eq!(net.last(proc), Ok(Answer::Done)));
}
