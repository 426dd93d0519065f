//! Queries, and what the controller gathers from other nodes to answer them.

use super::{
    Engine, Output,
    controller::Question,
    links::{LINKS, MEASURE, links_value},
    requests::limit,
    timers::Timer,
};
use crate::message::{ControllerRequest, Message};
use petasos_fabric::Time;
use petasos_pmix::{Error, Info, Node, Proc, Value, job::NodeInfo, message::Answer};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long the nodes may take to report on their processes.
const GATHER: Duration = Duration::from_secs(3);
/// Bytes of one answer, about: in a frame for a client they take up to half as much again.
pub(super) const MAX_ANSWER: usize = 40 << 20;
/// Queries of one node at a time that need reports of others.
const MAX_QUERIES: usize = 1024;
/// Nodes whose inventories fit one answer.
const MAX_INVENTORIES: usize = 8192;
/// The key of what all nodes have; with a point and a number, of one node.
const INVENTORY: &str = "petasos.inventory";
/// The Standard's key of the memory of the node on which it is asked for.
const MEMORY: &str = "pmix.pmem";
const PROCESSES: &str = "petasos.processes";

/// What a node reports of its own accord, or once it has measured.
#[derive(Clone, Copy)]
pub(super) enum Report {
    Inventory,
    Links,
}

/// The queries that wait for reports of nodes.
#[derive(Debug, Default)]
pub(super) struct Queries(BTreeMap<u64, Query>);

#[derive(Debug, Default)]
struct Query {
    /// Where the answer goes; `None`: to the daemon itself.
    question: Option<Question>,
    found: Info,
    /// The keys that are answered in the end.
    keys: Vec<String>,
    procs: Vec<Value>,
    /// How many bytes these take. Of too many none are kept.
    bytes: usize,
    /// Nodes that have not reported on their processes.
    silent: BTreeSet<Node>,
    /// Nodes that have not reported what they have.
    uncounted: BTreeSet<Node>,
    /// Nodes that have not reported how long messages to others take.
    unmeasured: BTreeSet<Node>,
}

impl Query {
    /// Takes the report of a node on its processes.
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

    /// The nodes that have not reported in time, as an entry of the answer.
    fn silent_nodes(&mut self) -> Option<(String, Value)> {
        self.silent.append(&mut self.uncounted);
        self.silent.append(&mut self.unmeasured);
        let silent: Vec<Value> = self.silent.iter().map(|node| node.0.into()).collect();
        (!silent.is_empty()).then(|| ("petasos.silent".to_owned(), Value::List(silent)))
    }
}

impl Queries {
    fn is_complete(&self, id: u64) -> bool {
        self.0.get(&id).is_some_and(Query::is_complete)
    }

    /// How many queries of a node there are.
    fn of_node(&self, node: Node) -> usize {
        let of = |query: &&Query| query.question.is_some_and(|by| by.node == node);
        self.0.values().filter(of).count()
    }

    pub(super) fn is_open(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }

    /// A node answers a query about its processes. Says whether the query is complete with that.
    pub(super) fn answered(&mut self, id: u64, from: Node, result: Result<Answer, Error>) -> bool {
        let Some(query) = self.0.get_mut(&id) else { return false };
        if query.silent.remove(&from)
            && let Ok(Answer::Info(info)) = result
        {
            query.take(info);
        }
        query.is_complete()
    }

    /// A node has reported, or will not. Gives the queries that are complete with that.
    fn reported(&mut self, node: Node, what: Report) -> Vec<u64> {
        let complete = self.0.iter_mut().filter_map(|(id, query)| {
            let open = match what {
                Report::Inventory => &mut query.uncounted,
                Report::Links => &mut query.unmeasured,
            };
            (open.remove(&node) && query.is_complete()).then_some(*id)
        });
        complete.collect()
    }

    /// A node is lost: it will report nothing. Gives the queries that are complete with that.
    pub(super) fn node_lost(&mut self, node: Node) -> Vec<u64> {
        for query in self.0.values_mut() {
            query.silent.remove(&node);
            query.uncounted.remove(&node);
            query.unmeasured.remove(&node);
        }
        self.0.iter().filter(|(_, query)| query.is_complete()).map(|(id, _)| *id).collect()
    }
}

impl Engine {
    pub(super) fn query(
        &mut self,
        question: Question,
        keys: &[String],
    ) -> Result<Option<Answer>, Error> {
        let mut query = Query { question: Some(question), ..Query::default() };
        for key in keys {
            let value = match key.as_str() {
                PROCESSES => None,
                LINKS => {
                    query.unmeasured.extend(self.inventory_nodes(INVENTORY, question.node)?);
                    None
                }
                key if key == MEMORY || key.starts_with(INVENTORY) => {
                    query.uncounted.extend(self.inventory_nodes(key, question.node)?);
                    None
                }
                key => Some(self.known_value(key)?),
            };
            match value {
                Some(value) => query.found.push((key.clone(), value)),
                None => query.keys.push(key.clone()),
            }
        }
        if size(&query.found) > MAX_ANSWER {
            return Err(answer_limit(size(&query.found)));
        }
        if query.keys.is_empty() {
            return Ok(Some(Answer::Info(query.found)));
        }
        if self.controller.queries.of_node(question.node) >= MAX_QUERIES {
            let most = MAX_QUERIES;
            return Err(limit("queries of a node about others", most + 1, most));
        }
        let id = self.out.number();
        if query.keys.iter().any(|key| key == PROCESSES) {
            let hosts = self.members.alive().filter(|node| self.jobs.hosts_ranks(*node));
            query.silent = hosts.collect();
        }
        if query.silent.remove(&self.me) {
            query.take(self.own_processes());
        }
        for node in &query.silent {
            let (asker, what) = (question.by, ControllerRequest::Processes);
            self.out.send(*node, Message::Ask { id, asker, what });
        }
        self.gather(id, query);
        Ok(None)
    }

