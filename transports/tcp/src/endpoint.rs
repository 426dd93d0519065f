//! The endpoint: its tables, and what one pass does.

mod claims;
mod deferred;
mod idle;
mod incoming;
mod outgoing;
mod packets;
mod socket;

use self::{claims::Check, deferred::Deferred, incoming::Incoming, socket::listen_at};
use crate::{
    Config, Counters, OpenError,
    address::{SCHEME, announced, listening, options, url},
    closing::Closing,
    connection::Connection,
    dial::Local,
    handshake::{Identity, Session},
    known_peers::KnownPeers,
    peers::{Connectivity, PeerEntry, Peers, Standing},
    poller::{POLL_AGAIN, Poller, Source},
    read_queue::ReadQueue,
};
use petasos_fabric::{
    Address, Capabilities, Credential, Doorbell, Endpoint, Event, Home, ImportError, Incarnation,
    InjectError, Key, LostReason, Notifier, Operation, Peer, Pool, Refused, Remote, ResolveError,
    Sleep, Time, answered_by_engine,
    two_sided::{self, Engine},
};
use rustix::net::getsockname;
use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

/// The longest payload of a packet.
const FRAGMENT: usize = 256 * 1024;

/// An endpoint of the fabric over TCP.
pub struct TcpEndpoint {
    home: Home,
    engine: Engine,
    capabilities: Capabilities,
    config: Config,
    identity: Identity,
    incoming: Incoming,
    poller: Poller,
    bell: Arc<Doorbell>,
    peers: Peers,
    dialing: Vec<Peer>,
    /// Claims that are being looked into.
    checks: Vec<Check>,
    /// Peers of before, where there is no secret.
    known_peers: KnownPeers,
    deferred: Deferred,
    /// When idle connections are looked for.
    idle_at: Time,
    reads: ReadQueue,
    now: Time,
    armed: bool,
    counters: Counters,
}

