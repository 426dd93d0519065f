//! Several endpoints, driven from one thread in turn, and the account of what happened.

use crate::{Fixture, ledger::Ledger};
use bytes::Bytes;
use petasos_fabric::{
    Access, Address, Body, Capabilities, Done, Endpoint, Event, Incarnation, InjectError, Key,
    Lease, Level, LostReason, OpError, OpErrorKind, Operation, Payload, Peer, Region, RegionId,
    Remote, RemoteSpan, Slice, Support, Time, Token,
};
use smallvec::smallvec;
use std::{
    collections::{HashSet, VecDeque},
    fmt::Write,
    ops::{Index, IndexMut},
    time::Duration,
};

/// How long others wait for a peer that a probe starts at once.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Events kept for the report of a failure.
const LOG: usize = 80;

/// Names an endpoint of the world.
pub type Node = usize;

/// The endpoints of a probe. Each check that fails panics with a report of what happened.
pub struct World<'f> {
    fixture: &'f dyn Fixture,
    seats: Vec<Seat>,
    next: u64,
    log: VecDeque<String>,
}

/// One endpoint, and what it reported and nobody has taken out.
pub struct Seat {
    endpoint: Option<Box<dyn Endpoint>>,
    /// Not driven: a target that never calls in.
    pub frozen: bool,
    /// What waits to be accepted.
    queue: VecDeque<Operation>,
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
    live: HashSet<Peer>,
    full: HashSet<Peer>,
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
                if let Err(OpError { kind: OpErrorKind::PeerLost(_), peer: None, .. }) = &result {
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
            Event::Writable { peer } => {
                if !self.full.remove(&peer) {
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
        World { fixture, seats: Vec::new(), next: 1, log: VecDeque::new() }
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
            live: HashSet::new(),
            full: HashSet::new(),
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
        up.filter(|(peer, who)| *who == incarnation && seat.live.contains(peer))
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

    /// Whether an endpoint can do this; else the probe has nothing to look at.
    pub fn has(&mut self, n: Node, what: impl Fn(&Capabilities) -> Support) -> bool {
        what(&self.capabilities(n)) != Support::None
    }

    /// Resolves with [`PATIENCE`].
    pub fn resolve(&mut self, n: Node, address: &Address) -> Peer {
        let resolved = self[n].endpoint().resolve(address, PATIENCE);
        resolved.unwrap_or_else(|error| self.fail(&format!("{address} was not resolved: {error}")))
    }

    /// Lets an endpoint go without a word. Its operations end without an event.
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

    // ---- driving ----

    /// Drives each endpoint once. True if one of them did something.
    pub fn step(&mut self) -> bool {
        let mut worked = false;
        let now = self.now();
        for n in 0..self.seats.len() {
            let seat = &mut self.seats[n];
            let Some(endpoint) = seat.endpoint.as_mut().filter(|_| !seat.frozen) else {
                continue;
            };
            if !seat.queue.is_empty() {
                endpoint.submit(&mut seat.queue);
            }
            let mut events = Vec::new();
            worked |= endpoint.progress(now, 64, &mut events);
            for event in events {
                self.happened(n, event);
            }
        }
        worked
    }

    /// Drives each endpoint a little, each on a thread of its own.
    pub fn drive_elsewhere(&mut self) {
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
        while !condition(self) {
            if self.now() >= end {
                self.fail(&format!("not within {:?}: {what}", self.fixture.deadline()));
            }
            if !self.step() {
                self.fixture.pass();
            }
        }
    }

    /// Drives all for a while, to see that nothing more comes.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now().after(duration);
        while self.now() < end {
            if !self.step() {
                self.fixture.pass();
            }
        }
    }

    /// Cancels what is left, and checks that everything ends, once.
    pub fn end(mut self) {
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

    fn happened(&mut self, n: Node, event: Event) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(format!("{n}: {event:?}"));
        if let Err(wrong) = self.seats[n].take(event) {
            self.fail(&wrong);
        }
    }

    /// Fails the probe with a report.
    pub fn fail(&self, why: &str) -> ! {
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
        panic!("{why}\n{report}");
    }

    // ---- operations ----

    /// Whether all that was submitted has been accepted.
    #[must_use]
    pub fn accepted(&self, n: Node) -> bool {
        self[n].queue.is_empty()
    }

    /// Submits an operation, and gives its token.
    pub fn op(&mut self, n: Node, make: impl FnOnce(Token) -> Operation) -> Token {
        let token = Token(self.next);
        self.next += 1;
        let operation = make(token);
        let seat = &mut self.seats[n];
        seat.ledger.open(&operation);
        seat.queue.push_back(operation);
        let endpoint = seat.endpoint.as_mut().expect("this endpoint was killed");
        endpoint.submit(&mut seat.queue);
        token
    }

    /// Waits for a completion.
    pub fn result(&mut self, n: Node, token: Token) -> Result<Done, OpError> {
        self.until(&format!("{token:?} of {n} completes"), |w| w[n].ledger.result(token).is_some());
        self[n].ledger.take(token).expect("just seen")
    }

    /// Waits for a completion, which must be a success.
    pub fn ok(&mut self, n: Node, token: Token) -> Done {
        match self.result(n, token) {
            Ok(done) => done,
            Err(error) => self.fail(&format!("{token:?} of {n} failed: {error}")),
        }
    }

    /// Waits for a completion, which must be a failure.
    pub fn failure(&mut self, n: Node, token: Token) -> OpError {
        match self.result(n, token) {
            Ok(done) => self.fail(&format!("{token:?} of {n} did not fail: {done:?}")),
            Err(error) => error,
        }
    }

    /// Waits for a failure of the kind that `expected` accepts.
    pub fn fails(&mut self, n: Node, token: Token, expected: impl Fn(&OpErrorKind) -> bool) {
        let error = self.failure(n, token);
        if !expected(&error.kind) {
            self.fail(&format!("{token:?} of {n} failed in the wrong way: {error:?}"));
        }
    }

    /// Asks that an operation end.
    pub fn cancel(&mut self, n: Node, token: Token) {
        let seat = &mut self[n];
        // What was never accepted is the probe's own: hand it in first.
        let queue = &mut seat.queue;
        let endpoint = seat.endpoint.as_mut().expect("this endpoint was killed");
        let mut tries = 0;
        while !queue.is_empty() && tries < 100 {
            endpoint.submit(queue);
            tries += 1;
        }
        endpoint.cancel(token);
    }

    /// Injects, once.
    pub fn try_inject(&mut self, n: Node, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let seat = &mut self[n];
        let result = seat.endpoint().inject(peer, parts);
        if result == Err(InjectError::Full) {
            seat.full.insert(peer);
        }
        result
    }

    /// Injects, after `Writable` as often as needed.
    pub fn inject(&mut self, n: Node, peer: Peer, message: &[u8]) {
        loop {
            match self.try_inject(n, peer, &[message]) {
                Ok(()) => return,
                Err(InjectError::Full) => {
                    let count = self[n].writable.len();
                    self.until("there is room again", |w| w[n].writable.len() > count);
                }
                Err(error) => self.fail(&format!("{n} could not inject: {error}")),
            }
        }
    }

    /// Submits a `Send`.
    pub fn send(&mut self, n: Node, peer: Peer, message: &[u8]) -> Token {
        let payload = Payload::Bytes(Bytes::copy_from_slice(message));
        let level = Level::Delivered;
        self.op(n, |token| Operation::Send { token, peer, payload, level })
    }

    /// Submits a `SendTagged`.
    pub fn send_tagged(&mut self, n: Node, peer: Peer, tag: u64, message: &[u8]) -> Token {
        let payload = Payload::Bytes(Bytes::copy_from_slice(message));
        let level = Level::Reusable;
        self.op(n, |token| Operation::SendTagged { token, peer, tag, payload, level })
    }

    /// Posts a receive.
    pub fn post(
        &mut self,
        n: Node,
        source: Option<Peer>,
        tag: u64,
        ignore: u64,
        into: &Slice,
    ) -> Token {
        let into = into.clone();
        self.op(n, |token| Operation::PostReceive { token, source, tag, ignore, into })
    }

    /// Waits for a message.
    pub fn message(&mut self, n: Node) -> (Peer, Vec<u8>) {
        self.until("a message comes", |w| !w[n].messages.is_empty());
        self[n].messages.pop_front().expect("just seen")
    }

    /// Waits for a long message.
    pub fn long(&mut self, n: Node) -> (Peer, Vec<u8>, Body, u64) {
        self.until("a long message comes", |w| !w[n].longs.is_empty());
        self[n].longs.pop_front().expect("just seen")
    }

    /// Opens memory to others.
    pub fn expose(&mut self, n: Node, memory: &Slice, access: Access) -> (RegionId, Key) {
        let endpoint = self[n].endpoint();
        let region = endpoint.register(memory, access).expect("memory is registered");
        let key = endpoint.export(region).expect("a region is exported");
        (region, key)
    }

    /// Imports a key, after a journey as bytes.
    pub fn import(&mut self, n: Node, key: &Key) -> Remote {
        let key = Key::from_bytes(key.as_bytes().to_vec()).expect("a key is short enough");
        let imported = self[n].endpoint().import(&key);
        imported.unwrap_or_else(|error| self.fail(&format!("a key was not imported: {error}")))
    }

    /// Submits a put of one piece.
    pub fn put(&mut self, n: Node, remote: Remote, offset: u64, from: &Slice) -> Token {
        let span = RemoteSpan { offset, len: from.len() as u64 };
        let local = from.clone();
        self.op(n, |token| Operation::Put {
            token,
            remote,
            local: smallvec![local],
            spans: smallvec![span],
            level: Level::Visible,
            event: None,
        })
    }

    /// Submits a get of one piece.
    pub fn get(&mut self, n: Node, remote: Remote, offset: u64, into: &Slice) -> Token {
        let span = RemoteSpan { offset, len: into.len() as u64 };
        let local = into.clone();
        self.op(n, |token| Operation::Get {
            token,
            remote,
            local: smallvec![local],
            spans: smallvec![span],
        })
    }

    /// Closes a region and waits for it.
    pub fn deregister(&mut self, n: Node, region: RegionId) {
        let token = self.op(n, |token| Operation::Deregister { token, region });
        self.ok(n, token);
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
