//! Some processes on one thread, over each transport.

#![allow(dead_code, unused_imports, unused_macros)]

use petasos_fabric::{Address, Endpoint, Region};
use petasos_portals::{
    Config, Descriptor, Event, EventQueue, Failure, Handle, Interface, List, MatchEntry, Part,
    PortalOptions, ProcessId, ProcessMap, Target,
};
use petasos_sim::{SimConfig, SimNet};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) const LONG: usize = 300_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Local,
    Shm,
    Tcp,
    Sim,
}

/// The user that a target sees of a process that claims to be this one: the transports of one node
/// do not believe the claim.
pub(crate) fn seen(over: Over, claimed: u32) -> u32 {
    match over {
        Over::Local | Over::Shm => rustix::process::geteuid().as_raw(),
        Over::Tcp | Over::Sim => claimed,
    }
}

/// Interfaces with ranks, driven together.
pub(crate) struct Job {
    pub(crate) ranks: Vec<Interface>,
    pub(crate) net: Option<SimNet>,
    pub(crate) addresses: Vec<Address>,
}

pub(crate) fn open(over: Over, net: Option<&SimNet>) -> Box<dyn Endpoint> {
    match over {
        Over::Local => Box::new(petasos_self::Local::open(&"self://*".parse().unwrap()).unwrap()),
        Over::Shm => Box::new(petasos_shm::Shm::open(&"shm://*".parse().unwrap()).unwrap()),
        Over::Tcp => {
            let config = petasos_tcp::Config::default();
            let address = "tcp://127.0.0.1:0".parse().unwrap();
            Box::new(petasos_tcp::TcpEndpoint::open(&address, config).unwrap())
        }
        Over::Sim => Box::new(net.unwrap().open(&"sim://*".parse().unwrap()).unwrap()),
    }
}

impl Job {
    pub(crate) fn new(over: Over, ranks: usize) -> Job {
        Job::with(over, ranks, |_, _| {})
    }

    pub(crate) fn with(over: Over, ranks: usize, set: impl Fn(usize, &mut Config)) -> Job {
        let net = (over == Over::Sim).then(|| SimNet::new(SimConfig::with_seed(7)));
        let endpoints: Vec<_> = (0..ranks).map(|_| open(over, net.as_ref())).collect();
        let addresses: Vec<_> = endpoints.iter().map(|e| e.address().clone()).collect();
        let map = Arc::new(ProcessMap::ranks(addresses.clone()));
        let interface = |(rank, endpoint): (usize, Box<dyn Endpoint>)| {
            let mut config = Config::default();
            set(rank, &mut config);
            match &net {
                Some(net) => {
                    Interface::with_given_time(endpoint, map.clone(), config, net.now()).unwrap()
                }
                None => Interface::open(endpoint, map.clone(), config).unwrap(),
            }
        };
        let ranks = endpoints.into_iter().enumerate().map(interface).collect();
        Job { ranks, net, addresses }
    }

    /// One pass over all of them. False if nothing was to be done.
    pub(crate) fn pass(&self) -> bool {
        let mut busy = false;
        for rank in &self.ranks {
            busy |= match &self.net {
                Some(net) => rank.progress_at(net.now()),
                None => rank.progress(),
            };
        }
        match &self.net {
            Some(net) => net.step() || busy,
            None => busy,
        }
    }

    /// So many passes.
    pub(crate) fn passes(&self, count: usize) {
        for _ in 0..count {
            self.pass();
        }
    }

    /// Drives all until there is something.
    pub(crate) fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(found) = ready() {
                return found;
            }
            self.pass();
            assert!(Instant::now() < end, "nothing came of it in twenty seconds");
        }
    }

    /// Drives all until nothing happens any more.
    pub(crate) fn settle(&self) {
        let mut idle = 0;
        let least = if self.net.is_some() { 3 } else { 200 };
        self.until(|| {
            let under_way = self.ranks.iter().any(|rank| rank.status().operations > 0);
            idle = if self.pass() || under_way { 0 } else { idle + 1 };
            (idle >= least).then_some(())
        });
    }

    /// The next event of a rank's queue.
    pub(crate) fn event(&self, rank: usize, queue: Handle<EventQueue>) -> Event {
        self.until(|| self.ranks[rank].take_event(queue).ok().map(|taken| taken.event))
    }

    /// All events that come, until nothing happens any more, by name.
    pub(crate) fn names(&self, rank: usize, queue: Handle<EventQueue>) -> Vec<String> {
        self.settle();
        let events = std::iter::from_fn(|| self.ranks[rank].take_event(queue).ok());
        events.map(|taken| name(&taken.event)).collect()
    }
}

