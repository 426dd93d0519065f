//! Replacements: the ranks of a lost node are started again on a spare one, all of them together.
//!
//! The controller decides, and numbers its decisions. Every node takes one replacement after the
//! other, in that order. So all have the same map of ranks after the same number. What depends on
//! the map (fences, questions for business cards) says with which number it was sent: an older
//! number is of processes that have ended, and a newer one waits.
//!
//! The ranks keep their order on the node, and the addresses of the spare were assigned with all
//! others, before the start: nothing is exchanged. Each rank that is started again has one restart
//! more, as if it had failed alone.

use super::{ClientId, Engine, Output, RequestId, outbox::Question};
use crate::message::{ControllerRequest, Message, Replacement};
use petasos_pmix::{Error, Node, Proc, message::Answer};
use std::collections::BTreeMap;

/// The replacements that this node knows of.
#[derive(Debug, Default)]
pub(super) struct Replacements {
    /// In order.
    done: Vec<Replacement>,
    /// Those that came before one that they follow, and the nodes that sent them.
    early: BTreeMap<u32, (Replacement, Option<Node>)>,
}

impl Replacements {
    /// How many there were.
    pub(super) fn count(&self) -> u32 {
        self.done.len() as u32
    }

    fn next_number(&self) -> u32 {
        self.count() + 1
    }

    /// The node that took the place of another.
    fn by(&self, node: Node) -> Option<Node> {
        self.done.iter().find(|one| one.node == node).map(|one| one.by)
    }

    /// Whether a spare node was used.
    fn is_used(&self, spare: Node) -> bool {
        self.done.iter().any(|one| one.by == spare)
    }

    /// The number of the last one that concerned some of these processes; 0: none did.
    pub(super) fn last_of(&self, is_of: impl Fn(Proc) -> bool) -> u32 {
        let of = |one: &&Replacement| one.procs().any(&is_of);
        self.done.iter().rev().find(of).map_or(0, |one| one.number)
    }

    /// The node on which a process ended, if that was lost afterwards, and replaced.
    fn ended_on(&self, proc: Proc, restarts: u32) -> Option<Node> {
        let ended = |one: &&Replacement| {
            one.ended.iter().any(|(of, times, _)| (*of, *times) == (proc, restarts))
        };
        self.done.iter().find(ended).map(|one| one.node)
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.done.iter().map(|one| Message::Replaced(Box::new(one.clone())))
    }

    /// Keeps a replacement that came before one that it follows.
    fn defer(&mut self, what: Replacement, from: Option<Node>) {
        self.early.entry(what.number).or_insert((what, from));
    }

