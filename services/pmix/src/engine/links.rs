//! How long messages between nodes take: measured when somebody wants to know, by each node, with some others.
//!
//! What is measured is what daemons see of it: over the connection between them, with what each needs to wake and
//! answer. All nodes measure at the same time, each with one other after the other, so that the shortest of
//! several times says more than any mean.

use super::{Engine, Timer};
use crate::{
    inventory::{Inventory, RoundTrip},
    message::Message,
    names::Node,
    value::Value,
};
use petasos_fabric::Time;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// The key of what was measured.
pub(crate) const LINKS: &str = "petasos.inventory.links";
/// How long all nodes may take to measure, together.
pub(super) const MEASURE: Duration = Duration::from_secs(10);
/// How long one other may take for all exchanges; then it is left out.
const PATIENCE: Duration = Duration::from_secs(1);
/// Exchanges with each; the first one makes the connection, and is not counted.
const EXCHANGES: usize = 9;
/// With at most so many nodes all pairs are measured.
const FEW: u32 = 17;
/// With more, each node measures with its parent and with so many others at most.
const OTHERS: u32 = 15;
/// What one node may tell of others.
const MOST: usize = 32;

/// What a node measures just now.
#[derive(Debug, Default)]
pub(super) struct Links {
    under_way: bool,
    /// With whom it is still to be done.
    open: VecDeque<Node>,
    with: Option<Exchanges>,
    found: Vec<RoundTrip>,
}

/// With one other.
#[derive(Debug)]
struct Exchanges {
    node: Node,
    /// What is on its way.
    id: u64,
    sent: Time,
    took: Vec<Duration>,
}

/// With whom a node measures. The pairs of all nodes together join all of them, and each pair is measured from one
/// end.
fn others(me: Node, nodes: u32, fanout: u32) -> BTreeSet<Node> {
    let after = |step: u32| Node(((u64::from(me.0) + u64::from(step)) % u64::from(nodes)) as u32);
    let half = nodes / 2;
    if nodes <= FEW {
        // Half of the ring is mine; who is just opposite, the lower one asks.
        let opposite = |step: u32| nodes.is_multiple_of(2) && step == half && me.0 >= half;
        return (1..=half).filter(|step| !opposite(*step)).map(after).collect();
    }
    let parent = me.0.checked_sub(1).map(|before| Node(before / fanout));
    let steps = (0..OTHERS).map(|power| 1 << power).take_while(|step| *step <= half);
    steps.map(after).chain(parent).collect()
}

impl Engine {
    /// Measures, and tells the head; once at a time.
    pub(super) fn measure_links(&mut self) {
        if self.links.under_way {
            return;
        }
        let (nodes, fanout) = self.members.shape();
        let open = others(self.me, nodes, fanout).into_iter().collect();
        self.links = Links { under_way: true, open, ..Links::default() };
        self.measure_next();
    }

    fn measure_next(&mut self) {
        while let Some(node) = self.links.open.pop_front() {
            if self.members.is_lost(node) {
                continue;
            }
            self.agenda.set(self.now.after(PATIENCE), Timer::Echo(node));
            let with = Exchanges { node, id: 0, sent: self.now, took: Vec::new() };
            self.links.with = Some(with);
            return self.exchange();
        }
        let found = std::mem::take(&mut self.links).found;
        match self.me == Node::HEAD {
            true => self.links_came(Node::HEAD, found),
            false => self.send(Node::HEAD, Message::Links(found)),
        }
    }

    fn exchange(&mut self) {
        let (id, sent) = (self.number(), self.now);
        let Some(with) = self.links.with.as_mut() else { return };
        (with.id, with.sent) = (id, sent);
        let to = with.node;
        self.send(to, Message::Echo { id, back: false });
    }

    pub(super) fn echo_came(&mut self, from: Node, id: u64, back: bool) {
        if !back {
            return self.send(from, Message::Echo { id, back: true });
        }
        let now = self.now;
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

    /// It has had its time.
    pub(super) fn echo_late(&mut self, node: Node) {
        if self.links.with.as_ref().is_some_and(|with| with.node == node) {
            self.measure_next();
        }
    }

    /// At the head: what a node has measured.
    pub(super) fn links_came(&mut self, from: Node, mut found: Vec<RoundTrip>) {
        if self.me != Node::HEAD {
            return;
        }
        let (nodes, _) = self.members.shape();
        found.retain(|link| link.to.0 < nodes && link.to != from);
        found.truncate(MOST);
        self.head.links.insert(from, found);
        self.missing_no_more(from, true);
    }

    /// As the answer to a query.
    pub(super) fn links_value(&self) -> Value {
        links_value(&self.head.links)
    }

    /// At the head: what nodes have, as far as they have said it.
    #[must_use]
    pub fn inventories(&self) -> BTreeMap<Node, Inventory> {
        self.head.inventories.all()
    }

    /// At the head: how long messages between nodes take, as far as it was measured; each pair is told of by one of
    /// the two.
    #[must_use]
    pub fn links(&self) -> &BTreeMap<Node, Vec<RoundTrip>> {
        &self.head.links
    }
}

/// What was measured, all of it.
pub(crate) fn links_value(links: &BTreeMap<Node, Vec<RoundTrip>>) -> Value {
    let all = links.iter().flat_map(|(from, all)| all.iter().map(|link| link.to_value(*from)));
    Value::List(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_nodes_measure_each_pair_once() {
        for nodes in 1..=FEW {
            let pairs: Vec<_> = (0..nodes)
                .flat_map(|me| others(Node(me), nodes, 32).into_iter().map(move |to| (me, to.0)))
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
                let with = others(Node(me), nodes, 32);
                assert!(with.len() as u32 <= OTHERS + 1, "{nodes}: {}", with.len());
                assert!(with.iter().all(|node| node.0 < nodes && node.0 != me));
                assert!(me == 0 || with.contains(&Node((me - 1) / 32)));
            }
        }
    }
}
