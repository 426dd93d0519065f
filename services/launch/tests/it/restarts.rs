//! Ranks that are started again: the rules one by one, and jobs whose processes die repeatedly on a
//! network that reorders, and loses what dying nodes had to forward.

use super::common::{
    JOB, Net, collect, fence, get, job,
    lives::{Lives, after, has, put, said, seeds},
    ms, rank,
};
use petasos_launch::{
    engine::{ClientId, Config, Engine, Output},
    message::Message,
};
use petasos_pmix::{
    BusinessCard, Entry, Error, Node, Proc, Scope, Termination, Value,
    event::Range,
    message::{Answer, Persistence, Published, Request},
    status,
};
use petasos_sim::Random;

/// How often a rank may be started again.
fn upto(restarts: u32) -> Config {
    Config { restarts: Some(restarts), ..Config::default() }
}

fn net(config: Config, ranks: &[u32]) -> Net {
    let mut net = Net::new(1, config, vec![job(JOB, ranks)]);
    for proc in net.procs() {
        net.ask(ms(0), proc, Request::Connect(proc));
        let codes = vec![status::PROC_ABORTED, status::PROC_RESTARTED];
        net.ask(ms(5), proc, Request::Register { handler: 1, codes });
    }
    net.run(ms(20));
    net
}

fn die(net: &mut Net, proc: Proc) {
    net.end(ms(0), proc, Termination::Signalled(9));
    net.run(ms(20));
}

fn again(of: u32) -> Request {
    Request::Restart { proc: rank(of), after: None }
}

fn times(restarts: u32) -> Result<Answer, Error> {
    Ok(Answer::Value(restarts.into()))
}

#[test]
fn it_is_a_new_process_for_all() {
    let mut net = net(upto(3), &[1, 2]);
    let published = Published {
        key: "p".into(),
        value: 1u32.into(),
        range: Range::Session,
        persistence: Persistence::Process,
    };
    after(&mut net, rank(1), Request::Publish(published)).unwrap();
    after(&mut net, rank(1), put("old")).unwrap();
    (0..3).for_each(|r| net.ask(ms(0), rank(r), collect()));
    net.run(ms(20));
    has(&after(&mut net, rank(0), get(rank(1), "k")), "old");
    die(&mut net, rank(1));
    assert_eq!(after(&mut net, rank(0), again(1)), times(1));
    assert_eq!((&net.restarted[..], net.dead.len()), (&[(rank(1), 1)][..], 0));
    // What it had put was dropped on all nodes; a get of it waits.
    let now = |of: u32| Request::Get {
        proc: rank(of),
        key: "k".into(),
        timeout: None,
        immediate: true,
        wait: false,
    };
    let lookup =
        Request::Lookup { keys: vec!["p".into()], wait: None, least: 0, within: Range::Global };
    assert_eq!(after(&mut net, rank(0), lookup), Err(Error::NotPublished("p".into())));
    for r in [0, 2] {
        let none = Error::NotFound { proc: rank(1), key: "k".into() };
        assert_eq!(after(&mut net, rank(r), now(1)), Err(none));
        net.ask(ms(0), rank(r), get(rank(1), "k"));
    }
    let welcome = after(&mut net, rank(1), Request::Connect(rank(1)));
    assert_eq!(welcome, Ok(Answer::Welcome { proc: rank(1), node: Node(1), restarts: 1 }));
    after(&mut net, rank(1), put("new")).unwrap();
    for r in [0, 2] {
        let got = net.asked.iter().rfind(|a| a.proc == rank(r) && a.what == get(rank(1), "k"));
        has(&got.unwrap().answer.clone().expect("the new one has committed").1, "new");
    }
    // The others got an event, both times, with its number.
    for r in [0, 2] {
        let told: Vec<_> = net.told.iter().filter(|told| told.proc == rank(r)).collect();
        let of = |key: &str, nth: usize| {
            let info = &told[nth].event.info;
            info.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
        };
        assert_eq!(net.codes(rank(r)), [status::PROC_ABORTED, status::PROC_RESTARTED]);
        let numbers = [of("petasos.restarts", 0), of("petasos.restarts", 1)];
        assert_eq!(numbers, [0u32, 1].map(|n| Some(n.into())));
        assert_eq!(of("pmix.hname", 1), Some(Value::from("n1")));
    }
    // It can die like any other.
    die(&mut net, rank(1));
    assert_eq!(after(&mut net, rank(2), again(1)), times(2));
}