    /// The deferred one that is next.
    fn take_next(&mut self) -> Option<(Replacement, Option<Node>)> {
        self.early.remove(&self.next_number())
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
    /// The node that took the place of a lost one, and has its ranks.
    #[must_use]
    pub fn replacement_of(&self, node: Node) -> Option<Node> {
        self.replacements.by(node)
    }

    /// Where a process runs, or ran. One that had ended before its node was lost has never been on
    /// the node that has its rank now.
    pub(super) fn ran_on(&self, proc: Proc) -> Option<Node> {
        let before = self.replacements.ended_on(proc, self.restarts_of(proc));
        before.or_else(|| self.jobs.node_of(proc))
    }

    /// At the head node: whether a node was kept as a spare and has not been needed so far.
    #[must_use]
    pub fn is_spare(&self, node: Node) -> bool {
        let nodes = self.members.count();
        let first = nodes.saturating_sub(self.config.spares).max(1);
        (first..nodes).contains(&node.0) && !self.replacements.is_used(node)
    }

    /// At the head node: why the ranks of a node cannot be started elsewhere.
    #[must_use]
    pub fn why_not_replaced(&self, node: Node) -> Option<Error> {
        self.replacement_for(node).err()
    }

    /// A client asks for a node to be replaced.
    pub(super) fn replace(
        &mut self,
        client: ClientId,
        id: RequestId,
        asker: Proc,
        node: Node,
    ) -> Result<Option<Answer>, Error> {
        self.ask_controller(client, id, asker, ControllerRequest::Replace(node), None)
    }

    /// At the controller: a process asks for a node to be replaced.
    pub(super) fn replace_asked(
        &mut self,
        question: Question,
        node: Node,
    ) -> Result<Option<Answer>, Error> {
        if let Some(by) = self.replace_once(node)? {
            return Ok(Some(Answer::Value(by.0.into())));
        }
        self.await_failure(question, ControllerRequest::Replace(node))
    }

    /// Has a node replaced, if that was not done, and says by which; `None`: it is not known here
    /// that the node is lost.
    fn replace_once(&mut self, node: Node) -> Result<Option<Node>, Error> {
        if let Some(by) = self.replacements.by(node) {
            return Ok(Some(by));
        }
        let Some(what) = self.replacement_for(node)? else { return Ok(None) };
        let by = what.by;
        self.replaced(what, None);
        Ok(Some(by))
    }

    /// The replacement of a node; `None`: it is not known here that the node is lost.
    fn replacement_for(&self, node: Node) -> Result<Option<Replacement>, Error> {
        let nodes = self.members.count();
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
        for job in self.jobs.iter() {
            for rank in job.map().ranks_on(node) {
                let (proc, restarts) = (job.map().proc(*rank), job.restarts_of(*rank));
                match job.remote_end(*rank) {
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
        let number = self.replacements.next_number();
        Ok(Some(Replacement { number, node, by, again, ended }))
    }

    /// At the controller, a node is lost: it is replaced, if a process waits for that, or if the
    /// job is run that way.
    pub(super) fn lost_at_controller(&mut self, node: Node) {
        if !self.is_controller() {
            return;
        }
        if self.config.restart_failed {
            // If it is refused, its ranks stay failed, which is reported in the end.
            let _ = self.replace_once(node);
        }
        self.failure_known(|what| *what == ControllerRequest::Replace(node));
    }

    /// The controller has decided that a node takes the place of another.
    pub(super) fn replaced(&mut self, what: Replacement, from: Option<Node>) {
        let next = self.replacements.next_number();
        if what.number > next {
            if what.number <= self.members.count() {
                self.replacements.defer(what, from);
            }
            return;
        }
        if what.number < next || !self.take_replacement(what, from) {
            return;
        }
        while let Some((what, from)) = self.replacements.take_next() {
            if !self.take_replacement(what, from) {
                break;
            }
        }
        self.release_early();
    }

    /// Takes the next replacement. False: it is not possible.
    fn take_replacement(&mut self, what: Replacement, from: Option<Node>) -> bool {
        let nodes = self.members.count();
        let (node, by) = (what.node, what.by);
        let empty = !self.jobs.hosts_ranks(by);
        if node == by || by == Node::HEAD || node.0 >= nodes || by.0 >= nodes || !empty {
            return false;
        }
        // A node that hears of the replacement first learns of the loss by it.
        self.nodes_lost(&[node], from);
        if self.members.is_over() {
            return false;
        }
        self.spread(&Message::Replaced(Box::new(what.clone())), from);
        let here = by == self.me;
        self.jobs.move_ranks(node, by, here);
        self.replacements.done.push(what.clone());
        let mut late = Vec::new();
        for (proc, restarts, why) in &what.ended {
            if self.restarts_of(*proc) > *restarts {
                // It is known already that it was started again on the new node, since then.
                late.push(*proc);
            } else if let Some(local) = self.jobs.local_mut(*proc).filter(|_| here) {
                local.ended_elsewhere(why.clone());
            }
        }
        self.fences_moved(&what);
        self.out.push(Output::Replaced { node, by });
        self.announce_replaced(&what);
        for (proc, restarts) in &what.again {
            let known = self.restarts_of(*proc);
            if self.jobs.node_of(*proc) == Some(by) && (here || known < *restarts) {
                self.renew(*proc, known.max(*restarts));
            }
        }
        for proc in late.into_iter().filter(|_| here) {
            self.renew(proc, self.restarts_of(proc));
        }
        self.restarts_by_replacement(&what);
        true
    }
}
