//! The event queues and counters of an interface, and the actions that wait for counters.

use crate::{
    Action, Count, Counter, Error, Event, EventQueue, Handle, InterfaceId, Limits, Operation,
    Taken, handle::Table, queue::Queue, triggered::CounterState,
};
use petasos_fabric::driver::Board;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What threads read without the lock.
#[derive(Debug, Default)]
pub(crate) struct Boards {
    /// Whether each queue may have an event: so when the first comes, until one is looked for in
    /// vain. Most events come when a thread waits for them, and cost nothing here then.
    queues: Board,
    /// Successes and failures.
    counters: Board,
    /// Whether all waiting was ended.
    ended: AtomicBool,
}

impl Boards {
    /// Whether a queue may have an event: if not, there is none.
    pub(crate) fn has_event(&self, queue: Handle<EventQueue>) -> Result<bool, Error> {
        self.queues.get(queue.index(), queue.stamp()).map(|[may, _]| may > 0).ok_or(QUEUE)
    }

    pub(crate) fn count(&self, counter: Handle<Counter>) -> Result<Count, Error> {
        let count = self.counters.get(counter.index(), counter.stamp());
        count.map(|[success, failure]| Count { success, failure }).ok_or(COUNTER)
    }

    pub(crate) fn have_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// The first of several counters that has so many successes, or a failure.
pub(crate) fn first_reached(
    counters: &[(Handle<Counter>, u64)],
    value: impl Fn(Handle<Counter>) -> Result<Count, Error>,
) -> Result<Option<(usize, Count)>, Error> {
    for (at, (counter, success)) in counters.iter().enumerate() {
        let value = value(*counter)?;
        if value.success >= *success || value.failure > 0 {
            return Ok(Some((at, value)));
        }
    }
    Ok(None)
}

/// Event queues, counters, and triggered actions.
#[derive(Debug)]
pub(crate) struct Events {
    queues: Table<Queue>,
    counters: Table<CounterState>,
    boards: Arc<Boards>,
    /// Whether all waiting was ended; the boards have it, too.
    ended: bool,
    /// Actions whose counter has reached their threshold.
    due: VecDeque<Action>,
    /// How many actions wait for counters, and how many may.
    triggered: usize,
    triggered_limit: usize,
    /// How many events were taken by polls of several queues.
    polls: u64,
    /// Whether something happened for which a thread may wait.
    news: bool,
}

const QUEUE: Error = Error::Handle("an event queue");
const COUNTER: Error = Error::Handle("a counter");

impl Events {
    pub(crate) fn new(id: InterfaceId, limits: &Limits, boards: Arc<Boards>) -> Events {
        Events {
            queues: Table::of(id, limits.queues),
            counters: Table::of(id, limits.counters),
            boards,
            ended: false,
            due: VecDeque::new(),
            triggered: 0,
            triggered_limit: limits.triggered,
            polls: 0,
            news: false,
        }
    }

    /// Checks the handles of a descriptor or an entry.
    pub(crate) fn check(
        &self,
        queue: Option<Handle<EventQueue>>,
        counter: Option<Handle<Counter>>,
    ) -> Result<(), Error> {
        queue.map_or(Ok(()), |queue| self.queue(queue).map(drop))?;
        counter.map_or(Ok(()), |counter| self.value(counter).map(drop))
    }

    /// Ends all waiting.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.boards.ended.store(true, Ordering::Release);
        self.news = true;
    }

    #[inline]
    pub(crate) fn have_ended(&self) -> bool {
        self.ended
    }

    /// Wakes threads that wait, to see that what they wait for has changed.
    pub(crate) fn announce(&mut self) {
        self.news = true;
    }

