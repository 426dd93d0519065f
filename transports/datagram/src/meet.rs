//! Meeting peers and losing them, by the control endpoint.
//!
//! Peers find each other over another transport: TCP, or shared memory. It proves the secret, or
//! asks the kernel for the peer's credentials, before anything is parsed. It tries again while a
//! peer has not started, settles which side connects, and reports when a peer's process or machine
//! is lost, which not all networks do. On it both sides greet each other ([`Control::Hello`]), and
//! then packets flow through the library.

use crate::{
    Config, OpenError,
    datagrams::Datagrams,
    frame::Control,
    link::{State, Watch},
    network::{Medium, Meeting, Network},
};
use petasos_fabric::{Address, Endpoint, Event, LostReason, Peer, ResolveError};
use std::time::{Duration, Instant};

/// The most control messages to one peer that may wait.
const MOST_CONTROLS: usize = 1 << 16;
/// The longest control message: [`Control::Hello`], or [`Control::Grant`].
const LONGEST: usize = crate::frame::MAX_NAME + 128;
/// How long the last packets of a peer may be on their way if it ended without notice.
const UNANNOUNCED: Duration = Duration::from_millis(50);
/// The same if it said how many packets it sent.
const ANNOUNCED: Duration = Duration::from_secs(2);
/// How long messages may take to be sent when an endpoint ends.
const FAREWELL: Duration = Duration::from_millis(200);

impl Medium {
    /// Opens the endpoint by which peers meet at this place.
    pub(crate) fn meet(&self, rest: &str, config: &Config) -> Result<Box<dyn Endpoint>, OpenError> {
        Ok(match self.meeting {
            Meeting::Tcp if rest.contains('?') => {
                let what = "the packets, which go through a library, are not encrypted";
                return Err(OpenError::Config(format!("an option in `{rest}`: {what}")));
            }
            Meeting::Tcp => {
                let mut numbers = petasos_tcp::Config::default();
                numbers.secret.clone_from(&config.secret);
                numbers.silence = config.silence;
                // Packets do not pass through that endpoint: a peer that connects proves its
                // identity before there are any.
                numbers.verify = true;
                numbers.limits.max_peers = config.limits.max_peers;
                numbers.limits.max_message = LONGEST;
                numbers.limits.max_inject = LONGEST;
                let address = Address::parse(&format!("tcp://{rest}"))
                    .map_err(petasos_tcp::OpenError::from)?;
                Box::new(petasos_tcp::TcpEndpoint::open(&address, numbers)?)
            }
            Meeting::Shm => {
                let mut numbers = petasos_shm::Config::default();
                (numbers.ring, numbers.long_ring) = (16 << 10, 16 << 10);
                numbers.max_message = LONGEST;
                numbers.max_peers = config.limits.max_peers;
                numbers.cross_memory = false;
                let address = Address::parse(&format!("shm://{rest}"))
                    .map_err(petasos_shm::OpenError::from)?;
                Box::new(petasos_shm::Shm::open_with(&address, numbers)?)
            }
        })
    }

    /// Our address for one of the control endpoint's.
    pub(crate) fn ours(&self, control: &Address) -> Address {
        let url = format!("{}://{}", self.scheme, control.rest());
        Address::parse(&url).unwrap_or_else(|_| control.clone())
    }

    /// The control endpoint's address for one of ours.
    pub(crate) fn theirs(&self, address: &Address) -> Result<Address, ResolveError> {
        let scheme = match self.meeting {
            Meeting::Tcp => "tcp",
            Meeting::Shm => "shm",
        };
        if address.rest().contains('?') {
            let reason = "packets that go through a library are not encrypted".to_owned();
            return Err(ResolveError::Malformed { address: address.clone(), reason });
        }
        Ok(Address::parse(&format!("{scheme}://{}", address.rest()))?)
    }
}

impl<N: Network> Datagrams<N> {
    /// The peer at an address; `running`: it is not waited for.
    pub(crate) fn resolve(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        let scheme = self.medium.scheme;
        if address.scheme() != scheme && address.scheme() != self.medium.best {
            return Err(ResolveError::WrongScheme { address: address.clone(), scheme });
        }
        let theirs = self.medium.theirs(address)?;
        let address = self.medium.ours(&theirs);
        // If it is known, this extends the patience.
        let control = match running {
            true => self.control.resolve_running(&theirs, patience),
            false => self.control.resolve(&theirs, patience),
        };
        let control = control.map_err(|error| match error {
            ResolveError::Malformed { reason, .. } => {
                ResolveError::Malformed { address: address.clone(), reason }
            }
            other => other,
        })?;
        // It may be known by another spelling of its address.
        match self.peers.find(&address).or_else(|| self.links.by_control(control)) {
            Some(peer) => Ok(peer),
            None => self.add(&address, control),
        }
    }

