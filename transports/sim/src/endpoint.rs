//! An endpoint on the simulated network.

use crate::{
    wake::WakeFlag,
    world::{Arrival, EndpointId, Shared, Wire},
};
use petasos_fabric::{
    Address, Capabilities, Endpoint, Event, Incarnation, Limits, LostReason, Notifier, Peer,
    PeerState, Pool, ResolveError, Sleep, Time, answered_by_engine,
    two_sided::{Config, Engine},
};
use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::BorrowedFd,
    sync::Arc,
    time::Duration,
};

/// The scheme of its addresses.
pub(crate) const SCHEME: &str = "sim";
/// The longest payload of a packet.
const FRAGMENT: usize = 64 * 1024;
/// Lost peers that connected to us, whose handles are still known.
const KEPT: usize = 64;

/// An endpoint of the fabric over a [`SimNet`](crate::SimNet).
pub struct SimEndpoint {
    world: Shared,
    id: EndpointId,
    engine: Engine,
    capabilities: Capabilities,
    links: Vec<Link>,
    peers: BTreeMap<Wire, Peer>,
    /// Peers for which the network had no room.
    blocked: Vec<Wire>,
    gone: VecDeque<Peer>,
    wake: Arc<WakeFlag>,
}

/// What there is to a peer, by its slot.
#[derive(Debug, Default)]
struct Link {
    wire: Option<Wire>,
    /// The program has resolved the peer.
    asked: bool,
    /// Until when the peer is tried, unless it is connected before.
    until: Time,
}

impl SimEndpoint {
    pub(crate) fn new(
        world: Shared,
        address: Address,
        id: EndpointId,
        incarnation: Incarnation,
        limits: Limits,
    ) -> SimEndpoint {
        let pool = Pool::new(limits.max_leases);
        let mut numbers = Config::new(limits, FRAGMENT);
        numbers.in_order = true;
        let engine = Engine::new(address, incarnation, numbers, pool);
        let mut capabilities = Capabilities::emulated(SCHEME, limits);
        capabilities.fences = true;
        SimEndpoint {
            world,
            id,
            engine,
            capabilities,
            links: Vec::new(),
            peers: BTreeMap::new(),
            blocked: Vec::new(),
            gone: VecDeque::new(),
            wake: Arc::default(),
        }
    }

    fn add(&mut self, address: &Address, asked: bool) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        let index = peer.index as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, Link::default);
        }
        self.links[index] = Link { asked, ..Link::default() };
        Ok(peer)
    }

    fn take(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Connected { wire, address, incarnation } => {
                let known = self.engine.find_peer(&address);
                let waiting = known.filter(|peer| {
                    let info = self.engine.peer_info(*peer);
                    info.is_some_and(|info| info.state == PeerState::Connecting)
                });
                if waiting.is_none()
                    && let Some(earlier) = known
                {
                    // The loss of the earlier incarnation is still to be reported.
                    self.lose(earlier, LostReason::Restarted);
                }
                match waiting.map_or_else(|| self.add(&address, false), Ok) {
                    Ok(peer) => {
                        self.links[peer.index as usize].wire = Some(wire);
                        self.peers.insert(wire, peer);
                        self.engine.peer_up(peer, incarnation);
                    }
                    Err(_) => self.world.lock().hang_up(wire, self.id),
                }
            }
            Arrival::Packet { wire, bytes } => {
                if let Some(&peer) = self.peers.get(&wire)
                    && let Err(violation) = self.engine.deliver(peer, &bytes)
                {
                    self.lose(peer, LostReason::Protocol(violation.to_string()));
                }
            }
            Arrival::Room { wire } => self.blocked.push(wire),
            Arrival::Lost { wire, reason } => {
                if let Some(&peer) = self.peers.get(&wire) {
                    self.lose(peer, reason);
                }
            }
            Arrival::Unreachable { address, patience } => {
                // One that was resolved again goes on being tried for the longer time.
                let now = self.world.lock().agenda.now;
                if let Some(peer) = self.engine.find_peer(&address)
                    && !self.engine.is_up(peer)
                    && self.links[peer.index as usize].until <= now
                {
                    let why = "there is no endpoint".to_owned();
                    self.lose(peer, LostReason::Unreachable(patience, why));
                }
            }
        }
    }

    fn lose(&mut self, peer: Peer, reason: LostReason) {
        let link = std::mem::take(&mut self.links[peer.index as usize]);
        self.unplug(link.wire);
        self.engine.peer_lost(peer, reason);
        if !link.asked {
            self.gone.push_back(peer);
            if self.gone.len() > KEPT
                && let Some(oldest) = self.gone.pop_front()
            {
                self.engine.reuse(oldest);
            }
        }
    }

    fn unplug(&mut self, wire: Option<Wire>) {
        if let Some(wire) = wire {
            self.peers.remove(&wire);
            self.world.lock().hang_up(wire, self.id);
        }
    }

    /// Sends what there is for a peer.
    fn write(&mut self, peer: Peer) -> bool {
        let Some(wire) = self.links[peer.index as usize].wire else { return false };
        let mut busy = false;
        loop {
            if !self.world.lock().has_room(wire, self.id) {
                return busy;
            }
            let Some(packet) = self.engine.poll_transmit(peer) else { return busy };
            let mut bytes = Vec::with_capacity(packet.len());
            packet.copy_to(&mut bytes);
            // The copy is what travels: the memory is free again.
            self.engine.sent(peer);
            self.world.lock().send(wire, self.id, bytes);
            busy = true;
        }
    }
}

