//! The state of the network: endpoints, connections, and packets in flight.

use crate::{Random, SimConfig, agenda::Agenda};
use petasos_fabric::{Address, Incarnation, LostReason, Time};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// An endpoint of the network, as long as it lives: the number is never used again.
pub(crate) type EndpointId = u64;
/// A connection, as long as it lives.
pub(crate) type Wire = u64;

/// The pause between two attempts to reach an endpoint that is not there.
const RETRY: Duration = Duration::from_millis(1);

/// What reaches an endpoint.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Packets flow with a peer from now on.
    Connected { wire: Wire, address: Address, incarnation: Incarnation },
    /// A packet.
    Packet { wire: Wire, bytes: Vec<u8> },
    /// There is room again.
    Room { wire: Wire },
    /// No packets flow any more.
    Lost { wire: Wire, reason: LostReason },
    /// The patience with a peer that was dialled is over.
    Unreachable { address: Address, patience: Duration },
}

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Plan {
    /// An endpoint tries to reach an address.
    Dial { from: EndpointId, to: Address, until: Time, patience: Duration },
    /// Something reaches an endpoint.
    Arrive { at: EndpointId, arrival: Arrival },
    /// A connection that was cut then may be given up.
    GiveUp { wire: Wire, cut: Time },
}

#[derive(Debug)]
struct Party {
    address: Address,
    incarnation: Incarnation,
    inbox: VecDeque<Arrival>,
}

#[derive(Debug)]
struct Connection {
    ends: [EndpointId; 2],
    directions: [Direction; 2],
    cut: Option<Time>,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    /// When the line is free again.
    free: Time,
    /// When the last packet arrives.
    last: Time,
    /// Bytes in flight.
    bytes: usize,
    /// Whether the sender waits for room.
    full: bool,
    /// What arrives while the line is cut.
    held: VecDeque<Vec<u8>>,
}

/// What a network did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Packets sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Steps taken.
    pub steps: u64,
    /// The most things that were to happen at a time.
    pub planned: u64,
    /// Connections now.
    pub connections: u64,
    /// Things to happen now.
    pub pending: u64,
}

