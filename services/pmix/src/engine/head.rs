//! What the head does for all: queries, and who wants which environment events. What is published: [`super::published`].

use super::{
    ClientId, Engine, Output, RequestId, Timer, Waiting,
    inventory::Inventories,
    links::{LINKS, MEASURE},
    requests::{check_keys, limit},
};
use crate::{
    error::Error,
    inventory::RoundTrip,
    message::{Answer, ControllerRequest, Message},
    names::{Missing, Node, Proc},
    value::{Info, Value},
};
use petasos_fabric::Time;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long the head may take to answer what it need not wait for.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How long the nodes may take to say what they know of their processes.
const GATHER: Duration = Duration::from_secs(3);

/// Bytes of one answer, about: in a frame for a client they take up to half as much again.
pub(super) const MAX_ANSWER: usize = 40 << 20;
/// Queries of one node at a time for what others have to say.
const MAX_GATHERINGS: usize = 1024;
/// Nodes whose inventories fit one answer.
const MAX_INVENTORIES: usize = 8192;
/// The key of what all nodes have; with a point and a number, of one node.
const INVENTORY: &str = "petasos.inventory";
/// The Standard's key of the memory of the node on which it is asked for.
const MEMORY: &str = "pmix.pmem";
const PROCESSES: &str = "petasos.processes";

/// The state of the head; empty elsewhere.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) board: super::published::Board,
    interest: BTreeMap<i32, BTreeSet<Node>>,
    gatherings: BTreeMap<u64, Gathering>,
    pub(super) inventories: Inventories,
    /// Restarts and replacements that were asked for before it was known here that there is something to be done.
    pub(super) hearsay: super::hearsay::Hearsay,
    /// How long messages of each node to some others take, where it was measured.
    pub(super) links: BTreeMap<Node, Vec<RoundTrip>>,
}

/// A question, and where the answer goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) by: Proc,
    pub(super) node: Node,
    pub(super) id: u64,
}

/// A query about what only the nodes themselves can say.
#[derive(Debug)]
struct Gathering {
    /// Who asked; nobody: the daemon itself.
    asked: Option<Asked>,
    found: Info,
    /// The keys that are answered in the end.
    keys: Vec<String>,
    procs: Vec<Value>,
    /// How many bytes these take; of too many none are kept.
    bytes: usize,
    /// Who has not said what it knows of its processes.
    silent: BTreeSet<Node>,
    /// Who has not said yet what it has.
    uncounted: BTreeSet<Node>,
    /// Who has not said how long messages to others take.
    unmeasured: BTreeSet<Node>,
}

impl Gathering {
    /// What a node knows of its processes.
    fn take(&mut self, info: Info) {
        self.bytes += size(&info);
        match self.bytes > MAX_ANSWER {
            true => self.procs = Vec::new(),
            false => self.procs.extend(info.into_iter().map(|(_, value)| value)),
        }
    }

    fn is_complete(&self) -> bool {
        self.silent.is_empty() && self.uncounted.is_empty() && self.unmeasured.is_empty()
    }
}

impl Engine {
    /// Asks the head on behalf of a client.
    pub(super) fn ask_head(
        &mut self,
        client: ClientId,
        id: RequestId,
        asker: Proc,
        what: ControllerRequest,
        longer: Option<Duration>,
    ) -> Result<Option<Answer>, Error> {
        let ask = self.number();
        let name = match &what {
            ControllerRequest::Publish(_) => "to publish",
            ControllerRequest::Lookup { .. } => "to look up",
            ControllerRequest::Unpublish(_) => "to unpublish",
            ControllerRequest::Abort { .. } => "to abort",
            ControllerRequest::Restart { .. } => "to restart",
            ControllerRequest::Replace(_) => "to replace a node",
            ControllerRequest::Signal { .. } => "to signal",
            ControllerRequest::Query(_) | ControllerRequest::Processes => "a query",
        };
        let patience = HEAD_PATIENCE.saturating_add(longer.unwrap_or_default());
        self.wait(client, id, Some(patience), Waiting::Head { ask, what: name });
        self.head_asks.insert(ask, (client, id));
        match self.me == Node::HEAD {
            true => self.head_asked(Node::HEAD, ask, asker, what),
            false => self.send(Node::HEAD, Message::Ask { id: ask, asker, what }),
        }
        Ok(None)
    }