impl Endpoint for SimEndpoint {
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        if address.scheme() != SCHEME {
            let (address, scheme) = (address.clone(), SCHEME);
            return Err(ResolveError::WrongScheme { address, scheme });
        }
        let known = self.engine.find_peer(address);
        let peer = match known {
            Some(peer) => peer,
            None => self.add(address, true)?,
        };
        if !self.engine.is_self(peer) {
            let link = &mut self.links[peer.index as usize];
            link.asked = true;
            if !self.engine.is_up(peer) {
                let until = self.world.lock().dial(self.id, address.clone(), patience);
                link.until = link.until.max(until);
            }
        }
        Ok(peer)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        // An endpoint that is there is found with the first try.
        let known = self.engine.find_peer(address).is_some();
        self.resolve(address, if known { patience } else { Duration::ZERO })
    }

    fn forget(&mut self, peer: Peer) {
        if self.engine.peer_info(peer).is_some() {
            let link = std::mem::take(&mut self.links[peer.index as usize]);
            self.unplug(link.wire);
            self.engine.forget(peer);
        }
    }

    /// `now` is not looked at: the network knows the time.
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        if self.engine.is_closing() {
            self.engine.keep_time(now);
        }
        let before = events.len();
        let mut busy = self.engine.take_events(budget, events);
        if !self.world.lock().lives(self.id) {
            return busy;
        }
        if events.len() - before >= budget {
            return true;
        }
        for _ in 0..budget {
            // Not in the condition, where the network would stay locked.
            let arrival = self.world.lock().take(self.id);
            let Some(arrival) = arrival else { break };
            self.take(arrival);
            busy = true;
        }
        for wire in std::mem::take(&mut self.blocked) {
            if let Some(&peer) = self.peers.get(&wire) {
                busy |= self.write(peer);
            }
        }
        while let Some(peer) = self.engine.next_output() {
            busy |= self.write(peer);
        }
        let left = budget.saturating_sub(events.len() - before);
        self.engine.take_events(left, events) || busy
    }

    fn arm(&mut self, _: Time) -> Sleep {
        let woken = self.wake.take();
        let engine = self.engine.has_events() || self.engine.has_output();
        let waiting = self.engine.has_waiting();
        let busy = woken || engine || waiting || self.world.lock().has_mail(self.id);
        if busy { Sleep::Busy } else { Sleep::Until(self.engine.deadline()) }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(self.wake.clone())
    }

    answered_by_engine! {
        engine: address incarnation capabilities peer inject submit cancel poll_completion register
        export import release
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        self.world.lock().end(self.id);
    }
}

impl std::fmt::Debug for SimEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimEndpoint({})", self.engine.address())
    }
}
