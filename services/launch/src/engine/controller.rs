//! The controller, the engine of the head node, and the questions that all engines have for it.

use super::{
    ClientId, Engine, Output, RequestId, clients::Waiting, inventory::Inventories,
    premature::Premature, published::Registry, queries::Queries, requests::check_keys,
};
use crate::message::{ControllerRequest, Message};
use petasos_pmix::{Error, Missing, Node, Proc, message::Answer};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long the controller may take to answer what it need not wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The state of the controller; empty on all other nodes.
#[derive(Debug, Default)]
pub(super) struct Controller {
    pub(super) registry: Registry,
    pub(super) queries: Queries,
    pub(super) inventories: Inventories,
    pub(super) premature: Premature,
    interest: Interest,
}

/// The nodes that want each environment event.
#[derive(Debug, Default)]
struct Interest(BTreeMap<i32, BTreeSet<Node>>);

impl Interest {
    /// True: the node did not want it before.
    fn add(&mut self, code: i32, node: Node) -> bool {
        self.0.entry(code).or_default().insert(node)
    }

    fn remove(&mut self, code: i32, node: Node) {
        if let Some(nodes) = self.0.get_mut(&code) {
            nodes.remove(&node);
        }
    }

    fn forget(&mut self, node: Node) {
        self.0.values_mut().for_each(|nodes| {
            nodes.remove(&node);
        });
    }

    fn of(&self, code: i32) -> Vec<Node> {
        self.0.get(&code).into_iter().flatten().copied().collect()
    }
}

/// A question, and where the answer goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) by: Proc,
    pub(super) node: Node,
    pub(super) id: u64,
}

impl Engine {
    /// Asks the controller on behalf of a client.
    pub(super) fn ask_controller(
        &mut self,
        client: ClientId,
        id: RequestId,
        asker: Proc,
        what: ControllerRequest,
        longer: Option<Duration>,
    ) -> Result<Option<Answer>, Error> {
        let question = self.out.number();
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
        let patience = PATIENCE.saturating_add(longer.unwrap_or_default());
        self.wait(client, id, Some(patience), Waiting::Controller { question, what: name });
        self.clients.ask(question, client, id);
        match self.is_controller() {
            true => self.question_came(Node::HEAD, question, asker, what),
            false => self.send(Node::HEAD, Message::Ask { id: question, asker, what }),
        }
        Ok(None)
    }

    /// A question came: for the controller, or one that any node answers.
    pub(super) fn question_came(
        &mut self,
        from: Node,
        id: u64,
        asker: Proc,
        what: ControllerRequest,
    ) {
        let question = Question { by: asker, node: from, id };
        let result = match what {
            ControllerRequest::Processes => Ok(Some(Answer::Info(self.own_processes()))),
            _ if !self.is_controller() => return,
            ControllerRequest::Publish(what) => self.publish(question, what).map(Some),
            ControllerRequest::Unpublish(keys) => check_keys(&keys).map(|()| {
                self.controller.registry.unpublish(asker, &keys);
                Some(Answer::Done)
            }),
            ControllerRequest::Lookup { keys, wait, least, within } => distinct(keys)
                .and_then(|keys| self.look_up(question, within, keys, wait, least as usize)),
            ControllerRequest::Query(keys) => {
                distinct(keys).and_then(|keys| self.query(question, &keys))
            }
            ControllerRequest::Abort { status, message } => {
                self.out.push(Output::Abort { by: asker, status, message });
                Ok(Some(Answer::Done))
            }
            ControllerRequest::Restart { proc, after } => self.restart_asked(question, proc, after),
            ControllerRequest::Replace(node) => self.replace_asked(question, node),
            ControllerRequest::Signal { group, signal } => {
                self.signal_asked(group, signal).map(Some)
            }
        };
        match result {
            Ok(None) => {}
            Ok(Some(answer)) => self.reply(question, Ok(answer)),
            Err(error) => self.reply(question, Err(error)),
        }
    }

    /// Answers a question.
    pub(super) fn reply(&mut self, question: Question, result: Result<Answer, Error>) {
        match question.node == self.me {
            true => self.answer_came(self.me, question.id, result),
            false => self.send(question.node, Message::Answer { id: question.id, result }),
        }
    }

    /// The controller answers a question, or (at the controller) a node answers a query.
    pub(super) fn answer_came(&mut self, from: Node, id: u64, result: Result<Answer, Error>) {
        if self.controller.queries.is_open(id) {
            if self.controller.queries.answered(id, from, result) {
                self.finish_query(id);
            }
        } else if let Some((client, request)) = self.clients.take_question(id) {
            self.answer(client, request, result);
        }
    }

    /// Processes that should have connected have not.
    pub(super) fn never_connected(&mut self, missing: Missing) {
        match self.is_controller() {
            true => self.out.push(Output::NeverConnected(missing)),
            false => self.send(Node::HEAD, Message::NeverConnected(missing)),
        }
    }

    /// A node wants an environment event from now on, or no longer.
    pub(super) fn interest(&mut self, from: Node, code: i32, wanted: bool) {
        if !wanted {
            self.controller.interest.remove(code, from);
        } else if self.controller.interest.add(code, from) && from != self.me {
            for event in self.events.cached_of(code) {
                self.send(from, Message::Event { event, all: false });
            }
        }
    }

    /// The nodes that want an environment event.
    pub(super) fn interested(&self, code: i32) -> Vec<Node> {
        self.controller.interest.of(code)
    }

    /// A node is lost: it is not waited for, and what its processes published is dropped.
    pub(super) fn controller_without(&mut self, node: Node) {
        self.controller.interest.forget(node);
        self.controller.registry.forget_node(node);
        self.controller.inventories.remove(node);
        for id in self.controller.queries.node_lost(node) {
            self.finish_query(id);
        }
    }
}

/// These keys, each named once.
fn distinct(mut keys: Vec<String>) -> Result<Vec<String>, Error> {
    check_keys(&keys)?;
    let mut named = BTreeSet::new();
    keys.retain(|key| named.insert(key.clone()));
    Ok(keys)
}
