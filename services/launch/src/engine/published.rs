//! Published data at the controller, and lookups: at once, or waiting for what is published later.

use super::{
    Engine,
    controller::Question,
    queries::{MAX_ANSWER, answer_limit},
    requests::{LONGEST, check_entry, limit},
    timers::{Timer, Timers},
};
use petasos_fabric::Time;
use petasos_pmix::{
    Error, Node, Proc, Value,
    event::Range,
    message::{Answer, Persistence, Published},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Keys that are published at a time.
const MAX_PUBLISHED: usize = 1 << 16;
/// Keys that lookups of one node wait for, in all.
const MAX_AWAITED: usize = 1 << 14;

/// What is published, and the lookups that wait for more.
#[derive(Debug, Default)]
pub(super) struct Registry {
    published: BTreeMap<String, Entry>,
    /// In the order in which they came.
    lookups: BTreeMap<u64, Lookup>,
    /// How many keys the lookups of each node wait for.
    awaited: BTreeMap<Node, usize>,
    /// When the next lookup expires, if a timer is set for that.
    timer: Option<Time>,
}

#[derive(Debug)]
struct Entry {
    what: Published,
    owner: Proc,
    node: Node,
}

#[derive(Debug)]
struct Lookup {
    question: Question,
    keys: Vec<String>,
    /// Only what one of these has published.
    within: Range,
    /// How many keys are enough.
    least: usize,
    until: Time,
}

type Found = Vec<(String, Value, Proc)>;

impl Registry {
    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        self.published.keys()
    }

    fn publish(&mut self, by: Question, what: Published) -> Result<(), Error> {
        check_entry(&what.key, &what.value)?;
        if self.published.contains_key(&what.key) {
            return Err(Error::Published(what.key));
        }
        if self.published.len() >= MAX_PUBLISHED {
            return Err(limit("published keys", MAX_PUBLISHED + 1, MAX_PUBLISHED));
        }
        let key = what.key.clone();
        self.published.insert(key, Entry { owner: by.by, node: by.node, what });
        Ok(())
    }

    /// Drops those of these keys that the asker has published.
    pub(super) fn unpublish(&mut self, asker: Proc, keys: &[String]) {
        for key in keys {
            if self.published.get(key).is_some_and(|entry| entry.owner == asker) {
                self.published.remove(key);
            }
        }
    }

    /// What of these keys the asker may see, published by a process that it means.
    fn visible<'a>(
        &'a self,
        question: Question,
        within: &'a Range,
        keys: &'a [String],
    ) -> impl Iterator<Item = &'a Entry> {
        let visible = move |entry: &&Entry| {
            let (of, by) = ((entry.owner, entry.node), (question.by, question.node));
            let own = entry.owner == question.by;
            let may = own || entry.what.range.covers(of.0, of.1, by.0, by.1);
            may && within.covers(by.0, by.1, of.0, of.1)
        };
        keys.iter().filter_map(move |key| self.published.get(key).filter(visible))
    }

    /// The visible values of these keys, if there are at least so many. What may be read only once
    /// is removed.
    fn find(
        &mut self,
        question: Question,
        within: &Range,
        keys: &[String],
        least: usize,
    ) -> Result<Option<Found>, Error> {
        let (mut count, mut bytes) = (0, 0);
        for entry in self.visible(question, within, keys) {
            count += 1;
            bytes += entry.what.key.len() + entry.what.value.size();
        }
        if count < least {
            return Ok(None);
        }
        if bytes > MAX_ANSWER {
            return Err(answer_limit(bytes));
        }
        let of = |entry: &Entry| (entry.what.key.clone(), entry.what.value.clone(), entry.owner);
        let found: Found = self.visible(question, within, keys).map(of).collect();
        for (key, ..) in &found {
            let once = |entry: &Entry| entry.what.persistence == Persistence::FirstRead;
            if self.published.get(key).is_some_and(once) {
                self.published.remove(key);
            }
        }
        Ok(Some(found))
    }

    /// The lookups that wait for a key.
    fn waiting_for(&self, key: &String) -> Vec<u64> {
        let waiting = self.lookups.iter().filter(|(_, lookup)| lookup.keys.contains(key));
        waiting.map(|(number, _)| *number).collect()
    }

    /// Tries a lookup again, after something that it waits for was published.
    fn retry(&mut self, number: u64) -> Option<(Question, Result<Found, Error>)> {
        let lookup = self.lookups.get_mut(&number)?;
        let (question, least) = (lookup.question, lookup.least);
        let (within, keys) = (lookup.within.clone(), std::mem::take(&mut lookup.keys));
        let found = self.find(question, &within, &keys, least);
        if let Some(lookup) = self.lookups.get_mut(&number) {
            lookup.keys = keys;
        }
        let result = found.transpose()?;
        self.take(number);
        Some((question, result))
    }

    /// A lookup waits.
    fn wait(
        &mut self,
        number: u64,
        lookup: Lookup,
        timers: &mut Timers<Timer>,
    ) -> Result<(), Error> {
        let node = lookup.question.node;
        let awaited = self.awaited.get(&node).copied().unwrap_or_default() + lookup.keys.len();
        if awaited > MAX_AWAITED {
            return Err(limit("keys that a node's lookups wait for", awaited, MAX_AWAITED));
        }
        self.awaited.insert(node, awaited);
        self.set_timer(lookup.until, timers);
        self.lookups.insert(number, lookup);
        Ok(())
    }

    fn set_timer(&mut self, at: Time, timers: &mut Timers<Timer>) {
        if self.timer.is_none_or(|sooner| at < sooner) {
            self.timer = Some(at);
            timers.set(at, Timer::Lookups);
        }
    }

    /// Takes the lookups whose time is over, each with its keys that are not published.
    fn expire(&mut self, timers: &mut Timers<Timer>) -> Vec<(Question, String)> {
        let now = timers.now();
        // The timer may have been set for later first.
        if self.timer.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.timer = None;
        let over = self.take_all(|lookup| lookup.until <= now);
        if let Some(next) = self.lookups.values().map(|lookup| lookup.until).min() {
            self.set_timer(next, timers);
        }
        let missing = over.into_iter().map(|lookup| {
            let visible = self.visible(lookup.question, &lookup.within, &lookup.keys);
            let visible: BTreeSet<&str> = visible.map(|entry| &*entry.what.key).collect();
            let missing = lookup.keys.iter().map(String::as_str);
            let missing: Vec<&str> = missing.filter(|key| !visible.contains(key)).collect();
            (lookup.question, missing.join("`, `"))
        });
        missing.collect()
    }

    /// A process has ended: its lookups end, and what it published for its lifetime is dropped.
    fn forget_proc(&mut self, proc: Proc) {
        self.published.retain(|_, entry| {
            entry.owner != proc || entry.what.persistence == Persistence::Session
        });
        self.take_all(|lookup| lookup.question.by == proc);
    }

    /// The same for all processes of a node.
    pub(super) fn forget_node(&mut self, node: Node) {
        self.published.retain(|_, entry| {
            entry.node != node || entry.what.persistence == Persistence::Session
        });
        self.take_all(|lookup| lookup.question.node == node);
    }

    fn take_all(&mut self, which: impl Fn(&Lookup) -> bool) -> Vec<Lookup> {
        let taken = self.lookups.iter().filter(|(_, lookup)| which(lookup));
        let taken: Vec<u64> = taken.map(|(number, _)| *number).collect();
        taken.into_iter().filter_map(|number| self.take(number)).collect()
    }

    fn take(&mut self, number: u64) -> Option<Lookup> {
        let lookup = self.lookups.remove(&number)?;
        let awaited = self.awaited.entry(lookup.question.node).or_default();
        *awaited -= lookup.keys.len();
        if *awaited == 0 {
            self.awaited.remove(&lookup.question.node);
        }
        Some(lookup)
    }
}

