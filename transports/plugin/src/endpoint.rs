//! An endpoint over a [`Medium`]: the engine above, lines below.

mod pairing;
mod traffic;

use crate::{
    ConnectError, MAX_PACKET, MIN_PACKET, Medium, Prover, Readiness, Transport,
    greeting::{Hello, LONGEST, Nonce},
    table::{LISTENER, Ready},
};
use petasos_fabric::{
    Address, AllocError, Capabilities, Credential, Doorbell, Endpoint, Event, Home, Incarnation,
    Limits, LostReason, Notifier, Patience, Peer, PeerState, Pool, Region, ResolveError, Sleep,
    Time, answered_by_engine,
    two_sided::{Config, Engine, Outgoing, Packet, Placement, header},
};
use rustix::event::epoll;
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

/// How long a peer that connected to us may take until it is up.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two attempts to connect: at first, and at last.
const RETRY: Duration = Duration::from_millis(2);
const LONGEST_RETRY: Duration = Duration::from_millis(50);
/// How often a medium without a descriptor is polled while the program sleeps.
const POLLED: Duration = Duration::from_millis(1);
/// Lost peers that the user did not resolve, and that are still known.
const KEPT: usize = 1024;
/// Lines that were accepted and are of no peer yet.
const ACCEPTED: usize = 256;
/// Packets read from one line before the next has its turn.
const TURN: usize = 16;

/// An endpoint over a medium.
pub struct Packets<M: Medium> {
    engine: Engine,
    capabilities: Capabilities,
    medium: M,
    prover: Option<Prover>,
    /// The medium's descriptor and the doorbell.
    sleep: OwnedFd,
    doorbell: Arc<Doorbell>,
    /// Whether `arm` was called since the last `progress`.
    armed: bool,
    /// By the index of the peer.
    pairs: Vec<Pair>,
    /// By the number of the line.
    lines: Vec<Line>,
    free: Vec<u32>,
    /// Lines that are accepted and not of a peer.
    accepted: Vec<u32>,
    /// A peer was lost whose successor may have said hello.
    freed: bool,
    /// Peers that are not up yet.
    connecting: Vec<Peer>,
    /// Lost peers that the user did not resolve, oldest first.
    lost: VecDeque<Peer>,
    /// Why the medium is of no more use.
    broken: Option<String>,
    home: Home,
    now: Time,
    ready: Vec<Ready>,
    buffer: Vec<u8>,
}

/// The two lines of a pair of endpoints.
#[derive(Default)]
struct Pair {
    /// To the peer.
    out: Option<u32>,
    /// Of our hello there.
    nonce: Nonce,
    /// Whether that was sent.
    greeted: bool,
    /// From the peer, once it has proven its address.
    inward: Option<u32>,
    /// How long the peer is waited for.
    patience: Option<Patience>,
    /// Whether the user resolved it.
    wanted: bool,
    /// Whether it is to be there already.
    running: bool,
    retry: Time,
    pause: Duration,
    /// Why it is not up.
    why: String,
    /// A packet for which there was no room.
    unsent: Vec<u8>,
    /// The same, of which the payload stays where it is.
    held: Option<Packet>,
    /// The memory of a packet that the medium reads where it lies.
    lent: Option<Outgoing>,
    /// Where the payload goes that was asked for, and how long it is.
    arriving: Option<(Placement, usize)>,
}

/// What a line is.
enum Line {
    Free,
    /// To a peer.
    Out(Peer),
    /// From a peer.
    In(Peer),
    /// From an endpoint that has not proven its address.
    Accepted(Candidate),
}

/// An endpoint that connected to us.
struct Candidate {
    until: Time,
    hello: Option<Hello>,
    /// Which peer that would be, unless that one is up already.
    peer: Option<Peer>,
    /// Whether it cannot be a peer, whoever it is. Its line stays until it has heard why.
    refused: bool,
    /// Of our hello whose proof we sent to it, and of that whose proof it sent.
    answered: Option<Nonce>,
    proven: Option<Nonce>,
    /// Proofs that it sent.
    proofs: u32,
}

