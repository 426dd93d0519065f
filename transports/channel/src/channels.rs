//! The state of an endpoint.

use crate::{
    Config, Counters, Device, Force, Garbage, Thresholds,
    access::Accesses,
    bounce::Bounces,
    deferred::{Ahead, Deferred, DeferredTotal},
    device::Node,
    flow::{Flow, In, Out},
    header::Header,
    holders::Holders,
    loans::Loans,
    peers::{Entry, Peers},
    port::Port,
    regions::Regions,
    schedule::Schedule,
};
use petasos_fabric::{
    Access as Rights, Address, Capabilities, LostReason, Peer, Pool, ResolveError, Support, Time,
    two_sided::{self, Engine},
};

/// An endpoint of the fabric over a [`Device`].
///
/// ```
/// use petasos_channel::{Channels, Config};
/// use petasos_fabric::{Address, Endpoint};
/// use petasos_sim::device::{DeviceConfig, DeviceNet};
///
/// let net = DeviceNet::new(DeviceConfig::with_seed(1));
/// let device = net.open(&Address::parse("simdev://a")?)?;
/// let endpoint = Channels::new(device, Config::default());
/// assert_eq!(endpoint.address().as_str(), "simdev://a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Channels<D: Device> {
    pub(crate) port: Port<D>,
    pub(crate) engine: Engine,
    pub(crate) capabilities: Capabilities,
    pub(crate) config: Config,
    /// Whether hot peers are asked for exclusive channels: not where no size goes through them, nor
    /// where the choice is not by traffic.
    pub(crate) asks: bool,
    /// The device was asked for a packet, and had none, since it was last polled.
    pub(crate) searched: bool,
    pub(crate) thresholds: Thresholds,
    pub(crate) counters: Counters,
    pub(crate) now: Time,
    pub(crate) peers: Peers,
    pub(crate) schedule: Schedule,
    pub(crate) holders: Holders,
    /// Memory that peers fetch from.
    pub(crate) loans: Loans,
    /// Memory into which we fetch.
    pub(crate) fetching: Bounces,
    pub(crate) deferred: DeferredTotal,
    pub(crate) accesses: Accesses,
    pub(crate) regions: Regions,
}

impl<D: Device> Channels<D> {
    /// An endpoint over this device.
    ///
    /// # Panics
    /// If the numbers of `config` contradict each other or the device.
    #[must_use]
    pub fn new(device: D, config: Config) -> Channels<D> {
        let offers = device.limits();
        config.check(&offers);
        let limits = config.limits;
        let pool = Pool::new(limits.max_leases);
        let numbers = two_sided::Config::new(limits, config.fragment);
        let engine = Engine::new(device.address().clone(), device.incarnation(), numbers, pool);
        let mut capabilities = Capabilities::emulated(device.scheme(), limits);
        capabilities.credential = device.credential();
        capabilities.fences = true;
        if offers.exposes() {
            capabilities.remote_access = Support::Native;
            capabilities.flush = Support::Native;
            if offers.serves_events_from < u64::MAX {
                capabilities.put_with_event = Support::Native;
                let from = Some(offers.serves_events_from);
                capabilities.native_event_from = from.filter(|from| *from > 0);
            }
            if offers.atomic > 0 {
                capabilities.atomics = Support::Native;
                // Without native atomics the target's engine does them.
                capabilities.processor_atomics = offers.processor_atomics;
            }
            capabilities.passive_target = offers.passive_target;
            capabilities.enforcement = offers.enforcement;
        }
        // Where a put is a packet, a channel of puts gains nothing, unless a measurement says so.
        let usual = Thresholds::default();
        let usual = if offers.puts_are_packets { usual.without_exclusive() } else { usual };
        let tuned = || Thresholds::of_machine_or(device.scheme(), usual);
        let thresholds = config.thresholds.unwrap_or_else(tuned);
        let immediate = match offers.puts_are_packets {
            true => offers.immediate,
            false => thresholds.immediate(),
        };
        Channels {
            port: Port::new(device, immediate),
            engine,
            capabilities,
            loans: Loans::new(&config),
            fetching: Bounces::new(config.bounces, config.bounce, Rights::NONE),
            asks: thresholds.exclusive().is_some() && config.force == Force::None,
            searched: false,
            config,
            thresholds,
            counters: Counters::default(),
            now: Time::ZERO,
            peers: Peers::default(),
            schedule: Schedule::default(),
            holders: Holders::default(),
            deferred: DeferredTotal::default(),
            accesses: Accesses::default(),
            regions: Regions::default(),
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        self.port.device()
    }

    /// The same, to be changed: for tests.
    #[doc(hidden)]
    pub fn device_mut(&mut self) -> &mut D {
        self.port.device_mut()
    }

    /// What the endpoint did so far, and holds now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let active = self.peers.active();
        let flows = active.iter().filter_map(|index| self.peers.flow(*index));
        let cells: usize = flows
            .map(|flow| {
                let out = match &flow.out {
                    Out::Open(out) | Out::Closing(out) => out.fifo.image().len(),
                    _ => 0,
                };
                let inward = match &flow.inward {
                    In::Open(inward) => inward.fifo.memory().len(),
                    _ => 0,
                };
                out + inward
            })
            .sum();
        let buffers = self.loans.memory() + self.fetching.memory();
        Counters {
            deferred: self.deferred.count() as u64,
            deferred_most: self.deferred.most() as u64,
            memory: (cells + buffers + self.deferred.bytes()) as u64,
            active: active.len() as u64,
            ..self.counters
        }
    }

