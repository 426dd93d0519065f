//! The state of an interface, all of it behind one lock: tables, and the endpoint that it drives.

use crate::{
    Config, Counts, Directory, Error, Event, Failure, Handle, InterfaceId, Limits, List, Memory,
    ProcessId, Quiet, Status,
    counter::{Count, Counter},
    descriptor::Bound,
    event::EventQueue,
    flush::Fences,
    frame::Frame,
    handle::Table,
    initiator::Underway,
    lent::Recalled,
    matching::{Matching, Notice, Owner},
    message::Arrival,
    operation::Action,
    peers::Peers,
    target::{Permit, Serving},
};
use petasos_fabric::{
    Clock, Endpoint, Event as FabricEvent, Operation, Peer, RegionId, Remote, Support, Time,
};
use std::{collections::VecDeque, sync::Arc};

/// Longest header of a frame.
pub(crate) const HEADER: usize = petasos_wire::portals::MAX;

pub(crate) struct State {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) clock: Option<Clock>,
    pub(crate) now: Time,
    pub(crate) passes: u32,
    pub(crate) directory: Arc<dyn Directory>,
    /// Which interface of this process it is.
    pub(crate) id: InterfaceId,
    /// This process, once the directory knows it.
    pub(crate) process: Option<ProcessId>,
    pub(crate) config: Config,
    pub(crate) matching: Matching,
    pub(crate) portals: Vec<PortalState>,
    pub(crate) queues: Table<EventQueue>,
    pub(crate) counters: Table<Counter>,
    pub(crate) descriptors: Table<Bound>,
    /// Operations that were started here.
    pub(crate) operations: Table<Underway>,
    /// What the endpoint moves for us: its tokens are the handles.
    pub(crate) transfers: Table<Transfer>,
    pub(crate) peers: Peers,
    /// What the endpoint had no room for.
    pub(crate) submits: VecDeque<Operation>,
    /// Whether the endpoint was given something to do since it was last moved on.
    pub(crate) submitted: bool,
    /// Peers whose messages wait behind that.
    pub(crate) parked: Vec<Peer>,
    /// Actions whose counter has reached their number.
    pub(crate) ready: VecDeque<Action>,
    /// Actions that wait for counters.
    pub(crate) triggered: usize,
    pub(crate) status: Status,
    /// Which process may do what (Portals 3); all may where there is no list.
    pub(crate) permits: Option<Vec<Option<Permit>>>,
    /// Names the operations at this target.
    pub(crate) link: u64,
    pub(crate) ended: bool,
    /// Events that were given to polls of several queues.
    pub(crate) polls: u64,
    /// What is to say that all has left.
    pub(crate) fences: Fences,
    /// Whether something happened for which a thread may wait.
    pub(crate) news: bool,
    /// Whether a thread sleeps on the endpoint's descriptor, and whether that will be rung.
    pub(crate) sleeper: bool,
    pub(crate) armed: bool,
    /// Whether the endpoint was used since: then it may not be rung.
    pub(crate) touched: bool,
    /// Whether the engine is to drive, whichever thread did before.
    pub(crate) take_over: bool,
    /// Whether there is an engine.
    pub(crate) engine: bool,
    /// Threads that drive the endpoint now.
    pub(crate) drivers: u32,
    /// Threads that wait to be told.
    pub(crate) waiters: u32,
    /// Memory that is used again: a frame, notices, events.
    pub(crate) frame: Frame,
    pub(crate) notices: Vec<Notice>,
    pub(crate) events: Vec<FabricEvent>,
}

/// What an open portal was given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortalState {
    pub(crate) queue: Option<Handle<EventQueue>>,
    pub(crate) flow_control: bool,
}

