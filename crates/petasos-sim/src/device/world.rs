//! The state of the network: who is there, who is connected, what is on the way.

use super::{DeviceConfig, DeviceStats};
use crate::Random;
use petasos_channel::{
    DeviceEvent,
    device::{AtomicAccess, Class, Fault, Node, Refusal, Registration, RemoteKey, Target, Ticket},
};
use petasos_fabric::{Access, Address, Incarnation, Lease, LostReason, RegisterError, Slice, Time};
use slab::Slab;
use smallvec::SmallVec;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    time::Duration,
};

/// An endpoint of the world, for its life: never used again.
pub(super) type Place = u64;
/// A connection, for its life.
pub(super) type Wire = u64;

/// The pause between two attempts to reach somebody who is not there.
const RETRY: Duration = Duration::from_millis(1);

/// What a card that needs no connection keeps for each node it knows, in bytes: an entry of an
/// address table.
const ENTRY: usize = 64;

/// What goes from one end of a connection to the other.
#[derive(Debug)]
pub(super) enum Flying {
    Packet {
        class: Class,
        bytes: Lease,
    },
    Immediate {
        target: Target,
        bytes: Lease,
        event: Option<u64>,
    },
    /// The operation with this number of the sender's.
    Operation(u64),
    /// The answer to one of the receiver's, with what a get has read.
    Answer {
        operation: u64,
        result: Result<SmallVec<[u8; 16]>, Fault>,
        data: Vec<u8>,
    },
}

/// An access that is under way.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) wire: Wire,
    pub(super) ticket: Ticket,
    pub(super) target: Target,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Put { from: Slice, event: Option<u64> },
    Get { into: Slice },
    Atomic(AtomicAccess),
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) memory: Slice,
    pub(super) access: Access,
    pub(super) tag: u64,
    pub(super) secret: u64,
}

/// Something that will happen.
#[derive(Debug)]
enum Plan {
    Dial {
        from: Place,
        to: Address,
    },
    Up {
        at: Place,
        node: Node,
        address: Address,
        incarnation: Incarnation,
    },
    Land {
        wire: Wire,
        side: usize,
        what: Flying,
    },
    /// An end of a connection learns that the other is gone.
    Notice {
        wire: Wire,
        side: usize,
        reason: LostReason,
    },
    /// A connection that was cut then may be given up.
    GiveUp {
        wire: Wire,
        cut: Time,
    },
}

/// The memory of one card, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// Registered now.
    pub registered: usize,
    /// Registrations, in number.
    pub registrations: usize,
    /// The slots of both receive queues.
    pub slots: usize,
    /// The most slots for data that were used at a time, in number.
    pub slots_most: usize,
    /// Nodes that are connected, in number.
    pub nodes: usize,
    /// The entries of these nodes.
    pub entries: usize,
}

#[derive(Debug)]
pub(super) struct Party {
    pub(super) address: Address,
    pub(super) incarnation: Incarnation,
    /// All that happened but packets of the data class.
    pub(super) mail: VecDeque<DeviceEvent>,
    pub(super) data: VecDeque<(Node, Lease)>,
    pub(super) data_most: usize,
    pub(super) control: usize,
    /// Connections with packets that wait for a slot, in turns: by class.
    pub(super) queues: [VecDeque<Wire>; 2],
    pub(super) nodes: Slab<Wire>,
    pub(super) regions: Slab<Registered>,
    pub(super) registered: usize,
    pub(super) operations: BTreeMap<u64, Operation>,
    dials: BTreeMap<Address, (Time, Duration)>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: [Place; 2],
    pub(super) nodes: [Node; 2],
    /// Whether that end still takes part.
    pub(super) open: [bool; 2],
    pub(super) ways: [Way; 2],
    pub(super) cut: Option<Time>,
}

