//! Thousands of daemons: the work of a node must not grow with the job.

use super::common::{JOB, Net, fence, get, job, ms, rank};
use petasos_launch::engine::Config;
use petasos_pmix::{
    Entry, Error, Node, Scope,
    message::{Answer, Request},
};

fn wide(nodes: u32) -> Net {
    let mut net = Net::new(5, Config::default(), vec![job(JOB, &vec![1; nodes as usize])]);
    for proc in net.procs() {
        net.ask(ms(0), proc, Request::Connect(proc));
    }
    net.run(ms(20));
    net
}

#[test]
fn a_fence_of_ten_thousand_nodes() {
    const NODES: u32 = 10_000;
    let mut net = wide(NODES);
    net.sent_by.fill(0);
    let (sent, start) = (net.sent, net.now);
    (0..NODES).for_each(|r| net.ask(ms(0), rank(r), fence()));
    net.run(ms(100));
    assert_eq!(net.sent - sent, 2 * u64::from(NODES - 1), "once up and once down each edge");
    assert!(net.sent_by.iter().all(|sent| *sent <= 33));
    let mut last = start;
    for asked in net.asked.iter().filter(|asked| matches!(asked.what, Request::Fence { .. })) {
        let (at, result) = asked.answer.clone().unwrap();
        assert_eq!(result, Ok(Answer::Done));
        last = last.max(at);
    }
    // Three levels, up and down, a millisecond and a half each at most.
    assert!(last.since(start) <= ms(9), "{:?}", last.since(start));
}

#[test]
fn a_missing_rank_is_found_among_thousands() {
    const NODES: u32 = 4_000;
    let mut net = wide(NODES);
    for r in (0..NODES).filter(|r| *r != 2_345) {
        let what = Request::Fence { group: None, collect: false, timeout: Some(ms(1000)) };
        net.ask(ms(0), rank(r), what);
    }
    net.run(ms(1_200));
    for r in (0..NODES).filter(|r| *r != 2_345) {
        match net.last(rank(r)).unwrap_err() {
            Error::FenceTimeout { missing, .. } => assert_eq!(missing.procs, [rank(2_345)]),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_node_that_dies_in_a_fence_is_named_to_thousands_within_a_second() {
    const NODES: u32 = 4_000;
    let mut net = wide(NODES);
    // An inner node of the tree, whose children need new neighbours.
    (0..NODES).filter(|r| *r != 3_999).for_each(|r| net.ask(ms(0), rank(r), fence()));
    net.kill(ms(10), Node(7));
    net.run(ms(1_000));
    for r in (0..NODES).filter(|r| *r != 3_999 && *r != 7) {
        match net.last(rank(r)).unwrap_err() {
            Error::NodeLost { node: Node(7), missing } => assert_eq!(missing.procs, [rank(7)]),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_direct_exchange_costs_two_messages() {
    let mut net = wide(2_000);
    let entry = Entry { scope: Scope::Global, value: 1u32.into() };
    net.ask(ms(0), rank(1_999), Request::Commit(vec![("k".into(), entry)]));
    net.run(ms(5));
    let sent = net.sent;
    net.ask(ms(0), rank(3), get(rank(1_999), "k"));
    net.run(ms(5));
    assert_eq!(net.sent - sent, 2);
    assert!(net.last(rank(3)).is_ok());
}