impl TcpEndpoint {
    /// Opens an endpoint that listens at `address`: `tcp://HOST:PORT`, where the host may also be
    /// an interface (`tcp://eth0:0`) or a subnet (`tcp://10.1.0.0/16:0`), and port 0 is a free one.
    /// `tcp://*` is the loopback interface. With `?encrypt` behind it, as [`Config::encrypt`] says.
    ///
    /// # Errors
    /// If the address is none or names no interface here, the port is taken, or the endpoint could
    /// be reached from other machines and there is no secret: see [`OpenError`].
    ///
    /// ```
    /// use petasos_fabric::Endpoint;
    /// use petasos_tcp::{Config, OpenError, TcpEndpoint};
    ///
    /// let endpoint = TcpEndpoint::open(&"tcp://127.0.0.1:0".parse()?, Config::default())?;
    /// assert!(!endpoint.address().as_str().ends_with(":0"));
    ///
    /// // Beyond this machine only with a secret.
    /// let all = TcpEndpoint::open(&"tcp://0.0.0.0:0".parse()?, Config::default());
    /// assert!(matches!(all, Err(OpenError::NeedsSecret(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(address: &Address, mut config: Config) -> Result<TcpEndpoint, OpenError> {
        let wanted = listening(address)?;
        config.encrypt |= options(address).1;
        if config.encrypt && config.secret.is_none() {
            return Err(OpenError::NeedsKey(address.clone()));
        }
        if !wanted.ip().is_loopback() && config.secret.is_none() {
            return Err(OpenError::NeedsSecret(wanted));
        }
        let system = |error: io::Error| OpenError::System { address: wanted, error };
        let listener = listen_at(wanted, config.silence).map_err(system)?;
        let bound = getsockname(&listener).ok().and_then(|name| SocketAddr::try_from(name).ok());
        let own = url(announced(bound.unwrap_or(wanted)), config.encrypt);
        let incarnation = Incarnation::random();
        let poller = Poller::new().map_err(system)?;
        let bell = Arc::new(Doorbell::new().map_err(|error| system(error.into()))?);
        poller.add(&listener, Source::Listener, false).map_err(system)?;
        poller.add(&*bell, Source::Doorbell, false).map_err(system)?;
        let limits = config.limits;
        let mut capabilities = Capabilities::emulated(SCHEME, limits);
        capabilities.fences = true;
        if config.secret.is_some() {
            capabilities.credential = Credential::SharedSecret;
        }
        let pool = Pool::new(limits.max_leases);
        let keyed = config.secret.is_some();
        let mut numbers = two_sided::Config::new(limits, FRAGMENT);
        numbers.in_order = true;
        Ok(TcpEndpoint {
            home: Home::current(),
            engine: Engine::new(own.clone(), incarnation, numbers, pool),
            capabilities,
            config,
            identity: Identity { address: own, incarnation },
            incoming: Incoming::new(listener),
            poller,
            bell,
            peers: Peers::default(),
            dialing: Vec::new(),
            checks: Vec::new(),
            known_peers: KnownPeers::default(),
            deferred: Deferred::new(keyed),
            idle_at: Time::NEVER,
            reads: ReadQueue::default(),
            now: Time::ZERO,
            armed: false,
            counters: Counters::default(),
        })
    }

    /// What the endpoint did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.incoming.count(self.counters)
    }

    // Peers and connections.

    fn add(&mut self, address: &Address, asked: bool) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        self.peers.add(peer, asked);
        Ok(peer)
    }

    #[inline]
    fn entry(&mut self, peer: Peer) -> Option<&mut PeerEntry> {
        self.peers.get_mut(peer)
    }

    #[inline]
    fn connection(&mut self, peer: Peer) -> Option<&mut Connection> {
        self.peers.connection(peer)
    }

    /// Ends a peer: nothing more goes to it, or comes of it.
    fn lose(&mut self, peer: Peer, reason: LostReason) {
        let Some(entry) = self.entry(peer) else { return };
        let (asked, session) = (entry.asked, entry.session.take());
        // The socket is closed, which also takes it out of the poller.
        entry.connectivity = Connectivity::None;
        if let Some(session) = session {
            self.peers.resume(&session);
        }
        self.engine.peer_lost(peer, reason);
        if !asked && let Some(oldest) = self.peers.remember_lost(peer) {
            if let Some(entry) = self.entry(oldest) {
                *entry = PeerEntry::default();
            }
            self.engine.reuse(oldest);
        }
    }

    /// Packets flow on this socket, which the poller knows by its peer, from now on.
    fn establish(
        &mut self,
        peer: Peer,
        connection: Connection,
        identity: &Identity,
        session: Session,
        standing: Standing,
    ) {
        self.counters.connections += 1;
        let (now, keyed) = (self.now, self.config.secret.is_some());
        self.deferred.replace_keys(keyed);
        let unheard = (!keyed).then(|| identity.clone());
        if let Some(entry) = self.entry(peer) {
            entry.unheard = unheard;
            (entry.session, entry.seen, entry.since) = (Some(session), 0, now);
            (entry.standing, entry.made) = (standing, standing == Standing::Dialled);
            entry.connectivity = Connectivity::Open(Box::new(connection));
        }
        self.engine.peer_up(peer, identity.incarnation);
        self.idle_at = self.idle_at.min(now);
        self.peers.mark_dirty(peer);
    }

    /// What a handshake needs to know of us.
    fn local(&self) -> Local<'_> {
        Local {
            secret: self.config.secret.as_ref(),
            encrypt: self.config.encrypt,
            identity: &self.identity,
            known_peers: &self.known_peers,
            handshake: self.config.handshake,
        }
    }

    /// Overdue handshakes, dials, and a listener that was left alone.
    fn keep_time(&mut self) {
        let late = self.incoming.keep_time(self.now, &self.poller);
        self.counters.refused += late as u64;
        if late > 0 {
            tracing::debug!(late, "connections that said nothing in time are closed");
        }
        if !self.checks.is_empty() {
            self.progress_checks();
        }
        for peer in std::mem::take(&mut self.dialing) {
            if self.dial(peer) {
                self.dialing.push(peer);
            }
        }
    }
}

