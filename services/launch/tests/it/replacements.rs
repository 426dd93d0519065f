//! Lost nodes that are replaced by spare ones: the rules one by one, and jobs whose nodes die
//! repeatedly, in fences, during replacements, and on a network that reorders and loses messages.

use super::common::{
    JOB, Net, fence, get, job,
    lives::{Lives, after, has, put, said, seeds},
    ms, rank,
};
use petasos_launch::{
    engine::{ClientId, Config, Engine, Output},
    message::{FenceStep, Message, Replacement},
};
use petasos_pmix::{
    BusinessCard, Entry, Error, Group, JobId, Node, Scope, Termination, Value,
    message::{Answer, Request},
    status,
};
use petasos_sim::Random;
use std::collections::BTreeSet;

const CODES: [i32; 3] = [status::PROC_ABORTED, status::PROC_RESTARTED, status::NODE_REPLACED];

fn spares(spares: u32) -> Config {
    Config { restarts: Some(3), spares, ..Config::default() }
}

fn by_itself(config: Config) -> Config {
    Config { restart_failed: true, ..config }
}

fn net(config: Config, ranks: &[u32]) -> Net {
    let mut net = Net::new(1, config, vec![job(JOB, ranks)]);
    for proc in net.procs() {
        net.ask(ms(0), proc, Request::Connect(proc));
        net.ask(ms(5), proc, Request::Register { handler: 1, codes: CODES.to_vec() });
    }
    net.run(ms(20));
    net
}

fn kill(net: &mut Net, node: u32) {
    net.kill(ms(0), Node(node));
    net.run(ms(500));
}

