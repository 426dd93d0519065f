//! Which nodes there are, which are lost, and the tree over which news goes.

use super::{Engine, Output};
use crate::{message::Message, names::Node};
use std::collections::BTreeSet;

/// The tree of all nodes: node n hangs under (n - 1) / fanout, or, where that is lost, under
/// what that hung under.
#[derive(Debug)]
pub(super) struct Members {
    me: Node,
    nodes: u32,
    fanout: u32,
    lost: BTreeSet<Node>,
}

impl Members {
    pub(super) fn new(me: Node, nodes: u32, fanout: u32) -> Members {
        Members { me, nodes, fanout: fanout.max(1), lost: BTreeSet::new() }
    }

    pub(super) fn is_lost(&self, node: Node) -> bool {
        self.lost.contains(&node)
    }

    pub(super) fn lost(&self) -> &BTreeSet<Node> {
        &self.lost
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

    /// Parent and children, as far as they live.
    pub(super) fn neighbours(&self) -> Vec<Node> {
        let mut all: Vec<Node> = self.parent().into_iter().collect();
        self.children(self.me, &mut all);
        all
    }

    /// All nodes, and how many children each has at most.
    pub(super) fn shape(&self) -> (u32, u32) {
        (self.nodes, self.fanout)
    }

    pub(super) fn alive(&self) -> impl Iterator<Item = Node> + '_ {
        (0..self.nodes).map(Node).filter(|node| !self.is_lost(*node))
    }
}

impl Engine {
    /// Parent and children in the tree of all nodes: those whose loss must be noticed even if
    /// nothing is said to them.
    #[must_use]
    pub fn neighbours(&self) -> Vec<Node> {
        self.members.neighbours()
    }

    /// Nodes are lost: everything that waits for them ends, and everybody is told.
    pub(super) fn nodes_lost(&mut self, nodes: &[Node], from: Option<Node>) {
        if self.over.is_some() {
            return;
        }
        let before = self.members.neighbours();
        // However often each is named.
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
                self.tell_again(neighbour);
            }
        }
        for node in new.iter().copied() {
            self.held_without(node);
            self.fences_without(node);
            self.cards_without(node);
            self.head_without(node);
            self.announce_lost(node);
            self.out.push_back(Output::NodeLost(node));
        }
        new.into_iter().for_each(|node| self.lost_at_head(node));
    }

    /// Tells a new neighbour what may have been lost with the one between us.
    fn tell_again(&mut self, to: Node) {
        let lost = self.members.lost.iter().copied().collect();
        self.send(to, Message::Lost(lost));
        let replaced: Vec<Message> = self.replaced.messages().collect();
        replaced.into_iter().for_each(|message| self.send(to, message));
        if self.wired && to != Node::HEAD {
            self.send(to, Message::Wired);
        }
        for job in self.jobs.values() {
            for (rank, restarts) in &job.restarts {
                let (proc, restarts) = (job.map.proc(*rank), *restarts);
                let message = Message::Restarted { proc, restarts };
                self.out.push_back(Output::Send { to, message });
            }
            let known = job.gone.iter().map(|(rank, why)| (*rank, why.clone()));
            let own = job.locals.iter().filter_map(|(rank, local)| {
                local.gone.clone().filter(|why| !why.is_clean()).map(|why| (*rank, why))
            });
            for (rank, why) in known.chain(own) {
                let (proc, restarts) = (job.map.proc(rank), job.restarts_of(rank));
                let message = Message::Termination { proc, restarts, why };
                self.out.push_back(Output::Send { to, message });
            }
        }
        for event in self.events.for_all() {
            self.out.push_back(Output::Send { to, message: Message::Event { event, all: true } });
        }
    }

    /// Nothing can succeed here any more.
    fn orphaned(&mut self, why: &str) {
        self.over = Some(why.to_owned());
        let clients: Vec<_> = self.clients.keys().copied().collect();
        for client in clients {
            self.refuse_all(client, &crate::Error::Ending(why.to_owned()));
        }
        self.out.push_back(Output::Orphaned(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is lost, who lives is one tree: each is its parent's child, and the head reaches
    /// all.
    #[test]
    fn what_is_left_is_a_tree() {
        let mut random = petasos_sim::Random::new(3);
        for round in 0..200 {
            let nodes = 2 + random.below(60) as u32;
            let fanout = 1 + random.below(5) as u32;
            let lost: BTreeSet<Node> = (1..nodes).map(Node).filter(|_| random.one_in(3)).collect();
            let of = |me| Members { me, nodes, fanout, lost: lost.clone() };
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