impl Endpoint for TcpEndpoint {
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.connect(address, patience, false)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.connect(address, patience, true)
    }

    fn forget(&mut self, peer: Peer) {
        if let Some(entry) = self.entry(peer) {
            let session = std::mem::take(entry).session;
            if let Some(session) = session {
                self.peers.resume(&session);
            }
            self.engine.forget(peer);
        }
    }

    #[inline]
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let max = self.capabilities.limits.max_inject;
        let len = parts.iter().map(|part| part.len()).sum();
        if self.engine.may_send(peer, len)
            && let Some(connection) = self.connection(peer)
            && connection.closing == Closing::No
            && connection.outbox.has_room()
            && len <= max
        {
            connection.outbox.message(len, parts);
            self.engine.sent_around(peer, len);
            self.peers.mark_dirty(peer);
            return Ok(());
        }
        self.engine.inject(peer, parts)
    }

    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        self.engine.try_submit(operation)?;
        if self.engine.is_closing() {
            self.release_closed();
        }
        Ok(())
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        let before = events.len();
        let limit = before.saturating_add(budget);
        // What is here comes first: nothing more is read while it fills the budget.
        let mut busy = self.engine.take_events(budget, events);
        busy |= self.flush();
        if events.len() >= limit {
            return true;
        }
        // A peer that has more to say than the budget takes goes behind those that wait for their
        // turn.
        for _ in 0..self.reads.unread() {
            if events.len() >= limit {
                break;
            }
            let Some(peer) = self.reads.next_unread() else { break };
            if let Some(connection) = self.connection(peer) {
                connection.unread = false;
                self.read(peer, limit, events);
            }
        }
        busy |= self.poll(limit, events);
        self.reads.end_pass(events.len() >= limit);
        if !(self.incoming.is_idle() && self.dialing.is_empty() && self.checks.is_empty()) {
            self.keep_time();
        }
        if now >= self.idle_at {
            self.check_idle();
        }
        if self.engine.is_closing() {
            self.engine.keep_time(now);
        }
        if self.engine.has_output() || self.peers.has_dirty() {
            busy |= self.flush();
        }
        let left = limit.saturating_sub(events.len());
        busy |= self.engine.take_events(left, events);
        busy |= events.len() > before;
        if !busy && !self.deferred.is_empty() {
            self.deferred.run(&self.peers, &mut self.known_peers);
        }
        busy
    }

    fn arm(&mut self, now: Time) -> Sleep {
        let waiting = self.peers.has_dirty() || self.reads.unread() > 0;
        let engine = self.engine.has_events() || self.engine.has_output();
        if waiting || engine {
            return Sleep::Busy;
        }
        self.armed = true;
        if self.bell.prepare() {
            return Sleep::Busy;
        }
        let mut until = self.idle_at.min(self.engine.deadline()).min(self.claims_until(now));
        until = until.min(self.incoming.deadline());
        if self.engine.has_waiting() {
            // A lease that comes back makes no noise.
            until = until.min(now.after(POLL_AGAIN));
        }
        for peer in &self.dialing {
            if let Some(PeerEntry { connectivity: Connectivity::Dialing(dial), .. }) =
                self.peers.get(*peer)
            {
                until = until.min(dial.next(now));
            }
        }
        Sleep::Until(until)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(self.bell.clone())
    }

    fn import_from(&mut self, key: &Key, from: Peer) -> Result<Remote, ImportError> {
        let parts = key.parse()?;
        let own = self.engine.peer_info(from).is_some_and(|info| {
            info.address == parts.owner && info.incarnation == Some(parts.incarnation)
        });
        if own { self.engine.import(parts, from) } else { self.import(key) }
    }

    answered_by_engine! {
        engine: address incarnation capabilities peer cancel poll_completion register export
        import release
    }
}

impl Drop for TcpEndpoint {
    /// What was injected leaves as far as the sockets take it.
    fn drop(&mut self) {
        // The parent sends it, and once.
        if self.home.is_current() {
            self.flush();
        }
    }
}

impl std::fmt::Debug for TcpEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpEndpoint({})", self.identity.address)
    }
}
