//! Which nodes there are, which are lost, and the tree over which news travels.

use super::{Engine, Output};
use crate::message::Message;
use petasos_pmix::Node;
use std::collections::BTreeSet;

/// The tree of all nodes. The parent of node n is (n - 1) / fanout, or, if that one is lost, its
/// parent in turn.
#[derive(Debug)]
pub(super) struct Members {
    me: Node,
    nodes: u32,
    fanout: u32,
    lost: BTreeSet<Node>,
    /// Why this node takes no part any more, if so.
    over: Option<String>,
}

impl Members {
    pub(super) fn new(me: Node, nodes: u32, fanout: u32) -> Members {
        Members { me, nodes, fanout: fanout.max(1), lost: BTreeSet::new(), over: None }
    }

    pub(super) fn is_lost(&self, node: Node) -> bool {
        self.lost.contains(&node)
    }

    pub(super) fn lost(&self) -> &BTreeSet<Node> {
        &self.lost
    }

    /// Why nothing can succeed here any more, if so.
    pub(super) fn over(&self) -> Option<&str> {
        self.over.as_deref()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    fn parent(&self) -> Option<Node> {
        let mut at = self.me;
        while at != Node::HEAD {
            at = Node((at.0 - 1) / self.fanout);
            if !self.is_lost(at) {
                return Some(at);
            }
        }
        None
    }

    fn children(&self, of: Node, into: &mut Vec<Node>) {
        let first = u64::from(of.0) * u64::from(self.fanout) + 1;
        let end = (first + u64::from(self.fanout)).min(u64::from(self.nodes));
        for child in first..end {
            let child = Node(child as u32);
            if self.is_lost(child) { self.children(child, into) } else { into.push(child) }
        }
    }

    /// Parent and children that are not lost.
    pub(super) fn neighbours(&self) -> Vec<Node> {
        let mut all: Vec<Node> = self.parent().into_iter().collect();
        self.children(self.me, &mut all);
        all
    }

    /// How many nodes there are, lost ones included.
    pub(super) fn count(&self) -> u32 {
        self.nodes
    }

    /// How many children a node has at most.
    pub(super) fn fanout(&self) -> u32 {
        self.fanout
    }

    pub(super) fn alive(&self) -> impl Iterator<Item = Node> + '_ {
        (0..self.nodes).map(Node).filter(|node| !self.is_lost(*node))
    }
}

impl Engine {
    /// Parent and children in the tree of all nodes. Their loss must be noticed even if nothing is
    /// sent to them.
    #[must_use]
    pub fn neighbours(&self) -> Vec<Node> {
        self.members.neighbours()
    }

    /// Nodes are lost: whatever waits for them ends, and the other nodes are told.
    pub(super) fn nodes_lost(&mut self, nodes: &[Node], from: Option<Node>) {
        if self.members.is_over() {
            return;
        }
        let before = self.members.neighbours();
        let new: BTreeSet<Node> = nodes
            .iter()
            .copied()
            .filter(|n| n.0 < self.members.nodes && !self.members.is_lost(*n))
            .collect();
        if new.contains(&Node::HEAD) {
            return self.orphaned("the node from which the job is run is lost");
        }
        if new.contains(&self.me) {
            return self.orphaned("the other nodes hold this one for lost");
        }
        if new.is_empty() {
            return;
        }
        self.members.lost.extend(&new);
        self.spread(&Message::Lost(new.iter().copied().collect()), from);
        for neighbour in self.members.neighbours() {
            if !before.contains(&neighbour) {
                self.repeat_news(neighbour);
            }
        }
        for node in new.iter().copied() {
            self.early.forget(node);
            self.fences_without(node);
            self.cards_without(node);
            self.controller_without(node);
            self.announce_lost(node);
            self.out.push(Output::NodeLost(node));
        }
        new.into_iter().for_each(|node| self.lost_at_controller(node));
    }

    /// Repeats to a new neighbour what may have been lost with the node between.
    fn repeat_news(&mut self, to: Node) {
        let lost = self.members.lost.iter().copied().collect();
        self.send(to, Message::Lost(lost));
        let replaced = self.replacements.messages();
        replaced.for_each(|message| self.out.send(to, message));
        if self.jobs.is_wired() && to != Node::HEAD {
            self.send(to, Message::Wired);
        }
        self.jobs.news().for_each(|message| self.out.send(to, message));
        for event in self.events.for_all() {
            self.send(to, Message::Event { event, all: true });
        }
    }

    /// Nothing can succeed here any more.
    fn orphaned(&mut self, why: &str) {
        self.members.over = Some(why.to_owned());
        for client in self.clients.ids() {
            self.refuse_all(client, &petasos_pmix::Error::Ending(why.to_owned()));
        }
        self.out.push(Output::Orphaned(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is lost, the other nodes are one tree: each is its parent's child, and the head
    /// node reaches all.
    #[test]
    fn what_is_left_is_a_tree() {
        let mut random = petasos_sim::Random::new(3);
        for round in 0..200 {
            let nodes = 2 + random.below(60) as u32;
            let fanout = 1 + random.below(5) as u32;
            let lost: BTreeSet<Node> = (1..nodes).map(Node).filter(|_| random.one_in(3)).collect();
            let of = |me| Members { me, nodes, fanout, lost: lost.clone(), over: None };
            let mut reached = BTreeSet::from([Node::HEAD]);
            let mut open = vec![Node::HEAD];
            while let Some(at) = open.pop() {
                let mut children = Vec::new();
                of(at).children(at, &mut children);
                for child in children {
                    assert_eq!(of(child).parent(), Some(at));
                    assert!(reached.insert(child), "round {round}: {child} has two parents");
                    open.push(child);
                }
            }
            assert_eq!(reached.len() + lost.len(), nodes as usize);
        }
    }
}
