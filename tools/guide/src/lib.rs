//! A transport of its own, small enough to be read in one sitting: see
//! `docs/writing-a-transport.md`, which walks through it.
//!
//! An endpoint `seq:///some/dir/name` is a `SOCK_SEQPACKET` socket at that path: packets stay
//! packets, arrive in order, and the end of a process is noticed at once. Everything that the
//! contract asks for beyond that is done by [`two_sided::Engine`].
//!
//! A pair of endpoints has two connections, and packets go only from the side that connected to
//! the side that accepted, so that it does not matter who begins, or that both do at once.

#![forbid(unsafe_code)]

mod socket;

use petasos_fabric::{
    Address, Capabilities, Doorbell, Endpoint, Event, Incarnation, Limits, LostReason, Notifier,
    Peer, PeerState, Pool, ResolveError, Sleep, Time, answered_by_engine,
    two_sided::{Config, Engine},
};
use socket::{Io, Poller, receive, send_packet};
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

/// The scheme of the addresses.
pub const SCHEME: &str = "seq";
/// The first packet of a connection begins so. Changes with the protocol.
const MAGIC: &[u8; 8] = b"seqpkt-1";
/// The longest payload of a packet.
const FRAGMENT: usize = 32 << 10;
/// How long somebody who came to us may take to be reached in turn.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(2);
/// Lost peers that nobody asked for and that are still known.
const KEPT: usize = 1024;
/// Connections whose greeting has not come yet.
const STRANGERS: usize = 64;

const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
const STRANGER: u64 = u64::MAX - 2;

/// An endpoint.
pub struct SeqEndpoint {
    engine: Engine,
    capabilities: Capabilities,
    poller: Poller,
    listener: OwnedFd,
    bell: Arc<Doorbell>,
    /// By the index of the peer.
    links: Vec<Link>,
    /// Connections that have not said who they are.
    strangers: Vec<OwnedFd>,
    /// Peers that are not up yet.
    connecting: Vec<Peer>,
    /// Lost peers that came to us, oldest first.
    gone: VecDeque<Peer>,
    now: Time,
    names: Vec<u64>,
    buffer: Vec<u8>,
}

/// The two connections with a peer.
#[derive(Default)]
struct Link {
    /// To it, and which life of it answers there.
    out: Option<OwnedFd>,
    answered: Option<Incarnation>,
    /// From it, and which life of it that is.
    inward: Option<(OwnedFd, Incarnation)>,
    /// The user asked for it, and waits as long as this.
    patience: Option<Duration>,
    deadline: Option<Time>,
    retry: Time,
    /// A packet for which the socket had no room.
    unsent: Vec<u8>,
}

