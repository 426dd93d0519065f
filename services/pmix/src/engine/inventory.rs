//! What the nodes have: each tells the head of its own, and of what changes the engine makes events.

use super::Engine;
use crate::{
    event::{Event, Range},
    inventory::{Cpu, Inventory},
    message::Message,
    names::{JobId, Node, Proc},
    status,
    value::{Info, Value},
};
use petasos_fabric::Time;
use std::{collections::BTreeMap, sync::Arc};

/// What the head knows of all nodes.
#[derive(Debug, Default)]
pub(super) struct Inventories {
    of: BTreeMap<Node, Kept>,
}

/// A node's inventory. Many nodes have the same processors, and those are kept once.
#[derive(Debug)]
struct Kept {
    cpus: Arc<Vec<Cpu>>,
    rest: Inventory,
}

impl Inventories {
    pub(super) fn put(&mut self, node: Node, mut found: Inventory) {
        let cpus = std::mem::take(&mut found.cpus);
        // The nodes beside it first: most are alike.
        let below = self.of.range(..=node).next_back();
        let near = below.into_iter().chain(self.of.range(node..).next());
        let same = near.map(|(_, kept)| &kept.cpus).find(|kept| ***kept == cpus).cloned();
        let cpus = same.unwrap_or_else(|| Arc::new(cpus));
        self.of.insert(node, Kept { cpus, rest: found });
    }

    pub(super) fn remove(&mut self, node: Node) {
        self.of.remove(&node);
    }

    pub(super) fn has(&self, node: Node) -> bool {
        self.of.contains_key(&node)
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
    /// What this node has now: the first time it is told to the head, later what has changed is an
    /// event as well.
    pub fn inventory(&mut self, now: Time, found: Inventory) {
        self.advance(now);
        if self.over.is_some() {
            return;
        }
        let before = self.inventory.replace(found.clone());
        let changes = before.as_ref().map_or_else(Vec::new, |before| before.changes(&found));
        if before.is_none() || before.as_ref() != Some(&found) {
            match self.me == Node::HEAD {
                true => self.inventory_came(Node::HEAD, found),
                false => self.send(Node::HEAD, Message::Inventory(Box::new(found))),
            }
        }
        for (code, info) in changes {
            self.announce_change(code, info);
        }
    }

    /// At the head: what a node has.
    pub(super) fn inventory_came(&mut self, from: Node, found: Inventory) {
        if self.me != Node::HEAD {
            return;
        }
        self.head.inventories.put(from, found);
        self.missing_no_more(from, false);
    }

    /// The events reach who registered for their codes, and no default handler.
    fn announce_change(&mut self, code: i32, mut info: Info) {
        let (job, name) = match self.jobs.iter().next() {
            Some((id, job)) => (*id, job.map.node(self.me).map(|node| node.name.clone())),
            None => (JobId(0), None),
        };
        info.push(("pmix.nodeid".to_owned(), self.me.0.into()));
        info.extend(name.map(|name| ("pmix.hname".to_owned(), name.into())));
        let (id, source) = (self.event_id(), Proc::new(job, Proc::JOB));
        let (range, non_default) = (Range::Session, true);
        debug_assert!(status::is_environment(code));
        self.raise(Event { id, code, source, node: self.me, range, non_default, info });
    }

    /// What a node has, as the answer to a query: with its number and its name.
    pub(super) fn inventory_value(&self, node: Node) -> Option<Value> {
        let found = self.head.inventories.get(node)?;
        let mut all: Info = vec![("node".to_owned(), node.0.into())];
        let name = self.jobs.values().find_map(|job| Some(job.map.node(node)?.name.clone()));
        all.extend(name.map(|name| ("host".to_owned(), name.into())));
        all.extend(self.is_spare(node).then(|| ("spare".to_owned(), true.into())));
        all.extend(found.to_info());
        let links = self.head.links.get(&node);
        let links = links.map(|all| all.iter().map(|link| link.to_value(node)).collect());
        all.extend(links.map(|links| ("links".to_owned(), Value::List(links))));
        Some(Value::Record(all))
    }
}
