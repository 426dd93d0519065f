//! A transport of its own, small enough to be read in one sitting: see
//! `docs/writing-a-transport.md`, which walks through it.
//!
//! An endpoint `seq:///some/dir/name` is a `SOCK_SEQPACKET` socket at that path: packets stay
//! packets, arrive in order, and the end of a process is noticed at once. Everything that the
//! contract asks for beyond that is done by [`two_sided::Engine`].
//!
//! A pair of endpoints has two connections, and packets go only from the side that connected to
//! the side that accepted, so that it does not matter which side connects first, or that both do at
//! once.

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
/// The first bytes of a connection. Changes with the protocol.
const MAGIC: &[u8; 8] = b"seqpkt-1";
/// The longest payload of a packet.
const FRAGMENT: usize = 32 << 10;
/// How long a peer that connected to us may take to accept a connection in turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(2);
/// Lost peers that the user did not resolve, and that are still known.
const KEPT: usize = 1024;
/// Accepted connections whose greeting has not come yet.
const ACCEPTED: usize = 64;

const LISTENER: u64 = u64::MAX;
const DOORBELL: u64 = u64::MAX - 1;
const NEW: u64 = u64::MAX - 2;

/// An endpoint.
pub struct SeqEndpoint {
    engine: Engine,
    capabilities: Capabilities,
    poller: Poller,
    listener: OwnedFd,
    doorbell: Arc<Doorbell>,
    /// By the index of the peer.
    connections: Vec<Connections>,
    /// Accepted connections whose greeting has not come yet.
    accepted: Vec<OwnedFd>,
    /// Peers that are not up yet.
    connecting: Vec<Peer>,
    /// Lost peers that the user did not resolve, oldest first.
    lost: VecDeque<Peer>,
    now: Time,
    names: Vec<u64>,
    buffer: Vec<u8>,
}