/// The state, as the network and its endpoints share it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn new(config: SimConfig) -> Shared {
        Shared(Arc::new(Mutex::new(World::new(config))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: SimConfig,
    pub(crate) random: Random,
    pub(crate) stats: Stats,
    /// What will happen.
    pub(crate) agenda: Agenda<Plan>,
    parties: BTreeMap<EndpointId, Party>,
    by_address: BTreeMap<Address, EndpointId>,
    connections: BTreeMap<Wire, Connection>,
    /// The connection of each pair that has one.
    pairs: BTreeMap<(EndpointId, EndpointId), Wire>,
    /// All connections of an endpoint.
    wires: BTreeMap<EndpointId, Vec<Wire>>,
}

fn pair(a: EndpointId, b: EndpointId) -> (EndpointId, EndpointId) {
    (a.min(b), a.max(b))
}

impl World {
    pub(crate) fn new(config: SimConfig) -> World {
        World {
            random: Random::new(config.seed),
            config,
            stats: Stats::default(),
            agenda: Agenda::new(),
            parties: BTreeMap::new(),
            by_address: BTreeMap::new(),
            connections: BTreeMap::new(),
            pairs: BTreeMap::new(),
            wires: BTreeMap::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.agenda.number()
    }

    fn plan(&mut self, at: Time, plan: Plan) {
        self.agenda.plan(at, plan);
        self.stats.planned = self.stats.planned.max(self.agenda.len() as u64);
    }

    fn arrive(&mut self, after: Duration, at: EndpointId, arrival: Arrival) {
        let time = self.agenda.now.after(after);
        self.plan(time, Plan::Arrive { at, arrival });
    }

    /// Opens an endpoint at an address; `None` if the address is taken.
    pub(crate) fn open(&mut self, address: &Address) -> Option<(EndpointId, Incarnation)> {
        if self.by_address.contains_key(address) {
            return None;
        }
        let incarnation = self.random.incarnation();
        let id = self.number();
        let party = Party { address: address.clone(), incarnation, inbox: VecDeque::new() };
        self.parties.insert(id, party);
        self.by_address.insert(address.clone(), id);
        Some((id, incarnation))
    }

    pub(crate) fn id_of(&self, address: &Address) -> Option<EndpointId> {
        self.by_address.get(address).copied()
    }

    pub(crate) fn lives(&self, id: EndpointId) -> bool {
        self.parties.contains_key(&id)
    }

    /// Ends an endpoint; its peers notice after a while.
    pub(crate) fn end(&mut self, id: EndpointId) {
        let Some(party) = self.parties.remove(&id) else { return };
        self.by_address.remove(&party.address);
        for wire in self.wires.remove(&id).unwrap_or_default() {
            self.hang_up(wire, id);
        }
    }

    /// One end closes a connection; the other side is told.
    pub(crate) fn hang_up(&mut self, wire: Wire, by: EndpointId) {
        let Some(connection) = self.connections.get(&wire) else { return };
        let side = usize::from(connection.ends[1] == by);
        let other = connection.ends[1 - side];
        // After what is in flight already; what a cut line holds does not come.
        let time =
            self.agenda.now.after(self.config.detection).max(connection.directions[side].last);
        self.drop_wire(wire);
        let arrival = Arrival::Lost { wire, reason: LostReason::Closed };
        self.plan(time, Plan::Arrive { at: other, arrival });
    }

    fn drop_wire(&mut self, wire: Wire) {
        let Some(connection) = self.connections.remove(&wire) else { return };
        let [a, b] = connection.ends;
        if self.pairs.get(&pair(a, b)) == Some(&wire) {
            self.pairs.remove(&pair(a, b));
        }
        for end in [a, b] {
            if let Some(wires) = self.wires.get_mut(&end) {
                wires.retain(|w| *w != wire);
            }
        }
    }

    /// Has a peer called until some time, which it gives.
    pub(crate) fn dial(&mut self, from: EndpointId, to: Address, patience: Duration) -> Time {
        let until = self.agenda.now.after(patience);
        let at = self.agenda.now.after(self.config.latency);
        self.plan(at, Plan::Dial { from, to, until, patience });
        until
    }

    fn connect(&mut self, from: EndpointId, to: Address, until: Time, patience: Duration) {
        let Some(caller) = self.parties.get(&from) else { return };
        let (address, incarnation) = (caller.address.clone(), caller.incarnation);
        let Some(id) = self.id_of(&to) else {
            if self.agenda.now >= until {
                let arrival = Arrival::Unreachable { address: to, patience };
                return self.arrive(Duration::ZERO, from, arrival);
            }
            let at = self.agenda.now.after(RETRY).min(until);
            return self.plan(at, Plan::Dial { from, to, until, patience });
        };
        // Both may have called: one connection is enough.
        if self.pairs.contains_key(&pair(from, id)) {
            return;
        }
        let wire = self.number();
        let (directions, cut) = (Default::default(), None);
        self.connections.insert(wire, Connection { ends: [from, id], directions, cut });
        self.pairs.insert(pair(from, id), wire);
        self.wires.entry(from).or_default().push(wire);
        self.wires.entry(id).or_default().push(wire);
        let callee = self.parties[&id].incarnation;
        let latency = self.config.latency;
        // Packets come after the word that they may.
        let ready = self.agenda.now.after(latency);
        if let Some(connection) = self.connections.get_mut(&wire) {
            connection.directions.iter_mut().for_each(|direction| direction.last = ready);
        }
        let answer = Arrival::Connected { wire, address: to, incarnation: callee };
        self.arrive(latency, from, answer);
        self.arrive(Duration::ZERO, id, Arrival::Connected { wire, address, incarnation });
    }

    /// Whether a connection takes another packet; else `Room` follows when it does.
    pub(crate) fn has_room(&mut self, wire: Wire, from: EndpointId) -> bool {
        let limit = self.config.in_flight;
        let Some(connection) = self.connections.get_mut(&wire) else { return false };
        let direction = &mut connection.directions[usize::from(connection.ends[1] == from)];
        direction.full = direction.bytes >= limit;
        !direction.full
    }

    pub(crate) fn send(&mut self, wire: Wire, from: EndpointId, bytes: Vec<u8>) {
        let jitter = self.random.time(self.config.jitter);
        let (now, latency) = (self.agenda.now, self.config.latency);
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        let side = usize::from(connection.ends[1] == from);
        let to = connection.ends[1 - side];
        let direction = &mut connection.directions[side];
        let takes = bytes.len() as u128 * 1_000_000_000 / u128::from(self.config.bandwidth.max(1));
        direction.free = direction.free.max(now).after(Duration::from_nanos(takes as u64));
        direction.last = direction.last.max(direction.free.after(latency + jitter));
        direction.bytes += bytes.len();
        let at = direction.last;
        self.stats.packets += 1;
        self.stats.bytes += bytes.len() as u64;
        self.plan(at, Plan::Arrive { at: to, arrival: Arrival::Packet { wire, bytes } });
    }

    /// Cuts the line between two endpoints: nothing comes through, and no event is raised.
    pub(crate) fn cut(&mut self, a: EndpointId, b: EndpointId) {
        let Some(&wire) = self.pairs.get(&pair(a, b)) else { return };
        let (now, silence) = (self.agenda.now, self.config.silence);
        if let Some(connection) = self.connections.get_mut(&wire)
            && connection.cut.is_none()
        {
            connection.cut = Some(now);
            self.plan(now.after(silence), Plan::GiveUp { wire, cut: now });
        }
    }

    /// Mends the line; what it held comes through.
    pub(crate) fn heal(&mut self, a: EndpointId, b: EndpointId) {
        let Some(&wire) = self.pairs.get(&pair(a, b)) else { return };
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        connection.cut = None;
        let ends = connection.ends;
        let held =
            connection.directions.each_mut().map(|direction| std::mem::take(&mut direction.held));
        for (side, packets) in held.into_iter().enumerate() {
            for bytes in packets {
                self.deliver(ends[1 - side], wire, bytes);
            }
        }
    }

    fn deliver(&mut self, to: EndpointId, wire: Wire, bytes: Vec<u8>) {
        let limit = self.config.in_flight;
        let mut room = None;
        if let Some(connection) = self.connections.get_mut(&wire) {
            let sender = usize::from(connection.ends[0] == to);
            let from = connection.ends[sender];
            let direction = &mut connection.directions[sender];
            if connection.cut.is_some() {
                direction.held.push_back(bytes);
                return;
            }
            direction.bytes -= bytes.len();
            if direction.full && direction.bytes < limit {
                direction.full = false;
                room = Some(from);
            }
        }
        if let Some(from) = room
            && let Some(party) = self.parties.get_mut(&from)
        {
            party.inbox.push_back(Arrival::Room { wire });
        }
        if let Some(party) = self.parties.get_mut(&to) {
            party.inbox.push_back(Arrival::Packet { wire, bytes });
        }
    }

    /// The next arrival at an endpoint.
    pub(crate) fn take(&mut self, id: EndpointId) -> Option<Arrival> {
        self.parties.get_mut(&id)?.inbox.pop_front()
    }

    pub(crate) fn has_mail(&self, id: EndpointId) -> bool {
        self.parties.get(&id).is_some_and(|party| !party.inbox.is_empty())
    }

    /// Lets everything happen up to a time, and then it is that time.
    pub(crate) fn run_until(&mut self, time: Time) {
        while self.agenda.next().is_some_and(|next| next <= time) {
            self.step();
        }
        self.agenda.reach(time);
    }

    /// Lets the next thing happen. False if nothing will.
    pub(crate) fn step(&mut self) -> bool {
        let Some(plan) = self.agenda.take() else { return false };
        self.stats.steps += 1;
        match plan {
            Plan::Dial { from, to, until, patience } => self.connect(from, to, until, patience),
            Plan::Arrive { at, arrival: Arrival::Packet { wire, bytes } } => {
                self.deliver(at, wire, bytes);
            }
            Plan::Arrive { at, arrival } => {
                if let Some(party) = self.parties.get_mut(&at) {
                    party.inbox.push_back(arrival);
                }
            }
            Plan::GiveUp { wire, cut } => {
                let still = self.connections.get(&wire).is_some_and(|c| c.cut == Some(cut));
                if still {
                    let ends = self.connections[&wire].ends;
                    self.drop_wire(wire);
                    let reason = LostReason::Silent(self.config.silence);
                    for at in ends {
                        let reason = reason.clone();
                        self.arrive(Duration::ZERO, at, Arrival::Lost { wire, reason });
                    }
                }
            }
        }
        true
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }
}
