//! Several endpoints, driven from one thread in turn, and the account of what happened.

use crate::{Fixture, ledger::Ledger, raw::Lendings};
use petasos_fabric::{
    Address, Body, Capabilities, Endpoint, Event, Incarnation, Lease, LostReason, OpErrorKind,
    Operation, Peer, Refusal, Region, RegionId, Slice, Support, Time, Token,
};
use std::{
    collections::{HashSet, VecDeque},
    fmt::Write,
    ops::{Index, IndexMut},
    time::Duration,
};

/// How long others wait at least for a peer that a probe starts at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Events kept for the report of a failure.
const LOG: usize = 80;

/// Names an endpoint of the world.
pub type Node = usize;

/// The endpoints of a probe. Each check that fails panics with a report of what happened.
pub struct World<'f> {
    fixture: &'f dyn Fixture,
    pub(crate) seats: Vec<Seat>,
    pub(crate) next: u64,
    /// Steps in a row in which there was nothing to do.
    idle: u32,
    log: VecDeque<String>,
    pub(crate) lendings: Lendings,
}

/// One endpoint, and the events that the probe has not taken yet.
pub struct Seat {
    pub(crate) endpoint: Option<Box<dyn Endpoint>>,
    /// Not driven: a target that never calls in.
    pub frozen: bool,
    /// How often it was driven.
    steps: u64,
    /// What waits to be accepted.
    pub(crate) queue: VecDeque<Operation>,
    /// Its operations.
    pub ledger: Ledger,
    /// Messages, copied out of their leases.
    pub messages: VecDeque<(Peer, Vec<u8>)>,
    /// If some: leases are kept here, in place of copies in `messages`.
    pub hoard: Option<Vec<Lease>>,
    /// Headers of long messages, with name and length of their bodies.
    pub longs: VecDeque<(Peer, Vec<u8>, Body, u64)>,
    /// Puts with event: whence, region, offset, length, data.
    pub arrivals: VecDeque<(Peer, RegionId, u64, u64, u64)>,
    /// Peers that came up, also those lost since.
    pub ups: Vec<(Peer, Incarnation)>,
    /// Peers that were lost.
    pub lost: Vec<(Peer, LostReason)>,
    /// Peers called writable.
    pub writable: Vec<Peer>,
    /// Peers that refused puts after their completion, and why.
    pub refused: Vec<(Peer, Refusal)>,
    live: HashSet<Peer>,
    pub(crate) full: HashSet<Peer>,
    /// Peers to which an operation was left in the queue, or refused: they may be called writable.
    pub(crate) flooded: HashSet<Peer>,
}

impl Seat {
    /// The endpoint.
    ///
    /// # Panics
    /// If it was killed.
    pub fn endpoint(&mut self) -> &mut dyn Endpoint {
        &mut **self.endpoint.as_mut().expect("this endpoint was killed")
    }

    fn take(&mut self, event: Event) -> Result<(), String> {
        let known = |seat: &Seat, peer: Peer, what: &str| {
            if seat.live.contains(&peer) {
                return Ok(());
            }
            Err(format!("{what} from {peer:?}, which is not up"))
        };
        match event {
            Event::Message { peer, message } => {
                known(self, peer, "a message")?;
                match &mut self.hoard {
                    Some(hoard) => hoard.push(message),
                    None => self.messages.push_back((peer, message.to_vec())),
                }
            }
            Event::LongMessage { peer, header, body, len } => {
                known(self, peer, "a long message")?;
                self.longs.push_back((peer, header.to_vec(), body, len));
            }
            Event::PutArrived { peer, region, offset, len, data } => {
                known(self, peer, "a put")?;
                self.arrivals.push_back((peer, region, offset, len, data));
            }
            Event::Done { token, result } => {
                if let Err(error) = &result
                    && error.peer.is_none()
                    && matches!(error.kind, OpErrorKind::PeerLost(_))
                {
                    return Err(format!("{token:?} does not name the peer that was lost"));
                }
                self.ledger.close(token, result)?;
            }
            Event::PeerUp { peer, incarnation } => {
                if !self.live.insert(peer) {
                    return Err(format!("{peer:?} came up twice"));
                }
                self.ups.push((peer, incarnation));
            }
            Event::PeerLost { peer, reason } => {
                if self.lost.iter().any(|(lost, _)| *lost == peer) {
                    return Err(format!("{peer:?} was lost twice"));
                }
                self.live.remove(&peer);
                self.full.remove(&peer);
                self.lost.push((peer, reason));
            }
            Event::PutRefused { peer, why } => {
                known(self, peer, "a refusal")?;
                self.refused.push((peer, why));
            }
            Event::Writable { peer } => {
                if !self.full.remove(&peer) && !self.flooded.contains(&peer) {
                    return Err(format!("{peer:?} is called writable, but was not full"));
                }
                self.writable.push(peer);
            }
            other => return Err(format!("an event unknown to the suite: {other:?}")),
        }
        Ok(())
    }
}