    /// A question came: at the head, or one that any node answers.
    pub(super) fn head_asked(&mut self, from: Node, id: u64, asker: Proc, what: ControllerRequest) {
        let asked = Asked { by: asker, node: from, id };
        let result = match what {
            ControllerRequest::Processes => Ok(Some(Answer::Info(self.own_processes()))),
            _ if self.me != Node::HEAD => return,
            ControllerRequest::Publish(what) => self.publish(asked, what).map(Some),
            ControllerRequest::Unpublish(keys) => check_keys(&keys).map(|()| {
                self.unpublish(asker, &keys);
                Some(Answer::Done)
            }),
            ControllerRequest::Lookup { keys, wait, least, within } => {
                once(keys).and_then(|keys| self.look_up(asked, within, keys, wait, least as usize))
            }
            ControllerRequest::Query(keys) => once(keys).and_then(|keys| self.query(asked, &keys)),
            ControllerRequest::Abort { status, message } => {
                self.out.push_back(Output::Abort { by: asker, status, message });
                Ok(Some(Answer::Done))
            }
            ControllerRequest::Restart { proc, after } => self.restart_asked(asked, proc, after),
            ControllerRequest::Replace(node) => self.replace_asked(asked, node),
            ControllerRequest::Signal { group, signal } => {
                self.signal_asked(group, signal).map(Some)
            }
        };
        match result {
            Ok(None) => {}
            Ok(Some(answer)) => self.head_says(asked, Ok(answer)),
            Err(error) => self.head_says(asked, Err(error)),
        }
    }

    pub(super) fn head_says(&mut self, asked: Asked, result: Result<Answer, Error>) {
        match asked.node == self.me {
            true => self.head_answered(self.me, asked.id, result),
            false => self.send(asked.node, Message::Answer { id: asked.id, result }),
        }
    }

    /// The head, or (at the head) a node, answers.
    pub(super) fn head_answered(&mut self, from: Node, id: u64, result: Result<Answer, Error>) {
        if let Some(gathering) = self.head.gatherings.get_mut(&id) {
            if gathering.silent.remove(&from)
                && let Ok(Answer::Info(info)) = result
            {
                gathering.take(info);
            }
            if gathering.is_complete() {
                self.gathered(id);
            }
        } else if let Some((client, request)) = self.head_asks.remove(&id) {
            self.answer(client, request, result);
        }
    }

    fn query(&mut self, asked: Asked, keys: &[String]) -> Result<Option<Answer>, Error> {
        let (mut found, mut late) = (Info::new(), Vec::new());
        let (mut uncounted, mut unmeasured) = (BTreeSet::new(), BTreeSet::new());
        for key in keys {
            let value = match key.as_str() {
                PROCESSES => {
                    late.push(key.clone());
                    continue;
                }
                LINKS => {
                    unmeasured.extend(self.whose_inventory(INVENTORY, asked.node)?);
                    late.push(key.clone());
                    continue;
                }
                key if key == MEMORY || key.starts_with(INVENTORY) => {
                    uncounted.extend(self.whose_inventory(key, asked.node)?);
                    late.push(key.to_owned());
                    continue;
                }
                "petasos.jobs" => {
                    let names = self.jobs.values().map(|job| job.map.spec().name.as_str().into());
                    Value::List(names.collect())
                }
                "petasos.nodes" => self.node_list(),
                "petasos.published" => {
                    let keys = self.head.board.keys().map(|key| key.as_str().into());
                    Value::List(keys.collect())
                }
                "petasos.events.cached" => (self.events.count() as u64).into(),
                _ => {
                    let job = self.jobs.values().next();
                    let value = job.and_then(|job| job.map.value(Proc::JOB, key));
                    value.ok_or_else(|| Error::UnknownQuery(key.clone()))?
                }
            };
            found.push((key.clone(), value));
        }
        if size(&found) > MAX_ANSWER {
            return Err(answer_limit(size(&found)));
        }
        if late.is_empty() {
            return Ok(Some(Answer::Info(found)));
        }
        let of_node = |other: &&Gathering| other.asked.is_some_and(|by| by.node == asked.node);
        if self.head.gatherings.values().filter(of_node).count() >= MAX_GATHERINGS {
            let most = MAX_GATHERINGS;
            return Err(limit("queries of a node about others", most + 1, most));
        }
        let id = self.number();
        let mut hosts: BTreeSet<Node> = BTreeSet::new();
        if late.iter().any(|key| key == PROCESSES) {
            hosts.extend(self.members.alive());
        }
        hosts.retain(|node| self.jobs.values().any(|job| !job.map.ranks_on(*node).is_empty()));
        let own = if hosts.remove(&self.me) { self.own_processes() } else { Info::new() };
        for node in &hosts {
            let what = ControllerRequest::Processes;
            self.out.push_back(Output::Send {
                to: *node,
                message: Message::Ask { id, asker: asked.by, what },
            });
        }
        let mut gathering = Gathering {
            asked: Some(asked),
            found,
            keys: late,
            procs: Vec::new(),
            bytes: 0,
            silent: hosts,
            uncounted,
            unmeasured,
        };
        gathering.take(own);
        self.gather(id, gathering);
        Ok(None)
    }

