//! Events on their way: who gets which, and what is kept for those who come later.

use super::{ClientId, Engine, Output, RequestId};
use crate::{
    error::Error,
    event::{Event, EventId, NO_CACHE, Range, takes},
    message::{Answer, Message, Replacement},
    names::{Group, JobId, Node, Proc},
    status,
    value::{Info, Value},
};
use petasos_fabric::Time;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Handlers of one client.
const MAX_HANDLERS: usize = 1024;
/// How many names of events are remembered, to know them again.
const REMEMBERED: usize = 8192;
/// Ranks named in the event that a node is lost.
const NAMED: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Events {
    /// Past events, with when they came and whether they were for all nodes.
    cache: VecDeque<(Time, Event, bool)>,
    seen: BTreeSet<EventId>,
    seen_order: VecDeque<EventId>,
    /// How many handlers here are for an environment event.
    wanted: BTreeMap<i32, usize>,
}

impl Events {
    fn is_new(&mut self, id: EventId) -> bool {
        if !self.seen.insert(id) {
            return false;
        }
        self.seen_order.push_back(id);
        if self.seen_order.len() > REMEMBERED
            && let Some(oldest) = self.seen_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }

    fn expire(&mut self, now: Time, count: usize, age: Duration) {
        while self.cache.len() > count
            || self.cache.front().is_some_and(|(came, ..)| now.since(*came) > age)
        {
            self.cache.pop_front();
        }
    }

    /// What was for all nodes, of what is kept.
    pub(super) fn for_all(&self) -> Vec<Event> {
        self.cache.iter().filter(|(.., all)| *all).map(|(_, event, _)| event.clone()).collect()
    }

    pub(super) fn cached_of(&self, code: i32) -> Vec<Event> {
        let matching = self.cache.iter().filter(|(_, event, _)| event.code == code);
        matching.map(|(_, event, _)| event.clone()).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.cache.len()
    }
}

impl Engine {
    /// A process tells of an event.
    pub(super) fn notify(
        &mut self,
        source: Proc,
        code: i32,
        range: Range,
        non_default: bool,
        info: Info,
    ) -> Answer {
        let id = self.event_id();
        self.raise(Event { id, code, source, node: self.me, range, non_default, info });
        Answer::Notified(id)
    }

    /// Something happened here, or at a process of this node.
    pub(super) fn raise(&mut self, event: Event) {
        self.events.is_new(event.id);
        let local = matches!(event.range, Range::Local | Range::ProcLocal);
        if event.is_environment() && !local {
            match self.me == Node::HEAD {
                true => self.tell_interested(&event, Node::HEAD),
                false => self.send(Node::HEAD, Message::Event { event: event.clone(), all: false }),
            }
            return self.take_event(event, false);
        }
        match &event.range {
            Range::ProcLocal => {}
            Range::Local => self.take_event(event, false),
            Range::Rm if self.me == Node::HEAD => self.out.push_back(Output::Heard(event)),
            Range::Rm => self.send(Node::HEAD, Message::Event { event, all: false }),
            Range::Custom(group) => {
                let nodes = self.nodes_of(group);
                let me = self.me;
                for node in nodes.into_iter().filter(|node| *node != me) {
                    self.send(node, Message::Event { event: event.clone(), all: false });
                }
                self.take_event(event, false);
            }
            Range::Namespace | Range::Session | Range::Global => {
                self.spread(&Message::Event { event: event.clone(), all: true }, None);
                self.take_event(event, true);
            }
        }
    }

    /// Where the processes of a group are, as far as they exist: a client may name any.
    fn nodes_of(&self, group: &Group) -> BTreeSet<Node> {
        let mut nodes = BTreeSet::new();
        for span in group.spans() {
            let Some(job) = self.jobs.get(&span.job) else { continue };
            let end = span.last.saturating_add(1).min(job.map.size());
            nodes.extend((span.first..end).filter_map(|rank| job.map.node_of(rank)));
        }
        nodes
    }

    /// At the head: an environment event goes where it is wanted.
    fn tell_interested(&mut self, event: &Event, from: Node) {
        for node in self.interested(event.code) {
            if node != from && node != self.me {
                self.send(node, Message::Event { event: event.clone(), all: false });
            }
        }
    }