    /// Nothing more is sent to a peer, or reported of it.
    pub(crate) fn forget(&mut self, peer: Peer) {
        self.remove(peer);
        self.peers.forget(peer);
    }

    /// Adds a peer that the control endpoint knows as `control`.
    fn add(&mut self, address: &Address, control: Peer) -> Result<Peer, ResolveError> {
        let peer = self.peers.add(address)?;
        let ticket = getrandom::u64().expect("the system's random source answers");
        self.links.add(peer, control, ticket);
        Ok(peer)
    }

    /// Polls the control endpoint. True if anything was done.
    pub(crate) fn poll_control(&mut self) -> bool {
        if self.cache.drop_unusable() {
            self.net.close_memory();
        }
        let mut events = std::mem::take(&mut self.control_events);
        let mut worked = self.control.progress(self.now, 64, &mut events);
        worked |= !events.is_empty();
        for event in events.drain(..) {
            match event {
                Event::PeerUp { peer, .. } => self.reached(peer),
                Event::PeerLost { peer, reason } => self.left(peer, reason),
                Event::Message { peer, message } => {
                    if let Some(index) = self.links.by_control(peer).map(|peer| peer.index) {
                        match Control::from_bytes(&message) {
                            Ok(control) => self.control_arrived(index, control),
                            Err(garbled) => self.cut_off(index, &garbled.to_string()),
                        }
                    }
                }
                Event::LongMessage { peer, .. } | Event::PutArrived { peer, .. } => {
                    if let Some(index) = self.links.by_control(peer).map(|peer| peer.index) {
                        self.cut_off(index, "a message that peers do not send here");
                    }
                }
                _ => {}
            }
        }
        events.append(&mut self.control_events);
        self.control_events = events;
        self.send_controls();
        worked
    }

    /// A peer can be greeted.
    fn reached(&mut self, control: Peer) {
        let peer = match self.links.by_control(control) {
            Some(peer) => peer,
            None => {
                let Some(info) = self.control.peer(control) else { return };
                let address = self.medium.ours(&info.address);
                // The last packets of its earlier incarnation were still waited for.
                if let Some(earlier) = self.peers.find(&address)
                    && let Some(link) = self.links.of(earlier)
                    && let State::Ending(reason, _) = &link.state
                {
                    let reason = reason.clone();
                    self.finish(earlier, reason);
                }
                let Ok(peer) = self.add(&address, control) else {
                    return self.control.forget(control);
                };
                peer
            }
        };
        if let Some(link) = self.links.of(peer) {
            link.controls.add_greeting();
            self.lists.write(link);
        }
    }