/// An event in a word, with its failure if it has one.
pub(crate) fn name(event: &Event) -> String {
    let (name, result) = match event {
        Event::Start(e) => ("start", e.result),
        Event::Served(e) => ("served", e.result),
        Event::Overflow(e) => ("overflow", e.result),
        Event::Search { found, .. } => ("search", found.as_ref().map(|_| ()).map_err(|e| *e)),
        Event::Link(_) => ("link", Ok(())),
        Event::AutoUnlink(_) => ("unlink", Ok(())),
        Event::AutoFree(_) => ("free", Ok(())),
        Event::Disabled { .. } => ("disabled", Ok(())),
        Event::SendStart(e) => ("send start", e.result),
        Event::Send(e) => ("send", e.result),
        Event::Ack(e) => ("ack", e.result),
        Event::Reply(e) => ("reply", e.result),
        Event::ReplyStart(e) => ("reply start", e.result),
        Event::Released { .. } => ("released", Ok(())),
        _ => ("other", Ok(())),
    };
    match result {
        Ok(()) => name.to_owned(),
        Err(Failure::Unreachable) => format!("{name}: gone"),
        Err(failure) => format!("{name}: {failure:?}"),
    }
}

/// A portal with a queue, at a rank.
pub(crate) struct Door {
    pub(crate) portal: u16,
    pub(crate) queue: Handle<EventQueue>,
}

pub(crate) fn door(interface: &Interface) -> Door {
    door_with(interface, 1000, false)
}

pub(crate) fn door_with(interface: &Interface, events: usize, flow_control: bool) -> Door {
    let queue = interface.queue(events).unwrap();
    let options = PortalOptions { queue: Some(queue), flow_control, ..PortalOptions::default() };
    Door { portal: interface.portal(options).unwrap(), queue }
}

/// Memory with these bytes bound, and a queue for its events.
pub(crate) struct Source {
    pub(crate) part: Part,
    pub(crate) queue: Handle<EventQueue>,
    pub(crate) descriptor: Handle<Descriptor>,
}

pub(crate) fn source(interface: &Interface, bytes: &[u8]) -> Source {
    let queue = interface.queue(1000).unwrap();
    let descriptor = Descriptor { queue: Some(queue), ..Descriptor::new(bytes.to_vec()) };
    let descriptor = interface.bind(descriptor).unwrap();
    Source { part: Part::of(descriptor, bytes.len() as u64), queue, descriptor }
}

pub(crate) fn to(rank: u32, portal: u16, bits: u64) -> Target {
    Target { bits, ..Target::new(ProcessId::rank(rank), portal) }
}

/// Appends an entry, and takes its event of being linked.
pub(crate) fn append(
    interface: &Interface,
    door: &Door,
    list: List,
    entry: MatchEntry,
) -> Handle<MatchEntry> {
    let handle = interface.append(door.portal, list, entry).unwrap();
    let linked = interface.take_event(door.queue).map(|taken| taken.event);
    assert!(matches!(linked, Ok(Event::Link(_))), "{linked:?}");
    handle
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Makes a test of each of these functions, over each transport.
macro_rules! over_all {
    ($($name:ident)*) => {
        over_all!(@ local Local: $($name)*);
        over_all!(@ shm Shm: $($name)*);
        over_all!(@ tcp Tcp: $($name)*);
        over_all!(@ sim Sim: $($name)*);
    };
    (@ $module:ident $over:ident: $($name:ident)*) => {
        mod $module {
            $(#[test] fn $name() { super::$name($crate::common::Over::$over); })*
        }
    };
}

pub(crate) use over_all;

/// An entry of the overflow list that takes all there is, behind each other in so many bytes.
pub(crate) fn overflow(len: usize) -> MatchEntry {
    let memory = Region::zeroed(len);
    MatchEntry { ignore: !0, local_offset: true, ..MatchEntry::new(memory) }
}
