//! The event handlers of a process, and the chain that an event runs through.
//!
//! An event gathers the handlers whose codes (and sources) match, and runs them one after the
//! other: the one *first* handler; those with a single code; those with several; the default
//! ones, unless the event is for others only; the one *last* handler. Within a category the newest
//! comes first, unless a handler says otherwise. Each sees what those before it returned, and may
//! end the chain; then the last one is not run either.
//!
//! A state machine: [`Handlers::gather`] makes a [`Run`], [`Handlers::next`] names the handler to
//! call, [`Run::completed`] takes its result.
//!
//! ```
//! use petasos_fabric::Time;
//! use petasos_pmix::{
//!     JobId, Node, Proc,
//!     chain::{Handlers, Registration, Returned},
//!     event::{Event, EventId, Range},
//!     status,
//! };
//!
//! let me = Proc::new(JobId(0), 0);
//! let mut handlers = Handlers::new(me, Node(0));
//! let codes = vec![status::PROC_ABORTED];
//! let id = handlers.add(Registration { codes, ..Registration::default() })?;
//! handlers.activate(id, Time::ZERO);
//!
//! let event = Event {
//!     id: EventId { node: Node(1), number: 1 },
//!     code: status::PROC_ABORTED,
//!     source: Proc::new(JobId(0), 1),
//!     node: Node(1),
//!     range: Range::Namespace,
//!     non_default: false,
//!     info: Vec::new(),
//! };
//! let mut run = handlers.gather(event, None);
//! while let Some((id, name)) = handlers.next(&mut run) {
//!     // Call the handler here.
//!     let (status, info) = (status::SUCCESS, Vec::new());
//!     run.completed(Returned { id, name, status, info });
//! }
//! assert_eq!(run.returned.len(), 1);
//! # Ok::<(), petasos_pmix::Error>(())
//! ```

use crate::{
    error::Error,
    event::{Event, Range, takes},
    names::{Node, Proc},
    status,
    value::Info,
};
use petasos_fabric::Time;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// The position of a handler in its category.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Position {
    /// Before those that are registered already.
    #[default]
    Prepend,
    /// After those that are registered already.
    Append,
    /// Before this one, where both are in the chain.
    Before(Which),
    /// After this one, where both are in the chain.
    After(Which),
    /// Before all others of all categories; there can be one such.
    First,
    /// After all others of all categories; there can be one such.
    Last,
}

/// Names another handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// By its name.
    Name(String),
    /// By its number, which its registration gave.
    Id(u64),
}

/// How a handler is registered. The default is a default handler, before those that are registered
/// already, for events of all sources.
///
/// ```
/// use petasos_pmix::{chain::{Position, Registration}, status};
///
/// let first = Registration {
///     name: Some("checkpoint".to_owned()),
///     codes: vec![status::PREEMPTED],
///     position: Position::First,
///     ..Registration::default()
/// };
/// assert!(!first.once);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// Its name, for handlers that are placed before or after it, and for its results.
    pub name: Option<String>,
    /// The codes of its events; none: a default handler.
    pub codes: Vec<i32>,
    /// Its position in the chain.
    pub position: Position,
    /// Whether it is removed after its first call.
    pub once: bool,
    /// The sources of its events: the processes that an event of this range from this process would
    /// reach ([`Range::Rm`]: the daemons); `None`: all.
    pub sources: Option<Range>,
}

/// What a handler returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Returned {
    /// The number of the handler.
    pub id: u64,
    /// Its name.
    pub name: Option<String>,
    /// Its status: [`status::ACTION_COMPLETE`] ends the chain.
    pub status: i32,
    /// Results.
    pub info: Info,
}

/// An event on its way through the chain.
#[derive(Debug)]
pub struct Run {
    /// The event.
    pub event: Event,
    /// The results of the handlers called so far, in order.
    pub returned: Vec<Returned>,
    queue: VecDeque<u64>,
}

impl Run {
    /// The handler that was called last is done.
    pub fn completed(&mut self, returned: Returned) {
        if returned.status == status::ACTION_COMPLETE {
            self.queue.clear();
        }
        self.returned.push(returned);
    }
}

#[derive(Debug)]
struct Handler {
    with: Registration,
    /// Its registration is complete.
    active: bool,
}

/// The handlers of a process.
#[derive(Debug)]
pub struct Handlers {
    me: Proc,
    node: Node,
    next: u64,
    handlers: BTreeMap<u64, Handler>,
    /// Events of this process itself, which its daemon does not send back, kept for later handlers.
    own: VecDeque<(Time, Event)>,
}

/// How many of its own events a process keeps for later handlers, and for how long.
const KEPT: usize = 512;
const KEPT_FOR: Duration = Duration::from_secs(120);

impl Handlers {
    /// No handlers yet, of this process.
    #[must_use]
    pub fn new(me: Proc, node: Node) -> Handlers {
        let (handlers, own) = (BTreeMap::new(), VecDeque::new());
        Handlers { me, node, next: 1, handlers, own }
    }

