//! The rules of scopes, fences, direct exchange, publishing, events and termination, one by one.

use super::common::{JOB, Net, client_of, collect, fence, get, job, ms, rank};
use petasos_fabric::Time;
use petasos_launch::engine::{ClientId, Config, Engine, Output};
use petasos_pmix::{
    Entry, Error, Group, JobId, Missing, Node, Proc, Scope, Termination, Value,
    event::{NO_CACHE, Range},
    message::{Answer, Persistence, Published, Request},
    status,
};

/// Jobs with these numbers of ranks on each node, all connected.
fn jobs(ranks: &[&[u32]]) -> Net {
    let jobs = ranks.iter().enumerate().map(|(at, r)| job(JobId(at as u32), r)).collect();
    let mut net = Net::new(1, Config::default(), jobs);
    for proc in net.procs() {
        net.ask(ms(0), proc, Request::Connect(proc));
    }
    net.run(ms(10));
    net
}

fn put(key: &str, scope: Scope) -> Request {
    Request::Commit(vec![(key.into(), Entry { scope, value: 7u32.into() })])
}

fn after(net: &mut Net, proc: Proc, what: Request) -> Result<Answer, Error> {
    net.ask(ms(0), proc, what);
    net.run(ms(20));
    net.last(proc)
}

fn now(of: Proc, key: &str) -> Request {
    Request::Get { proc: of, key: key.into(), timeout: None, immediate: true, wait: false }
}

fn within(of: Proc, key: &str, time: u64, wait: bool) -> Request {
    let timeout = Some(ms(time));
    Request::Get { proc: of, key: key.into(), timeout, immediate: false, wait }
}

