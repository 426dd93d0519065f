//! The endpoint: its tables, and what one pass does.

mod admission;
mod socket;

use self::socket::{listen_at, there, tune};
use crate::{
    Config, Counters, OpenError,
    address::{SCHEME, announced, listening, options, split, url},
    claims::{Check, Standing},
    connection::{Broken, Closing, Connection, Read},
    dial::{Dial, Dialled, Us},
    handshake::{self, Identity, Session},
    lives::Lives,
    poller::{LOOK_AGAIN, Name, Poller},
    shares::Shares,
    strangers::Stranger,
};
use petasos_fabric::{
    Acceptor, Address, Capabilities, Credential, Doorbell, Endpoint, Event, Home, ImportError,
    Incarnation, InjectError, Key, LostReason, Notifier, Operation, Peer, Pool, Remote,
    ResolveError, Sleep, Time, answered_by_engine,
    two_sided::{self, Engine},
};
use rustix::net::getsockname;
use slab::Slab;
use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

/// The longest payload of a packet.
const FRAGMENT: usize = 256 * 1024;
/// Lost peers that came to us, whose handles are still known.
const KEPT: usize = 64;
/// With so few busy connections, each is asked directly, which saves a system call.
const FEW: usize = 2;
/// Passes without anything after which a connection is not busy any more.
const QUIET: u32 = 4096;
/// Every so many passes all connections are looked at.
const ALL: u32 = 32;

/// An endpoint of the fabric over TCP.
pub struct TcpEndpoint {
    home: Home,
    pub(crate) engine: Engine,
    capabilities: Capabilities,
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    listener: OwnedFd,
    acceptor: Acceptor,
    pub(crate) poller: Poller,
    bell: Arc<Doorbell>,
    pub(crate) links: Vec<Link>,
    strangers: Slab<Stranger>,
    shares: Shares,
    /// When it may be logged again that a host has too many.
    tells: Time,
    pub(crate) dialing: Vec<Peer>,
    /// Claims that are being looked into.
    pub(crate) checks: Vec<Check>,
    /// Peers of before, where there is no secret.
    lives: Lives,
    /// Whether the keys of the next handshake may still have to be made.
    unprepared: bool,
    /// Peers from which the first word has come, and of which it is to be noted whose they are.
    heard: Vec<(Peer, Identity)>,
    /// Sessions without a connection.
    pub(crate) parked: HashMap<handshake::Name, Peer>,
    /// When idle connections are looked for.
    pub(crate) idle_at: Time,
    /// Connections with something to send.
    dirty: Vec<Peer>,
    /// Connections on which something came lately.
    hot: Vec<Peer>,
    /// The last pass took as much as it may: others may have more to say than those that are busy.
    filled: bool,
    /// Connections that were not read to the end, each once, in turn.
    unread: VecDeque<Peer>,
    gone: VecDeque<Peer>,
    names: Vec<Name>,
    pub(crate) now: Time,
    passes: u32,
    armed: bool,
    pub(crate) counters: Counters,
}

/// What there is to a peer, by its slot.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) peer: Option<Peer>,
    pub(crate) way: Way,
    /// What goes on, over one connection after the other.
    pub(crate) session: Option<Session>,
    /// Whether the peer was resolved here.
    asked: bool,
    /// Whether we made the connection with which the session began.
    pub(crate) made: bool,
    /// What is known of its address, and whether that is meant here.
    pub(crate) standing: Standing,
    pub(crate) meant: bool,
    /// Who it says it is, until something comes of it, where peers are to be known again.
    unheard: Option<Identity>,
    dirty: bool,
    /// The traffic of the connection when it was last looked at, and since when it is so much.
    pub(crate) seen: u64,
    pub(crate) since: Time,
}