/// What a fabric operation of ours is for.
#[derive(Debug)]
pub(crate) enum Transfer {
    /// The data of a long put leaves.
    Put(Handle<Underway>),
    /// The data of a long put comes, by way of a buffer if its memory is in pieces.
    Incoming { serving: Serving, scratch: Option<Memory> },
    /// A long reply leaves.
    Reply(Serving),
    /// The data of a long operation of another process is moved by the transport: from its memory,
    /// or to it, by way of a buffer if ours is in too many pieces.
    Lent { serving: Serving, remote: Remote, scratch: Option<Memory> },
    /// Memory that was lent is closed: then the operation ends so.
    Recalled { region: RegionId, operation: Handle<Underway>, outcome: Recalled },
    /// Memory of which no key could be made is closed again.
    Unlent(RegionId),
    /// A long reply comes.
    Result { operation: Handle<Underway>, memory: Memory, scratch: Option<Memory>, len: u64 },
    /// A body that is not wanted goes.
    Discard,
}

impl State {
    pub(crate) fn new(
        endpoint: Box<dyn Endpoint>,
        directory: Arc<dyn Directory>,
        mut config: Config,
        time: Result<Clock, Time>,
    ) -> Result<State, Error> {
        let address = endpoint.address();
        let process = directory.process(address);
        if process.is_none() && !config.named_later {
            return Err(Error::NotInDirectory(address.as_str().to_owned()));
        }
        let limit = u64::from(u32::MAX);
        let id = InterfaceId::new().ok_or(Error::NoSpace { what: "interfaces", limit })?;
        let capabilities = endpoint.capabilities();
        let limits = capabilities.limits;
        let native = capabilities.remote_access == Support::Native;
        config.lend_above = if native { config.lend_above } else { usize::MAX };
        let room = limits.max_inject.saturating_sub(HEADER);
        if room < 64 || limits.max_header < HEADER {
            return Err(Error::Argument("messages of this transport are too short"));
        }
        config.eager = config.eager.min(room);
        config.limits.atomic = config.limits.atomic.min(room);
        config.lend_above = config.lend_above.max(config.eager);
        let Limits { portals, queues, counters, descriptors, .. } = config.limits;
        Ok(State {
            endpoint,
            now: time.as_ref().map_or_else(|now| *now, Clock::now),
            clock: time.ok(),
            passes: 0,
            directory,
            id,
            process,
            matching: Matching::of(id, &config.limits),
            portals: vec![PortalState::default(); portals.into()],
            queues: Table::of(id, queues),
            counters: Table::of(id, counters),
            descriptors: Table::of(id, descriptors),
            operations: Table::new(config.limits.operations),
            transfers: Table::new(usize::MAX),
            peers: Peers::default(),
            submits: VecDeque::new(),
            submitted: false,
            parked: Vec::new(),
            ready: VecDeque::new(),
            triggered: 0,
            status: Status::default(),
            permits: None,
            link: 0,
            ended: false,
            polls: 0,
            fences: Fences::default(),
            news: false,
            sleeper: false,
            armed: false,
            touched: false,
            take_over: false,
            engine: false,
            drivers: 0,
            waiters: 0,
            frame: Frame::default(),
            notices: Vec::new(),
            events: Vec::new(),
            config,
        })
    }

    /// A name for an operation.
    pub(crate) fn next_link(&mut self) -> u64 {
        self.link += 1;
        self.link
    }