    pub(super) fn event_came(&mut self, from: Node, event: Event, all: bool) {
        if !self.events.is_new(event.id) {
            return;
        }
        if all {
            self.spread(&Message::Event { event: event.clone(), all }, Some(from));
        } else if self.me == Node::HEAD && event.is_environment() {
            self.tell_interested(&event, from);
        }
        self.take_event(event, all);
    }

    /// Tells the clients here, and keeps it for those who come later.
    fn take_event(&mut self, event: Event, all: bool) {
        if self.me == Node::HEAD {
            self.out.push_back(Output::Heard(event.clone()));
        }
        let told: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, client)| {
                client.proc.is_some_and(|proc| self.is_for(&event, proc))
                    && client.handlers.values().any(|codes| takes(codes, &event))
            })
            .map(|(id, _)| *id)
            .collect();
        for client in told {
            self.out.push_back(Output::Deliver { client, event: event.clone(), only: None });
        }
        if event.info.iter().any(|(key, value)| key == NO_CACHE && *value == Value::Bool(true)) {
            return;
        }
        let (count, age) = (self.config.cached_events, self.config.cached_for);
        self.events.cache.push_back((self.now, event, all));
        self.events.expire(self.now, count, age);
    }

    /// Whether an event that has come to this node is for a process here. The source has run its
    /// own handlers; commands that look on see all.
    fn is_for(&self, event: &Event, proc: Proc) -> bool {
        event.source != proc && (proc.job == JobId::TOOLS || event.concerns(proc, self.me))
    }

    /// A client has a handler. It is told so first, and then gets what was kept for it.
    pub(super) fn register(
        &mut self,
        client: ClientId,
        id: RequestId,
        handler: u64,
        codes: Vec<i32>,
    ) -> Result<Option<Answer>, Error> {
        let Some(known) = self.clients.get_mut(&client) else { return Ok(None) };
        let Some(proc) = known.proc else { return Ok(None) };
        if known.handlers.contains_key(&handler) {
            return Err(Error::Registration(format!("{handler} is registered already")));
        }
        if known.handlers.len() >= MAX_HANDLERS {
            let asked = MAX_HANDLERS + 1;
            return Err(super::requests::limit("event handlers", asked, MAX_HANDLERS));
        }
        known.handlers.insert(handler, codes.clone());
        self.want(&codes, true);
        self.out.push_back(Output::Answer { client, id, result: Ok(Answer::Done) });
        self.events.expire(self.now, self.config.cached_events, self.config.cached_for);
        let kept = self.events.cache.iter().map(|(_, event, _)| event);
        let kept: Vec<Event> = kept
            .filter(|event| takes(&codes, event) && self.is_for(event, proc))
            .cloned()
            .collect();
        for event in kept {
            self.out.push_back(Output::Deliver { client, event, only: Some(handler) });
        }
        Ok(None)
    }

    pub(super) fn deregister(&mut self, client: ClientId, handler: u64) -> Result<Answer, Error> {
        let known = self.clients.get_mut(&client);
        let codes = known.and_then(|known| known.handlers.remove(&handler));
        let codes = codes.ok_or(Error::UnknownHandler(handler))?;
        self.want(&codes, false);
        Ok(Answer::Done)
    }

    /// Counts who is here for environment events, and tells the head of the first and the last.
    pub(super) fn want(&mut self, codes: &[i32], wanted: bool) {
        for code in codes.iter().copied().filter(|code| status::is_environment(*code)) {
            let count = self.events.wanted.entry(code).or_default();
            let before = *count;
            *count = if wanted { before + 1 } else { before.saturating_sub(1) };
            let changed = if wanted { before == 0 } else { *count == 0 };
            if !changed {
                continue;
            }
            match self.me == Node::HEAD {
                true => self.interest(Node::HEAD, code, wanted),
                false => self.send(Node::HEAD, Message::Interest { code, wanted }),
            }
        }
    }

    /// The daemons tell of something those who register for it by its code: default handlers of some MPIs
    /// end the program, whatever the event.
    pub fn announce(&mut self, now: Time, code: i32, range: Range, info: Info) {
        self.advance(now);
        let Some(job) = self.jobs.keys().next().copied() else { return };
        let (id, source) = (self.event_id(), Proc::new(job, Proc::JOB));
        self.raise(Event { id, code, source, node: self.me, range, non_default: true, info });
    }

    /// A process of this node is gone, not as it should be.
    pub(super) fn announce_gone(&mut self, proc: Proc, why: &crate::Termination) {
        let id = self.event_id();
        let mut info: Info = vec![
            ("pmix.rank".to_owned(), proc.rank.into()),
            ("pmix.nodeid".to_owned(), self.me.0.into()),
            ("petasos.restarts".to_owned(), self.restarts_of(proc).into()),
            ("petasos.why".to_owned(), why.to_string().into()),
        ];
        if let crate::Termination::Exited(code) = why {
            info.push(("pmix.exit.code".to_owned(), (*code).into()));
        }
        let (code, source, range) = (status::PROC_ABORTED, proc, Range::Namespace);
        self.raise(Event { id, code, source, node: self.me, range, non_default: false, info });
    }

    /// A process of this node was started, perhaps not for the first time.
    pub(super) fn announce_restart(&mut self, source: Proc) {
        let restarts = self.restarts_of(source);
        if restarts == 0 {
            return;
        }
        let host = self.jobs.get(&source.job).and_then(|job| job.map.node(self.me));
        let host = host.map_or("", |node| node.name.as_str());
        let info: Info = vec![
            ("pmix.rank".to_owned(), source.rank.into()),
            ("pmix.nodeid".to_owned(), self.me.0.into()),
            ("pmix.hname".to_owned(), host.into()),
            ("petasos.restarts".to_owned(), restarts.into()),
        ];
        let (id, code, range) = (self.event_id(), status::PROC_RESTARTED, Range::Namespace);
        self.raise(Event { id, code, source, node: self.me, range, non_default: true, info });
    }

    /// A node is lost. Everybody hears of that by himself, so that these events go nowhere.
    pub(super) fn announce_lost(&mut self, node: Node) {
        let event = |number, code, job, range, info| {
            let (id, source) = (EventId { node, number }, Proc::new(job, Proc::JOB));
            Event { id, code, source, node, range, non_default: false, info }
        };
        let mut events = Vec::new();
        let mut first = None;
        for (job, state) in &self.jobs {
            let ranks = state.map.ranks_on(node);
            let name = state.map.node(node).map_or("", |node| node.name.as_str());
            let mut info: Info = vec![
                ("pmix.nodeid".to_owned(), node.0.into()),
                ("pmix.hname".to_owned(), name.into()),
                ("petasos.why".to_owned(), crate::Termination::NodeLost.to_string().into()),
            ];
            first.get_or_insert_with(|| (*job, info.clone()));
            if !ranks.is_empty() {
                let ranks = ranks.iter().take(NAMED).map(|rank| (*rank).into()).collect();
                info.push(("petasos.ranks".to_owned(), Value::List(ranks)));
                let number = EventId::LOSS - 1 - u64::from(job.0);
                events.push(event(number, status::PROC_ABORTED, *job, Range::Namespace, info));
            }
        }
        if let Some((job, info)) = first {
            events.push(event(EventId::LOSS, status::NODE_DOWN, job, Range::Session, info));
        }
        for event in events {
            if self.events.is_new(event.id) {
                self.take_event(event, false);
            }
        }
    }

    /// A node took the place of another. Everybody hears of that by himself, too.
    pub(super) fn announce_replaced(&mut self, what: &Replacement) {
        let mut events = Vec::new();
        for (job, state) in &self.jobs {
            let again = what.again.iter().filter(|(proc, _)| proc.job == *job).take(NAMED);
            let again: Vec<Value> = again.map(|(proc, _)| proc.rank.into()).collect();
            if again.is_empty() {
                continue;
            }
            let name = |node| state.map.node(node).map_or("", |node| node.name.as_str());
            let info: Info = vec![
                ("pmix.nodeid".to_owned(), what.by.0.into()),
                ("pmix.hname".to_owned(), name(what.by).into()),
                ("petasos.nodeid.before".to_owned(), what.node.0.into()),
                ("petasos.hname.before".to_owned(), name(what.node).into()),
                ("petasos.ranks".to_owned(), Value::List(again)),
            ];
            let id = EventId { node: what.node, number: EventId::REPLACED - u64::from(job.0) };
            let (code, source) = (status::NODE_REPLACED, Proc::new(*job, Proc::JOB));
            let (node, range, non_default) = (what.by, Range::Namespace, true);
            events.push(Event { id, code, source, node, range, non_default, info });
        }
        for event in events {
            if self.events.is_new(event.id) {
                self.take_event(event, false);
            }
        }
    }
}