    /// Begins to register a handler, and gives its number. It is called only after
    /// [`Handlers::activate`].
    ///
    /// # Errors
    /// [`Error::Registration`] if there is a first (or last) handler already.
    pub fn add(&mut self, with: Registration) -> Result<u64, Error> {
        let taken =
            |position: &Position| self.handlers.values().any(|h| h.with.position == *position);
        for (position, name) in [(Position::First, "first"), (Position::Last, "last")] {
            if with.position == position && taken(&position) {
                return Err(Error::Registration(format!("there is a {name} handler already")));
            }
        }
        let id = self.next;
        self.next += 1;
        self.handlers.insert(id, Handler { with, active: false });
        Ok(id)
    }

    /// Completes a registration, and gives the events of this process itself that it has missed.
    pub fn activate(&mut self, id: u64, now: Time) -> Vec<Event> {
        let Some(handler) = self.handlers.get_mut(&id) else { return Vec::new() };
        handler.active = true;
        self.expire(now);
        let matching = |event: &&Event| self.matches(id, event);
        self.own.iter().map(|(_, event)| event).filter(matching).cloned().collect()
    }

    /// Removes a handler.
    ///
    /// # Errors
    /// [`Error::UnknownHandler`].
    pub fn remove(&mut self, id: u64) -> Result<(), Error> {
        self.handlers.remove(&id).map(|_| ()).ok_or(Error::UnknownHandler(id))
    }

    /// Keeps an event of this process itself for later handlers.
    pub fn keep(&mut self, event: &Event, now: Time) {
        self.own.push_back((now, event.clone()));
        self.expire(now);
    }

    fn expire(&mut self, now: Time) {
        while self.own.len() > KEPT
            || self.own.front().is_some_and(|(made, _)| now.since(*made) > KEPT_FOR)
        {
            self.own.pop_front();
        }
    }

    fn matches(&self, id: u64, event: &Event) -> bool {
        let Some(handler) = self.handlers.get(&id).filter(|handler| handler.active) else {
            return false;
        };
        let from = match &handler.with.sources {
            None => true,
            Some(Range::Rm) => event.source.rank == Proc::JOB,
            Some(range) => range.covers(self.me, self.node, event.source, event.node),
        };
        from && takes(&handler.with.codes, event)
    }

    /// Begins the chain of an event; `only`: with this handler alone, which is newer than the
    /// event.
    #[must_use]
    pub fn gather(&self, event: Event, only: Option<u64>) -> Run {
        let matching = self
            .handlers
            .keys()
            .copied()
            .filter(|id| only.is_none_or(|only| only == *id) && self.matches(*id, &event));
        let (mut single, mut multi, mut default) = (Vec::new(), Vec::new(), Vec::new());
        let (mut first, mut last) = (None, None);
        for id in matching {
            let with = &self.handlers[&id].with;
            match (&with.position, with.codes.len()) {
                (Position::First, _) => first = Some(id),
                (Position::Last, _) => last = Some(id),
                (_, 0) => default.push(id),
                (_, 1) => single.push(id),
                _ => multi.push(id),
            }
        }
        let mut queue: VecDeque<u64> = first.into_iter().collect();
        for category in [single, multi, default] {
            queue.extend(self.order(category));
        }
        queue.extend(last);
        Run { event, returned: Vec::new(), queue }
    }

    /// The order within a category, of handlers in the order of their registration.
    fn order(&self, ids: Vec<u64>) -> VecDeque<u64> {
        let mut order = VecDeque::new();
        let mut relative: Vec<u64> = Vec::new();
        for id in &ids {
            match self.handlers[id].with.position {
                Position::Before(_) | Position::After(_) => relative.push(*id),
                Position::Append => order.push_back(*id),
                _ => order.push_front(*id),
            }
        }
        while !relative.is_empty() {
            let before = relative.len();
            relative.retain(|id| {
                let (Position::Before(which) | Position::After(which)) =
                    &self.handlers[id].with.position
                else {
                    return false;
                };
                let Some(at) = order.iter().position(|other| self.is(*other, which)) else {
                    return true;
                };
                let after = matches!(self.handlers[id].with.position, Position::After(_));
                order.insert(at + usize::from(after), *id);
                false
            });
            if relative.len() == before {
                // The handlers that are left refer to one that is not in this chain, or to each
                // other: the oldest such handler is placed as without the reference.
                let wanted = |id: &u64| {
                    let (Position::Before(which) | Position::After(which)) =
                        &self.handlers[id].with.position
                    else {
                        return false;
                    };
                    relative.iter().any(|other| other != id && self.is(*other, which))
                };
                let at = relative.iter().position(|id| !wanted(id)).unwrap_or(0);
                order.push_front(relative.remove(at));
            }
        }
        order
    }

    fn is(&self, id: u64, which: &Which) -> bool {
        match which {
            Which::Id(wanted) => *wanted == id,
            Which::Name(name) => self.handlers[&id].with.name.as_ref() == Some(name),
        }
    }

    /// The handler to call next, with its name. One that is called once is removed by this, and one
    /// that was removed meanwhile is skipped.
    pub fn next(&mut self, run: &mut Run) -> Option<(u64, Option<String>)> {
        while let Some(id) = run.queue.pop_front() {
            let Some(handler) = self.handlers.get(&id) else { continue };
            let (name, once) = (handler.with.name.clone(), handler.with.once);
            if once {
                self.handlers.remove(&id);
            }
            return Some((id, name));
        }
        None
    }

    /// Whether there is such a handler.
    #[must_use]
    pub fn has(&self, id: u64) -> bool {
        self.handlers.contains_key(&id)
    }
}
