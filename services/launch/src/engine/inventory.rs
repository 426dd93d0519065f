//! What the nodes have. Each reports its own inventory to the controller, and raises events for its
//! changes.

use super::{Engine, jobs::Job, queries::Report};
use crate::{
    inventory::{Cpu, Inventory, RoundTrip},
    message::Message,
};
use petasos_fabric::Time;
use petasos_pmix::{
    Info, JobId, Node, Proc, Value,
    event::{Event, Range},
    status,
};
use std::{collections::BTreeMap, sync::Arc};

/// What the controller knows of all nodes.
#[derive(Debug, Default)]
pub(super) struct Inventories {
    of: BTreeMap<Node, Kept>,
    /// How long messages of each node to some others take, where it was measured.
    links: BTreeMap<Node, Vec<RoundTrip>>,
}

/// A node's inventory. Many nodes have the same processors, which are kept once.
#[derive(Debug)]
struct Kept {
    cpus: Arc<Vec<Cpu>>,
    rest: Inventory,
}

impl Inventories {
    pub(super) fn put(&mut self, node: Node, mut found: Inventory) {
        let cpus = std::mem::take(&mut found.cpus);
        // Compares with the neighbouring nodes: most are alike.
        let below = self.of.range(..=node).next_back();
        let near = below.into_iter().chain(self.of.range(node..).next());
        let same = near.map(|(_, kept)| &kept.cpus).find(|kept| ***kept == cpus).cloned();
        let cpus = same.unwrap_or_else(|| Arc::new(cpus));
        self.of.insert(node, Kept { cpus, rest: found });
    }

    pub(super) fn remove(&mut self, node: Node) {
        self.of.remove(&node);
        self.links.remove(&node);
    }

    pub(super) fn has(&self, node: Node) -> bool {
        self.of.contains_key(&node)
    }

    pub(super) fn put_links(&mut self, node: Node, found: Vec<RoundTrip>) {
        self.links.insert(node, found);
    }

    pub(super) fn has_links(&self, node: Node) -> bool {
        self.links.contains_key(&node)
    }

    pub(super) fn links(&self) -> &BTreeMap<Node, Vec<RoundTrip>> {
        &self.links
    }

    /// Bytes of memory of a node.
    pub(super) fn memory(&self, node: Node) -> Option<u64> {
        self.of.get(&node).map(|kept| kept.rest.memory)
    }

    pub(super) fn all(&self) -> BTreeMap<Node, Inventory> {
        self.of.keys().filter_map(|node| Some((*node, self.get(*node)?))).collect()
    }

    fn get(&self, node: Node) -> Option<Inventory> {
        let kept = self.of.get(&node)?;
        Some(Inventory { cpus: kept.cpus.to_vec(), ..kept.rest.clone() })
    }
}

impl Engine {
    /// Reports what this node has now. The first report goes to the controller; later ones raise
    /// events for what has changed as well.
    pub fn inventory(&mut self, now: Time, found: Inventory) {
        self.advance(now);
        if self.members.is_over() {
            return;
        }
        let before = self.inventory.replace(found.clone());
        let changes = before.as_ref().map_or_else(Vec::new, |before| before.changes(&found));
        if before.is_none() || before.as_ref() != Some(&found) {
            match self.is_controller() {
                true => self.inventory_came(Node::HEAD, found),
                false => self.send(Node::HEAD, Message::Inventory(Box::new(found))),
            }
        }
        for (code, info) in changes {
            self.announce_change(code, info);
        }
    }

    /// At the controller: what a node has.
    pub(super) fn inventory_came(&mut self, from: Node, found: Inventory) {
        if !self.is_controller() {
            return;
        }
        self.controller.inventories.put(from, found);
        self.report_came(from, Report::Inventory);
    }

    /// The events reach handlers for their codes, and no default handler.
    fn announce_change(&mut self, code: i32, mut info: Info) {
        let first = self.jobs.first();
        let (job, name) =
            (first.map_or(JobId(0), Job::id), first.and_then(|job| job.host(self.me)));
        info.push(("pmix.nodeid".to_owned(), self.me.0.into()));
        info.extend(name.map(|name| ("pmix.hname".to_owned(), name.into())));
        let (id, source) = (self.out.event_id(), Proc::new(job, Proc::JOB));
        let (range, non_default) = (Range::Session, true);
        debug_assert!(status::is_environment(code));
        self.raise(Event { id, code, source, node: self.me, range, non_default, info });
    }

    /// What a node has, with its number and its name, as the answer to a query.
    pub(super) fn inventory_value(&self, node: Node) -> Option<Value> {
        let found = self.controller.inventories.get(node)?;
        let mut all: Info = vec![("node".to_owned(), node.0.into())];
        let name = self.jobs.host(node);
        all.extend(name.map(|name| ("host".to_owned(), name.into())));
        all.extend(self.is_spare(node).then(|| ("spare".to_owned(), true.into())));
        all.extend(found.to_info());
        let links = self.controller.inventories.links().get(&node);
        let links = links.map(|all| all.iter().map(|link| link.to_value(node)).collect());
        all.extend(links.map(|links| ("links".to_owned(), Value::List(links))));
        Some(Value::Record(all))
    }

    /// At the head node: what nodes have, as far as they have reported it.
    #[must_use]
    pub fn inventories(&self) -> BTreeMap<Node, Inventory> {
        self.controller.inventories.all()
    }
}