    /// Whether something happened for which a thread may wait, since this was last taken.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.news
    }

    #[inline]
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    // Event queues.

    pub(crate) fn add_queue(&mut self, capacity: usize) -> Result<Handle<EventQueue>, Error> {
        let limit = self.queues.limit();
        let handle = self.queues.insert(Queue::new(capacity));
        let handle = handle.ok_or(Error::NoSpace { what: "event queues", limit })?;
        self.boards.queues.set(handle.index(), handle.stamp(), [0, 0]);
        Ok(handle)
    }

    pub(crate) fn free_queue(&mut self, queue: Handle<EventQueue>) -> Result<(), Error> {
        self.news = true;
        self.queues.remove(queue).ok_or(QUEUE)?;
        self.boards.queues.set(queue.index(), 0, [0, 0]);
        Ok(())
    }

    #[inline]
    pub(crate) fn queue(&self, queue: Handle<EventQueue>) -> Result<&Queue, Error> {
        self.queues.get(queue).ok_or(QUEUE)
    }

    #[inline]
    pub(crate) fn queue_mut(&mut self, queue: Handle<EventQueue>) -> Result<&mut Queue, Error> {
        self.queues.get_mut(queue).ok_or(QUEUE)
    }

    /// Takes the next event of a queue.
    #[inline(always)]
    pub(crate) fn take(&mut self, queue: Handle<EventQueue>) -> Result<Taken, Error> {
        let events = self.queues.get_mut(queue).ok_or(QUEUE)?;
        if let Some(taken) = events.pop() {
            return Ok(taken);
        }
        if std::mem::take(&mut events.shown) {
            self.boards.queues.set(queue.index(), queue.stamp(), [0, 0]);
        }
        Err(Error::Empty)
    }

    /// Appends an event to a queue, if there is one and it was not freed.
    #[inline(always)]
    pub(crate) fn push(&mut self, queue: Option<Handle<EventQueue>>, event: Event) {
        self.push_with(queue, || event);
    }

    /// Appends an event, which is made only if there is a queue for it.
    #[inline(always)]
    pub(crate) fn push_with(
        &mut self,
        queue: Option<Handle<EventQueue>>,
        event: impl FnOnce() -> Event,
    ) {
        let Some(handle) = queue else { return };
        if let Some(queue) = self.queues.get_mut(handle) {
            queue.push(event());
            if !std::mem::replace(&mut queue.shown, true) {
                self.boards.queues.set(handle.index(), handle.stamp(), [1, 0]);
            }
            self.news = true;
        }
    }

    /// Sets a slot aside for an event that is sure to come.
    pub(crate) fn reserve(&mut self, queue: Option<Handle<EventQueue>>) {
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.reserve();
        }
    }

    /// The event for which a slot was set aside comes now, or never will.
    pub(crate) fn unreserve(&mut self, queue: Option<Handle<EventQueue>>) {
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.unreserve();
        }
    }

    /// Of the queues that have an event, the position of the one whose last poll is longest ago.
    pub(crate) fn least_recently_polled(
        &self,
        queues: &[Handle<EventQueue>],
    ) -> Result<Option<usize>, Error> {
        let mut longest: Option<(u64, usize)> = None;
        for (at, queue) in queues.iter().enumerate() {
            let queue = self.queue(*queue)?;
            if !queue.is_empty() && longest.is_none_or(|(since, _)| queue.polled < since) {
                longest = Some((queue.polled, at));
            }
        }
        Ok(longest.map(|(_, at)| at))
    }

    /// Takes an event for a poll of several queues.
    pub(crate) fn take_polled(&mut self, queue: Handle<EventQueue>) -> Result<Taken, Error> {
        self.polls += 1;
        self.queues.get_mut(queue).ok_or(Error::Empty)?.polled = self.polls;
        self.take(queue)
    }

    // Counters.

    pub(crate) fn add_counter(&mut self) -> Result<Handle<Counter>, Error> {
        let limit = self.counters.limit();
        let handle = self.counters.insert(CounterState::default());
        let handle = handle.ok_or(Error::NoSpace { what: "counters", limit })?;
        self.boards.counters.set(handle.index(), handle.stamp(), [0, 0]);
        Ok(handle)
    }

    pub(crate) fn free_counter(&mut self, counter: Handle<Counter>) -> Result<(), Error> {
        self.cancel(counter);
        self.news = true;
        self.counters.remove(counter).ok_or(COUNTER)?;
        self.boards.counters.set(counter.index(), 0, [0, 0]);
        Ok(())
    }

    pub(crate) fn value(&self, counter: Handle<Counter>) -> Result<Count, Error> {
        self.counters.get(counter).map(|counter| counter.value).ok_or(COUNTER)
    }

    /// The first of several counters that has so many successes, or a failure.
    pub(crate) fn first_reached(
        &self,
        counters: &[(Handle<Counter>, u64)],
    ) -> Result<Option<(usize, Count)>, Error> {
        first_reached(counters, |counter| self.value(counter))
    }

    /// Counts, if there is a counter; what waited for that is due.
    #[inline]
    pub(crate) fn count(&mut self, counter: Option<Handle<Counter>>, count: Count) {
        let Some(handle) = counter else { return };
        if let Some(counter) = self.counters.get_mut(handle) {
            counter.value += count;
            let Count { success, failure } = counter.value;
            self.boards.counters.set(handle.index(), handle.stamp(), [success, failure]);
            self.news = true;
            self.fire(handle);
        }
    }

    fn set(&mut self, handle: Handle<Counter>, count: Count) {
        if let Some(counter) = self.counters.get_mut(handle) {
            counter.value = count;
            let Count { success, failure } = count;
            self.boards.counters.set(handle.index(), handle.stamp(), [success, failure]);
            self.news = true;
            self.fire(handle);
        }
    }

    // Triggered actions.

    /// Lets an action wait for a counter.
    pub(crate) fn trigger(
        &mut self,
        counter: Handle<Counter>,
        threshold: u64,
        action: Action,
    ) -> Result<(), Error> {
        if self.triggered >= self.triggered_limit {
            let limit = self.triggered as u64;
            return Err(Error::NoSpace { what: "triggered operations", limit });
        }
        self.counters.get_mut(counter).ok_or(COUNTER)?.wait(threshold, action);
        self.triggered += 1;
        self.fire(counter);
        Ok(())
    }

    /// Does something with a counter, after the actions that are due already.
    pub(crate) fn act(&mut self, counter: Handle<Counter>, action: Action) -> Result<(), Error> {
        self.value(counter)?;
        self.due.push_back(action);
        Ok(())
    }

    fn cancel(&mut self, counter: Handle<Counter>) {
        if let Some(counter) = self.counters.get_mut(counter) {
            self.triggered -= counter.cancel();
        }
    }

    /// The actions of a counter whose threshold is reached are due.
    fn fire(&mut self, counter: Handle<Counter>) {
        let Some(counter) = self.counters.get_mut(counter) else { return };
        while let Some(action) = counter.due() {
            self.triggered -= 1;
            self.due.push_back(action);
        }
    }

    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Runs the actions that are due, up to one that starts an operation, and gives that. What an
    /// action sets off in turn comes after it, never within it.
    pub(crate) fn next_to_start(&mut self) -> Option<Operation> {
        loop {
            match self.due.pop_front()? {
                Action::Start(operation) => return Some(operation),
                Action::Add(counter, count) => self.count(Some(counter), count),
                Action::Set(counter, count) => self.set(counter, count),
                Action::Cancel(counter) => self.cancel(counter),
            }
        }
    }
}
