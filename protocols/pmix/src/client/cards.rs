//! Business cards at a process: its own, and those of others that it has read.

use super::lock;
use crate::{
    datastore::Reader,
    names::Proc,
    value::{BusinessCard, Entry, Scope, Value},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard},
};

/// What this process has put.
#[derive(Debug, Default)]
pub(super) struct OwnCard(Mutex<Own>);

#[derive(Debug, Default)]
struct Own {
    all: BTreeMap<String, Entry>,
    uncommitted: BTreeMap<String, Entry>,
}

impl OwnCard {
    pub(super) fn put(&self, key: &str, entry: Entry) {
        let mut own = lock(&self.0);
        own.all.insert(key.to_owned(), entry.clone());
        if entry.scope != Scope::Internal {
            own.uncommitted.insert(key.to_owned(), entry);
        }
    }

    /// The entries that were put since this was last called.
    pub(super) fn take_uncommitted(&self) -> Vec<(String, Entry)> {
        std::mem::take(&mut lock(&self.0).uncommitted).into_iter().collect()
    }

    pub(super) fn get(&self, key: &str) -> Option<Value> {
        lock(&self.0).all.get(key).map(|entry| entry.value.clone())
    }
}

/// The business cards of other processes: those in the datastore of the node, and a cache of those
/// read.
#[derive(Debug, Default)]
pub(super) struct Cards {
    /// `None`: this process shares no memory with the daemon.
    datastore: Option<Reader>,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    cards: HashMap<Proc, BusinessCard>,
    /// How often any rank had been started again when the cache was last cleared, as far as this
    /// node knew.
    restarts: u64,
}

impl Cards {
    pub(super) fn new(datastore: Option<Reader>) -> Cards {
        Cards { datastore, cache: Mutex::default() }
    }

    pub(super) fn datastore(&self) -> Option<&Reader> {
        self.datastore.as_ref()
    }

    /// How often any rank was started again, as far as this node knows. A business card that is
    /// read after this call is of no older process than those that the caller can have heard of.
    pub(super) fn restarts(&self) -> u64 {
        self.datastore.as_ref().map_or(0, Reader::restarts)
    }

    /// A value of the business cards that are here, none of them older than this number of
    /// restarts.
    pub(super) fn find(&self, restarts: u64, proc: Proc, key: &str) -> Option<Value> {
        if let Some(value) = self.current(restarts).cards.get(&proc).and_then(|c| value_of(c, key))
        {
            return Some(value);
        }
        let card = self.datastore.as_ref()?.get(proc.rank)?;
        let value = value_of(&card, key)?;
        self.keep(restarts, proc, card);
        Some(value)
    }

    /// Keeps a business card that was read after this number of restarts, unless there were more
    /// meanwhile.
    pub(super) fn keep(&self, restarts: u64, proc: Proc, card: BusinessCard) {
        let mut cache = self.current(restarts);
        if cache.restarts == restarts {
            cache.cards.insert(proc, card);
        }
    }

    /// The cache, without business cards from before this number of restarts.
    fn current(&self, restarts: u64) -> MutexGuard<'_, Cache> {
        let mut cache = lock(&self.cache);
        if cache.restarts < restarts {
            *cache = Cache { cards: HashMap::new(), restarts };
        }
        cache
    }
}

pub(super) fn value_of(card: &BusinessCard, key: &str) -> Option<Value> {
    card.entries.get(key).map(|entry| entry.value.clone())
}