#[derive(Debug, Default)]
pub(crate) enum Way {
    #[default]
    None,
    Dial(Box<Dial>),
    Open(Box<Connection>),
    /// Closed as idle: to be made again.
    Parked,
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
        poller.add(&listener, Name::Listener, false).map_err(system)?;
        poller.add(&*bell, Name::Bell, false).map_err(system)?;
        let limits = config.limits;
        let mut capabilities = Capabilities::emulated(SCHEME, limits);
        if config.secret.is_some() {
            capabilities.credential = Credential::SharedSecret;
        }
        let pool = Pool::new(limits.max_leases);
        let unprepared = config.secret.is_some();
        let numbers = two_sided::Config::new(limits, FRAGMENT);
        Ok(TcpEndpoint {
            home: Home::here(),
            engine: Engine::new(own.clone(), incarnation, numbers, pool),
            capabilities,
            config,
            identity: Identity { address: own, incarnation },
            listener,
            acceptor: Acceptor::new(),
            poller,
            bell,
            links: Vec::new(),
            strangers: Slab::new(),
            shares: Shares::new(),
            tells: Time::ZERO,
            dialing: Vec::new(),
            checks: Vec::new(),
            lives: Lives::default(),
            unprepared,
            heard: Vec::new(),
            parked: HashMap::new(),
            idle_at: Time::NEVER,
            dirty: Vec::new(),
            hot: Vec::new(),
            filled: false,
            unread: VecDeque::new(),
            gone: VecDeque::new(),
            names: Vec::new(),
            now: Time::ZERO,
            passes: 0,
            armed: false,
            counters: Counters::default(),
        })
    }

    /// What the endpoint did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (turned_away, accepts) = (self.acceptor.turned_away(), self.acceptor.tries());
        Counters { turned_away, accepts, ..self.counters }
    }

    // Peers and connections.

    fn add(&mut self, address: &Address, asked: bool) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        let index = peer.index as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, Link::default);
        }
        self.links[index] = Link { peer: Some(peer), asked, ..Link::default() };
        Ok(peer)
    }

    pub(crate) fn link(&mut self, peer: Peer) -> Option<&mut Link> {
        self.links.get_mut(peer.index as usize).filter(|link| link.peer == Some(peer))
    }

    pub(crate) fn connection(&mut self, peer: Peer) -> Option<&mut Connection> {
        match self.link(peer).map(|link| &mut link.way) {
            Some(Way::Open(connection)) => Some(connection),
            _ => None,
        }
    }

    /// Ends a peer: nothing more goes to it, or comes of it.
    pub(crate) fn lose(&mut self, peer: Peer, reason: LostReason) {
        let Some(link) = self.link(peer) else { return };
        let (asked, session) = (link.asked, link.session.take());
        // The socket is closed, which also takes it out of the poller.
        link.way = Way::None;
        if let Some(session) = session {
            self.parked.remove(&session.name());
        }
        self.engine.peer_lost(peer, reason);
        if !asked {
            self.gone.push_back(peer);
            if self.gone.len() > KEPT
                && let Some(oldest) = self.gone.pop_front()
            {
                Endpoint::forget(self, oldest);
            }
        }
    }

    /// Packets flow on this socket, which the poller knows by its peer, from now on.
    fn open_link(
        &mut self,
        peer: Peer,
        connection: Connection,
        identity: &Identity,
        session: Session,
        standing: Standing,
    ) {
        self.counters.connections += 1;
        self.unprepared = self.config.secret.is_some();
        let now = self.now;
        let unheard = self.config.secret.is_none().then(|| identity.clone());
        if let Some(link) = self.link(peer) {
            link.unheard = unheard;
            (link.session, link.seen, link.since) = (Some(session), 0, now);
            (link.standing, link.made) = (standing, standing == Standing::Dialled);
            link.way = Way::Open(Box::new(connection));
        }
        self.engine.peer_up(peer, identity.incarnation);
        self.idle_at = self.idle_at.min(now);
        self.soil(peer);
    }

    /// What a handshake needs to know of us.
    pub(crate) fn us(&self) -> Us<'_> {
        Us {
            secret: self.config.secret.as_ref(),
            encrypt: self.config.encrypt,
            identity: &self.identity,
            lives: &self.lives,
            handshake: self.config.handshake,
        }
    }

    /// The peer at an address, whether or not it is `running` already.
    fn reach(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        if address.scheme() != SCHEME {
            let (address, scheme) = (address.clone(), SCHEME);
            return Err(ResolveError::WrongScheme { address, scheme });
        }
        if split(address).is_none() {
            let reason = "write it as tcp://HOST:PORT, or tcp://HOST:PORT?encrypt".to_owned();
            return Err(ResolveError::Malformed { address: address.clone(), reason });
        }
        if options(address).1 && self.config.secret.is_none() {
            let reason = "encryption needs a shared secret".to_owned();
            return Err(ResolveError::Malformed { address: address.clone(), reason });
        }
        let now = self.now;
        if let Some(peer) = self.engine.find_peer(address) {
            if let Some(link) = self.link(peer) {
                link.asked = true;
                if let Way::Dial(dial) = &mut link.way {
                    dial.patience.renew(patience);
                    dial.running &= running;
                }
            }
            self.insist(peer, patience);
            return Ok(peer);
        }
        let peer = self.add(address, true)?;
        if !self.engine.is_self(peer) {
            let mut dial = Box::new(Dial::new(address.clone(), None, patience, now));
            dial.running = running;
            if let Some(link) = self.link(peer) {
                link.way = Way::Dial(dial);
            }
            self.dialing.push(peer);
        }
        Ok(peer)
    }

    /// Moves a dial on. False when it is over.
    fn dial(&mut self, peer: Peer) -> bool {
        let now = self.now;
        let Some(Link { way: Way::Dial(dial), .. }) =
            self.links.get_mut(peer.index as usize).filter(|link| link.peer == Some(peer))
        else {
            return false;
        };
        let us = Us {
            secret: self.config.secret.as_ref(),
            encrypt: self.config.encrypt,
            identity: &self.identity,
            lives: &self.lives,
            handshake: self.config.handshake,
        };
        let name = Name::Peer(peer.index);
        match dial.step(now, &us) {
            Dialled::Pending => {}
            Dialled::Opened => {
                if let Some(socket) = dial.socket() {
                    let _ = tune(socket, self.config.silence);
                    let _ = self.poller.add(socket, name, true);
                    if self.config.secret.is_some() {
                        // While the connection is made, and the server says its word.
                        petasos_noise::prepare();
                    }
                }
            }
            Dialled::Connected => {
                if let Some(socket) = dial.socket() {
                    self.poller.set(socket, name, true, false);
                }
            }
            Dialled::Up(socket, channel, identity, session, known) => {
                let there = there(&socket);
                if self.config.secret.is_none() && !self.lives.believes(&identity, known, &socket) {
                    // It may not have been asked as the one that it is.
                    if self.lives.point(there, &identity) {
                        dial.again("it did not prove to be the one before".to_owned(), now);
                        return true;
                    }
                    self.counters.refused += 1;
                    let why = "another process has the address by now, and says that it is the one before";
                    self.lose(peer, LostReason::Refused(why.to_owned()));
                    return false;
                }
                if self.config.secret.is_none() {
                    // It has made the key.
                    self.lives.met(&identity, session, true, there);
                }
                self.begin(peer, Connection::new(socket, channel), &identity, session);
                return false;
            }
            Dialled::Resumed(socket, channel, identity) => {
                if let Some(link) = self.link(peer) {
                    link.standing = Standing::Dialled;
                }
                self.resume_session(peer, Connection::new(socket, channel), &identity);
                return false;
            }
            // It may know us as another one than we have said that we were.
            Dialled::Claimed(there, identity) => {
                self.lives.point(Some(there), &identity);
            }
            // Not asked for.
            Dialled::Vouched(..) => {}
            Dialled::Failed => {
                let reason = LostReason::Unreachable(Duration::ZERO, dial.why.clone());
                self.lose(peer, reason);
                return false;
            }
            Dialled::Hopeless(error) => {
                self.lose(peer, LostReason::Refused(error.to_string()));
                return false;
            }
        }
        if dial.patience.is_over(now) {
            let reason = LostReason::Unreachable(dial.patience.longest(), dial.why.clone());
            self.lose(peer, reason);
            return false;
        }
        true
    }

    /// The first word of a peer: it has the key of the session. Whose it is is asked when there is time.
    #[cold]
    fn hear_first(&mut self, peer: Peer) {
        let Some(link) = self.link(peer) else { return };
        if let (Some(identity), Some(session)) = (link.unheard.take(), link.session) {
            self.lives.shows(&identity, &session);
            self.heard.push((peer, identity));
        }
    }

    /// In a pass that found nothing: makes the keys of the next handshake, if the last ones are used, and notes whose the
    /// peers are that were heard for the first time.
    #[cold]
    fn use_spare_time(&mut self) {
        if std::mem::take(&mut self.unprepared) {
            petasos_noise::prepare();
        }
        for (peer, identity) in std::mem::take(&mut self.heard) {
            let TcpEndpoint { links, lives, .. } = self;
            let link = links.get(peer.index as usize).filter(|link| link.peer == Some(peer));
            if let Some(Link { way: Way::Open(connection), .. }) = link {
                lives.note_owner(&identity, &connection.socket);
            }
        }
    }

    /// A session begins on a connection that we made.
    fn begin(&mut self, peer: Peer, connection: Connection, identity: &Identity, session: Session) {
        let Some(link) = self.link(peer) else { return };
        let standing = Standing::Dialled;
        if link.session.is_none() {
            return self.open_link(peer, connection, identity, session, standing);
        }
        // We meant to go on with another one, of which it knows nothing any more.
        let Some(info) = self.engine.peer_info(peer) else { return };
        let same = info.incarnation == Some(identity.incarnation);
        self.lose(peer, if same { LostReason::Closed } else { LostReason::Restarted });
        if let Ok(peer) = self.add(&info.address, false) {
            self.poller.set(&connection.socket, Name::Peer(peer.index), true, false);
            self.open_link(peer, connection, identity, session, standing);
        }
    }

    // Packets.

    /// There is something to send to this peer.
    pub(crate) fn soil(&mut self, peer: Peer) {
        if let Some(link) = self.link(peer)
            && !link.dirty
        {
            link.dirty = true;
            self.dirty.push(peer);
        }
    }

    /// Sends what there is, to all. True if there was anything.
    fn flush(&mut self) -> bool {
        while let Some(peer) = self.engine.next_output() {
            self.soil(peer);
        }
        let dirty = std::mem::take(&mut self.dirty);
        for &peer in &dirty {
            self.write(peer);
        }
        let busy = !dirty.is_empty();
        if self.dirty.is_empty() {
            // The list serves again.
            self.dirty = dirty;
            self.dirty.clear();
        }
        busy
    }

    fn write(&mut self, peer: Peer) {
        let TcpEndpoint { links, engine, counters, poller, .. } = self;
        let Some(link) = links.get_mut(peer.index as usize).filter(|l| l.peer == Some(peer)) else {
            return;
        };
        link.dirty = false;
        let connection = match &mut link.way {
            Way::Open(connection) => connection,
            Way::Parked => return self.reconnect(peer),
            Way::None | Way::Dial(_) => return,
        };
        let was_blocked = connection.blocked;
        match connection.write(peer, engine, counters) {
            Ok(()) if was_blocked != connection.blocked => {
                poller.set(&connection.socket, Name::Peer(peer.index), true, connection.blocked);
            }
            Ok(()) => {}
            // What came before the end is still to be read.
            Err(_) => {
                connection.dead = true;
                self.leave_unread(peer);
            }
        }
    }

    /// Reads from a peer, until `budget` events are there.
    fn read(&mut self, peer: Peer, budget: usize, events: &mut Vec<Event>) {
        let TcpEndpoint { links, engine, counters, .. } = self;
        let link = links.get_mut(peer.index as usize).filter(|link| link.peer == Some(peer));
        let Some(Link { way: Way::Open(connection), unheard, .. }) = link else { return };
        let read = connection.read(peer, engine, counters, budget, events);
        if unheard.is_some() && connection.heard {
            self.hear_first(peer);
        }
        self.take_read(peer, read);
    }

    /// What came of reading from a peer.
    fn take_read(&mut self, peer: Peer, read: Result<Read, Broken>) {
        let TcpEndpoint { links, counters, config, .. } = self;
        let link = links.get_mut(peer.index as usize).filter(|link| link.peer == Some(peer));
        let Some(Link { way: Way::Open(connection), .. }) = link else { return };
        let lost = match read {
            Ok(Read::End) | Err(Broken::Io(_)) if connection.may_end() => {
                return self.park(peer);
            }
            Ok(Read::Empty) if connection.dead => LostReason::Closed,
            Ok(Read::Empty) => return,
            Ok(Read::More) => return self.leave_unread(peer),
            Ok(Read::Note(note)) => {
                self.leave_unread(peer);
                return self.hear_note(peer, note);
            }
            Ok(Read::End) => LostReason::Closed,
            Err(Broken::Violation(violation)) => {
                counters.violations += 1;
                LostReason::Protocol(violation.to_string())
            }
            Err(Broken::Forged) => {
                counters.violations += 1;
                LostReason::Protocol("something that the peer did not send, or not now".to_owned())
            }
            Err(Broken::Io(error)) => match error.raw_os_error() {
                Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) => {
                    LostReason::Silent(config.silence)
                }
                Some(libc::ECONNRESET | libc::EPIPE) => LostReason::Closed,
                _ => LostReason::System(error.to_string()),
            },
        };
        self.lose(peer, lost);
    }

    /// A region was closed while packets are under way with its memory. All its bytes are moved by
    /// this side, so there is nothing to wait for.
    fn let_go_of_closed(&mut self) {
        let TcpEndpoint { links, engine, .. } = self;
        for link in links {
            if let (Some(peer), Way::Open(connection)) = (link.peer, &mut link.way) {
                connection.let_go_of_closed(peer, engine);
            }
        }
    }

    /// There is more to read from this peer: when it is its turn.
    fn leave_unread(&mut self, peer: Peer) {
        if let Some(connection) = self.connection(peer)
            && !connection.unread
        {
            connection.unread = true;
            self.unread.push_back(peer);
        }
    }

    /// Looks at the busy connections, or at all of them.
    fn look(&mut self, budget: usize, events: &mut Vec<Event>) -> bool {
        self.passes = self.passes.wrapping_add(1);
        let few = (1..=FEW).contains(&self.hot.len());
        if few && !self.armed && !self.filled && !self.passes.is_multiple_of(ALL) {
            for at in (0..self.hot.len()).rev() {
                let peer = self.hot[at];
                let quiet = self.connection(peer).map_or(QUIET, |connection| {
                    connection.quiet += 1;
                    connection.quiet
                });
                if quiet < QUIET {
                    self.read(peer, budget, events);
                } else {
                    self.hot.swap_remove(at);
                }
            }
            return false;
        }
        if std::mem::take(&mut self.armed) {
            self.bell.awake();
        }
        let mut names = std::mem::take(&mut self.names);
        self.poller.ready(&mut names);
        let mut busy = false;
        for name in names.drain(..) {
            busy |= name != Name::Bell;
            match name {
                Name::Listener => self.accept(),
                // The notice is taken by `arm`: it ends a sleep, also the next one.
                Name::Bell => _ = self.bell.take(),
                // Looked at in every pass.
                Name::Check => {}
                Name::Stranger(slot) => self.hear(slot as usize),
                Name::Peer(slot) => {
                    let Some(peer) = self.links.get(slot as usize).and_then(|link| link.peer)
                    else {
                        continue;
                    };
                    let Some(connection) = self.connection(peer) else { continue };
                    let blocked = connection.blocked;
                    if blocked {
                        self.write(peer);
                    }
                    self.read(peer, budget, events);
                    if self.hot.len() <= FEW && !self.hot.contains(&peer) {
                        self.hot.push(peer);
                    }
                }
            }
        }
        self.names = names;
        if self.hot.len() > FEW {
            // Many: the poller is the cheaper way. Those still busy come again.
            self.hot.clear();
        }
        busy
    }

    /// Strangers that are too slow, dials, and a listener that was left alone.
    fn keep_time(&mut self) {
        if self.is_full() && !self.acceptor.is_paused(self.now) {
            self.acceptor.resume();
            self.poller.set(&self.listener, Name::Listener, true, false);
        }
        if !self.strangers.is_empty() {
            let now = self.now;
            let before = self.strangers.len();
            self.strangers.retain(|_, stranger| stranger.deadline > now);
            let late = before - self.strangers.len();
            self.counters.refused += late as u64;
            if late > 0 {
                tracing::debug!(late, "connections that said nothing in time are closed");
            }
        }
        if !self.checks.is_empty() {
            self.look_into_claims();
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
        self.reach(address, patience, false)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.reach(address, patience, true)
    }

    fn forget(&mut self, peer: Peer) {
        if let Some(link) = self.link(peer) {
            let session = std::mem::take(link).session;
            if let Some(session) = session {
                self.parked.remove(&session.name());
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
            self.soil(peer);
            return Ok(());
        }
        self.engine.inject(peer, parts)
    }

    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        self.engine.submit_all(operations);
        if self.engine.is_closing() {
            self.let_go_of_closed();
        }
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
        for _ in 0..self.unread.len() {
            if events.len() >= limit {
                break;
            }
            let Some(peer) = self.unread.pop_front() else { break };
            if let Some(connection) = self.connection(peer) {
                connection.unread = false;
                self.read(peer, limit, events);
            }
        }
        busy |= self.look(limit, events);
        self.filled = events.len() >= limit;
        let timed =
            !(self.strangers.is_empty() && self.dialing.is_empty() && self.checks.is_empty());
        if timed || self.is_full() {
            self.keep_time();
        }
        if now >= self.idle_at {
            self.look_for_idle();
        }
        if self.engine.is_closing() {
            self.engine.keep_time(now);
        }
        if self.engine.has_output() || !self.dirty.is_empty() {
            busy |= self.flush();
        }
        let left = limit.saturating_sub(events.len());
        busy |= self.engine.take_events(left, events);
        busy |= events.len() > before;
        if !busy && (self.unprepared || !self.heard.is_empty()) {
            self.use_spare_time();
        }
        busy
    }

    fn arm(&mut self, now: Time) -> Sleep {
        let waiting = !(self.dirty.is_empty() && self.unread.is_empty());
        let engine = self.engine.has_events() || self.engine.has_output();
        if waiting || engine {
            return Sleep::Busy;
        }
        self.armed = true;
        if self.bell.prepare() {
            return Sleep::Busy;
        }
        let mut until = self.idle_at.min(self.engine.deadline()).min(self.claims_until(now));
        until = until.min(self.acceptor.resumes());
        if self.engine.has_waiting() {
            // A lease that comes back makes no noise.
            until = until.min(now.after(LOOK_AGAIN));
        }
        for (_, stranger) in &self.strangers {
            until = until.min(stranger.deadline);
        }
        for peer in &self.dialing {
            if let Some(Link { way: Way::Dial(dial), .. }) = self.links.get(peer.index as usize) {
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
        engine: address incarnation capabilities peer cancel register export import release
    }
}

impl Drop for TcpEndpoint {
    /// What was injected leaves as far as the sockets take it.
    fn drop(&mut self) {
        // The parent sends it, and once.
        if self.home.is_here() {
            self.flush();
        }
    }
}

impl std::fmt::Debug for TcpEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpEndpoint({})", self.identity.address)
    }
}
