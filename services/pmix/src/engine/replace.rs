//! Replacements: the ranks of a node that is lost are started again on a spare one, all of them together.
//!
//! The head decides, and numbers what it decides; every node takes one replacement after the other, in that order. So
//! all have the same map of ranks after the same number, and what depends on it (fences, questions for cards) says
//! with which number it was sent: what is older is of processes that are gone, and what is newer waits.
//!
//! The ranks keep their order on the node, and the addresses of the spare were assigned with all others, before the
//! start: nothing is exchanged. Each rank that is started again has one restart more, as if it had failed alone.

use super::{Engine, Local, Output, head::Asked};
use crate::{
    error::{Error, Termination},
    message::{Answer, ControllerRequest, Message, Replacement},
    names::{Node, Proc},
};
use petasos_fabric::Time;
use std::{collections::BTreeMap, sync::Arc};

/// What this node knows of replacements.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// In order.
    all: Vec<Replacement>,
    /// Those that came before one that they follow, and from whom.
    early: BTreeMap<u32, (Replacement, Option<Node>)>,
}

impl Replaced {
    /// How many there were.
    pub(super) fn count(&self) -> u32 {
        self.all.len() as u32
    }

    fn by(&self, node: Node) -> Option<Node> {
        self.all.iter().find(|one| one.node == node).map(|one| one.by)
    }

    /// The number of the last one that concerned some of these processes; 0: none did.
    pub(super) fn last_of(&self, is_of: impl Fn(Proc) -> bool) -> u32 {
        let of = |one: &&Replacement| one.procs().any(&is_of);
        self.all.iter().rev().find(of).map_or(0, |one| one.number)
    }

    /// On which node a process had ended, if that was lost after that, and replaced.
    fn ended_on(&self, proc: Proc, restarts: u32) -> Option<Node> {
        let ended = |one: &&Replacement| {
            one.ended.iter().any(|(of, times, _)| (*of, *times) == (proc, restarts))
        };
        self.all.iter().find(ended).map(|one| one.node)
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.all.iter().map(|one| Message::Replaced(Box::new(one.clone())))
    }
}

impl Replacement {
    /// All ranks of the node.
    pub(super) fn procs(&self) -> impl Iterator<Item = Proc> + '_ {
        let again = self.again.iter().map(|(proc, _)| *proc);
        again.chain(self.ended.iter().map(|(proc, ..)| *proc))
    }
}

fn refused(node: Node, why: impl Into<String>) -> Error {
    Error::NotReplaced { node, why: why.into() }
}

impl Engine {
    /// Which node has the ranks of this one that was lost, if one took its place.
    #[must_use]
    pub fn replacement_of(&self, node: Node) -> Option<Node> {
        self.replaced.by(node)
    }

    /// Where a process runs, or ran: one that had ended before its node was lost has never been on the one that has
    /// its rank now.
    pub(super) fn ran_on(&self, proc: Proc) -> Option<Node> {
        let before = self.replaced.ended_on(proc, self.restarts_of(proc));
        before.or_else(|| self.node_of(proc))
    }

    /// At the head: whether a node was kept as a spare and has not been needed so far.
    #[must_use]
    pub fn is_spare(&self, node: Node) -> bool {
        let (nodes, _) = self.members.shape();
        let first = nodes.saturating_sub(self.config.spares).max(1);
        (first..nodes).contains(&node.0) && self.replaced.all.iter().all(|one| one.by != node)
    }

    /// At the head: why the ranks of this node cannot be started elsewhere.
    #[must_use]
    pub fn why_not_replaced(&self, node: Node) -> Option<Error> {
        self.replacement_for(node).err()
    }

    /// At the head: a process of another node has ended as it should, and is not started again with its node.
    pub fn heard_done(&mut self, now: Time, proc: Proc, restarts: u32, why: Termination) {
        self.advance(now);
        if restarts == self.restarts_of(proc)
            && let Some(job) = self.jobs.get_mut(&proc.job)
        {
            job.done.insert(proc.rank, why);
        }
    }

    /// A client asks for a node to be replaced.
    pub(super) fn replace(
        &mut self,
        client: super::ClientId,
        id: super::RequestId,
        asker: Proc,
        node: Node,
    ) -> Result<Option<Answer>, Error> {
        self.ask_head(client, id, asker, ControllerRequest::Replace(node), None)
    }

    /// At the head: somebody asks.
    pub(super) fn replace_asked(
        &mut self,
        asked: Asked,
        node: Node,
    ) -> Result<Option<Answer>, Error> {
        if let Some(by) = self.replace_once(node)? {
            return Ok(Some(Answer::Value(by.0.into())));
        }
        self.awaits_word(asked, ControllerRequest::Replace(node))
    }

    /// Has a node replaced, if that was not done, and says by which; `None`: it is not known here that it is lost.
    fn replace_once(&mut self, node: Node) -> Result<Option<Node>, Error> {
        if let Some(by) = self.replaced.by(node) {
            return Ok(Some(by));
        }
        let Some(what) = self.replacement_for(node)? else { return Ok(None) };
        let by = what.by;
        self.replaced(what, None);
        Ok(Some(by))
    }

