//! Inventories: reported to the head node, available to every query, and an event when they change.

use super::common::{JOB, Net, job, ms, rank};
use petasos_launch::{
    engine::Config,
    inventory::{Cpu, Interface, Inventory},
};
use petasos_pmix::{
    Error, Info, Node, Value,
    message::{Answer, Request},
    status,
};

/// A node with this much memory, and an interface.
fn node(memory: u64, up: bool) -> Inventory {
    let cpu = |number| Cpu { number, core: number, ..Cpu::default() };
    let interface = Interface { name: "eth0".into(), up, ..Interface::default() };
    let cpus = (0..4).map(cpu).collect();
    Inventory { cpus, memory, interfaces: vec![interface], ..Inventory::default() }
}

fn connected(ranks: &[u32]) -> Net {
    let mut net = Net::new(1, Config::default(), vec![job(JOB, ranks)]);
    for proc in net.procs() {
        net.ask(ms(0), proc, Request::Connect(proc));
    }
    net.run(ms(10));
    net
}

fn has(net: &mut Net, at: u32, found: Inventory) {
    let now = net.now;
    net.with(Node(at), |engine| engine.inventory(now, found));
    net.run(ms(10));
}

fn query(keys: &[&str]) -> Request {
    Request::Query(keys.iter().map(|key| (*key).to_owned()).collect())
}

fn info(net: &Net, of: u32) -> Info {
    match net.last(rank(of)) {
        Ok(Answer::Info(info)) => info,
        other => panic!("{other:?}"),
    }
}

fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    let Value::Record(fields) = value else { panic!("{value:?}") };
    &fields.iter().find(|(field, _)| field == name).unwrap_or_else(|| panic!("{value:?}")).1
}

#[test]
fn every_process_can_query_all_inventories() {
    let mut net = connected(&[1, 1, 1]);
    (0..3).for_each(|at| has(&mut net, at, node(1000 + u64::from(at), true)));
    net.ask(ms(0), rank(2), query(&["petasos.inventory", "pmix.pmem", "petasos.inventory.1"]));
    net.run(ms(20));
    let said = info(&net, 2);
    let Value::List(all) = &said[0].1 else { panic!("{said:?}") };
    for (at, one) in all.iter().enumerate() {
        assert_eq!(field(one, "node"), &Value::Uint(at as u64));
        assert_eq!(field(one, "host"), &Value::from(format!("n{at}")));
        assert_eq!(field(field(one, "cpus"), "online"), &Value::from("0-3"));
        assert_eq!(field(one, "memory"), &Value::Uint(1000 + at as u64));
    }
    assert_eq!(said[1], ("pmix.pmem".to_owned(), Value::Uint(1002)));
    assert_eq!((said.len(), &said[2].1), (3, &all[1]));
    for unknown in ["petasos.inventory.3", "petasos.inventory.x", "petasos.inventory2"] {
        net.ask(ms(0), rank(2), query(&[unknown]));
        net.run(ms(20));
        assert_eq!(net.last(rank(2)), Err(Error::UnknownQuery(unknown.to_owned())));
    }
}

#[test]
fn a_silent_node_is_waited_for_and_then_named() {
    let mut net = connected(&[1, 1, 1]);
    has(&mut net, 0, node(5, true));
    has(&mut net, 1, node(6, true));
    net.ask(ms(0), rank(0), query(&["petasos.inventory"]));
    net.run(ms(100));
    has(&mut net, 2, node(7, true));
    assert!(matches!(&info(&net, 0)[..], [(_, Value::List(all))] if all.len() == 3));
    // A node that never reports.
    let mut net = connected(&[1, 1]);
    has(&mut net, 0, node(5, true));
    net.ask(ms(0), rank(0), query(&["petasos.inventory", "petasos.processes"]));
    net.ask(ms(0), rank(1), query(&["pmix.pmem"]));
    net.run(ms(5_000));
    let said = info(&net, 0);
    assert!(matches!(&said[0].1, Value::List(all) if all.len() == 1), "{said:?}");
    assert!(matches!(&said[1].1, Value::List(all) if all.len() == 2), "{said:?}");
    let silent = ("petasos.silent".to_owned(), Value::List(vec![1u32.into()]));
    assert_eq!(said[2], silent);
    assert_eq!(info(&net, 1), [silent]);
}

#[test]
fn a_node_that_is_lost_has_nothing_and_is_not_waited_for() {
    let mut net = connected(&[1, 1, 1]);
    has(&mut net, 0, node(5, true));
    has(&mut net, 1, node(6, true));
    net.kill(ms(0), Node(1));
    net.run(ms(300));
    net.ask(ms(0), rank(0), query(&["petasos.inventory"]));
    net.kill(ms(10), Node(2));
    net.run(ms(900));
    assert!(matches!(&info(&net, 0)[..], [(_, Value::List(all))] if all.len() == 1));
}

