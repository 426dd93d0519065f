//! All that a domain has, behind one lock: endpoints, queues, counters, address vectors and
//! registered memory. Nothing here is of C: pointers have become slices, contexts numbers.

mod access;
mod answers;
mod endpoint;
pub(crate) mod error;
mod matching;
pub(crate) mod name;
pub(crate) mod open;
pub(crate) mod queue;
mod refusals;
mod send;
pub(crate) mod sleep;
pub(crate) mod vector;
pub(crate) mod wire;

pub(crate) use access::{Access, Kind};
pub(crate) use endpoint::{Binding, Endpoint};
pub(crate) use matching::{Peek, Receive};
pub(crate) use send::Send;

use self::{
    queue::{Counter, Entry, Failure, Queue},
    sleep::{Bed, Signal},
    vector::Vector,
};
use petasos_fabric::{Access as Rights, Clock, Sleep, Slice, Time};
use slab::Slab;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Memory that is registered.
pub(crate) struct Registered {
    pub(crate) memory: Slice,
    pub(crate) rights: Rights,
    /// The address of its first byte, as peers name it.
    pub(crate) base: u64,
}

/// What the endpoints of a domain have in common.
pub(crate) struct Shared {
    pub(crate) queues: Slab<Queue>,
    pub(crate) counters: Slab<Counter>,
    pub(crate) vectors: Slab<Vector>,
    /// By their keys.
    pub(crate) memory: HashMap<u64, Registered>,
    /// That of its endpoints, once there is one that is enabled.
    job: Option<open::Job>,
    clock: Clock,
    /// Wakes the domain's own thread, where it has one.
    driver: Option<(Arc<Bed>, Signal)>,
}

/// All of it.
pub(crate) struct State {
    pub(crate) endpoints: Slab<Endpoint>,
    pub(crate) shared: Shared,
}

impl Shared {
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The job of this process.
    ///
    /// # Errors
    /// Its secret cannot be read: a text that says what to do.
    pub(crate) fn job(&self) -> Result<open::Job, String> {
        self.job.map_or_else(open::job, Ok)
    }

    /// An operation has succeeded: tells the counter, and the queue if it is to be reported.
    fn done(&mut self, binding: Binding, counter: Option<usize>, report: bool, entry: Entry) {
        if let Some(counter) = counter.and_then(|counter| self.counters.get_mut(counter)) {
            counter.add(1, 0);
        }
        if report && let Some(queue) = binding.queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.push(entry);
        }
    }

    /// An operation has failed, which is always told.
    fn failed(&mut self, binding: Binding, counter: Option<usize>, failure: Failure) {
        if let Some(counter) = counter.and_then(|counter| self.counters.get_mut(counter)) {
            counter.add(0, 1);
        }
        if let Some(queue) = binding.queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.fail(failure);
        }
    }
}

impl State {
    /// Of a domain, driven by a thread of its own if `driver` is there.
    pub(crate) fn new(driver: Option<(Arc<Bed>, Signal)>) -> State {
        let shared = Shared {
            queues: Slab::new(),
            counters: Slab::new(),
            vectors: Slab::new(),
            memory: HashMap::new(),
            job: None,
            clock: Clock::start(),
            driver,
        };
        State { endpoints: Slab::new(), shared }
    }

    /// An endpoint and what it shares, at once.
    pub(crate) fn endpoint(&mut self, at: usize) -> (&mut Endpoint, &mut Shared) {
        (&mut self.endpoints[at], &mut self.shared)
    }

    /// Has these endpoints make progress.
    pub(crate) fn progress(&mut self, endpoints: &[usize]) -> bool {
        let mut busy = false;
        for &at in endpoints {
            if let Some(endpoint) = self.endpoints.get_mut(at) {
                busy |= endpoint.progress(&mut self.shared);
            }
        }
        busy
    }

    /// Has all endpoints make progress.
    pub(crate) fn progress_all(&mut self) -> bool {
        let mut busy = false;
        for (_, endpoint) in &mut self.endpoints {
            busy |= endpoint.progress(&mut self.shared);
        }
        busy
    }

    /// Asks these endpoints whether one may sleep: `None` if not, else for how long at most.
    pub(crate) fn arm(&mut self, endpoints: &[usize]) -> Option<Option<Duration>> {
        let now = self.shared.now();
        let mut until = Time::NEVER;
        for &at in endpoints {
            let Some(endpoint) = self.endpoints.get_mut(at) else { continue };
            match endpoint.arm(now) {
                Sleep::Busy => return None,
                Sleep::Until(time) => until = until.min(time),
            }
        }
        Some(sleep::rest(until, now))
    }

    /// Something was submitted: the domain's own thread has work.
    pub(crate) fn kick(&mut self) {
        if let Some((_, signal)) = &mut self.shared.driver {
            signal.raise();
        }
    }

    /// A pass of the domain's own thread: whether it may sleep now, in the bed whose descriptor it
    /// has.
    pub(crate) fn drive(&mut self) -> bool {
        if self.progress_all() {
            return false;
        }
        let all: Vec<usize> = self.endpoints.iter().map(|(at, _)| at).collect();
        let Some(longest) = self.arm(&all) else { return false };
        let Some((bed, signal)) = &mut self.shared.driver else { return false };
        bed.arm(signal, longest);
        true
    }

    /// A new peer has a number in this vector, or one has none any more.
    pub(crate) fn renumber(&mut self, vector: usize) {
        let Some(of) = self.shared.vectors.get(vector) else { return };
        for at in of.endpoints.clone() {
            if let Some(endpoint) = self.endpoints.get_mut(at) {
                endpoint.renumber(&self.shared);
            }
        }
    }

    /// Registers memory under a key, at all endpoints that there are.
    ///
    /// # Errors
    /// The key is taken, or an endpoint refused.
    pub(crate) fn register(
        &mut self,
        key: u64,
        registered: Registered,
    ) -> Result<(), error::Errno> {
        if self.shared.memory.contains_key(&key) {
            return Err(petasos_ofi_sys::FI_ENOKEY);
        }
        for (_, endpoint) in &mut self.endpoints {
            endpoint.open_memory(key, &registered)?;
        }
        self.shared.memory.insert(key, registered);
        Ok(())
    }

    /// Closes memory at all endpoints. False while one of them still has it.
    pub(crate) fn deregister(&mut self, key: u64) -> bool {
        let mut closed = true;
        for (_, endpoint) in &mut self.endpoints {
            closed &= endpoint.close_memory(key);
        }
        if closed {
            self.shared.memory.remove(&key);
        }
        closed
    }
}
