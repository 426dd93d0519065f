//! What is published at the head, and who looks it up: at once, or waiting for it.

use super::{
    Engine, Timer,
    head::{Asked, MAX_ANSWER, answer_limit},
    requests::{LONGEST, limit},
};
use crate::{
    error::Error,
    event::Range,
    message::{Answer, Persistence, Published},
    names::{Node, Proc},
    value::Value,
};
use petasos_fabric::Time;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Keys that are published at a time.
const MAX_PUBLISHED: usize = 1 << 16;
/// Keys that lookups of one node wait for, in all.
const MAX_AWAITED: usize = 1 << 14;

/// What is published, and who waits for more.
#[derive(Debug, Default)]
pub(super) struct Board {
    published: BTreeMap<String, Owned>,
    /// In the order in which they came.
    lookups: BTreeMap<u64, Lookup>,
    /// How many keys those of each node wait for.
    awaited: BTreeMap<Node, usize>,
    /// When the next one is to be looked at, if one is.
    look_at: Option<Time>,
}

#[derive(Debug)]
struct Owned {
    what: Published,
    owner: Proc,
    node: Node,
}

#[derive(Debug)]
struct Lookup {
    asked: Asked,
    keys: Vec<String>,
    /// Only what one of these has published.
    within: Range,
    /// So many are enough.
    least: usize,
    until: Time,
}

type Found = Vec<(String, Value, Proc)>;

impl Board {
    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        self.published.keys()
    }

    /// What of these keys is published for the asker, by one of those that it means.
    fn seen<'a>(
        &'a self,
        asked: Asked,
        within: &'a Range,
        keys: &'a [String],
    ) -> impl Iterator<Item = &'a Owned> {
        let seen = move |entry: &&Owned| {
            let (of, by) = ((entry.owner, entry.node), (asked.by, asked.node));
            let may = entry.owner == asked.by || entry.what.range.covers(of.0, of.1, by.0, by.1);
            may && within.covers(by.0, by.1, of.0, of.1)
        };
        keys.iter().filter_map(move |key| self.published.get(key).filter(seen))
    }

    /// What of these keys is there for somebody, if it is so much. What may be read once goes with it.
    fn found(
        &mut self,
        asked: Asked,
        within: &Range,
        keys: &[String],
        least: usize,
    ) -> Result<Option<Found>, Error> {
        let (mut count, mut bytes) = (0, 0);
        for entry in self.seen(asked, within, keys) {
            count += 1;
            bytes += entry.what.key.len() + entry.what.value.size();
        }
        if count < least {
            return Ok(None);
        }
        if bytes > MAX_ANSWER {
            return Err(answer_limit(bytes));
        }
        let of = |entry: &Owned| (entry.what.key.clone(), entry.what.value.clone(), entry.owner);
        let found: Found = self.seen(asked, within, keys).map(of).collect();
        for (key, ..) in &found {
            let once = |entry: &Owned| entry.what.persistence == Persistence::FirstRead;
            if self.published.get(key).is_some_and(once) {
                self.published.remove(key);
            }
        }
        Ok(Some(found))
    }

    /// Takes those lookups that do not wait any longer.
    fn over(&mut self, is_over: impl Fn(&Lookup) -> bool) -> Vec<Lookup> {
        let over = self.lookups.iter().filter(|(_, lookup)| is_over(lookup));
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        over.into_iter().filter_map(|number| self.take(number)).collect()
    }

    fn take(&mut self, number: u64) -> Option<Lookup> {
        let lookup = self.lookups.remove(&number)?;
        let awaited = self.awaited.entry(lookup.asked.node).or_default();
        *awaited -= lookup.keys.len();
        if *awaited == 0 {
            self.awaited.remove(&lookup.asked.node);
        }
        Some(lookup)
    }
}