/// The two connections with a peer.
#[derive(Default)]
struct Connections {
    /// To it, and the incarnation that answers there.
    out: Option<OwnedFd>,
    answered: Option<Incarnation>,
    /// From it, and the incarnation that greeted.
    inward: Option<(OwnedFd, Incarnation)>,
    /// How long the user waits for it, if the user resolved it.
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
        let doorbell = Arc::new(Doorbell::new()?);
        poller.add(&listener, LISTENER)?;
        poller.add(&*doorbell, DOORBELL)?;
        let limits = Limits::default();
        let pool = Pool::new(limits.max_leases);
        let config = Config::new(limits, FRAGMENT);
        Ok(SeqEndpoint {
            engine: Engine::new(address.clone(), Incarnation::random(), config, pool),
            capabilities: Capabilities::emulated(SCHEME, limits),
            poller,
            listener,
            doorbell,
            connections: Vec::new(),
            accepted: Vec::new(),
            connecting: Vec::new(),
            lost: VecDeque::new(),
            now: Time::ZERO,
            names: Vec::new(),
            buffer: vec![0; FRAGMENT + 64],
        })
    }

    /// A new peer, to which we connect.
    fn add(&mut self, address: &Address, patience: Option<Duration>) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        let index = peer.index as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, Connections::default);
        }
        self.connections[index] = Connections { patience, ..Connections::default() };
        if !self.engine.is_self(peer) {
            self.connecting.push(peer);
        }
        Ok(peer)
    }

    fn connections(&mut self, peer: Peer) -> &mut Connections {
        &mut self.connections[peer.index as usize]
    }

    /// Nothing more goes to this peer, or comes from it.
    fn lose(&mut self, peer: Peer, reason: LostReason) {
        let asked_for = self.connections(peer).patience.is_some();
        let was_up = self.engine.is_up(peer);
        *self.connections(peer) = Connections::default();
        match was_up || asked_for {
            true => self.engine.peer_lost(peer, reason),
            // The user does not know it.
            false => self.engine.forget(peer),
        }
        if was_up && !asked_for {
            self.lost.push_back(peer);
            if self.lost.len() > KEPT {
                self.lost.pop_front().into_iter().for_each(|peer| self.engine.forget(peer));
            }
        }
    }

    // A peer becomes up with a connection each way, and the same incarnation at both.

    /// Tries to connect to a peer, until its deadline.
    fn connect(&mut self, peer: Peer) {
        let info = match self.engine.peer_info(peer) {
            Some(info) if info.state == PeerState::Connecting => info,
            _ => return,
        };
        let (now, connections) = (self.now, &mut self.connections[peer.index as usize]);
        let patience = connections.patience.unwrap_or(PATIENCE);
        let deadline = *connections.deadline.get_or_insert(now.after(patience));
        let mut why = String::from("it does not answer");
        if connections.out.is_none() && now >= connections.retry {
            connections.retry = now.after(RETRY);
            match socket::connect_to(info.address.rest()) {
                Ok(out) => {
                    let mut hello = MAGIC.to_vec();
                    hello.extend(self.engine.incarnation().get().to_le_bytes());
                    hello.extend(self.engine.address().as_str().bytes());
                    let sent = send_packet(&out, &hello) == Io::Moved(hello.len());
                    if sent && self.poller.add(&out, name(peer, OUT)).is_ok() {
                        connections.out = Some(out);
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

    /// Takes the greeting of a connection that was accepted. Nothing else is taken from it before.
    fn take_greeting(&mut self, accepted: OwnedFd) {
        let len = match receive(&accepted, &mut self.buffer, false) {
            Io::Moved(len) => len,
            Io::Later if self.accepted.len() < ACCEPTED => return self.accepted.push(accepted),
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
            // It connects again, and the end of the earlier connection was not noticed yet.
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
        if send_packet(&accepted, &own) == Io::Moved(own.len()) {
            self.poller.want(&accepted, name(peer, INWARD), true, false);
            self.connections(peer).inward = Some((accepted, incarnation));
            self.come_up(peer);
        }
    }

    /// The peer is up when both connections are there.
    fn come_up(&mut self, peer: Peer) {
        let connections = self.connections(peer);
        let Some((answered, (_, greeted))) = connections.answered.zip(connections.inward.as_ref())
        else {
            return;
        };
        if answered == *greeted {
            self.engine.peer_up(peer, answered);
            return self.read(peer, 1);
        }
        // One of them is of an earlier incarnation. Both sides try again.
        (connections.out, connections.answered, connections.inward) = (None, None, None);
    }

    // Packets.

    /// The connection to the peer is ready: with the answer to our greeting, with room, or at its
    /// end.
    fn outward_ready(&mut self, peer: Peer) {
        let Some(out) = &self.connections[peer.index as usize].out else {
            return;
        };
        match receive(out, &mut self.buffer, false) {
            Io::Later => return self.write(peer),
            Io::Moved(8) if !self.engine.is_up(peer) => {
                let number = self.buffer[..8].try_into().map(u64::from_le_bytes);
                self.connections(peer).answered = number.ok().and_then(Incarnation::new);
                return self.come_up(peer);
            }
            _ => {}
        }
        let connections = self.connections(peer);
        (connections.out, connections.answered) = (None, None);
        if self.engine.is_up(peer) {
            self.read(peer, usize::MAX);
        }
    }

    /// Reads up to `budget` packets of a peer. What it sent last is read before it is lost.
    fn read(&mut self, peer: Peer, budget: usize) {
        let up = self.engine.is_up(peer);
        for _ in 0..budget {
            let connections = &mut self.connections[peer.index as usize];
            let Some((inward, _)) = &connections.inward else {
                return;
            };
            match receive(inward, &mut self.buffer, !up) {
                Io::Moved(_) if !up => return,
                Io::Moved(len) => {
                    if let Err(broken) = self.engine.deliver(peer, &self.buffer[..len]) {
                        return self.lose(peer, LostReason::Protocol(broken.to_string()));
                    }
                }
                Io::Later if connections.out.is_some() || !up => return,
                _ if up => return self.lose(peer, LostReason::Closed),
                _ => {
                    connections.inward = None;
                    if connections.patience.is_none() {
                        self.lose(peer, LostReason::Closed);
                    }
                    return;
                }
            }
        }
    }

    /// Sends the packets for a peer, until there are no more, or there is no room.
    fn write(&mut self, peer: Peer) {
        if !self.engine.is_up(peer) {
            return;
        }
        let connections = &mut self.connections[peer.index as usize];
        while let Some(out) = &connections.out {
            let waited = !connections.unsent.is_empty();
            if !waited {
                let Some(packet) = self.engine.poll_transmit(peer) else {
                    return;
                };
                packet.copy_to(&mut connections.unsent);
                // The copy is sent: the memory of the packet is free again.
                self.engine.sent(peer);
            }
            match send_packet(out, &connections.unsent) {
                Io::Moved(_) => {
                    connections.unsent.clear();
                    if waited {
                        self.poller.want(out, name(peer, OUT), true, false);
                    }
                }
                Io::Later => return self.poller.want(out, name(peer, OUT), true, true),
                Io::Closed => {
                    connections.out = None;
                    return self.read(peer, usize::MAX);
                }
            }
        }
    }
}

/// The incarnation and the address that a greeting says.
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
        // The engine's events come first: nothing more is read while they fill the budget.
        let before = events.len();
        let mut busy = self.engine.take_events(budget, events);
        if events.len() - before >= budget {
            return true;
        }
        self.doorbell.awake();
        let mut names = std::mem::take(&mut self.names);
        self.poller.ready(&mut names);
        busy |= names.iter().any(|name| *name != DOORBELL);
        for name in &names {
            match *name {
                LISTENER => {
                    if let Some(accepted) = socket::accept(&self.listener)
                        && self.poller.add(&accepted, NEW).is_ok()
                    {
                        self.accepted.push(accepted);
                    }
                }
                DOORBELL => _ = self.doorbell.take(),
                NEW => {}
                name => {
                    if let Some(peer) = self.engine.peer_at((name >> 1) as u32) {
                        match name & 1 {
                            OUT => self.outward_ready(peer),
                            _ => self.read(peer, budget.min(16)),
                        }
                    }
                }
            }
        }
        self.names = names;
        for accepted in std::mem::take(&mut self.accepted) {
            self.take_greeting(accepted);
        }
        for peer in std::mem::take(&mut self.connecting) {
            self.connect(peer);
        }
        while let Some(peer) = self.engine.next_output() {
            self.write(peer);
            busy = true;
        }
        let left = budget - (events.len() - before);
        self.engine.take_events(left, events) || busy
    }

    fn arm(&mut self, now: Time) -> Sleep {
        // A signal of the doorbell ends a sleep, also one that came while no thread slept: only
        // here is it taken.
        if self.doorbell.prepare() || self.engine.has_events() || self.engine.has_output() {
            return Sleep::Busy;
        }
        // A lease that is given back signals no descriptor, and neither does a peer that starts.
        match self.connecting.is_empty() && !self.engine.has_waiting() {
            true => Sleep::Until(Time::NEVER),
            false => Sleep::Until(now.after(RETRY)),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.fd.as_fd())
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(self.doorbell.clone())
    }

    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        if address.scheme() != SCHEME {
            let (address, scheme) = (address.clone(), SCHEME);
            return Err(ResolveError::WrongScheme { address, scheme });
        }
        if let Some(peer) = self.engine.find_peer(address) {
            let until = self.now.after(patience);
            let connections = self.connections(peer);
            connections.patience = connections.patience.max(Some(patience));
            connections.deadline = connections.deadline.map(|deadline| deadline.max(until));
            return Ok(peer);
        }
        self.add(address, Some(patience))
    }

    fn forget(&mut self, peer: Peer) {
        if self.engine.peer_info(peer).is_some() {
            *self.connections(peer) = Connections::default();
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