#[test]
fn changes_reach_registered_handlers_only() {
    let mut net = connected(&[1, 1, 1]);
    (0..3).for_each(|at| has(&mut net, at, node(1000, true)));
    let register = |handler, codes: &[i32]| Request::Register { handler, codes: codes.to_vec() };
    net.ask(ms(0), rank(0), register(1, &[]));
    net.ask(ms(0), rank(1), register(1, &[status::NETWORK_CHANGED]));
    net.ask(ms(0), rank(2), register(1, &[status::MEMORY_CHANGED]));
    net.run(ms(20));
    has(&mut net, 2, node(1000, true));
    assert!(net.told.is_empty());
    has(&mut net, 2, node(1000, false));
    has(&mut net, 0, node(999, true));
    assert_eq!(net.codes(rank(0)), []);
    assert_eq!(net.codes(rank(1)), [status::NETWORK_CHANGED]);
    assert_eq!(net.codes(rank(2)), [status::MEMORY_CHANGED]);
    let event = &net.told[0].event;
    assert_eq!((event.node, event.source.rank), (Node(2), petasos_pmix::Proc::JOB));
    let said = |name: &str| event.info.iter().find(|(key, _)| key == name).unwrap().1.to_string();
    assert_eq!(said("petasos.why"), "eth0 is down");
    assert_eq!((said("pmix.nodeid"), said("pmix.hname")), ("2".into(), "n2".into()));
    // A handler that comes later gets it as well, and the head node has the current state.
    net.ask(ms(0), rank(0), register(2, &[status::NETWORK_CHANGED]));
    net.ask(ms(0), rank(0), query(&["petasos.inventory.0", "petasos.inventory.2"]));
    net.run(ms(20));
    assert_eq!(net.codes(rank(0)), [status::NETWORK_CHANGED]);
    let now = info(&net, 0);
    assert_eq!(field(&now[0].1, "memory"), &Value::Uint(999));
    let Value::List(interfaces) = field(&now[1].1, "interfaces") else { panic!("{now:?}") };
    assert_eq!(field(&interfaces[0], "state"), &Value::from("down"));
}

/// The measured pairs, with the fastest and the median time in nanoseconds.
fn links(value: &Value) -> Vec<(u64, u64, u64, u64)> {
    let Value::List(all) = value else { panic!("{value:?}") };
    let number = |one: &Value, name: &str| match field(one, name) {
        Value::Uint(number) => *number,
        other => panic!("{other:?}"),
    };
    let link = |one: &Value| {
        let [from, to, fastest, median] = ["from", "to", "fastest", "median"];
        (number(one, from), number(one, to), number(one, fastest), number(one, median))
    };
    all.iter().map(link).collect()
}

#[test]
fn times_between_nodes_are_measured_at_the_first_query() {
    let mut net = connected(&[1, 1, 1, 0, 1]);
    let quiet = net.sent;
    net.run(ms(1000));
    assert_eq!(net.sent, quiet, "no client has asked");
    net.ask(ms(0), rank(3), query(&["petasos.inventory.links"]));
    net.run(ms(400));
    let found = links(&info(&net, 3)[0].1);
    // Each pair once; a message takes half a millisecond to one and a half, each way.
    assert_eq!(found.len(), 10, "{found:?}");
    for (from, to, fastest, median) in &found {
        assert!(from != to && *to < 5 && fastest <= median, "{found:?}");
        assert!((1_000_000..3_000_000).contains(fastest) && *median < 3_000_000, "{found:?}");
    }
    // The next query gets the known times, and so does a query for the inventory of a node.
    has(&mut net, 1, node(6, true));
    let sent = net.sent;
    net.ask(ms(0), rank(0), query(&["petasos.inventory.links", "petasos.inventory.1"]));
    net.run(ms(20));
    let said = info(&net, 0);
    assert_eq!(links(&said[0].1), found);
    assert_eq!(net.sent, sent, "nothing is measured twice");
    let own = found.into_iter().filter(|(from, ..)| *from == 1).collect::<Vec<_>>();
    assert_eq!(links(field(&said[1].1, "links")), own);
}

#[test]
fn a_node_that_dies_while_links_are_measured_is_left_out() {
    let mut net = connected(&[1; 40]);
    net.kill(ms(5), Node(7));
    net.ask(ms(4), rank(0), query(&["petasos.inventory.links"]));
    net.run(ms(9_000));
    let found = links(&info(&net, 0)[0].1);
    assert!(found.iter().all(|(from, to, ..)| ![from, to].contains(&&7)), "{found:?}");
    let of = |node| found.iter().filter(|(from, ..)| *from == node).count();
    assert!((0..40).filter(|node| *node != 7).all(|node| (4..=16).contains(&of(node))));
}