/// Why a medium did not become an endpoint.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It was refused.
    #[error("{address}: {reason}")]
    Refused {
        /// What was to be opened.
        address: Address,
        /// Why not.
        reason: String,
    },
    /// The medium breaks its rules.
    #[error("the transport of {address} does not keep to its interface: {what}")]
    Broken {
        /// What was to be opened.
        address: Address,
        /// What is wrong.
        what: String,
    },
    /// The system refused something.
    #[error("{0}")]
    System(String),
}

impl<T: Transport> Packets<T> {
    /// Opens an endpoint of a transport that is part of this program. With a prover, all peers must
    /// have the same secret.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(at: &Address, prover: Option<Prover>) -> Result<Packets<T>, OpenError> {
        let refused = |reason| OpenError::Refused { address: at.clone(), reason };
        if at.scheme() != T::SCHEME {
            return Err(refused(format!("its addresses begin with {}://", T::SCHEME)));
        }
        Packets::over(T::open(at.as_str()).map_err(refused)?, T::SCHEME, at, prover)
    }
}

impl<M: Medium> Packets<M> {
    /// An endpoint over a medium that was opened at `at`.
    pub(crate) fn over(
        medium: M,
        scheme: &'static str,
        at: &Address,
        prover: Option<Prover>,
    ) -> Result<Packets<M>, OpenError> {
        let broken = |what| OpenError::Broken { address: at.clone(), what };
        let address = Address::parse(&medium.address())
            .map_err(|error| broken(format!("its address: {error}")))?;
        if address.scheme() != scheme {
            return Err(broken(format!("its address is {address}")));
        }
        let max_packet = medium.max_packet();
        if !(MIN_PACKET..=MAX_PACKET).contains(&max_packet) {
            let what = format!("packets of {max_packet} bytes, not {MIN_PACKET} to {MAX_PACKET}");
            return Err(broken(what));
        }
        let system = |error: io::Error| OpenError::System(error.to_string());
        let sleep = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| system(e.into()))?;
        let doorbell = Arc::new(Doorbell::new().map_err(|e| system(e.into()))?);
        for fd in [medium.fd(), Some(doorbell.as_fd())].into_iter().flatten() {
            let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
            epoll::add(&sleep, fd, data, flags).map_err(|e| system(e.into()))?;
        }
        let fragment = max_packet - header::MAX;
        let mut limits = Limits::default();
        limits.max_message = limits.max_message.min(fragment);
        limits.max_inject = limits.max_inject.min(fragment);
        limits.max_header = limits.max_header.min(fragment);
        let mut config = Config::new(limits, fragment);
        config.in_order = true;
        config.eager = config.eager.min(fragment);
        let mut capabilities = Capabilities::emulated(scheme, limits);
        capabilities.fences = true;
        if prover.is_some() {
            capabilities.credential = Credential::SharedSecret;
        }
        let pool = Pool::new(limits.max_leases);
        Ok(Packets {
            engine: Engine::new(address, Incarnation::random(), config, pool),
            capabilities,
            medium,
            prover,
            sleep,
            doorbell,
            armed: false,
            pairs: Vec::new(),
            lines: Vec::new(),
            free: Vec::new(),
            accepted: Vec::new(),
            freed: false,
            connecting: Vec::new(),
            lost: VecDeque::new(),
            broken: None,
            home: Home::current(),
            now: Time::ZERO,
            ready: vec![Ready::default(); 64],
            buffer: vec![0; max_packet.max(LONGEST)],
        })
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    fn pair(&mut self, peer: Peer) -> &mut Pair {
        &mut self.pairs[peer.index as usize]
    }

    // Lines.

    fn new_line(&mut self, is: Line) -> u32 {
        let line = self.free.pop().unwrap_or_else(|| {
            self.lines.push(Line::Free);
            (self.lines.len() - 1) as u32
        });
        self.lines[line as usize] = is;
        line
    }

    /// Ends a line, unless it never began.
    fn end_line(&mut self, line: u32, began: bool) {
        if began {
            self.medium.shut(line);
        }
        let was = std::mem::replace(&mut self.lines[line as usize], Line::Free);
        if matches!(was, Line::Accepted(_)) {
            self.accepted.retain(|accepted| *accepted != line);
        }
        self.free.push(line);
    }