    /// What is to be done in place of a node; `None`: it is not known here that it is lost.
    fn replacement_for(&self, node: Node) -> Result<Option<Replacement>, Error> {
        let (nodes, _) = self.members.shape();
        let no = |why: &str| Err(refused(node, why));
        if node == Node::HEAD {
            return no("the job is run from it");
        }
        if node.0 >= nodes {
            return no("there is no such node");
        }
        let Some(most) = self.config.restarts else {
            return no("the job does not go on after a failure, or is ending");
        };
        if self.config.spares == 0 {
            return no("the job has no spare nodes");
        }
        if !self.members.is_lost(node) {
            return Ok(None);
        }
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        for job in self.jobs.values() {
            for rank in job.map.ranks_on(node) {
                let (proc, restarts) = (job.map.proc(*rank), job.restarts_of(*rank));
                match job.done.get(rank).or_else(|| job.gone.get(rank)) {
                    Some(why) => ended.push((proc, restarts, why.clone())),
                    None if restarts < most => again.push((proc, restarts + 1)),
                    None => {
                        let was = format!("{proc} was started again {restarts} times");
                        return Err(refused(node, format!("{was}, and may be so {most} times")));
                    }
                }
            }
        }
        if again.is_empty() {
            return no("it has no ranks that could go on elsewhere");
        }
        let left = |node: &Node| self.is_spare(*node) && !self.members.is_lost(*node);
        let Some(by) = (1..nodes).map(Node).find(left) else {
            return no("no spare node is left");
        };
        let number = self.replaced.count() + 1;
        Ok(Some(Replacement { number, node, by, again, ended }))
    }

    /// At the head, a node is lost: it is replaced, if somebody waits for that, or if that is how the job is run.
    pub(super) fn lost_at_head(&mut self, node: Node) {
        if self.me != Node::HEAD {
            return;
        }
        if self.config.restart_failed {
            // If it is refused, its ranks stay failed, which is told in the end.
            let _ = self.replace_once(node);
        }
        self.word_came(|what| *what == ControllerRequest::Replace(node));
    }

    /// A node takes the place of another, so says the head.
    pub(super) fn replaced(&mut self, what: Replacement, from: Option<Node>) {
        let (nodes, _) = self.members.shape();
        let next = self.replaced.count() + 1;
        if what.number > next {
            if what.number <= nodes {
                self.replaced.early.entry(what.number).or_insert((what, from));
            }
            return;
        }
        if what.number < next || !self.take_place(what, from) {
            return;
        }
        while let Some((what, from)) = self.replaced.early.remove(&(self.replaced.count() + 1)) {
            if !self.take_place(what, from) {
                break;
            }
        }
        self.release_held();
    }

    /// The next replacement. False: it cannot be.
    fn take_place(&mut self, what: Replacement, from: Option<Node>) -> bool {
        let (nodes, _) = self.members.shape();
        let (node, by) = (what.node, what.by);
        let empty = self.jobs.values().all(|job| job.map.ranks_on(by).is_empty());
        if node == by || by == Node::HEAD || node.0 >= nodes || by.0 >= nodes || !empty {
            return false;
        }
        // Who hears of this first hears of that, too.
        self.nodes_lost(&[node], from);
        if self.over.is_some() {
            return false;
        }
        self.spread(&Message::Replaced(Box::new(what.clone())), from);
        let here = by == self.me;
        for job in self.jobs.values_mut() {
            let Some(map) = job.map.moved(node, by) else { continue };
            job.map = Arc::new(map);
            if !here {
                continue;
            }
            for rank in job.map.ranks_on(by) {
                job.gone.remove(rank);
                // Who begins in a moment has nothing of this.
                let (gone, connected) = (Some(Termination::NodeLost), true);
                job.locals.insert(*rank, Local { gone, connected, ..Local::default() });
            }
        }
        self.replaced.all.push(what.clone());
        let mut late = Vec::new();
        for (proc, restarts, why) in &what.ended {
            if self.restarts_of(*proc) > *restarts {
                // That it was started again here, since then, is known already.
                late.push(*proc);
            } else if let Some(local) = self.local_mut(*proc).filter(|_| here) {
                local.gone = Some(why.clone());
            }
        }
        self.fences_moved(&what);
        self.out.push_back(Output::Replaced { node, by });
        self.announce_replaced(&what);
        for (proc, restarts) in &what.again {
            let known = self.restarts_of(*proc);
            if self.node_of(*proc) == Some(by) && (here || known < *restarts) {
                self.renew(*proc, known.max(*restarts));
            }
        }
        for proc in late.into_iter().filter(|_| here) {
            self.renew(proc, self.restarts_of(proc));
        }
        self.restarts_by_the_way(&what);
        true
    }
}