impl<'f> World<'f> {
    /// An empty world.
    #[must_use]
    pub fn new(fixture: &'f dyn Fixture) -> World<'f> {
        let lendings = Lendings::default();
        World { fixture, seats: Vec::new(), next: 1, idle: 0, log: VecDeque::new(), lendings }
    }

    /// The transport under test.
    #[must_use]
    pub fn fixture(&self) -> &'f dyn Fixture {
        self.fixture
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.fixture.now()
    }

    /// Opens an endpoint at a fresh address.
    pub fn open(&mut self) -> Node {
        self.open_at(&self.fixture.fresh())
    }

    /// Opens an endpoint at this address.
    pub fn open_at(&mut self, address: &Address) -> Node {
        self.adopt(self.fixture.open(address))
    }

    /// Takes in an endpoint that was opened elsewhere.
    pub fn adopt(&mut self, endpoint: Box<dyn Endpoint>) -> Node {
        self.seats.push(Seat {
            steps: 0,
            endpoint: Some(endpoint),
            frozen: false,
            queue: VecDeque::new(),
            ledger: Ledger::default(),
            messages: VecDeque::new(),
            hoard: None,
            longs: VecDeque::new(),
            arrivals: VecDeque::new(),
            ups: Vec::new(),
            lost: Vec::new(),
            writable: Vec::new(),
            refused: Vec::new(),
            live: HashSet::new(),
            full: HashSet::new(),
            flooded: HashSet::new(),
        });
        self.seats.len() - 1
    }

    /// Two endpoints; the handles by which the first knows the second, and the other way round.
    pub fn pair(&mut self) -> (Node, Node, Peer, Peer) {
        let (a, b) = (self.open(), self.open());
        let (ab, ba) = self.join(a, b);
        (a, b, ab, ba)
    }

    /// Connects two endpoints, from `a` to `b`, and gives the handles that each has of the other.
    pub fn join(&mut self, a: Node, b: Node) -> (Peer, Peer) {
        let address = self.address(b);
        let ab = self.resolve(a, &address);
        self.until("both know each other", |w| {
            w.known(a, b) == Some(ab) && w.known(b, a).is_some()
        });
        let ba = self.known(b, a).expect("just seen");
        (ab, ba)
    }

    /// The handle that `at` has of `of`, if that peer is up there.
    #[must_use]
    pub fn known(&self, at: Node, of: Node) -> Option<Peer> {
        let incarnation = self[of].endpoint.as_ref()?.incarnation();
        let seat = &self[at];
        let up = seat.ups.iter().rev();
        up.filter(|(peer, of)| *of == incarnation && seat.live.contains(peer))
            .map(|(peer, _)| *peer)
            .next()
    }

    /// The address of an endpoint.
    pub fn address(&mut self, n: Node) -> Address {
        self[n].endpoint().address().clone()
    }

    /// What an endpoint can do.
    pub fn capabilities(&mut self, n: Node) -> Capabilities {
        self[n].endpoint().capabilities().clone()
    }