    /// The answer to a query that needs no report of another node.
    fn known_value(&self, key: &str) -> Result<Value, Error> {
        Ok(match key {
            "petasos.jobs" => {
                let names = self.jobs.iter().map(|job| job.map().spec().name.as_str().into());
                Value::List(names.collect())
            }
            "petasos.nodes" => self.node_list(),
            "petasos.published" => {
                let keys = self.controller.registry.keys().map(|key| key.as_str().into());
                Value::List(keys.collect())
            }
            "petasos.events.cached" => (self.events.count() as u64).into(),
            _ => {
                let value = self.jobs.first().and_then(|job| job.map().value(Proc::JOB, key));
                value.ok_or_else(|| Error::UnknownQuery(key.to_owned()))?
            }
        })
    }

    /// Waits for what nodes have not reported so far, and has measured what was not.
    fn gather(&mut self, id: u64, mut query: Query) {
        query.uncounted.retain(|node| !self.controller.inventories.has(*node));
        query.unmeasured.retain(|node| !self.controller.inventories.has_links(*node));
        let unmeasured = query.unmeasured.clone();
        let patience = if unmeasured.is_empty() { GATHER } else { MEASURE };
        self.controller.queries.0.insert(id, query);
        self.timers.set_after(patience, Timer::Query(id));
        for node in unmeasured {
            match node == self.me {
                true => self.measure_links(),
                false => self.send(node, Message::MeasureLinks),
            }
        }
        if self.controller.queries.is_complete(id) {
            self.finish_query(id);
        }
    }

    /// At the head node: finds out what all nodes have, and how long messages between them take;
    /// [`Output::Surveyed`] says that it is done.
    pub fn survey(&mut self, now: Time, links: bool) {
        self.advance(now);
        let alive: BTreeSet<Node> = self.members.alive().collect();
        let unmeasured = if links { alive.clone() } else { BTreeSet::new() };
        let id = self.out.number();
        self.gather(id, Query { uncounted: alive, unmeasured, ..Query::default() });
    }

    /// The nodes whose inventories a key asks for.
    fn inventory_nodes(&self, key: &str, asker: Node) -> Result<Vec<Node>, Error> {
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

    /// A node has reported, or will not.
    pub(super) fn report_came(&mut self, node: Node, what: Report) {
        for id in self.controller.queries.reported(node, what) {
            self.finish_query(id);
        }
    }

    fn node_list(&self) -> Value {
        let Some(job) = self.jobs.first() else { return Value::List(Vec::new()) };
        let line = |(at, node): (usize, &NodeInfo)| {
            let at = Node(at as u32);
            let state = match self.members.is_lost(at) {
                true => "lost",
                false if self.is_spare(at) => "spare",
                false => "up",
            };
            let ranks = job.map().ranks_on(at).len() as u64;
            Value::List(vec![at.0.into(), node.name.as_str().into(), ranks.into(), state.into()])
        };
        Value::List(job.map().spec().nodes.iter().enumerate().map(line).collect())
    }

    /// All nodes have reported, or their time is over: the query is answered.
    pub(super) fn finish_query(&mut self, id: u64) {
        let Some(mut query) = self.controller.queries.0.remove(&id) else { return };
        let mut bytes = query.bytes + size(&query.found);
        for key in std::mem::take(&mut query.keys) {
            let value = match key.as_str() {
                PROCESSES => Some(Value::List(std::mem::take(&mut query.procs))),
                MEMORY => {
                    let node = query.question.map(|question| question.node);
                    let memory = node.and_then(|node| self.controller.inventories.memory(node));
                    memory.map(Value::from)
                }
                LINKS => Some(links_value(self.controller.inventories.links())),
                INVENTORY => {
                    let (mut all, mut listed) = (Vec::new(), 0);
                    for value in self.members.alive().filter_map(|n| self.inventory_value(n)) {
                        listed += value.size();
                        if listed > MAX_ANSWER {
                            break;
                        }
                        all.push(value);
                    }
                    // What is not listed counts as well, so that the answer is refused below.
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
            query.found.push((key, value));
        }
        if let Some(question) = query.question.filter(|_| bytes > MAX_ANSWER) {
            return self.reply(question, Err(answer_limit(bytes)));
        }
        let silent = query.silent_nodes();
        query.found.extend(silent);
        match query.question {
            Some(question) => self.reply(question, Ok(Answer::Info(query.found))),
            None => self.out.push(Output::Surveyed),
        }
    }

    /// The processes of this node, each a list: job, rank, node, id in the system, state, and how
    /// often its rank was started again.
    pub(super) fn own_processes(&self) -> Info {
        let locals = self.jobs.locals().map(|(proc, local)| {
            let state = match local.termination() {
                Some(why) => why.to_string(),
                None if local.has_connected() => "connected".to_owned(),
                None if local.pid() != 0 => "running".to_owned(),
                None => "not started".to_owned(),
            };
            let node = self.ran_on(proc).unwrap_or(self.me);
            let line: Vec<Value> = vec![
                proc.job.0.into(),
                proc.rank.into(),
                node.0.into(),
                local.pid().into(),
                state.into(),
                self.restarts_of(proc).into(),
            ];
            (String::new(), Value::List(line))
        });
        locals.collect()
    }
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