    /// Waits for what nodes have not said so far, and has measured what was not.
    fn gather(&mut self, id: u64, mut gathering: Gathering) {
        gathering.uncounted.retain(|node| !self.head.inventories.has(*node));
        gathering.unmeasured.retain(|node| !self.head.links.contains_key(node));
        let unmeasured = gathering.unmeasured.clone();
        let patience = if unmeasured.is_empty() { GATHER } else { MEASURE };
        self.head.gatherings.insert(id, gathering);
        self.agenda.set(self.now.after(patience), Timer::Gathering(id));
        for node in unmeasured {
            match node == self.me {
                true => self.measure_links(),
                false => self.send(node, Message::MeasureLinks),
            }
        }
        if self.head.gatherings.get(&id).is_some_and(Gathering::is_complete) {
            self.gathered(id);
        }
    }

    /// At the head: finds out what all nodes have, and how long messages between them take;
    /// [`Output::Surveyed`] says that it is done.
    pub fn survey(&mut self, now: Time, links: bool) {
        self.advance(now);
        let alive: BTreeSet<Node> = self.members.alive().collect();
        let unmeasured = if links { alive.clone() } else { BTreeSet::new() };
        let id = self.number();
        self.gather(
            id,
            Gathering {
                asked: None,
                found: Info::new(),
                keys: Vec::new(),
                procs: Vec::new(),
                bytes: 0,
                silent: BTreeSet::new(),
                uncounted: alive,
                unmeasured,
            },
        );
    }

    /// The nodes whose inventories a key asks for.
    fn whose_inventory(&self, key: &str, asker: Node) -> Result<Vec<Node>, Error> {
        if key == MEMORY {
            return Ok(vec![asker]);
        }
        let alive: Vec<Node> = self.members.alive().collect();
        if key == INVENTORY {
            return match alive.len() <= MAX_INVENTORIES {
                true => Ok(alive),
                false => {
                    let what = "nodes in one answer (ask for `petasos.inventory.NUMBER`)";
                    Err(limit(what, alive.len(), MAX_INVENTORIES))
                }
            };
        }
        match inventory_of(key) {
            Some(node) if alive.contains(&node) => Ok(vec![node]),
            _ => Err(Error::UnknownQuery(key.to_owned())),
        }
    }

    /// A node has said what it has, or how long its messages take, or will not.
    pub(super) fn missing_no_more(&mut self, node: Node, links: bool) {
        let waiting = self.head.gatherings.iter_mut();
        let complete = waiting.filter_map(|(id, gathering)| {
            let open = if links { &mut gathering.unmeasured } else { &mut gathering.uncounted };
            (open.remove(&node) && gathering.is_complete()).then_some(*id)
        });
        for id in complete.collect::<Vec<_>>() {
            self.gathered(id);
        }
    }

    fn node_list(&self) -> Value {
        let Some(job) = self.jobs.values().next() else { return Value::List(Vec::new()) };
        let line = |(at, node): (usize, &crate::job::NodeInfo)| {
            let at = Node(at as u32);
            let state = match self.members.is_lost(at) {
                true => "lost",
                false if self.is_spare(at) => "spare",
                false => "up",
            };
            let ranks = job.map.ranks_on(at).len() as u64;
            Value::List(vec![at.0.into(), node.name.as_str().into(), ranks.into(), state.into()])
        };
        Value::List(job.map.spec().nodes.iter().enumerate().map(line).collect())
    }