impl Engine {
    pub(super) fn publish(&mut self, by: Question, what: Published) -> Result<Answer, Error> {
        let key = what.key.clone();
        self.controller.registry.publish(by, what)?;
        for number in self.controller.registry.waiting_for(&key) {
            if let Some((question, result)) = self.controller.registry.retry(number) {
                self.reply(question, result.map(Answer::Found));
            }
        }
        Ok(Answer::Done)
    }

    /// Looks keys up, each of which is named once.
    pub(super) fn look_up(
        &mut self,
        question: Question,
        within: Range,
        keys: Vec<String>,
        wait: Option<Duration>,
        least: usize,
    ) -> Result<Option<Answer>, Error> {
        let least = match (wait, least) {
            (None, _) => 1,
            (Some(_), 0) => keys.len(),
            (Some(_), least) => keys.len().min(least),
        };
        let registry = &mut self.controller.registry;
        if let Some(found) = registry.find(question, &within, &keys, least)? {
            return Ok(Some(Answer::Found(found)));
        }
        let Some(wait) = wait else { return Err(Error::NotPublished(keys.join("`, `"))) };
        let until = self.timers.now().after(wait.min(LONGEST));
        let lookup = Lookup { question, keys, within, least, until };
        registry.wait(self.out.number(), lookup, &mut self.timers)?;
        Ok(None)
    }

    pub(super) fn expire_lookups(&mut self) {
        for (question, missing) in self.controller.registry.expire(&mut self.timers) {
            self.reply(question, Err(Error::LookupTimeout(missing)));
        }
    }

    /// A process has ended: what it published for its lifetime is dropped.
    pub(super) fn release(&mut self, proc: Proc) {
        self.controller.registry.forget_proc(proc);
    }
}