    /// What an endpoint can do with a peer, whose handle is not stale.
    pub fn capabilities_of(&mut self, n: Node, peer: Peer) -> Capabilities {
        let told = self[n].endpoint().capabilities_of(peer).cloned();
        told.unwrap_or_else(|| self.fail(&format!("nothing is said of {peer:?}")))
    }

    /// Whether an endpoint can do this; else the probe has nothing to look at.
    pub fn has(&mut self, n: Node, what: impl Fn(&Capabilities) -> Support) -> bool {
        what(&self.capabilities(n)) != Support::None
    }

    /// How long others wait for a peer: ten seconds, or half of what a probe has, where that is
    /// more.
    #[must_use]
    pub fn patience(&self) -> Duration {
        PATIENCE.max(self.fixture.deadline() / 2)
    }

    /// Resolves with that [patience](World::patience).
    pub fn resolve(&mut self, n: Node, address: &Address) -> Peer {
        let patience = self.patience();
        let resolved = self[n].endpoint().resolve(address, patience);
        resolved.unwrap_or_else(|error| self.fail(&format!("{address} was not resolved: {error}")))
    }

    /// Drops an endpoint without closing it. Its operations end without an event.
    pub fn kill(&mut self, n: Node) {
        if let Some(endpoint) = self[n].endpoint.take() {
            self.fixture.kill(endpoint);
        }
        self[n].queue.clear();
    }

    /// Takes an endpoint out, to be driven by other means.
    pub fn take_out(&mut self, n: Node) -> Box<dyn Endpoint> {
        self[n].endpoint.take().expect("this endpoint was killed")
    }

    /// Drives each endpoint once. True if one of them did something.
    pub fn step(&mut self) -> bool {
        let (mut worked, mut happened) = (false, false);
        let now = self.now();
        for n in 0..self.seats.len() {
            let seat = &mut self.seats[n];
            let Some(endpoint) = seat.endpoint.as_mut().filter(|_| !seat.frozen) else {
                continue;
            };
            if !seat.queue.is_empty() {
                endpoint.submit(&mut seat.queue);
                seat.flooded.extend(seat.queue.iter().filter_map(Operation::target));
            }
            let mut events = Vec::new();
            // Messages come by `poll_message` in every other step, and in between as events.
            seat.steps += 1;
            let mut message = Lease::default();
            while seat.steps.is_multiple_of(2)
                && let Some(peer) = endpoint.poll_message(&mut message)
            {
                events.push(Event::Message { peer, message: std::mem::take(&mut message) });
            }
            // Completions by `poll_completion`, too, in half of each of these.
            while seat.steps & 2 != 0
                && let Some(completion) = endpoint.poll_completion()
            {
                events.push(Event::from(completion));
            }
            worked |= !events.is_empty();
            worked |= endpoint.progress(now, 64, &mut events);
            happened |= !events.is_empty();
            for event in events {
                self.happened(n, event);
            }
        }
        if happened {
            self.settle();
        }
        worked
    }

    /// A step, and a little time where there was nothing to do.
    fn step_or_wait(&mut self) {
        if self.step() {
            self.idle = 0;
        } else {
            self.fixture.pass(self.idle);
            self.idle += 1;
        }
    }

    /// See [`Fixture::settle`]. Done around whatever waits, and when something is submitted; else
    /// only a probe needs it whose endpoint writes memory for others to see at once.
    pub fn settle(&self) {
        self.fixture.settle();
    }

