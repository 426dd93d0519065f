//! Messages that are several requests of the engine, each of which is answered for itself.

use petasos_pmix::server::packing::{put_info, put_size, put_status};
use petasos_pmix::{Value, status};
use std::collections::{BTreeMap, btree_map};

/// Bytes of the answer to a query.
const MAX_ANSWER: usize = 64 << 20;

/// The batches under way, by the tags of their messages.
#[derive(Debug, Default)]
pub(super) struct Batches(BTreeMap<u32, Batch>);

impl Batches {
    pub(super) fn insert(&mut self, tag: u32, batch: Batch) {
        self.0.insert(tag, batch);
    }

    /// One part of a batch is answered. Gives the batch once all parts are.
    pub(super) fn part_done(&mut self, tag: u32, record: impl FnOnce(&mut Batch)) -> Option<Batch> {
        let btree_map::Entry::Occupied(mut entry) = self.0.entry(tag) else { return None };
        record(entry.get_mut());
        (entry.get().left == 0).then(|| entry.remove())
    }
}

#[derive(Debug)]
pub(super) struct Batch {
    left: usize,
    /// Whether a failure undoes the other parts, as in publishing. A query keeps what it found.
    undone: bool,
    published: Vec<String>,
    /// Attributes for the answer, packed, and how many.
    answer: Vec<u8>,
    found: usize,
    error: i32,
}

/// The result of all parts.
pub(super) enum Outcome {
    /// All of these keys were published.
    Published(Vec<String>),
    /// This status is the answer, and these keys are to be unpublished.
    Failed(i32, Vec<String>),
    /// The packed answer to a query.
    Found(Vec<u8>),
}

impl Batch {
    /// Of this many values to publish.
    pub(super) fn publish(parts: usize) -> Batch {
        Batch::new(parts, true)
    }

    /// Of this many keys to query.
    pub(super) fn query(parts: usize) -> Batch {
        Batch::new(parts, false)
    }

    fn new(left: usize, undone: bool) -> Batch {
        let (published, answer) = (Vec::new(), Vec::new());
        Batch { left, undone, published, answer, found: 0, error: status::SUCCESS }
    }

    pub(super) fn found(&mut self, key: &str, value: &Value) {
        let before = self.answer.len();
        put_info(&mut self.answer, key, value);
        if self.answer.len() > MAX_ANSWER {
            self.answer.truncate(before);
            return self.failed(status::BAD_PARAM);
        }
        self.left -= 1;
        self.found += 1;
    }

    pub(super) fn published(&mut self, key: String) {
        self.left -= 1;
        self.published.push(key);
    }

    pub(super) fn failed(&mut self, code: i32) {
        self.left -= 1;
        if self.error == status::SUCCESS {
            self.error = code;
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        let whole = self.error == status::SUCCESS;
        match (self.undone, whole) {
            (true, true) => Outcome::Published(self.published),
            (true, false) => Outcome::Failed(self.error, self.published),
            (false, _) if self.found == 0 => Outcome::Failed(self.error, Vec::new()),
            (false, _) => {
                let mut out = Vec::new();
                put_status(&mut out, if whole { status::SUCCESS } else { status::PARTIAL_SUCCESS });
                put_size(&mut out, self.found);
                out.extend(self.answer);
                Outcome::Found(out)
            }
        }
    }
}
