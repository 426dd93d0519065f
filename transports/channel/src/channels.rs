//! The state of an endpoint, and what the device reports.

use crate::{
    Config, Counters, Device, DeviceEvent, Garbage, Thresholds,
    access::Access,
    bounce::{Bounce, Bounces},
    device::{Class, Fault, Node, Registration, RemoteKey, Ticket},
    flow::{Ahead, Deferred, Entry, Flow, In, Loan, Out},
    head::Head,
};
use petasos_fabric::{
    Access as Rights, Address, Capabilities, Enforcement, Event, LostReason, Operation, Peer,
    PeerState, Pool, RegionId, ResolveError, Support, Time, Token,
    two_sided::{self, Engine},
};
use slab::Slab;
use smallvec::SmallVec;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// Lost peers that came to us, whose handles are still known.
const KEPT: usize = 64;
/// The tag of FIFOs; the rest of it is the peer. Regions of the user's have numbers below.
const FIFO: u64 = 1 << 63;

/// An endpoint of the fabric over a [`Device`].
pub struct Channels<D: Device> {
    pub(crate) device: D,
    pub(crate) engine: Engine,
    pub(crate) capabilities: Capabilities,
    pub(crate) config: Config,
    pub(crate) thresholds: Thresholds,
    pub(crate) counters: Counters,
    pub(crate) now: Time,

    /// By the peer's slot.
    pub(crate) entries: Vec<Entry>,
    /// The peer's slot and 1, by node.
    nodes: Vec<u32>,
    /// Peers with something to send, to deliver.
    pub(crate) output: VecDeque<u32>,
    pub(crate) input: VecDeque<u32>,
    /// Peers that wait for memory to lend, or to fetch into.
    pub(crate) starved_out: Vec<u32>,
    pub(crate) starved_in: Vec<u32>,
    /// Acknowledgements that wait for something to ride on.
    pub(crate) acks: VecDeque<(Time, Peer)>,
    /// Peers with a flow, and when they are looked at.
    pub(crate) active: Vec<u32>,
    pub(crate) sweep: Time,
    gone: VecDeque<Peer>,

    /// Peers to which there is an exclusive channel, or will be; and from which.
    pub(crate) kept: Vec<u32>,
    pub(crate) given: Vec<u32>,
    /// Peers that wait for somebody else to give way.
    pub(crate) waiting: VecDeque<Peer>,

    pub(crate) tickets: Slab<Pending>,
    pub(crate) sending: Bounces,
    pub(crate) fetching: Bounces,
    /// Pieces lent now, and bytes deferred.
    pub(crate) lent: usize,
    pub(crate) deferred_bytes: usize,

    pub(crate) accesses: Slab<Access>,
    pub(crate) serial: u32,
    pub(crate) tokens: HashMap<Token, usize>,
    pub(crate) registered: HashMap<RegionId, (Registration, RemoteKey)>,
    /// Regions that the device is closing, under which ticket, and who waits for that.
    pub(crate) closing: HashMap<RegionId, (Ticket, Option<Waiting>)>,

    pub(crate) scratch: Vec<u8>,
    pub(crate) mail: Vec<DeviceEvent>,
}

/// An operation that waits until the device has closed a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) token: Token,
    pub(crate) patience: Duration,
    /// Known from the next pass on.
    pub(crate) until: Option<Time>,
}