    /// What the two-sided engine did so far.
    #[must_use]
    pub fn engine_counters(&self) -> two_sided::Counters {
        self.engine.counters()
    }

    /// The bytes of a peer's entry in the tables of this layer, without what is kept while there is
    /// traffic with the peer.
    pub const ENTRY: usize = size_of::<Entry>() + size_of::<u32>();

    // Peers.

    pub(crate) fn add(&mut self, address: &Address, resolved: bool) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        self.peers.add(peer, resolved);
        Ok(peer)
    }

    /// The peer at a node.
    pub(crate) fn peer_of(&self, node: Node) -> Option<Peer> {
        self.engine.peer_at(self.peers.at_node(node)?)
    }

    /// Lets peers go on that wait for memory to lend.
    pub(crate) fn resume_starved_output(&mut self) {
        for index in self.schedule.take_starved_output() {
            if let Some(flow) = self.peers.flow_mut(index) {
                self.schedule.list_output(index, flow);
            }
        }
    }

    /// Lets peers go on that wait for memory to fetch into.
    pub(crate) fn resume_starved_input(&mut self) {
        for index in self.schedule.take_starved_input() {
            if let Some(flow) = self.peers.flow_mut(index) {
                self.schedule.list_input(index, flow);
            }
        }
    }

    /// Reads the header of a packet, and takes in its acknowledgement.
    pub(crate) fn read_header<'p>(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        packet: &'p [u8],
    ) -> Result<(Header, &'p [u8]), Garbage> {
        let (header, body) = Header::split(packet)?;
        self.acknowledged(peer, flow, header.ack)?;
        Ok((header, body))
    }

    /// A packet is deferred no more.
    pub(crate) fn forget_deferred(&mut self, deferred: Deferred) {
        self.deferred.remove(deferred.bytes.len());
        if let Ahead::Done(bounce) = deferred.ahead {
            self.fetching.give_back(bounce, self.port.device_mut());
            self.resume_starved_input();
        }
    }

    // The end of a peer.

    /// Cuts a peer off that broke the protocol.
    pub(crate) fn check(&mut self, peer: Peer, result: Result<(), Garbage>) {
        if let Err(garbage) = result {
            self.cut_off(peer, garbage.to_string());
        }
    }

    pub(crate) fn cut_off(&mut self, peer: Peer, what: String) {
        if self.engine.is_up(peer) {
            self.counters.violations += 1;
            self.lose(peer, LostReason::Protocol(what));
        }
    }

    pub(crate) fn lose(&mut self, peer: Peer, reason: LostReason) {
        let resolved = self.peers.get(peer.index).is_resolved();
        self.detach(peer);
        self.end_accesses(peer, &reason);
        self.engine.peer_lost(peer, reason);
        self.engine.trim(peer);
        if !resolved && let Some(oldest) = self.peers.remember_lost(peer) {
            self.engine.reuse(oldest);
        }
    }

    /// Releases all that is kept for a peer. The device touches nothing of it any more.
    pub(crate) fn detach(&mut self, peer: Peer) {
        let index = peer.index;
        let entry = self.peers.remove(index);
        if let Some(node) = entry.node() {
            self.port.device_mut().close(node);
        }
        let Some(mut flow) = entry.into_flow() else { return };
        self.holders.remove_outgoing(index);
        let device = self.port.device_mut();
        for loan in flow.sent.take_loans() {
            self.loans.end(device, &mut flow.lent, loan);
        }
        if let Some(out) = flow.out.fifo() {
            device.deregister(out.registration, None);
        }
        self.schedule.input_taken(&mut flow);
        for deferred in flow.deferred.drain(..) {
            self.forget_deferred(deferred);
        }
        self.resume_starved_output();
        self.end_inward(index, &mut flow);
    }
}

impl<D: Device> std::fmt::Debug for Channels<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channels({}, {:?})", self.engine.address(), self.counters())
    }
}