    /// Takes what the medium reports.
    fn take_ready(&mut self, budget: usize) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        let mut readiness = Readiness::new(&mut ready);
        let polled = self.medium.poll(&mut readiness);
        let count = readiness.count();
        for Ready { line, what } in &ready[..count] {
            if *line == LISTENER {
                self.accept();
                continue;
            }
            let (readable, writable) = (what & Ready::READABLE != 0, what & Ready::WRITABLE != 0);
            match self.lines.get(*line as usize) {
                Some(Line::Out(peer)) => self.outward_ready(*peer, readable, writable),
                Some(Line::In(peer)) if readable => self.read(*peer, budget.min(TURN)),
                Some(Line::Accepted(_)) if readable => self.read_candidate(*line),
                _ => {}
            }
        }
        self.ready = ready;
        if let Err(why) = polled {
            self.give_up(why);
        }
        count > 0
    }

    /// The medium is of no more use.
    fn give_up(&mut self, why: String) {
        tracing::error!(address = %self.engine.address(), %why, "a transport has failed");
        self.broken = Some(why.clone());
        for index in 0..self.pairs.len() as u32 {
            if let Some(peer) = self.engine.peer_at(index)
                && !self.engine.is_self(peer)
                && let Some(info) = self.engine.peer_info(peer)
                && !matches!(info.state, PeerState::Lost(_))
            {
                self.lose(peer, LostReason::System(why.clone()));
            }
        }
    }
}

impl<M: Medium> Endpoint for Packets<M> {
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        // The engine's events come first: nothing more is read while they fill the budget.
        let before = events.len();
        let mut busy = self.engine.take_events(budget, events);
        if events.len() - before >= budget {
            return true;
        }
        if std::mem::take(&mut self.armed) {
            self.doorbell.awake();
            self.doorbell.take();
        }
        if self.broken.is_none() {
            busy |= self.take_ready(budget);
        }
        if self.engine.is_closing() {
            self.engine.keep_time(now);
        }
        self.pair_up();
        while let Some(peer) = self.engine.next_output() {
            self.write(peer);
            busy = true;
        }
        let left = budget.saturating_sub(events.len() - before);
        self.engine.take_events(left, events) || busy
    }

    fn arm(&mut self, now: Time) -> Sleep {
        self.armed = true;
        if self.doorbell.prepare() || self.engine.has_events() || self.engine.has_output() {
            return Sleep::Busy;
        }
        let mut longest = Duration::MAX;
        if self.broken.is_none() {
            match self.medium.arm() {
                Some(within) => longest = within,
                None => return Sleep::Busy,
            }
            if self.medium.fd().is_none() {
                longest = longest.min(POLLED);
            }
        }
        // A lease that is given back signals no descriptor, and neither does a peer that starts.
        if !self.connecting.is_empty() || !self.accepted.is_empty() || self.engine.has_waiting() {
            longest = longest.min(RETRY);
        }
        let until = if longest == Duration::MAX { Time::NEVER } else { now.after(longest) };
        Sleep::Until(until.min(self.engine.deadline()))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.sleep.as_fd())
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(self.doorbell.clone())
    }

    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        if len == 0 || len > isize::MAX as usize {
            return Err(AllocError::BadLength(len));
        }
        self.medium.alloc(len).unwrap_or_else(|| Ok(Region::zeroed(len)))
    }

    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.want(address, patience, false)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.want(address, patience, true)
    }

    fn forget(&mut self, peer: Peer) {
        if self.engine.peer_info(peer).is_some() {
            self.clear(peer);
            self.engine.forget(peer);
        }
    }

    answered_by_engine! {
        engine: address incarnation capabilities peer inject submit cancel poll_completion register
        export import release
    }
}

impl<M: Medium> Drop for Packets<M> {
    fn drop(&mut self) {
        if self.home.is_current() && self.broken.is_none() {
            self.medium.end();
        }
    }
}