impl SeqEndpoint {
    /// Opens the endpoint at `seq:///path/of/a/socket`.
    pub fn open(address: &Address) -> io::Result<SeqEndpoint> {
        if address.scheme() != SCHEME || !address.rest().starts_with('/') {
            let error = format!("{address}: write it as {SCHEME}:///path/of/a/socket");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let (listener, poller) = (socket::listen_at(address.rest())?, Poller::new()?);
        let bell = Arc::new(Doorbell::new()?);
        poller.add(&listener, LISTENER)?;
        poller.add(&*bell, BELL)?;
        let limits = Limits::default();
        let pool = Pool::new(limits.max_leases);
        let config = Config::new(limits, FRAGMENT);
        Ok(SeqEndpoint {
            engine: Engine::new(address.clone(), Incarnation::random(), config, pool),
            capabilities: Capabilities::emulated(SCHEME, limits),
            poller,
            listener,
            bell,
            links: Vec::new(),
            strangers: Vec::new(),
            connecting: Vec::new(),
            gone: VecDeque::new(),
            now: Time::ZERO,
            names: Vec::new(),
            buffer: vec![0; FRAGMENT + 64],
        })
    }

    /// A new peer, to which we connect.
    fn add(&mut self, address: &Address, patience: Option<Duration>) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        let index = peer.index as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, Link::default);
        }
        self.links[index] = Link { patience, ..Link::default() };
        if !self.engine.is_self(peer) {
            self.connecting.push(peer);
        }
        Ok(peer)
    }

    fn link(&mut self, peer: Peer) -> &mut Link {
        &mut self.links[peer.index as usize]
    }

    /// Nothing more goes to this peer, or comes of it.
    fn lose(&mut self, peer: Peer, reason: LostReason) {
        let asked_for = self.link(peer).patience.is_some();
        let was_up = self.engine.is_up(peer);
        *self.link(peer) = Link::default();
        match was_up || asked_for {
            true => self.engine.peer_lost(peer, reason),
            // Nobody has heard of it.
            false => self.engine.forget(peer),
        }
        if was_up && !asked_for {
            self.gone.push_back(peer);
            if self.gone.len() > KEPT {
                self.gone.pop_front().into_iter().for_each(|peer| self.engine.forget(peer));
            }
        }
    }

    // The way to `Up`: a connection each way, with the same life of the peer at its end.

    /// Connects to a peer, again and again until its time is over.
    fn knock(&mut self, peer: Peer) {
        let info = match self.engine.peer_info(peer) {
            Some(info) if info.state == PeerState::Connecting => info,
            _ => return,
        };
        let (now, link) = (self.now, &mut self.links[peer.index as usize]);
        let patience = link.patience.unwrap_or(PATIENCE);
        let deadline = *link.deadline.get_or_insert(now.after(patience));
        let mut why = String::from("it does not answer");
        if link.out.is_none() && now >= link.retry {
            link.retry = now.after(RETRY);
            match socket::connect_to(info.address.rest()) {
                Ok(out) => {
                    let mut hello = MAGIC.to_vec();
                    hello.extend(self.engine.incarnation().get().to_le_bytes());
                    hello.extend(self.engine.address().as_str().bytes());
                    let sent = send_packet(&out, &hello) == Io::Moved(hello.len());
                    if sent && self.poller.add(&out, name(peer, OUT)).is_ok() {
                        link.out = Some(out);
                    }
                }
                Err(error) => why = error.to_string(),
            }
        }
        match now < deadline {
            true => self.connecting.push(peer),
            false => self.lose(peer, LostReason::Unreachable(patience, why)),
        }
    }

    /// Hears who a stranger is. Nothing but a greeting is taken from it before.
    fn greet(&mut self, stranger: OwnedFd) {
        let len = match receive(&stranger, &mut self.buffer, false) {
            Io::Moved(len) => len,
            Io::Later if self.strangers.len() < STRANGERS => return self.strangers.push(stranger),
            _ => return,
        };
        let Some((incarnation, address)) = greeting(&self.buffer[..len]) else {
            return;
        };
        if address == *self.engine.address() {
            return;
        }
        let mut known = self.engine.find_peer(&address);
        if let Some(peer) = known.filter(|peer| self.engine.is_up(*peer)) {
            // It came again, and we have not noticed yet how the earlier connection ended.
            let info = self.engine.peer_info(peer);
            let reason = match info.and_then(|info| info.incarnation) == Some(incarnation) {
                true => LostReason::Closed,
                false => LostReason::Restarted,
            };
            self.lose(peer, reason);
            known = None;
        }
        let Some(peer) = known.or_else(|| self.add(&address, None).ok()) else {
            return;
        };
        let own = self.engine.incarnation().get().to_le_bytes();
        if send_packet(&stranger, &own) == Io::Moved(own.len()) {
            self.poller.want(&stranger, name(peer, INWARD), true, false);
            self.link(peer).inward = Some((stranger, incarnation));
            self.meet(peer);
        }
    }

    /// The peer is up when both connections are there.
    fn meet(&mut self, peer: Peer) {
        let link = self.link(peer);
        let Some((answered, (_, greeted))) = link.answered.zip(link.inward.as_ref()) else {
            return;
        };
        if answered == *greeted {
            self.engine.peer_up(peer, answered);
            return self.read(peer, 1);
        }
        // One of them is of an earlier life. Both sides try again.
        (link.out, link.answered, link.inward) = (None, None, None);
    }

    // Packets.

    /// The connection to the peer has something to tell: the answer to our greeting, room, or its
    /// end.
    fn heed(&mut self, peer: Peer) {
        let Some(out) = &self.links[peer.index as usize].out else {
            return;
        };
        match receive(out, &mut self.buffer, false) {
            Io::Later => return self.write(peer),
            Io::Moved(8) if !self.engine.is_up(peer) => {
                let number = self.buffer[..8].try_into().map(u64::from_le_bytes);
                self.link(peer).answered = number.ok().and_then(Incarnation::new);
                return self.meet(peer);
            }
            _ => {}
        }
        let link = self.link(peer);
        (link.out, link.answered) = (None, None);
        if self.engine.is_up(peer) {
            self.read(peer, usize::MAX);
        }
    }

    /// Reads up to `budget` packets of a peer. Its last words are heard before it is lost.
    fn read(&mut self, peer: Peer, budget: usize) {
        let up = self.engine.is_up(peer);
        for _ in 0..budget {
            let link = &mut self.links[peer.index as usize];
            let Some((inward, _)) = &link.inward else {
                return;
            };
            match receive(inward, &mut self.buffer, !up) {
                Io::Moved(_) if !up => return,
                Io::Moved(len) => {
                    if let Err(broken) = self.engine.deliver(peer, &self.buffer[..len]) {
                        return self.lose(peer, LostReason::Protocol(broken.to_string()));
                    }
                }
                Io::Later if link.out.is_some() || !up => return,
                _ if up => return self.lose(peer, LostReason::Closed),
                _ => {
                    link.inward = None;
                    if link.patience.is_none() {
                        self.lose(peer, LostReason::Closed);
                    }
                    return;
                }
            }
        }
    }

    /// Sends what there is for a peer, until there is no more, or no room.
    fn write(&mut self, peer: Peer) {
        if !self.engine.is_up(peer) {
            return;
        }
        let link = &mut self.links[peer.index as usize];
        while let Some(out) = &link.out {
            let waited = !link.unsent.is_empty();
            if !waited {
                let Some(packet) = self.engine.poll_transmit(peer) else {
                    return;
                };
                packet.copy_to(&mut link.unsent);
                // The copy is what travels: the memory is free again.
                self.engine.sent(peer);
            }
            match send_packet(out, &link.unsent) {
                Io::Moved(_) => {
                    link.unsent.clear();
                    if waited {
                        self.poller.want(out, name(peer, OUT), true, false);
                    }
                }
                Io::Later => return self.poller.want(out, name(peer, OUT), true, true),
                Io::Closed => {
                    link.out = None;
                    return self.read(peer, usize::MAX);
                }
            }
        }
    }
}

