//! How long messages between nodes take. Each node measures it with some others, when a query first
//! asks.
//!
//! The times are those that daemons see: over the connection between them, with the time that each
//! needs to wake and answer. All nodes measure at the same time, each with one other after the
//! other, so that the shortest of several times says more than any mean.

use super::{Engine, queries::Report, timers::Timer};
use crate::{inventory::RoundTrip, message::Message};
use petasos_fabric::Time;
use petasos_pmix::{Node, Value};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// The key of the measured times.
pub(crate) const LINKS: &str = "petasos.inventory.links";
/// How long all nodes may take to measure, together.
pub(super) const MEASURE: Duration = Duration::from_secs(10);
/// How long one node may take for all exchanges. A slower one is left out.
const PATIENCE: Duration = Duration::from_secs(1);
/// Exchanges with each node. The first makes the connection, and is not counted.
const EXCHANGES: usize = 9;
/// Up to this many nodes, all pairs are measured.
const ALL_PAIRS: u32 = 17;
/// Beyond that, each node measures with its parent and with at most this many others.
const PARTNERS: u32 = 15;
/// Times that one node may report.
const MAX_REPORTED: usize = 32;

/// The measurement that this node has under way.
#[derive(Debug, Default)]
pub(super) struct Measurement {
    under_way: bool,
    /// The nodes that are still to be measured.
    open: VecDeque<Node>,
    with: Option<Exchanges>,
    found: Vec<RoundTrip>,
}

/// The exchanges with one node.
#[derive(Debug)]
struct Exchanges {
    node: Node,
    /// The exchange that is on its way.
    id: u64,
    sent: Time,
    took: Vec<Duration>,
}

/// The nodes with which a node measures. The pairs of all nodes together connect all of them, and
/// each pair is measured from one end.
fn partners(me: Node, nodes: u32, fanout: u32) -> BTreeSet<Node> {
    let after = |step: u32| Node(((u64::from(me.0) + u64::from(step)) % u64::from(nodes)) as u32);
    let half = nodes / 2;
    if nodes <= ALL_PAIRS {
        // A node measures half of the ring. Of two nodes just opposite, the lower one measures.
        let opposite = |step: u32| nodes.is_multiple_of(2) && step == half && me.0 >= half;
        return (1..=half).filter(|step| !opposite(*step)).map(after).collect();
    }
    let parent = me.0.checked_sub(1).map(|before| Node(before / fanout));
    let steps = (0..PARTNERS).map(|power| 1 << power).take_while(|step| *step <= half);
    steps.map(after).chain(parent).collect()
}

impl Engine {
    /// Measures, and reports to the controller; once at a time.
    pub(super) fn measure_links(&mut self) {
        if self.links.under_way {
            return;
        }
        let (nodes, fanout) = (self.members.count(), self.members.fanout());
        let open = partners(self.me, nodes, fanout).into_iter().collect();
        self.links = Measurement { under_way: true, open, ..Measurement::default() };
        self.measure_next();
    }

    fn measure_next(&mut self) {
        while let Some(node) = self.links.open.pop_front() {
            if self.members.is_lost(node) {
                continue;
            }
            self.timers.set_after(PATIENCE, Timer::Echo(node));
            let with = Exchanges { node, id: 0, sent: self.now(), took: Vec::new() };
            self.links.with = Some(with);
            return self.exchange();
        }
        let found = std::mem::take(&mut self.links).found;
        match self.is_controller() {
            true => self.links_came(Node::HEAD, found),
            false => self.send(Node::HEAD, Message::Links(found)),
        }
    }

    fn exchange(&mut self) {
        let (id, sent) = (self.out.number(), self.now());
        let Some(with) = self.links.with.as_mut() else { return };
        (with.id, with.sent) = (id, sent);
        let to = with.node;
        self.send(to, Message::Echo { id, back: false });
    }

    pub(super) fn echo_came(&mut self, from: Node, id: u64, back: bool) {
        if !back {
            return self.send(from, Message::Echo { id, back: true });
        }
        let now = self.now();
        let awaited = |with: &&mut Exchanges| with.node == from && with.id == id;
        let Some(with) = self.links.with.as_mut().filter(awaited) else { return };
        with.took.push(now.since(with.sent));
        if with.took.len() < EXCHANGES {
            return self.exchange();
        }
        let mut took = with.took.split_off(1);
        took.sort_unstable();
        let (fastest, median) = (took[0], took[took.len() / 2]);
        self.links.found.push(RoundTrip { to: from, fastest, median });
        self.measure_next();
    }

    /// The time for one node is over.
    pub(super) fn echo_late(&mut self, node: Node) {
        if self.links.with.as_ref().is_some_and(|with| with.node == node) {
            self.measure_next();
        }
    }

    /// At the controller: what a node has measured.
    pub(super) fn links_came(&mut self, from: Node, mut found: Vec<RoundTrip>) {
        if !self.is_controller() {
            return;
        }
        let nodes = self.members.count();
        found.retain(|link| link.to.0 < nodes && link.to != from);
        found.truncate(MAX_REPORTED);
        self.controller.inventories.put_links(from, found);
        self.report_came(from, Report::Links);
    }

    /// At the head node: how long messages between nodes take, as far as it was measured. Each pair
    /// is listed under one of its two nodes.
    #[must_use]
    pub fn links(&self) -> &BTreeMap<Node, Vec<RoundTrip>> {
        self.controller.inventories.links()
    }
}

/// All measured times, as the answer to a query.
pub(crate) fn links_value(links: &BTreeMap<Node, Vec<RoundTrip>>) -> Value {
    let all = links.iter().flat_map(|(from, all)| all.iter().map(|link| link.to_value(*from)));
    Value::List(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_nodes_measure_each_pair_once() {
        for nodes in 1..=ALL_PAIRS {
            let pairs: Vec<_> = (0..nodes)
                .flat_map(|me| partners(Node(me), nodes, 32).into_iter().map(move |to| (me, to.0)))
                .map(|(a, b)| (a.min(b), a.max(b)))
                .collect();
            let distinct: BTreeSet<_> = pairs.iter().copied().collect();
            assert_eq!(pairs.len(), distinct.len(), "{nodes}");
            assert_eq!(distinct.len() as u32, nodes * (nodes - 1) / 2);
            assert!(distinct.iter().all(|(a, b)| a != b));
        }
    }

    #[test]
    fn many_measure_a_few_each() {
        for nodes in [18, 33, 1000, 100_000, u32::MAX] {
            for me in [0, 1, nodes / 2, nodes - 1] {
                let with = partners(Node(me), nodes, 32);
                assert!(with.len() as u32 <= PARTNERS + 1, "{nodes}: {}", with.len());
                assert!(with.iter().all(|node| node.0 < nodes && node.0 != me));
                assert!(me == 0 || with.contains(&Node((me - 1) / 32)));
            }
        }
    }
}
