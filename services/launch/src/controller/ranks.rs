//! What became of the ranks of a job, and of the nodes on which they are.

use petasos_pmix::{Node, Termination, job::Run};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

#[derive(Debug)]
pub(super) struct Ranks {
    /// Where the ranks were placed, from 0 on.
    runs: Vec<Run>,
    size: u32,
    /// Where each rank that has ended did, and how.
    ended: BTreeMap<u32, (Node, Termination)>,
    /// How often ranks were restarted, if they were.
    restarts: BTreeMap<u32, u32>,
    /// Which nodes are lost, and why.
    lost: BTreeMap<Node, String>,
    /// Which node has the ranks of one that is lost.
    replaced: BTreeMap<Node, Node>,
}

impl Ranks {
    pub(super) fn new(runs: Vec<Run>) -> Ranks {
        Ranks {
            size: runs.iter().map(|run| run.count).sum(),
            runs,
            ended: BTreeMap::new(),
            restarts: BTreeMap::new(),
            lost: BTreeMap::new(),
            replaced: BTreeMap::new(),
        }
    }

    /// The process of a rank, which was restarted so often before, has ended. `None`: that is no
    /// news; otherwise how often the rank was restarted.
    pub(super) fn end(
        &mut self,
        rank: u32,
        restarts: u32,
        on: Node,
        why: Termination,
    ) -> Option<u32> {
        let known = self.restarts.get(&rank).copied().unwrap_or_default();
        // A process that was replaced meanwhile is not the rank any more.
        if rank >= self.size || restarts < known || self.has_ended(rank) {
            return None;
        }
        self.ended.insert(rank, (on, why));
        Some(known)
    }

    /// There is a new process of a rank, which was restarted so often by now.
    pub(super) fn restart(&mut self, rank: u32, restarts: u32) {
        self.restarts.insert(rank, restarts);
        self.ended.remove(&rank);
    }

    /// A node is lost, for this reason. False: that was known.
    pub(super) fn lose(&mut self, node: Node, why: &str) -> bool {
        let is_news = !self.is_lost(node);
        if is_news {
            self.lost.insert(node, why.to_owned());
        }
        is_news
    }

    /// Those ranks of a lost node that had not ended have ended with it: which.
    pub(super) fn end_all_on(&mut self, node: Node) -> Vec<u32> {
        let on = self.placed().filter(|(at, _)| *at == node).flat_map(|(_, ranks)| ranks);
        let lost: Vec<u32> = on.filter(|rank| !self.has_ended(*rank)).collect();
        self.ended.extend(lost.iter().map(|rank| (*rank, (node, Termination::NodeLost))));
        lost
    }

    /// A node has the ranks of another.
    pub(super) fn replace(&mut self, node: Node, by: Node) {
        self.replaced.insert(node, by);
    }

    /// Whether a node has taken the place of another.
    pub(super) fn has_replaced(&self, node: Node) -> bool {
        self.replaced.values().any(|by| *by == node)
    }

    pub(super) fn is_lost(&self, node: Node) -> bool {
        self.lost.contains_key(&node)
    }

    pub(super) fn has_ended(&self, rank: u32) -> bool {
        self.ended.contains_key(&rank)
    }

    pub(super) fn all_have_ended(&self) -> bool {
        self.ended.len() as u64 >= u64::from(self.size)
    }

    /// The ranks that have not ended.
    pub(super) fn running(&self) -> impl Iterator<Item = u32> {
        (0..self.size).filter(|rank| !self.has_ended(*rank))
    }

    /// The nodes on which these are.
    pub(super) fn nodes_running(&self) -> BTreeSet<Node> {
        let is_running = |ranks: Range<u32>| ranks.into_iter().any(|rank| !self.has_ended(rank));
        self.placed().filter(|(_, ranks)| is_running(ranks.clone())).map(|(node, _)| node).collect()
    }

    /// Where a rank is now.
    pub(super) fn node_of(&self, rank: u32) -> Option<Node> {
        self.placed().find(|(_, ranks)| ranks.contains(&rank)).map(|(node, _)| node)
    }

    /// All ranks, in order, and where they are now.
    fn placed(&self) -> impl Iterator<Item = (Node, Range<u32>)> {
        let next = |from: &mut u32, run: &Run| {
            let first = *from;
            *from += run.count;
            let mut node = run.node;
            while let Some(by) = self.replaced.get(&node) {
                node = *by;
            }
            Some((node, first..*from))
        };
        self.runs.iter().scan(0, next)
    }

    /// By rank, on which node it ended and how.
    pub(super) fn ends(&self) -> &BTreeMap<u32, (Node, Termination)> {
        &self.ended
    }

    /// By rank, how often it was restarted.
    pub(super) fn restarts(&self) -> &BTreeMap<u32, u32> {
        &self.restarts
    }

    /// Nodes that were replaced, why they were lost, and the nodes that replaced them.
    pub(super) fn replacements(&self) -> impl Iterator<Item = (Node, &str, Node)> {
        let why = |node: &Node| self.lost.get(node).map_or("", String::as_str);
        self.replaced.iter().map(move |(node, by)| (*node, why(node), *by))
    }
}