#[test]
fn scopes_decide_what_is_visible() {
    // Ranks 0 and 1 on one node, 2 on another.
    let cases = [
        (Scope::Local, true, false),
        (Scope::Remote, false, true),
        (Scope::Global, true, true),
        (Scope::Internal, false, false),
    ];
    for exchange in [false, true] {
        for (scope, here, there) in cases {
            let mut net = jobs(&[&[2, 1]]);
            after(&mut net, rank(0), put("k", scope)).unwrap();
            if exchange {
                (0..3).for_each(|r| net.ask(ms(0), rank(r), collect()));
                net.run(ms(20));
            }
            for (reader, sees) in [(rank(1), here), (rank(2), there)] {
                match after(&mut net, reader, get(rank(0), "k")) {
                    Ok(Answer::BusinessCard(card)) => {
                        assert!(sees && card.entries.contains_key("k"))
                    }
                    Err(Error::NotFound { proc, key }) => {
                        assert_eq!((sees, proc, key), (false, rank(0), "k".into()));
                    }
                    other => panic!("{scope:?}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_get_before_the_commit_waits_for_it() {
    for reader in [rank(1), rank(2)] {
        let mut net = jobs(&[&[2, 1]]);
        // At once: not found.
        assert_eq!(after(&mut net, reader, now(rank(0), "k")).unwrap_err().code(), -46);
        // Within a time: an error that names the process and the key.
        net.ask(ms(0), reader, within(rank(0), "k", 500, false));
        net.run(ms(600));
        let late = net.last(reader).unwrap_err();
        assert_eq!(late.code(), -24);
        assert!(late.to_string().contains("`k` of rank 0 on node 0"), "{late}");
        // A commit releases it.
        net.ask(ms(0), reader, within(rank(0), "k", 500, false));
        net.ask(ms(100), rank(0), put("k", Scope::Global));
        net.run(ms(200));
        assert!(matches!(net.last(reader), Ok(Answer::BusinessCard(_))));
        // One without the key releases it too, unless it waits for more.
        let mut net = jobs(&[&[2, 1]]);
        net.ask(ms(0), reader, within(rank(0), "k", 500, false));
        net.ask(ms(10), rank(0), put("other", Scope::Global));
        net.run(ms(50));
        assert!(matches!(net.last(reader), Err(Error::NotFound { .. })));
        net.ask(ms(0), reader, within(rank(0), "k", 500, true));
        net.ask(ms(50), rank(0), put("k", Scope::Global));
        net.run(ms(100));
        assert!(matches!(net.last(reader), Ok(Answer::BusinessCard(_))));
    }
}

#[test]
fn one_miss_brings_the_whole_card_and_one_question_serves_all() {
    let mut net = jobs(&[&[1, 3]]);
    let entry = |key: &str| (key.to_owned(), Entry { scope: Scope::Global, value: 1u32.into() });
    after(&mut net, rank(0), Request::Commit(vec![entry("a"), entry("b")])).unwrap();
    let before = net.sent;
    (1..4).for_each(|r| net.ask(ms(0), rank(r), get(rank(0), "a")));
    net.run(ms(20));
    (1..4).for_each(|r| net.ask(ms(0), rank(r), get(rank(0), "b")));
    net.run(ms(20));
    assert_eq!(net.sent - before, 2, "one question, one answer");
    assert!((1..4).all(|r| net.answers(rank(r)).iter().all(Result::is_ok)));
}

#[test]
fn job_data_is_known_and_never_travels() {
    let mut net = jobs(&[&[2, 1]]);
    let before = net.sent;
    let mut value = |of: u32, key: &str| match after(&mut net, rank(2), now(rank(of), key)) {
        Ok(Answer::Value(value)) => value,
        other => panic!("{key}: {other:?}"),
    };
    assert_eq!(value(Proc::JOB, "pmix.job.size"), Value::Uint(3));
    assert_eq!(value(1, "pmix.lrank"), Value::Uint(1));
    assert_eq!(value(1, "pmix.hname"), Value::from("n0"));
    assert_eq!(value(1, "pmix.petasos.address"), Value::from("tcp://10.0.0.1:9001"));
    assert_eq!(net.sent, before);
    assert!(matches!(
        after(&mut net, rank(0), put("pmix.x", Scope::Global)),
        Err(Error::Misuse(_))
    ));
}

#[test]
fn a_late_fence_names_the_missing_ranks() {
    let mut net = jobs(&[&[2, 2, 2, 2]]);
    for r in [0, 1, 2, 4, 6, 7] {
        let what = Request::Fence { group: None, collect: false, timeout: Some(ms(1000)) };
        net.ask(ms(u64::from(r)), rank(r), what);
    }
    net.run(ms(1500));
    let expected = Missing { procs: vec![rank(3), rank(5)], ..Missing::default() };
    for r in [0, 1, 2, 4, 6, 7] {
        match net.last(rank(r)).unwrap_err() {
            Error::FenceTimeout { missing, nth: 0, .. } => assert_eq!(missing, expected),
            other => panic!("{other}"),
        }
    }
    // A process that comes late gets the error, and the next fence is a new one.
    for r in [3, 5] {
        assert_eq!(after(&mut net, rank(r), fence()).unwrap_err().code(), status::TIMEOUT);
    }
    (0..8).for_each(|r| net.ask(ms(0), rank(r), fence()));
    net.run(ms(50));
    (0..8).for_each(|r| assert_eq!(net.last(rank(r)), Ok(Answer::Done)));
}

#[test]
fn a_process_that_is_gone_before_or_in_a_fence_ends_it() {
    for (node_first, why) in [(true, Termination::Exited(5)), (false, Termination::Signalled(11))] {
        let mut net = jobs(&[&[1, 1, 1]]);
        let end = if node_first { ms(0) } else { ms(40) };
        net.end(end, rank(2), why.clone());
        net.ask(ms(20), rank(0), fence());
        net.ask(ms(30), rank(1), fence());
        net.run(ms(100));
        for r in [0, 1] {
            let Error::FenceBroken { proc, node, why: said, .. } = net.last(rank(r)).unwrap_err()
            else {
                panic!("{:?}", net.last(rank(r)));
            };
            assert_eq!((proc, node, said), (rank(2), Node(2), why.clone()));
        }
    }
    // A process that has finalized does so, too, on a node where no process comes to the fence.
    for end in [Termination::NotFinalized, Termination::Finalized] {
        let mut net = jobs(&[&[1, 1]]);
        match end {
            Termination::Finalized => net.ask(ms(0), rank(1), Request::Finalize),
            _ => net.end(ms(0), rank(1), Termination::Exited(0)),
        }
        net.ask(ms(20), rank(0), fence());
        net.run(ms(1_100));
        match net.last(rank(0)).unwrap_err() {
            Error::FenceBroken { proc, why, .. } => assert_eq!((proc, why), (rank(1), end)),
            other => panic!("{other}"),
        }
    }
    // Finalizing is not a failure, but ends a fence as well.
    let mut net = jobs(&[&[3]]);
    net.ask(ms(0), rank(0), fence());
    net.ask(ms(5), rank(2), Request::Finalize);
    net.run(ms(50));
    assert!(net.last(rank(0)).unwrap_err().to_string().contains("finalized"));
}

/// Whatever its exit code is: others may wait for it.
#[test]
fn a_process_that_leaves_without_finalizing_has_failed() {
    let mut net = jobs(&[&[1, 2, 1]]);
    net.ask(ms(0), rank(2), Request::Finalize);
    for r in [1, 2] {
        net.end(ms(10), rank(r), Termination::Exited(0));
    }
    net.run(ms(100));
    // The other process, which has not finalized, gets the event.
    let dead = net.heard.iter().filter(|event| event.code == status::PROC_ABORTED);
    assert_eq!(dead.map(|event| event.source).collect::<Vec<_>>(), [rank(1)]);
    // The daemon is told what the exit means. A process that has never connected, or has finalized,
    // has not failed.
    let mut net = Net::new(1, Config::default(), vec![job(JOB, &[3])]);
    net.ask(ms(0), rank(0), Request::Connect(rank(0)));
    net.ask(ms(0), rank(1), Request::Connect(rank(1)));
    net.ask(ms(5), rank(1), Request::Finalize);
    net.run(ms(20));
    let now = net.now;
    net.with(Node(0), |engine| {
        let mut end = |r: u32, why| engine.proc_ended(now, rank(r), 0, why);
        assert_eq!(end(0, Termination::Exited(0)), Termination::NotFinalized);
        assert_eq!(end(1, Termination::Exited(0)), Termination::Exited(0));
        assert_eq!(end(2, Termination::Exited(0)), Termination::Exited(0));
    });
    assert!(!Termination::NotFinalized.is_clean());
}

/// A process whose library may begin again is waited for as long as it runs.
#[test]
fn a_process_that_finalizes_may_begin_again() {
    let returning = || {
        let mut net = jobs(&[&[1, 1]]);
        net.with(Node(1), |engine| engine.may_return(client_of(rank(1))));
        after(&mut net, rank(1), Request::Finalize).unwrap();
        net.ask(ms(0), rank(0), fence());
        net.run(ms(5_000));
        assert!(net.is_waiting(rank(0)));
        net
    };
    // It ends, so it will not come.
    let mut net = returning();
    net.end(ms(0), rank(1), Termination::Exited(0));
    net.run(ms(50));
    let Err(Error::FenceBroken { proc, why, .. }) = net.last(rank(0)) else { panic!() };
    assert_eq!((proc, why), (rank(1), Termination::Finalized));
    // It begins again over the same connection, if it is the same process.
    let mut net = returning();
    let now = net.now;
    let connect = |engine: &mut Engine, client, again| {
        engine.is_again(client, again);
        engine.request(now, client, 1 << 40, Request::Connect(rank(1)));
        let Some(Output::Answer { result, .. }) = engine.poll() else { panic!("no answer") };
        result.is_ok()
    };
    net.with(Node(1), |engine| {
        assert!(!connect(engine, client_of(rank(1)), false));
        assert!(connect(engine, client_of(rank(1)), true));
        // A library that counts how often it was initialized can do so.
        assert!(connect(engine, client_of(rank(1)), true));
        assert!(!connect(engine, client_of(rank(1)), false));
    });
    net.ask(ms(0), rank(1), fence());
    net.run(ms(50));
    assert_eq!((net.last(rank(0)), net.last(rank(1))), (Ok(Answer::Done), Ok(Answer::Done)));
    // Or over another one: then the end of the first means nothing.
    after(&mut net, rank(1), Request::Finalize).unwrap();
    let (now, other) = (net.now, ClientId(1000));
    net.with(Node(1), |engine| {
        engine.client_opened(other);
        assert!(!connect(engine, other, false));
        assert!(connect(engine, other, true));
        engine.client_closed(now, client_of(rank(1)));
        assert!(engine.poll().is_none() && !engine.has_finalized(rank(1), 0));
        engine.client_closed(now, other);
        assert!(engine.poll().is_some(), "it has gone without a word");
    });
}

#[test]
fn groups_have_fences_of_their_own() {
    let mut net = jobs(&[&[1, 1, 1, 1]]);
    let some = |ranks: &[u32]| Request::Fence {
        group: Some(Group::of(ranks.iter().map(|r| rank(*r)))),
        collect: true,
        timeout: Some(ms(500)),
    };
    after(&mut net, rank(3), put("k", Scope::Global)).unwrap();
    net.ask(ms(0), rank(1), some(&[3, 1]));
    net.ask(ms(9), rank(3), some(&[1, 3]));
    net.run(ms(50));
    assert_eq!((net.last(rank(1)), net.last(rank(3))), (Ok(Answer::Done), Ok(Answer::Done)));
    assert!(matches!(after(&mut net, rank(1), now(rank(3), "k")), Ok(Answer::BusinessCard(_))));
    assert!(matches!(after(&mut net, rank(0), now(rank(3), "k")), Err(Error::NotFound { .. })));
    assert!(matches!(after(&mut net, rank(0), some(&[1, 3])), Err(Error::NotInGroup(_))));
    assert!(matches!(after(&mut net, rank(0), some(&[0, 9])), Err(Error::NoSuchProc(_))));
    // Two of the same at a time, and another of all between them.
    for r in [1, 3, 0, 2] {
        net.ask(ms(u64::from(r)), rank(r), fence());
        if r % 2 == 1 {
            net.ask(ms(u64::from(r)), rank(r), some(&[1, 3]));
            net.ask(ms(u64::from(r)), rank(r), some(&[1, 3]));
        }
    }
    net.run(ms(100));
    for r in 0..4 {
        assert!(net.answers(rank(r)).iter().rev().take(1).all(Result::is_ok), "{r}");
    }
}

#[test]
fn published_values_are_visible_to_their_range_and_for_their_persistence() {
    let mut net = jobs(&[&[1, 2], &[1]]);
    let other = Proc::new(JobId(1), 0);
    let publish = |key: &str, range, persistence| {
        let (key, value) = (key.to_owned(), Value::from("here"));
        Request::Publish(Published { key, value, range, persistence })
    };
    let look = |key: &str, wait: Option<u64>| Request::Lookup {
        keys: key.split(' ').map(str::to_owned).collect(),
        wait: wait.map(ms),
        least: 0,
        within: Range::Global,
    };
    after(&mut net, rank(1), publish("a", Range::Namespace, Persistence::Session)).unwrap();
    after(&mut net, rank(1), publish("s", Range::Session, Persistence::Session)).unwrap();
    let again = after(&mut net, rank(2), publish("a", Range::Session, Persistence::Session));
    assert_eq!(again, Err(Error::Published("a".into())));
    let found = |key: &str| Ok(Answer::Found(vec![(key.into(), "here".into(), rank(1))]));
    assert_eq!(after(&mut net, rank(0), look("a", None)), found("a"));
    // Another job sees only what is for the session.
    assert_eq!(after(&mut net, other, look("a", None)), Err(Error::NotPublished("a".into())));
    assert_eq!(after(&mut net, other, look("s", None)), found("s"));
    // Only the publisher may unpublish.
    after(&mut net, rank(2), Request::Unpublish(vec!["a".into()])).unwrap();
    assert_eq!(after(&mut net, rank(0), look("a", None)), found("a"));
    after(&mut net, rank(1), Request::Unpublish(vec!["a".into()])).unwrap();
    assert!(after(&mut net, rank(0), look("a", None)).is_err());
    // Read once.
    after(&mut net, rank(1), publish("1", Range::Session, Persistence::FirstRead)).unwrap();
    assert_eq!(after(&mut net, rank(0), look("1", None)), found("1"));
    assert!(after(&mut net, rank(0), look("1", None)).is_err());
    // Also if what else was asked for is not there.
    after(&mut net, rank(1), publish("1", Range::Session, Persistence::FirstRead)).unwrap();
    assert_eq!(after(&mut net, rank(0), look("1 nothing", None)), found("1"));
    assert!(after(&mut net, rank(0), look("1", None)).is_err());
    // Lookups that wait, in vain and not.
    net.ask(ms(0), rank(0), look("w", Some(300)));
    net.run(ms(400));
    assert_eq!(net.last(rank(0)), Err(Error::LookupTimeout("w".into())));
    net.ask(ms(0), rank(0), look("w", Some(300)));
    net.ask(ms(100), rank(1), publish("w", Range::Session, Persistence::Process));
    net.run(ms(200));
    assert_eq!(net.last(rank(0)), found("w"));
    // Some of several, or all.
    let some = |least| Request::Lookup {
        keys: ["w", "x", "y"].map(str::to_owned).to_vec(),
        wait: Some(ms(300)),
        least,
        within: Range::Global,
    };
    net.ask(ms(0), rank(0), some(2));
    net.ask(ms(0), rank(2), some(0));
    // A value that is not visible to the asker counts as not published.
    net.ask(ms(0), other, some(2));
    net.ask(ms(100), rank(1), publish("x", Range::Namespace, Persistence::Process));
    net.run(ms(200));
    let Ok(Answer::Found(two)) = net.last(rank(0)) else { panic!("{:?}", net.last(rank(0))) };
    assert_eq!(two.iter().map(|(key, ..)| &**key).collect::<Vec<_>>(), ["w", "x"]);
    net.run(ms(200));
    assert_eq!(net.last(rank(2)), Err(Error::LookupTimeout("y".into())));
    assert_eq!(net.last(other), Err(Error::LookupTimeout("x`, `y".into())));
    // It is dropped when its process ends.
    net.end(ms(0), rank(1), Termination::Signalled(9));
    net.run(ms(50));
    assert!(after(&mut net, rank(0), look("w", None)).is_err());
    assert_eq!(after(&mut net, rank(0), look("s", None)), found("s"));
}

#[test]
fn another_jobs_keys_are_not_seen() {
    let mut net = jobs(&[&[1, 1], &[1, 1]]);
    after(&mut net, rank(0), put("k", Scope::Global)).unwrap();
    let other = Proc::new(JobId(1), 1);
    for what in [get(rank(0), "k"), get(rank(0), "pmix.hname"), get(rank(1), "k")] {
        assert!(matches!(after(&mut net, other, what), Err(Error::NotPermitted { .. })));
    }
    // A process cannot connect twice, or as a process of another node.
    assert!(matches!(after(&mut net, other, Request::Connect(rank(1))), Err(Error::Misuse(_))));
}

#[test]
fn signals_go_to_live_processes_of_the_own_job() {
    // Job 0 has ranks 0 on node 0, 1 and 2 on node 1, 3 on node 2.
    let mut net = jobs(&[&[1, 2, 1], &[1, 1, 1]]);
    let to = |ranks: &[u32], signal| {
        let group = Some(Group::of(ranks.iter().map(|r| rank(*r))));
        Request::Signal { group, signal }
    };
    let sent = |net: &mut Net| std::mem::take(&mut net.signals);
    let done = Ok(Answer::Done);
    assert_eq!(after(&mut net, rank(3), to(&[1, 3], 10)), done);
    let group = Group::of([rank(1), rank(3)]);
    assert_eq!(sent(&mut net), [(Node(1), group.clone(), 10), (Node(2), group, 10)]);
    assert_eq!(after(&mut net, rank(1), Request::Signal { group: None, signal: 15 }), done);
    let nodes: Vec<Node> = sent(&mut net).into_iter().map(|(node, ..)| node).collect();
    assert_eq!(nodes, [Node(0), Node(1), Node(2)]);
    // A process cannot signal another job, send an invalid signal, or name processes that do not
    // exist.
    let other = Proc::new(JobId(1), 1);
    for ranks in [&[0][..], &[0, 3]] {
        let refused = after(&mut net, other, to(ranks, 9));
        assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{refused:?}");
    }
    let both = Some(Group::of([other, rank(0)]));
    let refused = after(&mut net, other, Request::Signal { group: both, signal: 9 });
    assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{refused:?}");
    assert_eq!(after(&mut net, rank(0), to(&[0, 4], 9)), Err(Error::NoSuchProc(rank(4))));
    for signal in [0, -9, 32, 65] {
        let refused = after(&mut net, rank(0), to(&[1], signal));
        assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    }
    assert!(matches!(after(&mut net, rank(0), to(&[], 9)), Err(Error::Misuse(_))));
    assert_eq!(sent(&mut net), []);
    // Processes that have ended or were lost are left out, until none is left.
    net.end(ms(0), rank(1), Termination::Signalled(9));
    net.kill(ms(0), Node(2));
    net.run(ms(500));
    assert_eq!(after(&mut net, rank(0), to(&[1, 2, 3], 9)), done);
    assert_eq!(sent(&mut net).len(), 1);
    assert!(matches!(after(&mut net, rank(0), to(&[1], 9)), Err(Error::ProcGone { .. })));
    assert!(matches!(after(&mut net, rank(0), to(&[3], 9)), Err(Error::NodeLost { .. })));
}

fn register(codes: &[i32]) -> Request {
    Request::Register { handler: 1, codes: codes.to_vec() }
}

fn notify(code: i32, range: Range) -> Request {
    Request::Notify { code, range, non_default: false, info: vec![("x".into(), 1u32.into())] }
}

#[test]
fn an_event_reaches_its_range_and_not_its_source() {
    // Job 0 has ranks 0, 1 on node 0 and 2 on node 1; job 1 one on each.
    let (a, b) = (Proc::new(JobId(1), 0), Proc::new(JobId(1), 1));
    let all = [rank(0), rank(1), rank(2), a, b];
    let cases: Vec<(Range, Vec<Proc>)> = vec![
        (Range::Local, vec![rank(1), a]),
        (Range::Namespace, vec![rank(1), rank(2)]),
        (Range::Session, vec![rank(1), rank(2), a, b]),
        (Range::Global, vec![rank(1), rank(2), a, b]),
        (Range::Custom(Group::of([rank(0), rank(2), a])), vec![rank(2), a]),
        (Range::ProcLocal, vec![]),
        (Range::Rm, vec![]),
    ];
    for (range, expected) in cases {
        let mut net = jobs(&[&[2, 1], &[1, 1]]);
        all.iter().for_each(|proc| net.ask(ms(0), *proc, register(&[5])));
        net.ask(ms(5), rank(0), notify(5, range.clone()));
        net.run(ms(50));
        for proc in all {
            let codes = net.codes(proc);
            assert_eq!(codes, vec![5; usize::from(expected.contains(&proc))], "{range:?}: {proc}");
        }
        let told_head = !matches!(range, Range::ProcLocal);
        assert_eq!(net.heard.iter().any(|e| e.code == 5), told_head, "{range:?}");
    }
}

#[test]
fn an_event_reaches_registered_handlers() {
    for (codes, non_default, told) in [
        (&[5][..], false, true),
        (&[5, 6], true, true),
        (&[6], false, false),
        (&[], false, true),
        (&[], true, false),
    ] {
        let mut net = jobs(&[&[1, 1]]);
        net.ask(ms(0), rank(1), register(codes));
        let (range, info) = (Range::Session, Vec::new());
        net.ask(ms(5), rank(0), Request::Notify { code: 5, range, non_default, info });
        net.run(ms(50));
        assert_eq!(net.told.len(), usize::from(told), "{codes:?} {non_default}");
    }
    let mut net = jobs(&[&[1]]);
    let gone = after(&mut net, rank(0), Request::Deregister(9));
    assert_eq!(gone, Err(Error::UnknownHandler(9)));
}

#[test]
fn past_events_are_kept_for_each_late_handler_after_its_registration() {
    let mut net = jobs(&[&[1, 1]]);
    for code in 1..=600 {
        net.ask(ms(0), rank(0), notify(code, Range::Session));
    }
    net.run(ms(50));
    assert_eq!(net.told.len(), 0);
    for handler in 1..=2 {
        let codes = (1..=600).filter(|code| code % 2 == 0).collect();
        net.ask(ms(0), rank(1), Request::Register { handler, codes });
        net.run(ms(50));
        assert_eq!(net.last(rank(1)), Ok(Answer::Done));
        let told: Vec<_> = net.told.drain(..).map(|t| (t.event.code, t.only)).collect();
        // 512 are kept: the oldest 88 were dropped.
        let kept: Vec<_> = (90..=600).step_by(2).map(|code| (code, Some(handler))).collect();
        assert_eq!(told, kept, "in order of arrival, to this handler alone");
    }
    net.run(ms(121_000));
    net.ask(ms(0), rank(1), Request::Register { handler: 3, codes: vec![] });
    net.run(ms(50));
    assert_eq!(net.told.len(), 0, "none is kept longer than two minutes");
}

#[test]
fn a_handler_is_there_before_it_gets_what_was_kept() {
    let now = Time(1);
    let mut engine = Engine::new(Node::HEAD, 1, Config::default(), now);
    engine.add_job(job(JOB, &[2]));
    for at in 0..2 {
        engine.client_opened(ClientId(at));
        engine.request(now, ClientId(at), 0, Request::Connect(rank(at as u32)));
    }
    engine.request(now, ClientId(0), 1, notify(5, Range::Namespace));
    engine.request(now, ClientId(0), 2, notify(6, Range::Namespace));
    while engine.poll().is_some() {}
    engine.request(now, ClientId(1), 1, register(&[]));
    let done = Output::Answer { client: ClientId(1), id: 1, result: Ok(Answer::Done) };
    assert_eq!(engine.poll(), Some(done));
    let told = std::iter::from_fn(|| match engine.poll()? {
        Output::Deliver { client: ClientId(1), event, only: Some(1) } => Some(event.code),
        other => panic!("{other:?}"),
    });
    assert_eq!(told.collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn an_event_that_is_not_cached_reaches_present_handlers_only() {
    let mut net = jobs(&[&[3]]);
    after(&mut net, rank(1), register(&[5])).unwrap();
    let info = vec![(NO_CACHE.to_owned(), Value::Bool(true))];
    let range = Range::Namespace;
    let what = Request::Notify { code: 5, range, non_default: false, info };
    after(&mut net, rank(0), what).unwrap();
    after(&mut net, rank(2), register(&[5])).unwrap();
    assert_eq!((net.codes(rank(1)), net.codes(rank(2))), (vec![5], vec![]));
}

/// A default handler of another node gets all but these.
#[test]
fn which_codes_are_of_the_environment() {
    let cases = [
        (-229, false),
        (-230, true),
        (-231, true),
        (-330, true),
        (-331, false),
        (-3000, false),
        // Codes from here on belong to users.
        (-3001, false),
        (-3004, false),
        (-3011, false),
        (status::CPUS_CHANGED, true),
        (status::ACCELERATORS_CHANGED, true),
        (status::FILES_STAGED, false),
        (status::PROC_RESTARTED, false),
        (status::PROC_ABORTED, false),
        (status::NO_PROGRESS, false),
        (status::PREEMPTED, false),
        (5, false),
    ];
    for (code, environment) in cases {
        assert_eq!(status::is_environment(code), environment, "{code}");
        let mut net = jobs(&[&[1, 1, 1]]);
        after(&mut net, rank(1), register(&[])).unwrap();
        after(&mut net, rank(2), register(&[code])).unwrap();
        after(&mut net, rank(0), notify(code, Range::Session)).unwrap();
        let told = vec![code; usize::from(!environment)];
        assert_eq!((net.codes(rank(1)), net.codes(rank(2))), (told, vec![code]), "{code}");
    }
}

#[test]
fn environment_events_go_where_they_were_asked_for() {
    let mut net = jobs(&[&[1, 1, 1, 1]]);
    net.ask(ms(0), rank(1), register(&[-250]));
    net.ask(ms(0), rank(2), register(&[]));
    net.run(ms(20));
    let before = net.sent;
    net.ask(ms(0), rank(3), notify(-250, Range::Session));
    net.run(ms(20));
    assert_eq!(net.sent - before, 2, "to the head, and to the one node");
    assert_eq!((net.codes(rank(1)), net.codes(rank(2))), (vec![-250], vec![]));
    // A handler that comes later gets it as well; a removed one gets none.
    net.ask(ms(0), rank(0), register(&[-250]));
    net.ask(ms(0), rank(1), Request::Deregister(1));
    net.run(ms(20));
    net.ask(ms(0), rank(3), notify(-250, Range::Session));
    net.run(ms(20));
    assert_eq!((net.codes(rank(0)), net.codes(rank(1))), (vec![-250, -250], vec![-250]));
}

#[test]
fn a_failure_is_an_event() {
    let mut net = jobs(&[&[1, 1, 2]]);
    let codes = [status::PROC_ABORTED, status::NODE_DOWN];
    (0..2).for_each(|r| net.ask(ms(0), rank(r), register(&codes)));
    net.end(ms(10), rank(2), Termination::Signalled(11));
    net.run(ms(50));
    assert_eq!(net.codes(rank(0)), [status::PROC_ABORTED]);
    assert_eq!(net.told[0].event.source, rank(2));
    net.kill(ms(0), Node(2));
    net.run(ms(500));
    for r in 0..2 {
        let expected = [status::PROC_ABORTED, status::PROC_ABORTED, status::NODE_DOWN];
        assert_eq!(net.codes(rank(r)), expected);
    }
}

#[test]
fn a_process_that_makes_no_progress_is_an_event_for_the_others() {
    let mut net = jobs(&[&[2, 1]]);
    (0..3).for_each(|r| net.ask(ms(0), rank(r), register(&[status::NO_PROGRESS])));
    net.ask(ms(10), rank(0), Request::Watch(Some(ms(100))));
    net.ask(ms(10), rank(2), Request::Watch(Some(ms(5000))));
    (1..10).for_each(|nth| net.ask(ms(10 + 60 * nth), rank(0), Request::Progress));
    net.run(ms(640));
    assert_eq!(net.told, []);
    // It pauses, goes on, and pauses again. Each pause is one event, and not for itself.
    net.ask(ms(260), rank(0), Request::Progress);
    net.run(ms(250));
    for expected in [1, 2] {
        let codes = vec![status::NO_PROGRESS; expected];
        assert_eq!(
            (net.codes(rank(0)), net.codes(rank(1)), net.codes(rank(2))),
            (vec![], codes.clone(), codes)
        );
        net.run(ms(115));
    }
    assert!(net.told.iter().all(|told| told.event.source == rank(0)), "{:?}", net.told);
    let (key, why) = &net.told[0].event.info[2];
    assert_eq!((&**key, why), ("petasos.why", &"it has made no progress for 100ms".into()));
    // A process that has ended, or is no longer watched, makes no progress, and that is no event.
    net.told.clear();
    net.ask(ms(0), rank(2), Request::Watch(None));
    net.ask(ms(0), rank(0), Request::Progress);
    net.ask(ms(10), rank(0), Request::Finalize);
    net.run(ms(5_000));
    assert_eq!(net.told, []);
}

#[test]
fn all_must_connect_once_one_has() {
    let mut net = Net::new(1, Config::default(), vec![job(JOB, &[1, 2])]);
    net.ask(ms(0), rank(1), Request::Connect(rank(1)));
    net.ask(ms(10), rank(0), Request::Connect(rank(0)));
    net.run(ms(61_000));
    assert_eq!(net.never.len(), 1);
    assert_eq!(net.never[0].procs, [rank(2)]);
    // One that ends without having connected is reported at once.
    let mut net = Net::new(1, Config::default(), vec![job(JOB, &[1, 2])]);
    net.end(ms(0), rank(2), Termination::Exited(0));
    net.ask(ms(10), rank(0), Request::Connect(rank(0)));
    net.run(ms(50));
    assert_eq!(net.never[0].procs, [rank(2)]);
    // One that failed before is known to have failed, whether others connect before or after.
    for connect in [ms(10), ms(30)] {
        let mut net = Net::new(1, Config::default(), vec![job(JOB, &[1, 2])]);
        net.ask(connect, rank(0), Request::Connect(rank(0)));
        net.end(ms(20), rank(2), Termination::Signalled(9));
        net.ask(ms(40), rank(1), Request::Connect(rank(1)));
        net.run(ms(61_000));
        assert!(net.never.is_empty(), "{:?}", net.never);
    }
    // A program that does not connect at all is not reported.
    let mut net = Net::new(1, Config::default(), vec![job(JOB, &[1, 2])]);
    (0..3).for_each(|r| net.end(ms(5), rank(r), Termination::Exited(0)));
    net.run(ms(61_000));
    assert!(net.never.is_empty());
}

#[test]
fn abort_reaches_the_head_node_and_queries_are_answered() {
    let mut net = jobs(&[&[1, 2]]);
    let message = "bad weather".to_owned();
    after(&mut net, rank(2), Request::Abort { status: 7, message: message.clone() }).unwrap();
    assert_eq!(net.aborts, [(rank(2), 7, message)]);
    let query = |keys: &[&str]| Request::Query(keys.iter().map(|k| (*k).to_owned()).collect());
    let Ok(Answer::Info(info)) =
        after(&mut net, rank(1), query(&["petasos.processes", "pmix.job.size", "petasos.nodes"]))
    else {
        panic!("{:?}", net.last(rank(1)));
    };
    let of = |key: &str| info.iter().find(|(name, _)| name == key).unwrap().1.clone();
    assert_eq!(of("pmix.job.size"), Value::Uint(3));
    assert!(matches!(of("petasos.processes"), Value::List(all) if all.len() == 3));
    let unknown = after(&mut net, rank(1), query(&["petasos.weather"]));
    assert_eq!(unknown, Err(Error::UnknownQuery("petasos.weather".into())));
}

#[test]
fn without_the_head_node_the_job_ends() {
    let mut net = jobs(&[&[1, 1, 1]]);
    net.ask(ms(0), rank(1), fence());
    net.ask(ms(0), rank(2), get(rank(1), "k"));
    net.kill(ms(10), Node::HEAD);
    net.run(ms(500));
    for r in [1, 2] {
        assert!(matches!(net.last(rank(r)), Err(Error::Ending(_) | Error::NodeLost { .. })));
        net.ask(ms(0), rank(r), fence());
        net.run(ms(5));
        assert!(matches!(net.last(rank(r)), Err(Error::Ending(_))));
    }
    assert_eq!(net.orphaned.len(), 2);
}
