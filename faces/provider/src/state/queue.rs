//! Completion queues and counters: what has ended.

use super::sleep::{Bed, Signal};
use crate::limits::QUEUED;
use std::{collections::VecDeque, sync::Arc};

/// A completion, in the fields of libfabric's longest format.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    /// Where a message lies in a buffer for several.
    pub(crate) buffer: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// The sender, as an index of the address vector.
    pub(crate) source: u64,
}

/// An operation that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) entry: Entry,
    /// Bytes of a message for which there was no room.
    pub(crate) beyond: usize,
    /// A number of libfabric's errors.
    pub(crate) error: i32,
    /// What the fabric says.
    pub(crate) text: String,
}

enum Item {
    Done(Entry),
    Failed(Box<Failure>),
}

/// A completion queue. What has succeeded and what has failed are in one order.
pub(crate) struct Queue {
    items: VecDeque<Item>,
    most: usize,
    /// The program has ended the sleep of the next one that waits.
    pub(crate) signalled: bool,
    /// Wakes the threads that wait for it.
    pub(crate) signal: Signal,
    /// Where they sleep, if it may be waited for.
    pub(crate) bed: Option<Arc<Bed>>,
    /// Endpoints that are bound to it.
    pub(crate) endpoints: Vec<usize>,
}

impl Queue {
    pub(crate) fn new(size: usize, bed: Option<(Arc<Bed>, Signal)>) -> Queue {
        let most = size.max(QUEUED);
        let (bed, signal) = bed.unzip();
        let signal = signal.unwrap_or_default();
        Queue { items: VecDeque::new(), most, signalled: false, signal, bed, endpoints: Vec::new() }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.items.push_back(Item::Done(entry));
        self.signal.raise();
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.items.push_back(Item::Failed(Box::new(failure)));
        self.signal.raise();
    }

    /// Whether its endpoints have to stop until some of it was read.
    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= self.most
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether a failure is what comes next.
    pub(crate) fn fails(&self) -> bool {
        matches!(self.items.front(), Some(Item::Failed(_)))
    }

    /// The next that has succeeded; `None` if there is none before a failure.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let Some(Item::Done(entry)) = self.items.front() else { return None };
        let entry = *entry;
        self.items.pop_front();
        Some(entry)
    }

    /// The failure that comes next.
    pub(crate) fn pop_failure(&mut self) -> Option<Failure> {
        match self.items.pop_front()? {
            Item::Failed(failure) => Some(*failure),
            done @ Item::Done(_) => {
                self.items.push_front(done);
                None
            }
        }
    }
}

/// A counter of completions.
pub(crate) struct Counter {
    pub(crate) value: u64,
    pub(crate) errors: u64,
    pub(crate) signal: Signal,
    /// Where they sleep, if it may be waited for.
    pub(crate) bed: Option<Arc<Bed>>,
    /// Endpoints that are bound to it.
    pub(crate) endpoints: Vec<usize>,
}

impl Counter {
    pub(crate) fn new(bed: Option<(Arc<Bed>, Signal)>) -> Counter {
        let (bed, signal) = bed.unzip();
        let signal = signal.unwrap_or_default();
        Counter { value: 0, errors: 0, signal, bed, endpoints: Vec::new() }
    }

    pub(crate) fn add(&mut self, value: u64, errors: u64) {
        self.value = self.value.wrapping_add(value);
        self.errors = self.errors.wrapping_add(errors);
        self.signal.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(context: usize) -> Entry {
        Entry { context, ..Entry::default() }
    }

    #[test]
    fn failures_keep_their_place() {
        let mut queue = Queue::new(4, None);
        let failure =
            |context| Failure { entry: entry(context), beyond: 0, error: 5, text: String::new() };
        queue.push(entry(1));
        queue.fail(failure(2));
        queue.push(entry(3));
        assert!(queue.pop_failure().is_none() && !queue.fails());
        assert_eq!(queue.pop().unwrap().context, 1);
        assert!(queue.fails() && queue.pop().is_none());
        assert_eq!(queue.pop_failure().unwrap().entry.context, 2);
        assert_eq!(queue.pop().unwrap().context, 3);
        assert!(queue.is_empty() && queue.pop().is_none() && queue.pop_failure().is_none());
    }

    #[test]
    fn it_is_full_at_its_bound() {
        let mut queue = Queue::new(QUEUED + 2, None);
        for at in 0..QUEUED + 2 {
            assert!(!queue.is_full());
            queue.push(entry(at));
        }
        assert!(queue.is_full());
        queue.pop();
        assert!(!queue.is_full());
    }
}