#[test]
fn fences_fail_without_it_and_then_count_the_new_one() {
    // Whether the others came to a fence before the restart, or not.
    for early in [true, false] {
        let mut net = net(upto(3), &[1, 1, 1]);
        (0..3).for_each(|r| net.ask(ms(0), rank(r), fence()));
        net.run(ms(20));
        if early {
            net.ask(ms(0), rank(0), fence());
            net.run(ms(20));
        }
        die(&mut net, rank(1));
        let broken = |result: Result<Answer, Error>| match result {
            Err(Error::FenceBroken { proc, .. }) => assert_eq!(proc, rank(1)),
            other => panic!("{other:?}"),
        };
        if early {
            broken(net.last(rank(0)));
        }
        assert_eq!(after(&mut net, rank(0), again(1)), times(1));
        if early {
            // It comes late to the fence that has failed.
            broken(after(&mut net, rank(2), fence()));
        }
        after(&mut net, rank(1), Request::Connect(rank(1))).unwrap();
        for _ in 0..3 {
            net.ask(ms(0), rank(0), fence());
            net.run(ms(20));
            net.ask(ms(0), rank(1), fence());
            net.ask(ms(5), rank(2), fence());
            net.run(ms(20));
            (0..3).for_each(|r| assert_eq!(net.last(rank(r)), Ok(Answer::Done), "rank {r}"));
        }
    }
}

#[test]
fn one_failure_is_one_restart() {
    let mut net = net(upto(9), &[1, 1, 2]);
    die(&mut net, rank(1));
    for (r, named) in [(0, Some(0)), (2, None), (3, Some(0))] {
        net.ask(ms(0), rank(r), Request::Restart { proc: rank(1), after: named });
    }
    net.run(ms(20));
    // And once more, long after that.
    assert_eq!(after(&mut net, rank(2), again(1)), times(1));
    assert_eq!((net.last(rank(0)), net.last(rank(3))), (times(1), times(1)));
    assert_eq!(net.restarted, [(rank(1), 1)]);
}

#[test]
fn which_ranks_may_be_started_again() {
    let refused = |result: Result<Answer, Error>, what: &str| match result {
        Err(error @ Error::NotRestarted { .. }) => {
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(error.code(), status::NOT_SUPPORTED);
        }
        other => panic!("{other:?}"),
    };
    // The job ends with its first failure.
    let mut net = self::net(Config::default(), &[1, 2]);
    die(&mut net, rank(1));
    refused(after(&mut net, rank(0), again(1)), "does not go on");
    // It lives; it has finished; it was started again as often as allowed; its node is lost.
    let mut net = self::net(upto(1), &[2, 1, 1]);
    net.ask(ms(0), rank(0), again(2));
    net.run(ms(2100));
    refused(net.last(rank(0)), "rank 2 is not started again: it has not failed");
    after(&mut net, rank(1), Request::Finalize).unwrap();
    refused(after(&mut net, rank(0), again(1)), "it finalized");
    die(&mut net, rank(2));
    assert_eq!(after(&mut net, rank(0), again(2)), times(1));
    let future = Request::Restart { proc: rank(2), after: Some(2) };
    refused(after(&mut net, rank(0), future), "has not been started yet");
    die(&mut net, rank(2));
    refused(after(&mut net, rank(0), again(2)), "1 times");
    net.kill(ms(0), Node(2));
    net.run(ms(500));
    refused(after(&mut net, rank(0), again(3)), "node 2 is lost");
    assert_eq!(after(&mut net, rank(0), again(9)), Err(Error::NoSuchProc(rank(9))));
    // A job that ends starts no process.
    let mut net = self::net(upto(1), &[1, 1]);
    net.with(Node::HEAD, |engine: &mut Engine| engine.allow_restarts(None));
    die(&mut net, rank(1));
    refused(after(&mut net, rank(0), again(1)), "is ending");
}

/// The rank that asks first knows of the failure before the head node does.
#[test]
fn the_head_node_waits_for_news_of_the_failure() {
    let mut net = net(upto(1), &[1, 1]);
    net.ask(ms(0), rank(0), again(1));
    net.run(ms(500));
    die(&mut net, rank(1));
    assert_eq!(net.last(rank(0)), times(1));
}

#[test]
fn without_a_request_up_to_the_limit() {
    let mut net = net(Config { restart_failed: true, ..upto(2) }, &[1, 2]);
    for r in [0, 2] {
        for _ in 0..3 {
            die(&mut net, rank(r));
        }
        net.end(ms(0), rank(r), Termination::Exited(0));
    }
    net.end(ms(0), rank(1), Termination::NotStarted("no such program".into()));
    net.run(ms(20));
    let twice = [0, 2].map(|r| [(rank(r), 1), (rank(r), 2)]).concat();
    assert_eq!(net.restarted, twice);
}

