//! Events: which node and client gets which, and those kept for handlers that come later.

use super::{ClientId, Engine, Output, RequestId, jobs::Job};
use crate::message::{Message, Replacement};
use petasos_fabric::Time;
use petasos_pmix::{
    Error, Info, JobId, Node, Proc, Termination, Value,
    event::{Event, EventId, NO_CACHE, Range, takes},
    message::Answer,
    status,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// How many names of events are remembered, to recognise repeated ones.
const REMEMBERED: usize = 8192;
/// Ranks named in the event that a node is lost.
const NAMED: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Events {
    /// Past events, with the time when they came and whether they were for all nodes.
    cache: VecDeque<(Time, Event, bool)>,
    seen: BTreeSet<EventId>,
    seen_order: VecDeque<EventId>,
    /// How many handlers of this node are for each environment event.
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

    fn keep(&mut self, now: Time, event: Event, all: bool) {
        let no_cache = |(key, value): &(String, Value)| key == NO_CACHE && *value == true.into();
        if !event.info.iter().any(no_cache) {
            self.cache.push_back((now, event, all));
        }
    }

    /// Counts a handler for an environment event, or one less. True: it is the first, or was the
    /// last.
    fn count_handler(&mut self, code: i32, wanted: bool) -> bool {
        let count = self.wanted.entry(code).or_default();
        let before = *count;
        *count = if wanted { before + 1 } else { before.saturating_sub(1) };
        if wanted { before == 0 } else { *count == 0 }
    }

    fn expire(&mut self, now: Time, count: usize, age: Duration) {
        while self.cache.len() > count
            || self.cache.front().is_some_and(|(came, ..)| now.since(*came) > age)
        {
            self.cache.pop_front();
        }
    }

    /// The kept events that were for all nodes.
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
    /// A process raises an event.
    pub(super) fn notify(
        &mut self,
        source: Proc,
        code: i32,
        range: Range,
        non_default: bool,
        info: Info,
    ) -> Answer {
        let id = self.out.event_id();
        self.raise(Event { id, code, source, node: self.me, range, non_default, info });
        Answer::Notified(id)
    }

    /// An event of this node, or of one of its processes.
    pub(super) fn raise(&mut self, event: Event) {
        self.events.is_new(event.id);
        let local = matches!(event.range, Range::Local | Range::ProcLocal);
        if event.is_environment() && !local {
            match self.is_controller() {
                true => self.forward_interesting(&event, Node::HEAD),
                false => self.send(Node::HEAD, Message::Event { event: event.clone(), all: false }),
            }
            return self.take_event(event, false);
        }
        match &event.range {
            Range::ProcLocal => {}
            Range::Local => self.take_event(event, false),
            Range::Rm if self.is_controller() => self.out.push(Output::Heard(event)),
            Range::Rm => self.send(Node::HEAD, Message::Event { event, all: false }),
            Range::Custom(group) => {
                let mut nodes = self.jobs.nodes_of(group);
                nodes.remove(&self.me);
                for node in nodes {
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

    /// At the controller: sends an environment event to the nodes that want it.
    fn forward_interesting(&mut self, event: &Event, from: Node) {
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
        } else if self.is_controller() && event.is_environment() {
            self.forward_interesting(&event, from);
        }
        self.take_event(event, all);
    }

    /// Delivers an event to the clients of this node, and keeps it for handlers that come later.
    fn take_event(&mut self, event: Event, all: bool) {
        if self.is_controller() {
            self.out.push(Output::Heard(event.clone()));
        }
        for client in self.clients.handling(&event, |proc| self.is_for(&event, proc)) {
            self.out.push(Output::Deliver { client, event: event.clone(), only: None });
        }
        self.events.keep(self.now(), event, all);
        self.expire_events();
    }

    fn expire_events(&mut self) {
        let (count, age) = (self.config.cached_events, self.config.cached_for);
        self.events.expire(self.timers.now(), count, age);
    }

    /// Whether an event that has come to this node is for a process here. The source has run its
    /// own handlers; tools see all events.
    fn is_for(&self, event: &Event, proc: Proc) -> bool {
        event.source != proc && (proc.job == JobId::TOOLS || event.concerns(proc, self.me))
    }

    /// A client registers a handler. The answer goes first, and then the events kept for the
    /// handler.
    pub(super) fn register(
        &mut self,
        client: ClientId,
        id: RequestId,
        handler: u64,
        codes: Vec<i32>,
    ) -> Result<Option<Answer>, Error> {
        let Some(proc) = self.clients.proc_of(client) else { return Ok(None) };
        self.clients.add_handler(client, handler, codes.clone())?;
        self.want(&codes, true);
        self.out.answer(client, id, Ok(Answer::Done));
        self.expire_events();
        let kept = self.events.cache.iter().map(|(_, event, _)| event);
        let kept: Vec<Event> = kept
            .filter(|event| takes(&codes, event) && self.is_for(event, proc))
            .cloned()
            .collect();
        for event in kept {
            self.out.push(Output::Deliver { client, event, only: Some(handler) });
        }
        Ok(None)
    }

    pub(super) fn deregister(&mut self, client: ClientId, handler: u64) -> Result<Answer, Error> {
        let codes = self.clients.remove_handler(client, handler);
        let codes = codes.ok_or(Error::UnknownHandler(handler))?;
        self.want(&codes, false);
        Ok(Answer::Done)
    }

    /// Counts handlers for environment events, and tells the controller of the first and the last.
    pub(super) fn want(&mut self, codes: &[i32], wanted: bool) {
        for code in codes.iter().copied().filter(|code| status::is_environment(*code)) {
            if !self.events.count_handler(code, wanted) {
                continue;
            }
            match self.is_controller() {
                true => self.interest(Node::HEAD, code, wanted),
                false => self.send(Node::HEAD, Message::Interest { code, wanted }),
            }
        }
    }

    /// Raises an event of the daemons. It reaches handlers for its code, and no default handler:
    /// those of some MPIs end the program, whatever the event.
    pub fn announce(&mut self, now: Time, code: i32, range: Range, info: Info) {
        self.advance(now);
        let Some(job) = self.jobs.first().map(Job::id) else { return };
        let (id, source) = (self.out.event_id(), Proc::new(job, Proc::JOB));
        self.raise(Event { id, code, source, node: self.me, range, non_default: true, info });
    }

    /// A process of this node has failed.
    pub(super) fn announce_failure(&mut self, proc: Proc, why: &Termination) {
        let id = self.out.event_id();
        let mut info: Info = vec![
            ("pmix.rank".to_owned(), proc.rank.into()),
            ("pmix.nodeid".to_owned(), self.me.0.into()),
            ("petasos.restarts".to_owned(), self.restarts_of(proc).into()),
            ("petasos.why".to_owned(), why.to_string().into()),
        ];
        if let Termination::Exited(code) = why {
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
        let host = self.jobs.get(source.job).and_then(|job| job.host(self.me)).unwrap_or("");
        let info: Info = vec![
            ("pmix.rank".to_owned(), source.rank.into()),
            ("pmix.nodeid".to_owned(), self.me.0.into()),
            ("pmix.hname".to_owned(), host.into()),
            ("petasos.restarts".to_owned(), restarts.into()),
        ];
        let (id, code, range) = (self.out.event_id(), status::PROC_RESTARTED, Range::Namespace);
        self.raise(Event { id, code, source, node: self.me, range, non_default: true, info });
    }

    /// A node is lost. Each node raises these events for itself, so they are not sent.
    pub(super) fn announce_lost(&mut self, node: Node) {
        let event = |number, code, job, range, info| {
            let (id, source) = (EventId { node, number }, Proc::new(job, Proc::JOB));
            Event { id, code, source, node, range, non_default: false, info }
        };
        let mut events = Vec::new();
        let mut first = None;
        for job in self.jobs.iter() {
            let ranks = job.map().ranks_on(node);
            let name = job.host(node).unwrap_or("");
            let mut info: Info = vec![
                ("pmix.nodeid".to_owned(), node.0.into()),
                ("pmix.hname".to_owned(), name.into()),
                ("petasos.why".to_owned(), Termination::NodeLost.to_string().into()),
            ];
            first.get_or_insert_with(|| (job.id(), info.clone()));
            if !ranks.is_empty() {
                let ranks = ranks.iter().take(NAMED).map(|rank| (*rank).into()).collect();
                info.push(("petasos.ranks".to_owned(), Value::List(ranks)));
                let number = EventId::LOSS - 1 - u64::from(job.id().0);
                let code = status::PROC_ABORTED;
                events.push(event(number, code, job.id(), Range::Namespace, info));
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

    /// A node took the place of another. Each node raises these events for itself, too.
    pub(super) fn announce_replaced(&mut self, what: &Replacement) {
        let mut events = Vec::new();
        for job in self.jobs.iter() {
            let of_job = |again: &&(Proc, u32)| again.0.job == job.id();
            let again = what.again.iter().filter(of_job).take(NAMED);
            let again: Vec<Value> = again.map(|(proc, _)| proc.rank.into()).collect();
            if again.is_empty() {
                continue;
            }
            let name = |node| job.host(node).unwrap_or("");
            let info: Info = vec![
                ("pmix.nodeid".to_owned(), what.by.0.into()),
                ("pmix.hname".to_owned(), name(what.by).into()),
                ("petasos.nodeid.before".to_owned(), what.node.0.into()),
                ("petasos.hname.before".to_owned(), name(what.node).into()),
                ("petasos.ranks".to_owned(), Value::List(again)),
            ];
            let id = EventId { node: what.node, number: EventId::REPLACED - u64::from(job.id().0) };
            let (code, source) = (status::NODE_REPLACED, Proc::new(job.id(), Proc::JOB));
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
