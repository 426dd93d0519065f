//! The two-sided engine keeps the contract: over queues of packets in memory, without descriptor.

use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{
    Address, Capabilities, Endpoint, Event, ImportError, Incarnation, Key, Limits, LostReason,
    Notifier, Notify, Peer, PeerState, Pool, Remote, ResolveError, Sleep, Time, answered_by_engine,
    two_sided::{Config, Engine},
};
use std::{
    collections::{HashMap, VecDeque},
    os::fd::BorrowedFd,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Packets that a line holds in each direction.
const DEPTH: usize = 32;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packets from the caller, and from the called.
#[derive(Default)]
struct Line {
    directions: [Mutex<VecDeque<Vec<u8>>>; 2],
    closed: Mutex<bool>,
}

/// Calls for the endpoint at an address: whose they are, and on which line.
type Calls = Vec<(Address, Incarnation, Arc<Line>)>;

static NET: LazyLock<Mutex<HashMap<Address, (Incarnation, Calls)>>> = LazyLock::new(Mutex::default);

struct Conn {
    peer: Peer,
    line: Arc<Line>,
    /// Which of the two directions we write.
    out: usize,
}

struct Waiting {
    peer: Peer,
    patience: Duration,
    deadline: Option<Time>,
}

struct Emulated {
    engine: Engine,
    capabilities: Capabilities,
    conns: Vec<Conn>,
    waiting: Vec<Waiting>,
    serving: Vec<Peer>,
    now: Option<Time>,
}

impl Emulated {
    fn open(address: &Address) -> Emulated {
        let mut limits = Limits::default();
        limits.max_leases = 200;
        let incarnation = Incarnation::random();
        let taken = lock(&NET).insert(address.clone(), (incarnation, Vec::new()));
        assert!(taken.is_none(), "{address} is taken");
        let pool = Pool::new(limits.max_leases);
        let mut config = Config::new(limits, 16 << 10);
        config.in_order = true;
        let mut capabilities = Capabilities::emulated("emulated", limits);
        capabilities.fences = true;
        Emulated {
            engine: Engine::new(address.clone(), incarnation, config, pool),
            capabilities,
            conns: Vec::new(),
            waiting: Vec::new(),
            serving: Vec::new(),
            now: None,
        }
    }

    /// Answers the connections that were requested, and connects to peers that exist by now.
    fn connect(&mut self, now: Time) {
        let mut net = lock(&NET);
        let own = self.engine.address().clone();
        let calls = net.get_mut(&own).map(|entry| std::mem::take(&mut entry.1));
        for (address, incarnation, line) in calls.into_iter().flatten() {
            let known = self.engine.find_peer(&address);
            if let Some(peer) = known.filter(|peer| self.engine.is_up(*peer)) {
                self.lose(peer, LostReason::Restarted);
            }
            let peer = match self.engine.find_peer(&address) {
                Some(peer) => peer,
                None => self.engine.add_peer(&address).unwrap(),
            };
            self.engine.peer_up(peer, incarnation);
            self.conns.push(Conn { peer, line, out: 1 });
        }
        for waiting in std::mem::take(&mut self.waiting) {
            let peer = waiting.peer;
            let Some(info) = self.engine.peer_info(peer) else { continue };
            if info.state != PeerState::Connecting {
                continue;
            }
            if let Some((incarnation, calls)) = net.get_mut(&info.address) {
                let line = Arc::new(Line::default());
                calls.push((own.clone(), self.engine.incarnation(), Arc::clone(&line)));
                self.engine.peer_up(peer, *incarnation);
                self.conns.push(Conn { peer, line, out: 0 });
                continue;
            }
            let deadline = waiting.deadline.unwrap_or(now.after(waiting.patience));
            if now >= deadline {
                let reason =
                    LostReason::Unreachable(waiting.patience, "there is no endpoint".into());
                self.engine.peer_lost(peer, reason);
            } else {
                self.waiting.push(Waiting { deadline: Some(deadline), ..waiting });
            }
        }
    }

    fn hang_up(&mut self, peer: Peer) {
        self.serving.retain(|serving| *serving != peer);
        self.conns.retain(|conn| {
            if conn.peer == peer {
                *lock(&conn.line.closed) = true;
            }
            conn.peer != peer
        });
    }

    fn lose(&mut self, peer: Peer, reason: LostReason) {
        self.hang_up(peer);
        self.engine.peer_lost(peer, reason);
    }

    /// Takes in what came. True if something did.
    fn read(&mut self) -> bool {
        let (mut worked, mut lost) = (false, Vec::new());
        for conn in &self.conns {
            // Looked at first: what was sent before the end is taken before the end.
            let closed = *lock(&conn.line.closed);
            let direction = &conn.line.directions[1 - conn.out];
            for _ in 0..16 {
                let Some(packet) = lock(direction).pop_front() else {
                    if closed {
                        lost.push((conn.peer, LostReason::Closed));
                    }
                    break;
                };
                match self.engine.deliver(conn.peer, &packet) {
                    Ok(()) => worked = true,
                    Err(wrong) => {
                        lost.push((conn.peer, LostReason::Protocol(wrong.to_string())));
                        break;
                    }
                }
            }
        }
        worked |= !lost.is_empty();
        for (peer, reason) in lost {
            self.lose(peer, reason);
        }
        worked
    }

    /// Sends what there is room for. True if something was sent.
    fn write(&mut self) -> bool {
        while let Some(peer) = self.engine.next_output() {
            self.serving.push(peer);
        }
        let mut worked = false;
        let (engine, conns) = (&mut self.engine, &self.conns);
        self.serving.retain(|peer| {
            let Some(conn) = conns.iter().find(|conn| conn.peer == *peer) else {
                return false;
            };
            let mut direction = lock(&conn.line.directions[conn.out]);
            while direction.len() < DEPTH {
                let Some(packet) = engine.poll_transmit(*peer) else {
                    return false;
                };
                let mut bytes = Vec::with_capacity(packet.len());
                packet.copy_to(&mut bytes);
                engine.sent(*peer);
                direction.push_back(bytes);
                worked = true;
            }
            true
        });
        worked
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let calls = lock(&NET).remove(self.engine.address()).unwrap().1;
        let lines = calls.iter().map(|call| &call.2);
        for line in lines.chain(self.conns.iter().map(|conn| &conn.line)) {
            *lock(&line.closed) = true;
        }
    }
}

impl Endpoint for Emulated {
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        if address.scheme() != "emulated" {
            let (address, scheme) = (address.clone(), "emulated");
            return Err(ResolveError::WrongScheme { address, scheme });
        }
        if let Some(peer) = self.engine.find_peer(address) {
            return Ok(peer);
        }
        let peer = self.engine.add_peer(address)?;
        let deadline = self.now.map(|now| now.after(patience));
        self.waiting.push(Waiting { peer, patience, deadline });
        Ok(peer)
    }
    fn forget(&mut self, peer: Peer) {
        self.hang_up(peer);
        self.engine.forget(peer);
    }
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = Some(now);
        self.connect(now);
        let read = self.read();
        let wrote = self.write();
        self.engine.take_events(budget, events) || read || wrote
    }
    fn arm(&mut self, _now: Time) -> Sleep {
        Sleep::Busy
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn notifier(&self) -> Notifier {
        struct NeverAsleep;
        impl Notify for NeverAsleep {
            fn notify(&self) {}
        }
        Notifier::new(Arc::new(NeverAsleep))
    }
    fn import(&mut self, key: &Key) -> Result<Remote, ImportError> {
        let parts = key.parse()?;
        if parts.route(Key::ROUTE_TWO_SIDED).is_none() {
            let (owner, scheme) = (parts.owner, "emulated");
            return Err(ImportError::NoRoute { owner, scheme });
        }
        let peer = self.resolve(&parts.owner, Duration::from_secs(5))?;
        self.engine.import(parts, peer)
    }

    answered_by_engine! {
        engine: address incarnation capabilities peer inject submit cancel register export
        import_number release
    }
}

#[derive(Default)]
struct Queues(RealTime);

impl Fixture for Queues {
    fn fresh(&self) -> Address {
        Address::parse(&format!("emulated://{}", self.0.name())).unwrap()
    }
    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Emulated::open(at))
    }
    fn now(&self) -> Time {
        self.0.now()
    }
}

conformance!(Queues::default());
conformance!(faulty, Queues::default());

/// The same on a clock of its own, which moves when no endpoint has anything to do.
mod virtual_time {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct Virtual(Queues, AtomicU64);

    impl Fixture for Virtual {
        fn fresh(&self) -> Address {
            self.0.fresh()
        }
        fn open(&self, at: &Address) -> Box<dyn Endpoint> {
            self.0.open(at)
        }
        fn now(&self) -> Time {
            Time(self.1.load(Ordering::Relaxed))
        }
        fn pass(&self, _: u32) {
            self.1.fetch_add(100_000, Ordering::Relaxed);
        }
    }

    conformance!(Virtual::default());
}