/// Late messages of the old process are not taken for the new one's.
#[test]
fn late_messages_of_the_old_process_are_recognised() {
    let now = petasos_fabric::Time(1_000_000_000);
    let mut engine = Engine::new(Node(0), 2, upto(9), now);
    engine.add_job(job(JOB, &[1, 1]));
    let client = ClientId(0);
    engine.client_opened(client);
    engine.request(now, client, 0, Request::Connect(rank(0)));
    let gone =
        |restarts| Message::Termination { proc: rank(1), restarts, why: Termination::Signalled(9) };
    let card = |restarts, value: &str| {
        let mut card = BusinessCard { restarts, ..BusinessCard::default() };
        card.commit([("k".to_owned(), Entry { scope: Scope::Global, value: value.into() })]);
        card
    };
    let say = |engine: &mut Engine, message| {
        engine.message(now, Node(1), message);
        std::iter::from_fn(|| engine.poll()).collect::<Vec<Output>>()
    };
    // The question is under way when the rank is started again: it is asked anew, of the new one.
    engine.request(now, client, 1, get(rank(1), "k"));
    let out: Vec<Output> = std::iter::from_fn(|| engine.poll()).collect();
    let asked = |out: &[Output]| {
        out.iter().find_map(|output| match output {
            Output::Send { message: Message::BusinessCardRequest { id, restarts, .. }, .. } => {
                Some((*id, *restarts))
            }
            _ => None,
        })
    };
    let (first, 0) = asked(&out).unwrap() else { panic!("{out:?}") };
    say(&mut engine, gone(0));
    engine.request(now, client, 2, Request::Restart { proc: rank(1), after: Some(0) });
    let out: Vec<Output> = std::iter::from_fn(|| engine.poll()).collect();
    let (second, 1) = asked(&out).unwrap() else { panic!("{out:?}") };
    // The end of the old process, its answer, and its card in a fence: all are ignored.
    assert_eq!(say(&mut engine, gone(0)), []);
    assert_eq!(
        say(&mut engine, Message::BusinessCardAnswer { id: first, result: Ok(card(0, "old")) }),
        []
    );
    let proc = rank(1);
    let error = Err(Error::ProcGone { proc, node: Node(1), why: Termination::Signalled(9) });
    assert_eq!(say(&mut engine, Message::BusinessCardAnswer { id: first, result: error }), []);
    assert_eq!(engine.known_business_card(rank(1)), None);
    let out =
        say(&mut engine, Message::BusinessCardAnswer { id: second, result: Ok(card(1, "new")) });
    let answer = out.iter().find_map(|output| match output {
        Output::Answer { id: 1, result, .. } => Some(result.clone()),
        _ => None,
    });
    has(&answer.unwrap(), "new");
    // The news of a process's end also tells that it was started, if that was not known, and its
    // card is dropped.
    let out = say(&mut engine, gone(3));
    assert!(out.contains(&Output::Restarted { proc: rank(1), restarts: 3 }), "{out:?}");
    assert_eq!((engine.restarts_of(rank(1)), engine.known_business_card(rank(1))), (3, None));
    assert_eq!(say(&mut engine, Message::Restarted { proc: rank(1), restarts: 2 }), []);
}

/// Whichever processes die, and whichever nodes that forward news: the ranks come together again,
/// each is restarted once for each failure, all see the same fences fail, and cards are those of
/// the last processes.
#[test]
fn a_job_lives_on_whichever_processes_die() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed ^ 0xa6a1);
        // Some nodes have no ranks: those can be lost.
        let mut shape: Vec<u32> =
            (0..3 + random.below(9)).map(|_| random.below(3) as u32).collect();
        shape.extend([1, 1]);
        let config = Config { fanout: 1 + random.below(3) as u32, ..upto(99) };
        let mut net = Net::new(seed, config, vec![job(JOB, &shape)]);
        net.reorder = random.one_in(2);
        let spare: Vec<u32> = (1..shape.len() as u32).filter(|n| shape[*n as usize] == 0).collect();
        let procs = net.procs();
        for _ in 0..1 + random.below(4) {
            // One rank always remains to ask.
            let proc = procs[1 + random.below(procs.len() as u64 - 1) as usize];
            net.end(ms(20) + random.time(ms(300)), proc, Termination::Signalled(9));
        }
        if !spare.is_empty() && random.one_in(2) {
            let node = Node(spare[random.below(spare.len() as u64) as usize]);
            net.kill(ms(20) + random.time(ms(300)), node);
        }
        let mut lives = Lives::begin(&mut net);
        for _ in 0..1500 {
            net.run(ms(1));
            lives.begin_again(&mut net);
            for (proc, what, result) in lives.answered(&mut net) {
                match what {
                    Request::Fence { .. } => {
                        let broken = matches!(result, Err(Error::FenceBroken { .. }));
                        assert!(result.is_ok() || broken, "seed {seed}: {result:?}");
                        lives.fenced(&mut net, proc, result.is_ok());
                    }
                    _ => assert!(result.is_ok(), "seed {seed}: {result:?}"),
                }
            }
            for (teller, event) in lives.told(&net) {
                // A node without ranks has nothing to be started again.
                if let Some(after) = said(&event, "petasos.restarts") {
                    let what = Request::Restart { proc: event.source, after: Some(after) };
                    net.ask(random.time(ms(3)), teller, what);
                }
            }
        }
        let numbers = lives.end(seed, &mut net);
        // One after the other.
        let restarts: u32 = numbers.values().sum();
        assert!(restarts >= 1 && restarts as usize == net.restarted.len(), "seed {seed}");
        let first = |proc: &&Proc| !numbers.contains_key(proc);
        let mut firsts = lives.fences.iter().filter(|(proc, _)| first(proc)).map(|(_, all)| all);
        if let Some(one) = firsts.next() {
            for other in firsts {
                let same = one.iter().zip(other).all(|(a, b)| a == b);
                assert!(same, "seed {seed}: {one:?} {other:?}");
            }
        }
    }
}