    /// There is a ring to be sent to a peer, when the control endpoint is polled next.
    pub(crate) fn ring_later(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index) {
            link.controls.set_ring(true);
            self.lists.write(link);
        }
    }

    /// Sends control messages that wait, as far as there is room.
    fn send_controls(&mut self) {
        if !self.lists.has_controls() {
            return;
        }
        let Datagrams { links, lists, control, net, protocol, .. } = self;
        for index in lists.take_controls() {
            let Some(link) = links.get_mut(index) else { continue };
            link.controls.leave_list();
            let (to, ticket, sent) = (link.control(), link.ticket(), link.out.sent());
            let greeting = || {
                let (protocol, name) = (protocol.clone(), net.name().to_vec());
                Control::Hello { slot: index, ticket, protocol, name }
            };
            // How much was sent is known when nothing is under way.
            let rung = (link.out.running() == 0).then_some(Control::Rung(sent));
            let send = |message: &Control| control.inject(to, &[&message.to_bytes()]).is_ok();
            if !link.controls.send(greeting, rung, send) {
                lists.write(link);
            }
        }
    }

    /// Sends a control message, now or when there is room.
    pub(crate) fn send_control(&mut self, peer: Peer, message: Control) {
        let Some(link) = self.links.of(peer) else { return };
        let many = link.controls.add(message) > MOST_CONTROLS;
        self.lists.write(link);
        if many {
            self.cut_off(peer.index, "it does not read what is answered");
        }
    }

    /// A control message has arrived.
    fn control_arrived(&mut self, index: u32, message: Control) {
        let Some(link) = self.links.get_mut(index) else { return };
        match message {
            Control::Hello { slot, ticket, protocol, name } => {
                if link.is_greeted() {
                    return self.cut_off(index, "it greeted twice");
                }
                let ours = &self.protocol;
                if protocol != *ours {
                    let why = format!("it speaks `{protocol}`, this endpoint `{ours}`");
                    return self.cut_off(index, &why);
                }
                let node = match self.net.insert(&name) {
                    Ok(node) => node,
                    Err(why) => return self.cut_off(index, &why),
                };
                link.greeted(node, name, slot, ticket);
                let (peer, control) = (link.peer(), link.control());
                if let Some(incarnation) =
                    self.control.peer(control).and_then(|info| info.incarnation)
                {
                    self.peers.up(peer, incarnation);
                }
            }
            Control::Ring => {
                self.pace.arrived();
                // The peer is told once that this is not needed while we spin.
                if self.pace.is_spinning() && link.watch == Watch::Rings {
                    let told = self.control.inject(link.control(), &[&Control::Awake.to_bytes()]);
                    if told.is_ok() {
                        link.watch = Watch::Silent;
                    }
                }
            }
            Control::Awake => link.rings = false,
            Control::Sleep => {
                link.rings = true;
                link.controls.add_rung();
                self.lists.write(link);
            }
            Control::Rung(count) => {
                if link.watch == Watch::Asked {
                    let all = link.inward.received().wrapping_sub(count) as i32 >= 0;
                    link.watch = if all { Watch::Rings } else { Watch::Owed(count) };
                }
            }
            Control::Bye(count) => link.inward.set_total(count),
            memory => {
                let peer = link.peer();
                self.memory_controls.push((peer, memory));
            }
        }
    }

    /// The control endpoint has lost a peer.
    fn left(&mut self, control: Peer, reason: LostReason) {
        let Some(peer) = self.links.by_control(control) else { return };
        self.end(peer.index, reason);
    }

    /// A peer's connection has ended: what it sent before is taken, and then it is lost.
    pub(crate) fn end(&mut self, index: u32, reason: LostReason) {
        let now = self.now;
        let Some(link) = self.links.get_mut(index) else { return };
        let peer = link.peer();
        match &mut link.state {
            State::Meeting => self.finish(peer, reason),
            State::Up => {
                let patience = if link.inward.knows_total() { ANNOUNCED } else { UNANNOUNCED };
                link.state = State::Ending(reason, now.after(patience));
                self.lists.end(peer);
            }
            // The reason of the control endpoint is nearer to the cause than the library's.
            State::Ending(known, _) if matches!(known, LostReason::System(_)) => *known = reason,
            State::Ending(..) => {}
        }
    }

    /// Loses peers of which nothing more is expected.
    pub(crate) fn finish_ended(&mut self) -> bool {
        let mut worked = false;
        for peer in self.lists.take_ending() {
            let now = self.now;
            let Some(link) = self.links.of(peer) else { continue };
            let State::Ending(reason, until) = &link.state else { continue };
            // The rest of a payload may never arrive.
            let late = now >= *until && !link.inward.is_due();
            let over = (!link.inward.has_deferred() && link.inward.has_all()) || late;
            let reason = reason.clone();
            match over {
                true => {
                    self.finish(peer, reason);
                    worked = true;
                }
                false => self.lists.end(peer),
            }
        }
        worked
    }

    /// A peer broke the protocol.
    #[cold]
    pub(crate) fn cut_off(&mut self, index: u32, why: &str) {
        self.counters.violations += 1;
        if let Some(link) = self.links.get(index) {
            let peer = link.peer();
            self.finish(peer, LostReason::Protocol(why.to_owned()));
        }
    }

    /// A peer is lost: nothing more is sent to it, or taken from it.
    pub(crate) fn finish(&mut self, peer: Peer, reason: LostReason) {
        self.remove(peer);
        self.peers.lose(peer, reason);
    }

    /// Takes a peer out of all tables but that of handles.
    fn remove(&mut self, peer: Peer) {
        let Some(link) = self.links.remove(peer) else { return };
        if self.grants.can_return(peer) {
            let _ = self.control.inject(link.control(), &[&Control::Returned.to_bytes()]);
            // It is sent before the connection is closed; events that arrive meanwhile wait for
            // their turn.
            self.control.progress(self.now, 0, &mut self.control_events);
        }
        self.grants.forget(peer);
        self.keep_lost(&link);
        self.control.forget(link.control());
        self.net.clean_up(link.name());
        if let Some(node) = link.node() {
            self.retire_node(node, peer);
        }
    }

    /// Waits a little until the library has sent everything, while `receive` polls it, and tells
    /// peers that this was all.
    pub(crate) fn part(&mut self, mut receive: impl FnMut(&mut Self)) {
        let begin = Instant::now();
        while self.net.running() > 0 && begin.elapsed() < FAREWELL {
            receive(self);
            std::thread::yield_now();
        }
        for link in self.links.iter() {
            if matches!(link.state, State::Up) {
                if self.grants.can_return(link.peer()) {
                    let _ = self.control.inject(link.control(), &[&Control::Returned.to_bytes()]);
                }
                let _ = self
                    .control
                    .inject(link.control(), &[&Control::Bye(link.out.sent()).to_bytes()]);
            }
        }
        self.control.progress(self.now, 64, &mut Vec::new());
    }
}