/// One direction of a connection, by its sender's side.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// When the line is free again.
    free: Time,
    /// When the last packet of each class arrives, and the last put.
    last: [Time; 3],
    /// Packets of each class without a slot, and accesses under way.
    pub(super) flying: [usize; 3],
    /// Whether the sender waits for room, of each kind.
    pub(super) full: [bool; 3],
    /// Packets at the target's door, by class.
    pub(super) waiting: [VecDeque<Lease>; 2],
    /// What arrives while the line is cut.
    pub(super) held: VecDeque<Flying>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) config: DeviceConfig,
    pub(super) now: Time,
    pub(super) random: Random,
    pub(super) stats: DeviceStats,
    plans: BinaryHeap<Reverse<(Time, u64, usize)>>,
    planned: Slab<Plan>,
    count: u64,
    pub(super) parties: HashMap<Place, Party>,
    places: BTreeMap<Address, Place>,
    pub(super) connections: HashMap<Wire, Connection>,
    pairs: HashMap<(Place, Place), Wire>,
}

fn pair(a: Place, b: Place) -> (Place, Place) {
    (a.min(b), a.max(b))
}

impl World {
    pub(super) fn new(config: DeviceConfig) -> World {
        World {
            random: Random::new(config.seed),
            config,
            now: Time::ZERO.after(Duration::from_secs(1)),
            stats: DeviceStats::default(),
            plans: BinaryHeap::new(),
            planned: Slab::new(),
            count: 0,
            parties: HashMap::new(),
            places: BTreeMap::new(),
            connections: HashMap::new(),
            pairs: HashMap::new(),
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn plan(&mut self, at: Time, plan: Plan) {
        let slot = self.planned.insert(plan);
        let number = self.number();
        self.plans.push(Reverse((at, number, slot)));
    }

    // Who is there.

    /// Takes an address; `None` if somebody has it.
    pub(super) fn open(&mut self, address: &Address) -> Option<(Place, Incarnation)> {
        if self.places.contains_key(address) {
            return None;
        }
        let incarnation = loop {
            if let Some(incarnation) = Incarnation::new(self.random.number()) {
                break incarnation;
            }
        };
        let place = self.number();
        let party = Party {
            address: address.clone(),
            incarnation,
            mail: VecDeque::new(),
            data: VecDeque::new(),
            data_most: 0,
            control: 0,
            queues: Default::default(),
            nodes: Slab::new(),
            regions: Slab::new(),
            registered: 0,
            operations: BTreeMap::new(),
            dials: BTreeMap::new(),
        };
        self.parties.insert(place, party);
        self.places.insert(address.clone(), place);
        Some((place, incarnation))
    }

    pub(super) fn place_of(&self, address: &Address) -> Option<Place> {
        self.places.get(address).copied()
    }

    /// Ends an endpoint; its peers notice after a while.
    pub(super) fn end(&mut self, place: Place) {
        let Some(party) = self.parties.remove(&place) else { return };
        self.places.remove(&party.address);
        for (_, wire) in party.nodes {
            self.leave(wire, place);
        }
    }

    /// An end takes no part any more; the other hears of it.
    fn leave(&mut self, wire: Wire, place: Place) {
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        let side = usize::from(connection.ends[1] == place);
        connection.open[side] = false;
        let ends = connection.ends;
        let alone = !connection.open[1 - side];
        self.pairs.remove(&pair(ends[0], ends[1]));
        if alone {
            self.connections.remove(&wire);
            return;
        }
        let at = self.now.after(self.config.detection);
        self.plan(at, Plan::Notice { wire, side: 1 - side, reason: LostReason::Closed });
    }

    /// Lets a node go.
    pub(super) fn close(&mut self, place: Place, node: Node) {
        let Some(party) = self.parties.get_mut(&place) else { return };
        let Some(wire) = party.nodes.try_remove(node.0 as usize) else { return };
        let of_node = |event: &DeviceEvent| match event {
            DeviceEvent::Up { node: n, .. }
            | DeviceEvent::Lost { node: n, .. }
            | DeviceEvent::Packet { node: n, .. }
            | DeviceEvent::PutArrived { node: n, .. }
            | DeviceEvent::Refused { node: n, .. }
            | DeviceEvent::Room { node: n } => *n == node,
            _ => false,
        };
        let control =
            |event: &DeviceEvent| matches!(event, DeviceEvent::Packet { .. }) && of_node(event);
        party.control -= party.mail.iter().filter(|event| control(event)).count();
        party.mail.retain(|event| !of_node(event));
        party.data.retain(|(n, _)| *n != node);
        party.queues.iter_mut().for_each(|queue| queue.retain(|w| *w != wire));
        party.fail_operations(wire);
        self.admit_all(place);
        self.leave(wire, place);
    }

    /// An end learns that the other is gone.
    fn notice(&mut self, wire: Wire, side: usize, reason: LostReason) {
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        if !connection.open[side] {
            return;
        }
        connection.open[side] = false;
        let (ends, node) = (connection.ends, connection.nodes[side]);
        let alone = !connection.open[1 - side];
        self.pairs.remove(&pair(ends[0], ends[1]));
        if alone {
            self.connections.remove(&wire);
        }
        if let Some(party) = self.parties.get_mut(&ends[side]) {
            party.queues.iter_mut().for_each(|queue| queue.retain(|w| *w != wire));
            party.fail_operations(wire);
            party.mail.push_back(DeviceEvent::Lost { node, reason });
        }
    }

    pub(super) fn dial(&mut self, from: Place, to: &Address, patience: Duration) {
        let until = self.now.after(patience);
        let now = self.now;
        let Some(party) = self.parties.get_mut(&from) else { return };
        if let Some((end, longest)) = party.dials.get_mut(to) {
            (*end, *longest) = ((*end).max(until), (*longest).max(patience));
            return;
        }
        party.dials.insert(to.clone(), (until, patience));
        self.plan(now.after(self.config.latency), Plan::Dial { from, to: to.clone() });
    }

    fn connect(&mut self, from: Place, to: Address) {
        let now = self.now;
        let Some(caller) = self.parties.get_mut(&from) else { return };
        let Some(&(until, patience)) = caller.dials.get(&to) else { return };
        let Some(&place) = self.places.get(&to) else {
            if now >= until {
                caller.dials.remove(&to);
                let reason = "nobody is there".to_owned();
                let event = DeviceEvent::Unreachable { address: to, patience, reason };
                caller.mail.push_back(event);
                return;
            }
            return self.plan(now.after(RETRY).min(until), Plan::Dial { from, to });
        };
        caller.dials.remove(&to);
        // Both may have called: one connection is enough.
        if place == from || self.pairs.contains_key(&pair(from, place)) {
            return;
        }
        let wire = self.number();
        let mut nodes = [Node(0); 2];
        for (node, place) in nodes.iter_mut().zip([from, place]) {
            if let Some(party) = self.parties.get_mut(&place) {
                *node = Node(party.nodes.insert(wire) as u32);
            }
        }
        let (open, ends) = ([true; 2], [from, place]);
        let ways = Default::default();
        let connection = Connection { ends, nodes, open, ways, cut: None };
        self.connections.insert(wire, connection);
        self.pairs.insert(pair(from, place), wire);
        // Who was called knows first, so that nothing comes of a node before it is up.
        for (side, delay) in [(1, 0), (0, 1)] {
            let other = &self.parties[&ends[1 - side]];
            let (address, incarnation) = (other.address.clone(), other.incarnation);
            let at = now.after(self.config.latency * delay);
            self.plan(at, Plan::Up { at: ends[side], node: nodes[side], address, incarnation });
        }
        // Nor of the one who called, before he knows.
        let ready = now.after(self.config.latency);
        if let Some(connection) = self.connections.get_mut(&wire) {
            for way in &mut connection.ways {
                (way.free, way.last) = (ready, [ready; 3]);
            }
        }
    }

    // What is sent.

    /// The connection behind a node, and the side at which the endpoint is.
    fn wire(&self, place: Place, node: Node) -> Result<(Wire, usize), Refusal> {
        let wire = self.parties.get(&place).and_then(|p| p.nodes.get(node.0 as usize));
        let wire = *wire.ok_or(Refusal::Gone)?;
        let connection = self.connections.get(&wire).ok_or(Refusal::Gone)?;
        let side = usize::from(connection.ends[1] == place);
        if connection.open[side] { Ok((wire, side)) } else { Err(Refusal::Gone) }
    }

    /// Sends something that needs no answer.
    pub(super) fn launch(&mut self, place: Place, to: Node, what: Flying) -> Result<(), Refusal> {
        let (wire, side) = self.wire(place, to)?;
        self.count_up(wire, side, &what)?;
        self.fly(wire, side, what);
        Ok(())
    }

    /// Begins an access.
    pub(super) fn operate(
        &mut self,
        place: Place,
        to: Node,
        target: &Target,
        ticket: Ticket,
        kind: Kind,
    ) -> Result<(), Refusal> {
        let (wire, side) = self.wire(place, to)?;
        let number = self.number();
        self.count_up(wire, side, &Flying::Operation(number))?;
        if let Some(party) = self.parties.get_mut(&place) {
            let operation = Operation { wire, ticket, target: target.clone(), kind };
            party.operations.insert(number, operation);
        }
        self.fly(wire, side, Flying::Operation(number));
        Ok(())
    }

    fn count_up(&mut self, wire: Wire, side: usize, what: &Flying) -> Result<(), Refusal> {
        let limits = [self.config.in_flight, self.config.in_flight, self.config.operations];
        let way = &mut self.connections.get_mut(&wire).ok_or(Refusal::Gone)?.ways[side];
        let lane = what.lane();
        if way.flying[lane] >= limits[lane] {
            way.full[lane] = true;
            return Err(Refusal::Full);
        }
        way.flying[lane] += 1;
        Ok(())
    }

    /// There is room again on the way from one end.
    pub(super) fn count_down(&mut self, wire: Wire, side: usize, lane: usize) {
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        let way = &mut connection.ways[side];
        way.flying[lane] -= 1;
        if std::mem::take(&mut way.full[lane]) {
            let (place, node) = (connection.ends[side], connection.nodes[side]);
            if connection.open[side]
                && let Some(party) = self.parties.get_mut(&place)
            {
                party.mail.push_back(DeviceEvent::Room { node });
            }
        }
    }

    /// Puts something on the line.
    pub(super) fn fly(&mut self, wire: Wire, side: usize, what: Flying) {
        let jitter = self.random.time(self.config.jitter);
        let bytes = match &what {
            Flying::Packet { bytes, .. } | Flying::Immediate { bytes, .. } => bytes.len(),
            Flying::Answer { data, .. } => data.len(),
            Flying::Operation(number) => {
                let place = self.connections.get(&wire).map(|c| c.ends[side]);
                let party = place.and_then(|place| self.parties.get(&place));
                match party.and_then(|party| party.operations.get(number)).map(|o| &o.kind) {
                    Some(Kind::Put { from, .. }) => from.len(),
                    _ => 32,
                }
            }
        };
        let takes = bytes as u128 * 1_000_000_000 / u128::from(self.config.bandwidth.max(1));
        let (now, latency) = (self.now, self.config.latency);
        let ordered = self.config.ordered_puts;
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        let way = &mut connection.ways[side];
        way.free = way.free.max(now).after(Duration::from_nanos(takes as u64));
        let mut at = way.free.after(latency + jitter);
        let lane = what.lane();
        if lane < 2 || ordered {
            at = at.max(way.last[lane]);
            way.last[lane] = at;
        }
        self.plan(at, Plan::Land { wire, side, what });
    }

    // Memory.

    pub(super) fn register(
        &mut self,
        place: Place,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        let secret = self.random.number();
        let limit = self.config.registrations;
        let gone = || RegisterError::System("the card is dead".to_owned());
        let party = self.parties.get_mut(&place).ok_or_else(gone)?;
        if party.regions.len() >= limit {
            return Err(RegisterError::TooMany { limit });
        }
        let memory = memory.clone();
        party.registered += memory.len();
        let slot = party.regions.insert(Registered { memory, access, tag, secret });
        let mut key = [0; 16];
        key[..8].copy_from_slice(&(slot as u64).to_le_bytes());
        key[8..].copy_from_slice(&secret.to_le_bytes());
        let key = RemoteKey::new(&key).expect("a key of 16 bytes");
        Ok((Registration(slot as u64), key))
    }

    pub(super) fn deregister(
        &mut self,
        place: Place,
        registration: Registration,
        ticket: Option<Ticket>,
    ) {
        let Some(party) = self.parties.get_mut(&place) else { return };
        if let Some(gone) = party.regions.try_remove(registration.0 as usize) {
            party.registered -= gone.memory.len();
        }
        let done = |ticket| DeviceEvent::Done { ticket, result: Ok(SmallVec::new()) };
        party.mail.extend(ticket.map(done));
    }

    pub(super) fn account(&self, place: Place) -> Option<Account> {
        let party = self.parties.get(&place)?;
        Some(Account {
            registered: party.registered,
            registrations: party.regions.len(),
            slots: (self.config.slots + self.config.control_slots) * self.config.packet,
            slots_most: party.data_most,
            nodes: party.nodes.len(),
            entries: party.nodes.len() * ENTRY,
        })
    }

    // Faults.

    /// Cuts the line between two endpoints: nothing comes through, nobody is told.
    pub(super) fn cut(&mut self, a: Place, b: Place) {
        let Some(&wire) = self.pairs.get(&pair(a, b)) else { return };
        let (now, silence) = (self.now, self.config.silence);
        if let Some(connection) = self.connections.get_mut(&wire)
            && connection.cut.is_none()
        {
            connection.cut = Some(now);
            self.plan(now.after(silence), Plan::GiveUp { wire, cut: now });
        }
    }

    /// Mends the line; what it held comes through.
    pub(super) fn heal(&mut self, a: Place, b: Place) {
        let Some(&wire) = self.pairs.get(&pair(a, b)) else { return };
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        connection.cut = None;
        let held = connection.ways.each_mut().map(|way| std::mem::take(&mut way.held));
        for (side, flying) in held.into_iter().enumerate() {
            for what in flying {
                self.land(wire, side, what);
            }
        }
    }

    // Time.

    /// When the next thing happens.
    pub(super) fn next(&self) -> Option<Time> {
        self.plans.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Lets the next thing happen. False if nothing will.
    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse((at, _, slot))) = self.plans.pop() else { return false };
        self.now = self.now.max(at);
        match self.planned.remove(slot) {
            Plan::Dial { from, to } => self.connect(from, to),
            Plan::Up { at, node, address, incarnation } => {
                if let Some(party) = self.parties.get_mut(&at)
                    && party.nodes.contains(node.0 as usize)
                {
                    party.mail.push_back(DeviceEvent::Up { node, address, incarnation });
                }
            }
            Plan::Land { wire, side, what } => self.land(wire, side, what),
            Plan::Notice { wire, side, reason } => self.notice(wire, side, reason),
            Plan::GiveUp { wire, cut } => {
                if self.connections.get(&wire).is_some_and(|c| c.cut == Some(cut)) {
                    for side in 0..2 {
                        self.notice(wire, side, LostReason::Silent(self.config.silence));
                    }
                }
            }
        }
        true
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }
}

impl Flying {
    /// Which bound it counts against: packets of either class, and accesses.
    pub(super) fn lane(&self) -> usize {
        match self {
            Flying::Packet { class: Class::Data, .. } => 0,
            Flying::Packet { class: Class::Control, .. } => 1,
            _ => 2,
        }
    }
}