    /// All nodes have answered, or have had their time.
    pub(super) fn gathered(&mut self, id: u64) {
        let Some(mut gathering) = self.head.gatherings.remove(&id) else { return };
        let mut bytes = gathering.bytes + size(&gathering.found);
        for key in std::mem::take(&mut gathering.keys) {
            let value = match key.as_str() {
                PROCESSES => Some(Value::List(std::mem::take(&mut gathering.procs))),
                MEMORY => {
                    let node = gathering.asked.map(|asked| asked.node);
                    node.and_then(|node| self.head.inventories.memory(node)).map(Value::from)
                }
                LINKS => Some(self.links_value()),
                INVENTORY => {
                    let (mut all, mut listed) = (Vec::new(), 0);
                    for value in self.members.alive().filter_map(|n| self.inventory_value(n)) {
                        listed += value.size();
                        if listed > MAX_ANSWER {
                            break;
                        }
                        all.push(value);
                    }
                    // What is not listed counts as well, so that it is known below that it is too much.
                    bytes += listed.saturating_sub(all.iter().map(Value::size).sum());
                    Some(Value::List(all))
                }
                key => inventory_of(key).and_then(|node| self.inventory_value(node)),
            };
            let Some(value) = value else { continue };
            if key != PROCESSES {
                bytes += key.len() + value.size();
            }
            if bytes > MAX_ANSWER {
                break;
            }
            gathering.found.push((key, value));
        }
        if let Some(asked) = gathering.asked.filter(|_| bytes > MAX_ANSWER) {
            return self.head_says(asked, Err(answer_limit(bytes)));
        }
        gathering.silent.append(&mut gathering.uncounted);
        gathering.silent.append(&mut gathering.unmeasured);
        if !gathering.silent.is_empty() {
            let silent = gathering.silent.iter().map(|node| node.0.into()).collect();
            gathering.found.push(("petasos.silent".to_owned(), Value::List(silent)));
        }
        match gathering.asked {
            Some(asked) => self.head_says(asked, Ok(Answer::Info(gathering.found))),
            None => self.out.push_back(Output::Surveyed),
        }
    }

    /// The processes of this node: job, rank, node, id in the system, what they do, how often they were restarted.
    fn own_processes(&self) -> Info {
        let mut all = Info::new();
        for (id, job) in &self.jobs {
            for (rank, local) in &job.locals {
                let state = match (&local.gone, local.connected) {
                    (Some(why), _) => why.to_string(),
                    (None, true) => "connected".to_owned(),
                    (None, false) if local.pid != 0 => "running".to_owned(),
                    (None, false) => "not started".to_owned(),
                };
                let node = self.ran_on(Proc::new(*id, *rank)).unwrap_or(self.me);
                let line: Vec<Value> = vec![
                    id.0.into(),
                    (*rank).into(),
                    node.0.into(),
                    local.pid.into(),
                    state.into(),
                    job.restarts_of(*rank).into(),
                ];
                all.push((String::new(), Value::List(line)));
            }
        }
        all
    }

    /// Processes that should have connected have not.
    pub(super) fn never_connected(&mut self, missing: Missing) {
        match self.me == Node::HEAD {
            true => self.out.push_back(Output::NeverConnected(missing)),
            false => self.send(Node::HEAD, Message::NeverConnected(missing)),
        }
    }

    /// A node wants an environment event from now on, or no longer.
    pub(super) fn interest(&mut self, from: Node, code: i32, wanted: bool) {
        let nodes = self.head.interest.entry(code).or_default();
        if !wanted {
            nodes.remove(&from);
        } else if nodes.insert(from) && from != self.me {
            for event in self.events.cached_of(code) {
                self.send(from, Message::Event { event, all: false });
            }
        }
    }

    /// Who wants an environment event.
    pub(super) fn interested(&self, code: i32) -> Vec<Node> {
        self.head.interest.get(&code).into_iter().flatten().copied().collect()
    }

    /// A node is lost: it is not waited for, and what its processes published goes.
    pub(super) fn head_without(&mut self, node: Node) {
        self.head.interest.values_mut().for_each(|nodes| {
            nodes.remove(&node);
        });
        self.board_without(node);
        self.head.inventories.remove(node);
        self.head.links.remove(&node);
        self.missing_no_more(node, false);
        self.missing_no_more(node, true);
        let waiting: Vec<u64> = self.head.gatherings.keys().copied().collect();
        for id in waiting {
            self.head_answered(node, id, Ok(Answer::Done));
        }
    }
}

/// These keys, each named once.
fn once(mut keys: Vec<String>) -> Result<Vec<String>, Error> {
    check_keys(&keys)?;
    let mut named = BTreeSet::new();
    keys.retain(|key| named.insert(key.clone()));
    Ok(keys)
}

/// About how many bytes these take.
fn size(info: &Info) -> usize {
    info.iter().map(|(key, value)| key.len() + 8 + value.size()).sum()
}

pub(super) fn answer_limit(bytes: usize) -> Error {
    limit("bytes in one answer", bytes, MAX_ANSWER)
}

/// The node that is meant by `petasos.inventory.NUMBER`.
fn inventory_of(key: &str) -> Option<Node> {
    key.strip_prefix(INVENTORY)?.strip_prefix('.')?.parse().ok().map(Node)
}