/// Who sends this greeting.
fn greeting(packet: &[u8]) -> Option<(Incarnation, Address)> {
    let rest = packet.strip_prefix(MAGIC)?;
    let (number, address) = rest.split_first_chunk()?;
    let incarnation = Incarnation::new(u64::from_le_bytes(*number))?;
    let address = Address::parse(std::str::from_utf8(address).ok()?).ok()?;
    (address.scheme() == SCHEME).then_some((incarnation, address))
}

const OUT: u64 = 0;
const INWARD: u64 = 1;

/// What the poller calls a connection.
fn name(peer: Peer, which: u64) -> u64 {
    u64::from(peer.index) << 1 | which
}

impl Endpoint for SeqEndpoint {
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        // What is here comes first: nothing more is read while it fills the budget.
        let before = events.len();
        let mut busy = self.engine.take_events(budget, events);
        if events.len() - before >= budget {
            return true;
        }
        self.bell.awake();
        let mut names = std::mem::take(&mut self.names);
        self.poller.ready(&mut names);
        busy |= names.iter().any(|name| *name != BELL);
        for name in &names {
            match *name {
                LISTENER => {
                    if let Some(stranger) = socket::stranger(&self.listener)
                        && self.poller.add(&stranger, STRANGER).is_ok()
                    {
                        self.strangers.push(stranger);
                    }
                }
                BELL => _ = self.bell.take(),
                STRANGER => {}
                name => {
                    if let Some(peer) = self.engine.peer_at((name >> 1) as u32) {
                        match name & 1 {
                            OUT => self.heed(peer),
                            _ => self.read(peer, budget.min(16)),
                        }
                    }
                }
            }
        }
        self.names = names;
        for stranger in std::mem::take(&mut self.strangers) {
            self.greet(stranger);
        }
        for peer in std::mem::take(&mut self.connecting) {
            self.knock(peer);
        }
        while let Some(peer) = self.engine.next_output() {
            self.write(peer);
            busy = true;
        }
        let left = budget - (events.len() - before);
        self.engine.take_events(left, events) || busy
    }

    fn arm(&mut self, now: Time) -> Sleep {
        // A notice ends a sleep, also one that came while nobody slept: it is taken here alone.
        if self.bell.prepare() || self.engine.has_events() || self.engine.has_output() {
            return Sleep::Busy;
        }
        // A lease that comes back makes no noise, and neither does a peer that starts.
        match self.connecting.is_empty() && !self.engine.has_waiting() {
            true => Sleep::Until(Time::NEVER),
            false => Sleep::Until(now.after(RETRY)),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.fd.as_fd())
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(self.bell.clone())
    }

    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        if address.scheme() != SCHEME {
            let (address, scheme) = (address.clone(), SCHEME);
            return Err(ResolveError::WrongScheme { address, scheme });
        }
        if let Some(peer) = self.engine.find_peer(address) {
            let until = self.now.after(patience);
            let link = self.link(peer);
            link.patience = link.patience.max(Some(patience));
            link.deadline = link.deadline.map(|deadline| deadline.max(until));
            return Ok(peer);
        }
        self.add(address, Some(patience))
    }

    fn forget(&mut self, peer: Peer) {
        if self.engine.peer_info(peer).is_some() {
            *self.link(peer) = Link::default();
            self.engine.forget(peer);
        }
    }

    answered_by_engine! {
        engine: address incarnation capabilities peer inject submit cancel register export
        import release
    }
}

impl Drop for SeqEndpoint {
    fn drop(&mut self) {
        std::fs::remove_file(self.engine.address().rest()).ok();
    }
}