impl Engine {
    pub(super) fn publish(&mut self, asked: Asked, what: Published) -> Result<Answer, Error> {
        super::requests::check_entry(&what.key, &what.value)?;
        if self.head.board.published.contains_key(&what.key) {
            return Err(Error::Published(what.key));
        }
        if self.head.board.published.len() >= MAX_PUBLISHED {
            return Err(limit("published keys", MAX_PUBLISHED + 1, MAX_PUBLISHED));
        }
        let key = what.key.clone();
        let owned = Owned { owner: asked.by, node: asked.node, what };
        self.head.board.published.insert(key.clone(), owned);
        let waiting = self.head.board.lookups.iter();
        let waiting = waiting.filter(|(_, lookup)| lookup.keys.contains(&key));
        for number in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.look_again(number);
        }
        Ok(Answer::Done)
    }

    /// Something that a lookup waits for was published.
    fn look_again(&mut self, number: u64) {
        let board = &mut self.head.board;
        let Some(lookup) = board.lookups.get_mut(&number) else { return };
        let (asked, least, keys) = (lookup.asked, lookup.least, std::mem::take(&mut lookup.keys));
        let within = lookup.within.clone();
        let found = board.found(asked, &within, &keys, least);
        if let Some(lookup) = board.lookups.get_mut(&number) {
            lookup.keys = keys;
        }
        let Some(result) = found.transpose() else { return };
        board.take(number);
        self.head_says(asked, result.map(Answer::Found));
    }

    pub(super) fn unpublish(&mut self, asker: Proc, keys: &[String]) {
        for key in keys {
            if self.head.board.published.get(key).is_some_and(|entry| entry.owner == asker) {
                self.head.board.published.remove(key);
            }
        }
    }

    /// Looks keys up, each of which is named once.
    pub(super) fn look_up(
        &mut self,
        asked: Asked,
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
        if let Some(found) = self.head.board.found(asked, &within, &keys, least)? {
            return Ok(Some(Answer::Found(found)));
        }
        let Some(wait) = wait else { return Err(Error::NotPublished(keys.join("`, `"))) };
        let until = self.now.after(wait.min(LONGEST));
        let number = self.number();
        let board = &mut self.head.board;
        let awaited = board.awaited.get(&asked.node).copied().unwrap_or_default() + keys.len();
        if awaited > MAX_AWAITED {
            return Err(limit("keys that a node's lookups wait for", awaited, MAX_AWAITED));
        }
        board.awaited.insert(asked.node, awaited);
        board.lookups.insert(number, Lookup { asked, within, keys, least, until });
        self.look_at_lookups(until);
        Ok(None)
    }

    fn look_at_lookups(&mut self, at: Time) {
        if self.head.board.look_at.is_none_or(|sooner| at < sooner) {
            self.head.board.look_at = Some(at);
            self.agenda.set(at, Timer::Lookups);
        }
    }

    pub(super) fn expire_lookups(&mut self) {
        let now = self.now;
        let board = &mut self.head.board;
        // It was set for later first.
        if board.look_at.is_none_or(|at| now < at) {
            return;
        }
        board.look_at = None;
        let over = board.over(|lookup| lookup.until <= now);
        if let Some(next) = board.lookups.values().map(|lookup| lookup.until).min() {
            self.look_at_lookups(next);
        }
        for lookup in over {
            let seen = self.head.board.seen(lookup.asked, &lookup.within, &lookup.keys);
            let seen: BTreeSet<&str> = seen.map(|e| &*e.what.key).collect();
            let missing = lookup.keys.iter().map(String::as_str).filter(|key| !seen.contains(key));
            let missing = missing.collect::<Vec<_>>().join("`, `");
            self.head_says(lookup.asked, Err(Error::LookupTimeout(missing)));
        }
    }

    /// A process is gone, and what it published for its own life.
    pub(super) fn release(&mut self, proc: Proc) {
        self.head.board.published.retain(|_, entry| {
            entry.owner != proc || entry.what.persistence == Persistence::Session
        });
        self.head.board.over(|lookup| lookup.asked.by == proc);
    }

    /// So is a node.
    pub(super) fn board_without(&mut self, node: Node) {
        self.head.board.published.retain(|_, entry| {
            entry.node != node || entry.what.persistence == Persistence::Session
        });
        self.head.board.over(|lookup| lookup.asked.node == node);
    }
}