    #[inline(always)]
    pub(crate) fn tell(&mut self, queue: Option<Handle<EventQueue>>, event: Event) {
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.push(event);
            self.news = true;
        }
    }

    pub(crate) fn tell_portal(&mut self, portal: u16, event: Event) {
        self.tell(self.portals[usize::from(portal)].queue, event);
    }

    /// Tells about an entry, at its own queue or that of its portal, if there is one.
    #[inline]
    pub(crate) fn tell_owner(&mut self, owner: &Owner, event: impl FnOnce() -> Event) {
        let queue = owner.queue.or(self.portals[usize::from(owner.portal)].queue);
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.push(event());
            self.news = true;
        }
    }

    /// Counts, and has what waited for that run soon.
    #[inline]
    pub(crate) fn count(&mut self, counter: Option<Handle<Counter>>, count: Count) {
        let Some(handle) = counter else { return };
        if let Some(counter) = self.counters.get_mut(handle) {
            counter.value += count;
            self.news = true;
            self.fire(handle);
        }
    }

    /// Has what waited for a counter, and need not wait longer, run soon.
    pub(crate) fn fire(&mut self, handle: Handle<Counter>) {
        let Some(counter) = self.counters.get_mut(handle) else { return };
        while let Some(action) = counter.due() {
            self.triggered -= 1;
            self.ready.push_back(action);
        }
    }

    /// Runs what counters have set off; what that sets off in turn comes after it, never within it.
    pub(crate) fn run_ready(&mut self) {
        while let Some(action) = self.ready.pop_front() {
            match action {
                Action::Start(operation) => {
                    if let Err(error) = self.start(&operation) {
                        self.status.misfired += 1;
                        tracing::warn!(%error, "a triggered operation was not started");
                    }
                }
                Action::Add(counter, count) => self.count(Some(counter), count),
                Action::Set(counter, count) => {
                    if let Some(counter) = self.counters.get_mut(counter) {
                        counter.value = count;
                        self.news = true;
                    }
                    self.fire(counter);
                }
                Action::Cancel(counter) => self.cancel_triggered(counter),
            }
        }
    }

    pub(crate) fn cancel_triggered(&mut self, counter: Handle<Counter>) {
        if let Some(counter) = self.counters.get_mut(counter) {
            self.triggered -= counter.cancel();
        }
    }

    /// Tells what the matching core has to say. `link`: of which operation, if of any.
    #[inline]
    pub(crate) fn tell_notices(&mut self, link: u64) {
        if !self.notices.is_empty() {
            self.tell_all_notices(link);
        }
    }

    #[inline(never)]
    fn tell_all_notices(&mut self, link: u64) {
        let mut notices = std::mem::take(&mut self.notices);
        for notice in notices.drain(..) {
            match notice {
                Notice::Linked(owner) => self.tell_listed(owner, Quiet::LINK, link, Event::Link),
                Notice::Unlinked(owner) => {
                    self.tell_listed(owner, Quiet::UNLINK, link, Event::AutoUnlink);
                }
                Notice::Freed(owner) => {
                    self.tell_listed(owner, Quiet::UNLINK, link, Event::AutoFree);
                }
                Notice::Claimed(owner, claim) => {
                    let result = claim.result;
                    if owner.counts.has(Counts::OVERFLOW) {
                        self.count(owner.counter, tally(owner.counts, claim.len, result));
                    }
                    let silent = owner.quiet.has(Quiet::OVERFLOW)
                        || (result.is_ok() && owner.quiet.has(Quiet::SUCCESS));
                    if !silent {
                        let place = (claim.offset, claim.len);
                        let list = List::Overflow;
                        let served = served(owner, claim.arrival, place, list, link, result);
                        let memory = Some(Box::new(claim.memory));
                        let served = crate::event::Served { memory, ..served };
                        self.tell_owner(&owner, || Event::Overflow(served));
                    }
                }
            }
        }
        self.notices = notices;
    }

    fn tell_listed(
        &mut self,
        owner: Owner,
        kind: Quiet,
        link: u64,
        event: fn(crate::event::Listed) -> Event,
    ) {
        if !owner.quiet.has(kind) {
            let Owner { entry, portal, user_data, left, serial, .. } = owner;
            let listed = crate::event::Listed { entry, portal, user_data, link, left, serial };
            self.tell_owner(&owner, || event(listed));
        }
    }
}

/// What an event at an entry says: where, and how much.
pub(crate) fn served(
    owner: Owner,
    arrival: Arrival,
    (offset, len): (u64, u64),
    list: List,
    link: u64,
    result: Result<(), Failure>,
) -> crate::event::Served {
    let Owner { entry, user_data, left, serial, .. } = owner;
    crate::event::Served {
        arrival,
        entry,
        user_data,
        len,
        offset,
        memory: None,
        list,
        link,
        left,
        result,
        serial,
    }
}

/// What a counter counts for an operation of so many bytes.
pub(crate) fn tally(counts: Counts, len: u64, result: Result<(), Failure>) -> Count {
    match result {
        Ok(()) => Count::of(if counts.has(Counts::BYTES) { len } else { 1 }),
        Err(_) => Count { success: 0, failure: 1 },
    }
}