    /// Drives each endpoint a little, each on a thread of its own.
    pub fn drive_others(&mut self) {
        let fixture = self.fixture;
        let moved: Vec<_> = (self.seats.iter_mut()).map(|seat| seat.endpoint.take()).collect();
        let back: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = moved
                .into_iter()
                .map(|endpoint| {
                    scope.spawn(move || {
                        let mut events = Vec::new();
                        let mut endpoint = endpoint?;
                        for _ in 0..50 {
                            endpoint.progress(fixture.now(), 3, &mut events);
                        }
                        Some((endpoint, events))
                    })
                })
                .collect();
            (threads.into_iter())
                .map(|thread| thread.join().expect("a thread that drives"))
                .collect()
        });
        for (n, (endpoint, events)) in
            back.into_iter().enumerate().filter_map(|(n, b)| Some((n, b?)))
        {
            self.seats[n].endpoint = Some(endpoint);
            for event in events {
                self.happened(n, event);
            }
        }
    }

    /// Drives all until `condition` holds.
    ///
    /// # Panics
    /// If it does not hold within the fixture's deadline.
    pub fn until(&mut self, what: &str, condition: impl Fn(&World<'f>) -> bool) {
        let end = self.now().after(self.fixture.deadline());
        self.settle();
        while !condition(self) {
            if self.now() >= end {
                self.fail(&format!("not within {:?}: {what}", self.fixture.deadline()));
            }
            self.step_or_wait();
        }
        self.settle();
    }

    /// Drives all for a while, to see that nothing more comes.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now().after(duration);
        self.settle();
        while self.now() < end {
            self.step_or_wait();
        }
        self.settle();
    }

    /// Cancels what is left, and checks that everything ends, once.
    pub fn end(&mut self) {
        for seat in &mut self.seats {
            seat.frozen = false;
            seat.hoard = None;
            let open: Vec<Token> = seat.ledger.outstanding().map(|(token, _)| token).collect();
            if let Some(endpoint) = &mut seat.endpoint {
                for token in open {
                    endpoint.cancel(token);
                }
            }
        }
        self.until("everything completes when it is cancelled", |w| {
            (w.seats.iter()).all(|seat| seat.endpoint.is_none() || seat.ledger.is_settled())
        });
        self.run_for(Duration::from_millis(3));
    }

    pub(crate) fn happened(&mut self, n: Node, event: Event) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(format!("{n}: {event:?}"));
        if let Event::Done { token, .. } = event {
            self.lendings.completed(n, token);
        }
        if let Err(wrong) = self.seats[n].take(event) {
            self.fail(&wrong);
        }
    }

    /// Fails the probe; the report follows when the world ends.
    pub fn fail(&self, why: &str) -> ! {
        panic!("{why}");
    }

    /// Writes into the report what the probe is at.
    pub fn remark(&mut self, what: &str) {
        self.log.push_back(format!("-- {what}"));
    }

    fn report(&self) -> String {
        let mut report = String::new();
        for (n, seat) in self.seats.iter().enumerate() {
            let end = seat.endpoint.as_ref();
            let address = end.map_or("killed", |e| e.address().as_str());
            let open: Vec<_> = seat.ledger.outstanding().collect();
            let _ = writeln!(
                report,
                "endpoint {n} {address}: open {open:?}, unaccepted {}, live {:?}, lost {:?}",
                seat.queue.len(),
                seat.live,
                seat.lost
            );
        }
        for line in &self.log {
            let _ = writeln!(report, "  {line:.200}");
        }
        report
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.report());
        }
    }
}

impl Index<Node> for World<'_> {
    type Output = Seat;
    fn index(&self, n: Node) -> &Seat {
        &self.seats[n]
    }
}

impl IndexMut<Node> for World<'_> {
    fn index_mut(&mut self, n: Node) -> &mut Seat {
        &mut self.seats[n]
    }
}

/// Memory with these bytes.
#[must_use]
pub fn memory(bytes: &[u8]) -> Slice {
    Slice::from(bytes.to_vec())
}

/// Memory of zeroes.
#[must_use]
pub fn room(len: usize) -> Slice {
    Region::zeroed(len).whole()
}

/// Bytes that differ from place to place, and from seed to seed.
#[must_use]
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

/// Whether all bytes are this one. Blocks are compared: a loop over the bytes of some megabytes
/// takes long in tests, which are hardly optimised.
#[must_use]
pub(crate) fn all_are(bytes: &[u8], byte: u8) -> bool {
    let block = [byte; 4096];
    bytes.chunks(block.len()).all(|chunk| *chunk == block[..chunk.len()])
}