/// What a completion of the device's is for.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A put of the FIFO's image.
    Put { peer: Peer, seq: u32 },
    /// A pad that went as a put.
    Pad,
    /// Something fetched ahead of its turn.
    Ahead { peer: Peer, seq: u32, bounce: Bounce },
    /// Something fetched.
    Get { peer: Peer, seq: u32, bounce: Option<(Bounce, usize, usize)> },
    /// A region of the user's is being closed.
    Deregister(RegionId),
    /// A piece of an access of the user's.
    Access { slot: usize, serial: u32 },
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
        capabilities.remote_access = Support::Native;
        capabilities.put_with_event = Support::Native;
        if offers.atomic > 0 {
            capabilities.atomics = Support::Native;
            // Without any, the target's engine does them.
            capabilities.processor_atomics = offers.processor_atomics;
        }
        capabilities.passive_target = offers.passive_target;
        capabilities.enforcement = Enforcement::Device;
        let here = || Thresholds::of_machine(device.scheme());
        let thresholds = config.thresholds.unwrap_or_else(here);
        let sending = Bounces::new(config.bounces, config.bounce, Rights::READ);
        let fetching = Bounces::new(config.bounces, config.bounce, Rights::NONE);
        Channels {
            device,
            engine,
            capabilities,
            config,
            thresholds,
            counters: Counters::default(),
            now: Time::ZERO,
            entries: Vec::new(),
            nodes: Vec::new(),
            output: VecDeque::new(),
            input: VecDeque::new(),
            starved_out: Vec::new(),
            starved_in: Vec::new(),
            acks: VecDeque::new(),
            active: Vec::new(),
            sweep: Time::ZERO,
            gone: VecDeque::new(),
            kept: Vec::new(),
            given: Vec::new(),
            waiting: VecDeque::new(),
            tickets: Slab::new(),
            sending,
            fetching,
            lent: 0,
            deferred_bytes: 0,
            accesses: Slab::new(),
            serial: 0,
            tokens: HashMap::new(),
            registered: HashMap::new(),
            closing: HashMap::new(),
            scratch: Vec::new(),
            mail: Vec::new(),
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// What the endpoint did so far, and holds now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let fifos =
            self.active.iter().filter_map(|index| self.entries[*index as usize].flow.as_ref());
        let cells: usize = fifos
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
        let memory = cells + self.sending.memory() + self.fetching.memory() + self.deferred_bytes;
        Counters { memory: memory as u64, active: self.active.len() as u64, ..self.counters }
    }

    /// What the two-sided engine did so far.
    #[must_use]
    pub fn engine_counters(&self) -> two_sided::Counters {
        self.engine.counters()
    }

    /// The bytes of a peer's entry in the tables of this layer, without what is kept while something
    /// is going on with it.
    pub const ENTRY: usize = size_of::<Entry>() + size_of::<u32>();

    // Peers.

    pub(crate) fn add(&mut self, address: &Address, asked: bool) -> Result<Peer, ResolveError> {
        let peer = self.engine.add_peer(address)?;
        let index = peer.index as usize;
        if self.entries.len() <= index {
            if self.entries.capacity() <= index {
                self.entries.reserve_exact(16 + self.entries.len() / 8);
            }
            self.entries.resize_with(index + 1, Entry::default);
        }
        self.entries[index] = Entry { asked, ..Entry::default() };
        Ok(peer)
    }

    /// The node of a peer that is up.
    pub(crate) fn node(&self, index: u32) -> Option<Node> {
        self.entries[index as usize].node
    }

    /// The peer behind a node.
    pub(crate) fn peer_of(&self, node: Node) -> Option<Peer> {
        let index = self.nodes.get(node.0 as usize)?.checked_sub(1)?;
        self.engine.peer_at(index)
    }

    /// Takes a flow out, to be put back; makes it if there is none.
    pub(crate) fn lift(&mut self, index: u32) -> Box<Flow> {
        let flow = self.entries[index as usize].flow.take();
        let mut flow = flow.unwrap_or_else(|| {
            self.active.push(index);
            Box::default()
        });
        flow.used = true;
        flow
    }

    pub(crate) fn lay(&mut self, index: u32, flow: Box<Flow>) {
        self.entries[index as usize].flow = Some(flow);
    }

    /// The peer has something to send, or may go on.
    pub(crate) fn list_output(&mut self, index: u32, flow: &mut Flow) {
        if !flow.listed {
            flow.listed = true;
            self.output.push_back(index);
        }
    }

    pub(crate) fn list_input(&mut self, index: u32, flow: &mut Flow) {
        if !flow.stirred {
            flow.stirred = true;
            self.input.push_back(index);
        }
    }

    /// Lets what waits for memory go on.
    pub(crate) fn feed(&mut self, out: bool) {
        let starved = if out { &mut self.starved_out } else { &mut self.starved_in };
        for index in std::mem::take(starved) {
            let Some(mut flow) = self.entries[index as usize].flow.take() else { continue };
            match out {
                true => self.list_output(index, &mut flow),
                false => self.list_input(index, &mut flow),
            }
            self.lay(index, flow);
        }
    }

    // What the device reports.

    pub(crate) fn happened(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Up { node, address, incarnation } => {
                let known = self.engine.find_peer(&address);
                let waiting = known.filter(|peer| {
                    let info = self.engine.peer_info(*peer);
                    info.is_some_and(|info| info.state == PeerState::Connecting)
                });
                if waiting.is_none()
                    && let Some(earlier) = known
                {
                    // Its end is on the way, and this came first.
                    self.lose(earlier, LostReason::Restarted);
                }
                match waiting.map_or_else(|| self.add(&address, false), Ok) {
                    Ok(peer) => {
                        let slot = node.0 as usize;
                        if self.nodes.len() <= slot {
                            self.nodes.resize(slot + 1, 0);
                        }
                        self.nodes[slot] = peer.index + 1;
                        self.entries[peer.index as usize].node = Some(node);
                        self.engine.peer_up(peer, incarnation);
                        // Looked at after a while, and let go of if there is nothing to keep.
                        let flow = self.lift(peer.index);
                        self.lay(peer.index, flow);
                        self.resume(peer.index);
                    }
                    Err(_) => self.device.close(node),
                }
            }
            DeviceEvent::Unreachable { address, patience, reason } => {
                if let Some(peer) = self.engine.find_peer(&address)
                    && !self.engine.is_up(peer)
                {
                    self.lose(peer, LostReason::Unreachable(patience, reason));
                }
            }
            DeviceEvent::Lost { node, reason } => {
                if let Some(peer) = self.peer_of(node) {
                    self.nodes[node.0 as usize] = 0;
                    self.last_words(peer);
                    self.entries[peer.index as usize].node = None;
                    self.lose(peer, reason);
                }
            }
            DeviceEvent::Packet { node, class, bytes } => {
                if let Some(peer) = self.peer_of(node) {
                    let taken = match class {
                        Class::Data => self.packet(peer, bytes),
                        Class::Control => self.control(peer, &bytes),
                    };
                    self.judge(peer, taken);
                }
            }
            DeviceEvent::PutArrived { node, tag, offset, len, data } => {
                if let Some(peer) = self.peer_of(node) {
                    self.put_arrived(peer, tag, offset, len, data);
                }
            }
            DeviceEvent::Done { ticket, result } => self.done(ticket, result),
            DeviceEvent::Refused { node, fault } => {
                if let Some(peer) = self.peer_of(node) {
                    let what = format!("it refused its own exclusive channel: {fault}");
                    self.cut_off(peer, what);
                }
            }
            DeviceEvent::Room { node } => {
                if let Some(peer) = self.peer_of(node) {
                    self.resume(peer.index);
                }
            }
        }
    }

    /// There is room on the way to a peer.
    fn resume(&mut self, index: u32) {
        let Some(mut flow) = self.entries[index as usize].flow.take() else { return };
        self.flush_control(index, &mut flow);
        self.fetch(index, &mut flow);
        self.list_output(index, &mut flow);
        self.lay(index, flow);
    }

    fn put_arrived(&mut self, peer: Peer, tag: u64, offset: u64, len: u64, data: u64) {
        if tag & FIFO == 0 {
            let region = RegionId { index: tag as u32, generation: (tag >> 32) as u32 };
            if self.registered.contains_key(&region) {
                self.engine.raise(Event::PutArrived { peer, region, offset, len, data });
            }
            return;
        }
        if tag & !FIFO != u64::from(peer.index) {
            return self.cut_off(peer, "a put into the exclusive channel of another".to_owned());
        }
        let Some(mut flow) = self.entries[peer.index as usize].flow.take() else { return };
        let ack = match flow.inward.fifo() {
            None => Ok(None),
            Some(inward) => {
                inward.used = self.now;
                inward.fifo.arrived(offset, data)
            }
        };
        self.list_input(peer.index, &mut flow);
        let heard = ack.and_then(|ack| match ack {
            Some(ack) => self.acknowledged(peer, &mut flow, ack),
            None => Ok(()),
        });
        self.lay(peer.index, flow);
        self.judge(peer, heard);
    }

    /// The tag under which a peer's FIFO is registered.
    pub(crate) fn fifo_tag(index: u32) -> u64 {
        FIFO | u64::from(index)
    }

    /// The tag of a region of the user's; `None` if it has none left.
    pub(crate) fn region_tag(region: RegionId) -> Option<u64> {
        let tag = u64::from(region.generation) << 32 | u64::from(region.index);
        (tag & FIFO == 0).then_some(tag)
    }

    pub(crate) fn ticket(&mut self, pending: Pending) -> Ticket {
        Ticket(self.tickets.insert(pending) as u64)
    }

    fn done(&mut self, ticket: Ticket, result: Result<SmallVec<[u8; 16]>, Fault>) {
        let Some(pending) = self.tickets.try_remove(ticket.0 as usize) else { return };
        match pending {
            Pending::Pad => {}
            // Where nobody waits any more the engine keeps it until somebody asks again.
            Pending::Deregister(region) => {
                if let Some((_, Some(Waiting { token, patience, .. }))) =
                    self.closing.remove(&region)
                {
                    self.engine.submit(Operation::Deregister { token, region, patience });
                }
            }
            Pending::Access { slot, serial } => self.access_done(slot, serial, result),
            Pending::Put { peer, seq } => match result {
                Ok(_) => self.put_done(peer, seq),
                Err(Fault::Lost) => {}
                Err(fault) => {
                    self.cut_off(peer, format!("it refused its own exclusive channel: {fault}"));
                }
            },
            Pending::Ahead { peer, seq, bounce } => {
                let unclaimed = match result {
                    Ok(_) => self.fetched_ahead(peer, seq, bounce),
                    Err(Fault::Lost) => {
                        self.fetching.retire_ahead(bounce, &mut self.device);
                        self.feed(false);
                        None
                    }
                    Err(fault) => {
                        self.cannot_read(peer, fault);
                        Some(bounce)
                    }
                };
                if let Some(bounce) = unclaimed {
                    self.fetching.give_back_ahead(bounce);
                    self.feed(false);
                }
            }
            Pending::Get { peer, seq, bounce } => {
                let lost = matches!(result, Err(Fault::Lost));
                let taken = match result {
                    Ok(_) => self.fetched(peer, seq, bounce.as_ref()),
                    Err(Fault::Lost) => Ok(()),
                    Err(fault) => {
                        self.cannot_read(peer, fault);
                        Ok(())
                    }
                };
                if let Some((bounce, _, _)) = bounce {
                    match lost {
                        true => self.fetching.give_back_closed(bounce, &mut self.device),
                        false => self.fetching.give_back(bounce),
                    }
                    self.feed(false);
                }
                self.judge(peer, taken);
            }
        }
    }

    // The end.

    /// Ends a peer that broke the protocol.
    pub(crate) fn judge(&mut self, peer: Peer, taken: Result<(), Garbage>) {
        if let Err(garbage) = taken {
            self.cut_off(peer, garbage.to_string());
        }
    }

    pub(crate) fn cut_off(&mut self, peer: Peer, what: String) {
        if self.engine.is_up(peer) {
            self.counters.violations += 1;
            self.lose(peer, LostReason::Protocol(what));
        }
    }

    fn cannot_read(&mut self, peer: Peer, fault: Fault) {
        self.cut_off(peer, format!("memory that it lent cannot be read: {fault}"));
    }

    /// Takes what a peer sent before it ended.
    fn last_words(&mut self, peer: Peer) {
        let taken = self.deliver(peer, usize::MAX).map(|_| ());
        self.judge(peer, taken);
    }

    pub(crate) fn lose(&mut self, peer: Peer, reason: LostReason) {
        let asked = self.entries[peer.index as usize].asked;
        self.unplug(peer);
        self.end_accesses(peer, &reason);
        self.engine.peer_lost(peer, reason);
        self.engine.trim(peer);
        if !asked {
            self.gone.push_back(peer);
            if self.gone.len() > KEPT
                && let Some(oldest) = self.gone.pop_front()
            {
                self.engine.forget(oldest);
            }
        }
    }

    /// Lets go of all that is kept for a peer. The device touches nothing of it any more.
    pub(crate) fn unplug(&mut self, peer: Peer) {
        let index = peer.index;
        let entry = std::mem::take(&mut self.entries[index as usize]);
        if let Some(node) = entry.node {
            self.nodes[node.0 as usize] = 0;
            self.device.close(node);
        }
        let Some(mut flow) = entry.flow else { return };
        self.active.retain(|active| *active != index);
        self.kept.retain(|kept| *kept != index);
        for sent in flow.sent.drain(..) {
            self.take_back(sent.lent);
        }
        if let Some(out) = flow.out.fifo() {
            self.device.deregister(out.registration, None);
        }
        for deferred in flow.deferred.drain(..) {
            self.forget_deferred(deferred);
        }
        self.feed(true);
        self.end_inward(index, &mut flow);
    }

    /// A loan has come back.
    pub(crate) fn take_back(&mut self, loan: Option<Loan>) {
        match loan {
            None => return,
            Some(Loan::Memory(registration)) => self.device.deregister(registration, None),
            Some(Loan::Bounce(bounce)) => {
                self.sending.give_back_closed(bounce, &mut self.device);
            }
        }
        self.lent -= 1;
    }

    /// A packet is deferred no more.
    pub(crate) fn forget_deferred(&mut self, deferred: Deferred) {
        self.counters.deferred -= 1;
        self.deferred_bytes -= deferred.bytes.len();
        if let Ahead::Here(bounce) = deferred.ahead {
            self.fetching.give_back_ahead(bounce);
            self.feed(false);
        }
    }

    /// The head of a packet, its acknowledgement heard.
    pub(crate) fn hear<'p>(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        packet: &'p [u8],
    ) -> Result<(Head, &'p [u8]), Garbage> {
        let (head, body) = Head::split(packet)?;
        self.acknowledged(peer, flow, head.ack)?;
        Ok((head, body))
    }
}

impl<D: Device> std::fmt::Debug for Channels<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channels({}, {:?})", self.engine.address(), self.counters)
    }
}