#[track_caller]
fn lost(result: Result<Answer, Error>, of: u32) {
    match result {
        Err(Error::NodeLost { node, .. }) => assert_eq!(node, Node(of)),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(result: Result<Answer, Error>, what: &str) {
    match result {
        Err(error @ Error::NotReplaced { .. }) => {
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(error.code(), status::NOT_SUPPORTED);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn its_ranks_are_new_processes_elsewhere() {
    let mut net = net(by_itself(spares(1)), &[1, 2, 1, 0]);
    after(&mut net, rank(2), put("old")).unwrap();
    has(&after(&mut net, rank(0), get(rank(2), "k")), "old");
    kill(&mut net, 1);
    assert_eq!(
        (&net.moved[..], &net.restarted[..]),
        (&[(Node(1), Node(3))][..], &[(rank(1), 1), (rank(2), 1)][..])
    );
    // All know where they are, and that what they had put was dropped.
    for r in [0, 3] {
        let node = get(rank(2), "pmix.nodeid");
        assert_eq!(after(&mut net, rank(r), node), Ok(Answer::Value(3u32.into())));
        let address = get(rank(2), "pmix.petasos.address");
        let expected = Ok(Answer::Value("tcp://10.0.0.1:9001".into()));
        assert_eq!(after(&mut net, rank(r), address), expected);
        net.ask(ms(0), rank(r), get(rank(2), "k"));
    }
    for r in [1, 2] {
        let welcome = after(&mut net, rank(r), Request::Connect(rank(r)));
        assert_eq!(welcome, Ok(Answer::Welcome { proc: rank(r), node: Node(3), restarts: 1 }));
    }
    after(&mut net, rank(2), put("new")).unwrap();
    for r in [0, 3] {
        has(&net.last(rank(r)), "new");
        let told: Vec<_> = net.told.iter().filter(|told| told.proc == rank(r)).collect();
        let mut codes = net.codes(rank(r));
        codes.sort_unstable();
        let [aborted, restarted, replaced] = CODES;
        assert_eq!(codes, [replaced, restarted, restarted, aborted]);
        let moved = &told.iter().find(|told| told.event.code == replaced).unwrap().event.info;
        let of = |key: &str| moved.iter().find(|(name, _)| name == key).map(|(_, v)| v.clone());
        assert_eq!(of("petasos.hname.before"), Some("n1".into()));
        assert_eq!(of("pmix.hname"), Some("n3".into()));
        let ranks = Value::List(vec![1u32.into(), 2u32.into()]);
        assert_eq!(of("petasos.ranks"), Some(ranks));
    }
    // They can fail like any others, and no spare is left for a second node.
    net.end(ms(0), rank(1), Termination::Signalled(9));
    net.run(ms(20));
    assert_eq!(net.restarted.last(), Some(&(rank(1), 2)));
    kill(&mut net, 2);
    assert_eq!(net.moved.len(), 1);
    lost(after(&mut net, rank(0), get(rank(3), "k")), 2);
}

#[test]
fn fences_fail_once_for_each_and_then_go_over_the_new_tree() {
    // Whether a process is in a fence when the node is lost, or all come to the next one later.
    for early in [true, false] {
        let mut net = net(by_itself(spares(1)), &[1, 1, 1, 0]);
        (0..3).for_each(|r| net.ask(ms(0), rank(r), fence()));
        net.run(ms(20));
        if early {
            net.ask(ms(0), rank(0), fence());
            net.run(ms(20));
        }
        kill(&mut net, 1);
        if early {
            lost(net.last(rank(0)), 1);
        } else {
            lost(after(&mut net, rank(0), fence()), 1);
        }
        lost(after(&mut net, rank(2), fence()), 1);
        after(&mut net, rank(1), Request::Connect(rank(1))).unwrap();
        for _ in 0..3 {
            net.ask(ms(0), rank(0), fence());
            net.run(ms(20));
            net.ask(ms(0), rank(1), fence());
            net.ask(ms(5), rank(2), fence());
            net.run(ms(20));
            (0..3).for_each(|r| assert_eq!(net.last(rank(r)), Ok(Answer::Done), "rank {r}"));
        }
        // Groups without a rank of that node are not affected.
        let group = Some(Group::of([rank(0), rank(2)]));
        let what = Request::Fence { group, collect: false, timeout: None };
        net.ask(ms(0), rank(0), what.clone());
        net.ask(ms(0), rank(2), what);
        net.run(ms(20));
        [0, 2].iter().for_each(|r| assert_eq!(net.last(rank(*r)), Ok(Answer::Done)));
    }
}

#[test]
fn a_node_is_replaced_once_however_many_ranks_ask() {
    let mut net = net(spares(2), &[1, 1, 1, 0, 0]);
    kill(&mut net, 1);
    assert_eq!(net.moved, []);
    for r in [0, 2] {
        net.ask(ms(0), rank(r), Request::Replace(Node(1)));
    }
    net.run(ms(20));
    let by = Ok(Answer::Value(3u32.into()));
    [0, 2].iter().for_each(|r| assert_eq!(net.last(rank(*r)), by));
    assert_eq!(net.moved, [(Node(1), Node(3))]);
    let again = after(&mut net, rank(2), Request::Replace(Node(1)));
    assert_eq!((again, net.moved.len()), (Ok(Answer::Value(3u32.into())), 1));
    // The rank that asks first knows of the loss before the head node does.
    net.ask(ms(0), rank(0), Request::Replace(Node(2)));
    net.run(ms(300));
    kill(&mut net, 2);
    assert_eq!(net.last(rank(0)), Ok(Answer::Value(4u32.into())));
}

#[test]
fn what_cannot_be_replaced() {
    let ask = |net: &mut Net, node| after(net, rank(0), Request::Replace(Node(node)));
    let mut none = net(spares(0), &[1, 1]);
    kill(&mut none, 1);
    refused(ask(&mut none, 1), "no spare nodes");
    let ends = Config { restarts: None, ..spares(1) };
    let mut ends = net(ends, &[1, 1, 0]);
    kill(&mut ends, 1);
    refused(ask(&mut ends, 1), "does not go on");
    // Node 4 has no ranks, and is none of the spares.
    let mut net = net(Config { restarts: Some(1), ..spares(2) }, &[1, 1, 2, 1, 0, 0, 0]);
    refused(ask(&mut net, 0), "the job is run from it");
    refused(ask(&mut net, 7), "no such node");
    net.ask(ms(0), rank(0), Request::Replace(Node(1)));
    net.run(ms(2100));
    refused(net.last(rank(0)), "node 1 is not replaced: it is not lost");
    kill(&mut net, 4);
    refused(ask(&mut net, 4), "no ranks");
    // A rank that has finished stays so, and its node is not replaced for it alone.
    let done = |net: &mut Net, proc| {
        net.ask(ms(0), proc, Request::Finalize);
        net.run(ms(20));
        let now = net.now;
        net.with(Node::HEAD, |head| head.report_remote_end(now, proc, 0, Termination::Finalized));
    };
    done(&mut net, rank(1));
    kill(&mut net, 1);
    refused(ask(&mut net, 1), "no ranks");
    done(&mut net, rank(2));
    kill(&mut net, 2);
    assert_eq!(ask(&mut net, 2), Ok(Answer::Value(5u32.into())));
    assert_eq!(net.restarted, [(rank(3), 1)]);
    match after(&mut net, rank(0), get(rank(2), "k")) {
        // The node that it ran on, not the one that has its rank now.
        Err(Error::ProcGone { node, why, .. }) => {
            assert_eq!((node, why), (Node(2), Termination::Finalized));
        }
        other => panic!("{other:?}"),
    }
    // As often as allowed, and not once more.
    kill(&mut net, 5);
    refused(ask(&mut net, 5), "1 times");
    // The other spare dies before it is needed.
    kill(&mut net, 6);
    kill(&mut net, 3);
    refused(ask(&mut net, 3), "no spare node is left");
}

/// Late messages of the lost node and early ones of the new node are recognised.
#[test]
fn late_and_early_messages_are_recognised() {
    let now = petasos_fabric::Time(1_000_000_000);
    let mut engine = Engine::new(Node(2), 5, Config::default(), now);
    engine.add_job(job(JOB, &[1, 1, 1, 0, 0]));
    let client = ClientId(0);
    engine.client_opened(client);
    engine.request(now, client, 0, Request::Connect(rank(2)));
    let say = |engine: &mut Engine, from, message| {
        engine.message(now, Node(from), message);
        std::iter::from_fn(|| engine.poll()).collect::<Vec<Output>>()
    };
    let group = Group::all(JOB, 3);
    let count = |replaced| Message::Fence {
        group: group.clone(),
        replaced,
        nth: 0,
        step: FenceStep::Count,
    };
    let replaced = |number, node, by, restarts| {
        let (node, by, again, ended) =
            (Node(node), Node(by), vec![(rank(1), restarts)], Vec::new());
        Message::Replaced(Box::new(Replacement { number, node, by, again, ended }))
    };
    let is_reply = |output: &Output| {
        matches!(output, Output::Send { to: Node(0), message: Message::Fence { .. } })
    };
    // A fence after two replacements; the second replacement; the first one, which completes them.
    assert_eq!(say(&mut engine, 0, count(2)).iter().filter(|o| is_reply(o)).count(), 0);
    assert_eq!(say(&mut engine, 0, replaced(2, 3, 4, 2)), []);
    let out = say(&mut engine, 0, replaced(1, 1, 3, 1));
    assert!(out.contains(&Output::Replaced { node: Node(1), by: Node(3) }), "{out:?}");
    assert!(out.contains(&Output::Replaced { node: Node(3), by: Node(4) }), "{out:?}");
    assert!(out.contains(&Output::Restarted { proc: rank(1), restarts: 2 }), "{out:?}");
    assert!(out.iter().any(is_reply), "{out:?}");
    assert_eq!(engine.lost(), &BTreeSet::from([Node(1), Node(3)]));
    assert_eq!(engine.map(JOB).unwrap().node_of(1), Some(Node(4)));
    assert!(engine.map(JobId(9)).is_none());
    // A fence from before is over, and so is the first process.
    assert_eq!(say(&mut engine, 0, count(1)), []);
    let why = Termination::Signalled(9);
    assert_eq!(say(&mut engine, 0, Message::Termination { proc: rank(1), restarts: 1, why }), []);
    assert_eq!(say(&mut engine, 0, replaced(1, 1, 3, 1)), []);
    let mut card = BusinessCard { restarts: 1, ..BusinessCard::default() };
    let entry = Entry { scope: Scope::Global, value: "old".into() };
    card.commit([("k".to_owned(), entry)]);
    let cards = FenceStep::Down(Ok(vec![(rank(1), card)]));
    say(&mut engine, 0, Message::Fence { group: group.clone(), replaced: 2, nth: 0, step: cards });
    assert_eq!(engine.known_business_card(rank(1)), None);
    // Impossible replacements are ignored: the node has ranks, or is the head node.
    for (node, by) in [(2, 4), (2, 0), (2, 2), (2, 9)] {
        assert_eq!(say(&mut engine, 0, replaced(3, node, by, 1)), []);
    }
}

/// Messages that wait for a replacement of which no node tells this one are bounded, and whatever
/// waits for them ends: a question is answered, and a fence fails, since the node that sends too
/// many of its messages is lost.
#[test]
fn more_than_can_wait_for_a_replacement_is_refused() {
    let now = petasos_fabric::Time(1_000_000_000);
    let mut engine = Engine::new(Node(2), 5, Config::default(), now);
    engine.add_job(job(JOB, &[1, 1, 1, 0, 0]));
    let client = ClientId(0);
    engine.client_opened(client);
    engine.request(now, client, 0, Request::Connect(rank(2)));
    engine.request(now, client, 1, put("here"));
    engine.request(now, client, 2, fence());
    while engine.poll().is_some() {}
    let group = Group::all(JOB, 3);
    let check = |replaced| Message::Fence {
        group: group.clone(),
        replaced,
        nth: 0,
        step: FenceStep::Check,
    };
    let ask = |id| {
        let (proc, key, wait, patience) = (rank(2), "k".to_owned(), false, ms(1000));
        Message::BusinessCardRequest { id, proc, restarts: 0, replaced: 1, key, wait, patience }
    };
    let mut say = |from, message| {
        engine.message(now, Node(from), message);
        std::iter::from_fn(|| engine.poll()).collect::<Vec<Output>>()
    };
    // Each node may have as many as the limit.
    let most = (0..1 << 20).find(|id| !say(0, ask(*id)).is_empty()).unwrap();
    assert_eq!((0..most).filter(|_| !say(1, check(1)).is_empty()).count(), 0);
    // A question beyond that is answered.
    let out = say(0, ask(most));
    match &out[..] {
        [Output::Send { to: Node(0), message: Message::BusinessCardAnswer { id, result } }] => {
            let Err(Error::Limit { limit, .. }) = result else { panic!("{result:?}") };
            assert_eq!((*id, *limit), (most, most));
        }
        other => panic!("{other:?}"),
    }
    // With a fence the node is lost, which ends the fence that waits on this node.
    let out = say(1, check(1));
    assert!(matches!(&out[0], Output::CutOff { node: Node(1), .. }), "{out:?}");
    assert!(out.contains(&Output::NodeLost(Node(1))), "{out:?}");
    let ended = |output: &Output| match output {
        Output::Answer { id: 2, result, .. } => Some(result.clone()),
        _ => None,
    };
    lost(out.iter().find_map(ended).unwrap(), 1);
    // Its messages are no longer taken, and that is reported once.
    assert_eq!(say(1, check(1)), []);
    // What other nodes wait for is answered in the end.
    let (again, ended) = (vec![(rank(1), 1)], Vec::new());
    let what = Replacement { number: 1, node: Node(1), by: Node(3), again, ended };
    let out = say(0, Message::Replaced(Box::new(what)));
    let answered = |output: &&Output| {
        matches!(
            output,
            Output::Send { message: Message::BusinessCardAnswer { result: Ok(_), .. }, .. }
        )
    };
    assert_eq!(out.iter().filter(answered).count() as u64, most);
    // There are no more replacements than nodes.
    let out = say(3, check(6));
    assert!(matches!(&out[0], Output::CutOff { node: Node(3), .. }), "{out:?}");
}

/// A rank had failed before its node was lost, and is started again on the other node: the news of
/// the restart comes first.
#[test]
fn a_restart_may_be_known_before_the_replacement() {
    let now = petasos_fabric::Time(1_000_000_000);
    for (said, restarts) in [(1, 1), (0, 0)] {
        let mut engine = Engine::new(Node(2), 3, Config::default(), now);
        engine.add_job(job(JOB, &[1, 2, 0]));
        if said > 0 {
            engine.message(now, Node(0), Message::Restarted { proc: rank(1), restarts: said });
        }
        while engine.poll().is_some() {}
        let (again, ended) = (vec![(rank(2), 1)], vec![(rank(1), 0, Termination::Exited(3))]);
        let (number, node, by) = (1, Node(1), Node(2));
        let what = Replacement { number, node, by, again, ended };
        engine.message(now, Node(0), Message::Replaced(Box::new(what)));
        let begin = |output: &Output| match output {
            Output::Restarted { proc, restarts } => Some((*proc, *restarts)),
            _ => None,
        };
        let out: Vec<Output> = std::iter::from_fn(|| engine.poll()).collect();
        let begun: Vec<_> = out.iter().filter_map(begin).collect();
        assert_eq!(begun.contains(&(rank(1), 1)), said > 0, "{begun:?}");
        assert!(begun.contains(&(rank(2), 1)), "{begun:?}");
        assert_eq!(engine.restarts_of(rank(1)), restarts);
        let client = ClientId(0);
        engine.client_opened(client);
        engine.request(now, client, 0, Request::Connect(rank(1)));
        let answer = std::iter::from_fn(|| engine.poll()).find_map(|output| match output {
            Output::Answer { result, .. } => Some(result),
            _ => None,
        });
        match answer.unwrap() {
            Ok(Answer::Welcome { restarts, .. }) => assert_eq!((restarts, said), (1, 1)),
            Err(Error::ProcGone { why, .. }) => {
                assert_eq!((why, said), (Termination::Exited(3), 0))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Whatever nodes die, those that replace others among them, and whatever ranks: as long as there
/// are spares, all ranks come together again, and cards are those of the last processes.
#[test]
fn a_job_lives_on_whatever_nodes_die() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed ^ 0x5ba2e5);
        let mut shape = vec![1 + random.below(2) as u32];
        shape.extend((0..2 + random.below(6)).map(|_| random.below(3) as u32));
        shape.push(1);
        let most = 1 + random.below(3);
        let first = shape.len() as u64;
        shape.extend((0..most).map(|_| 0));
        let fanout = 1 + random.below(3) as u32;
        let config = Config { fanout, restarts: Some(99), ..spares(most as u32) };
        let asked_for = random.one_in(2);
        let config = Config { restart_failed: !asked_for, ..config };
        let mut net = Net::new(seed, config, vec![job(JOB, &shape)]);
        net.reorder = random.one_in(2);
        // Soon after each other: so some die while they replace others.
        let near = ms(if random.one_in(2) { 250 } else { 30 });
        let mut doomed = BTreeSet::new();
        for nth in 0..most {
            // The first is one with ranks; of the others some are spares.
            let nodes = if nth == 0 { first } else { first + most };
            doomed.insert(Node(1 + random.below(nodes - 1) as u32));
        }
        doomed.iter().for_each(|node| net.kill(ms(20) + random.time(near), *node));
        let procs = net.procs();
        if random.one_in(2) {
            let proc = procs[1 + random.below(procs.len() as u64 - 1) as usize];
            net.end(ms(20) + random.time(ms(300)), proc, Termination::Signalled(9));
        }
        let mut lives = Lives::begin(&mut net);
        for _ in 0..2000 {
            net.run(ms(1));
            lives.begin_again(&mut net);
            for (proc, what, result) in lives.answered(&mut net) {
                if matches!(result, Err(Error::ProcGone { proc: of, .. }) if of == proc) {
                    // The process that asked has ended.
                    continue;
                }
                match (&what, &result) {
                    (Request::Fence { .. }, Ok(_)) => lives.fenced(&mut net, proc, true),
                    (
                        Request::Fence { .. },
                        Err(Error::FenceBroken { .. } | Error::NodeLost { .. }),
                    ) => lives.fenced(&mut net, proc, false),
                    // Its node was lost before it heard of the restart.
                    (Request::Restart { .. }, Err(Error::NotRestarted { .. })) => {
                        net.ask(ms(50), proc, what);
                    }
                    _ => assert!(result.is_ok(), "seed {seed}: {what:?} {result:?}"),
                }
            }
            for (teller, event) in lives.told(&net) {
                let what = match (said(&event, "petasos.restarts"), said(&event, "pmix.nodeid")) {
                    (Some(_), _) if !asked_for => continue,
                    (Some(after), _) => Request::Restart { proc: event.source, after: Some(after) },
                    (None, Some(node)) => Request::Replace(Node(node)),
                    (None, None) => panic!("seed {seed}: {event:?}"),
                };
                net.ask(random.time(ms(3)), teller, what);
            }
        }
        // All live nodes have seen the same replacements, and the ranks of each lost node are on
        // another.
        let head = net.engines[0].as_ref().unwrap();
        let map = head.map(JOB).unwrap();
        assert!(doomed.iter().all(|node| map.ranks_on(*node).is_empty()), "seed {seed}");
        for engine in net.engines.iter().flatten() {
            assert_eq!(engine.map(JOB).unwrap().spec(), map.spec(), "seed {seed}");
        }
        lives.end(seed, &mut net);
    }
}
