//! The state of the network: endpoints, connections, and packets in flight.

use super::DeviceConfig;
use crate::{Random, agenda::Agenda};
use petasos_channel::{
    DeviceEvent,
    device::{AtomicAccess, Class, Fault, Node, Registration, RemoteKey, Target, Ticket},
};
use petasos_fabric::{Access, Address, Incarnation, Lease, LostReason, RegisterError, Slice, Time};
use slab::Slab;
use smallvec::SmallVec;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// An endpoint of the network, as long as it lives: the number is never used again.
pub(super) type EndpointId = u64;
/// A connection, as long as it lives.
pub(super) type Wire = u64;

/// The pause between two attempts to reach an endpoint that is not there.
const RETRY: Duration = Duration::from_millis(1);

/// What a NIC that needs no connection keeps for each node it knows, in bytes: an entry of an
/// address table.
const ENTRY: usize = 64;

/// What goes from one end of a connection to the other.
#[derive(Debug)]
pub(super) enum InFlight {
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
pub(super) enum Plan {
    Dial {
        from: EndpointId,
        to: Address,
    },
    Up {
        at: EndpointId,
        node: Node,
        address: Address,
        incarnation: Incarnation,
    },
    Land {
        wire: Wire,
        side: usize,
        what: InFlight,
    },
    /// An end of a connection learns that the other is lost.
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

/// What a network did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Packets that reached a slot.
    pub packets: u64,
    /// Packets that had to wait for one.
    pub waited: u64,
    /// Puts that landed, immediate ones included.
    pub puts: u64,
    /// Gets that were answered.
    pub gets: u64,
    /// Atomics.
    pub atomics: u64,
    /// Accesses refused.
    pub refused: u64,
    /// Bytes moved by all of them.
    pub bytes: u64,
    /// Pairs that are connected now.
    pub connections: u64,
}

/// The memory of one NIC, in bytes unless said otherwise.
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
    pub(super) ends: [EndpointId; 2],
    pub(super) nodes: [Node; 2],
    /// Whether that end still takes part.
    pub(super) open: [bool; 2],
    pub(super) directions: [Direction; 2],
    pub(super) cut: Option<Time>,
}

/// One direction of a connection, by its sender's side.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// When the line is free again.
    pub(super) free: Time,
    /// When the last packet of each class arrives, and the last put.
    pub(super) last: [Time; 3],
    /// Packets of each class without a slot, and accesses under way.
    pub(super) flying: [usize; 3],
    /// Whether the sender waits for room, of each kind.
    pub(super) full: [bool; 3],
    /// Packets at the target's door, by class.
    pub(super) waiting: [VecDeque<Lease>; 2],
    /// What arrives while the line is cut.
    pub(super) held: VecDeque<InFlight>,
}

/// The state, as the network and its NICs share it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(super) fn new(config: DeviceConfig) -> Shared {
        Shared(Arc::new(Mutex::new(World::new(config))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) config: DeviceConfig,
    pub(super) random: Random,
    pub(super) stats: DeviceStats,
    pub(super) agenda: Agenda<Plan>,
    pub(super) parties: HashMap<EndpointId, Party>,
    by_address: BTreeMap<Address, EndpointId>,
    pub(super) connections: HashMap<Wire, Connection>,
    pairs: HashMap<(EndpointId, EndpointId), Wire>,
}

fn pair(a: EndpointId, b: EndpointId) -> (EndpointId, EndpointId) {
    (a.min(b), a.max(b))
}

impl World {
    pub(super) fn new(config: DeviceConfig) -> World {
        World {
            random: Random::new(config.seed),
            config,
            stats: DeviceStats::default(),
            agenda: Agenda::new(),
            parties: HashMap::new(),
            by_address: BTreeMap::new(),
            connections: HashMap::new(),
            pairs: HashMap::new(),
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.agenda.number()
    }

    pub(super) fn plan(&mut self, at: Time, plan: Plan) {
        self.agenda.plan(at, plan);
    }

    // Endpoints.

    /// Opens an endpoint at an address; `None` if the address is taken.
    pub(super) fn open(&mut self, address: &Address) -> Option<(EndpointId, Incarnation)> {
        if self.by_address.contains_key(address) {
            return None;
        }
        let incarnation = self.random.incarnation();
        let id = self.number();
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
        self.parties.insert(id, party);
        self.by_address.insert(address.clone(), id);
        Some((id, incarnation))
    }

    pub(super) fn id_of(&self, address: &Address) -> Option<EndpointId> {
        self.by_address.get(address).copied()
    }

    /// Ends an endpoint; its peers notice after a while.
    pub(super) fn end(&mut self, id: EndpointId) {
        let Some(party) = self.parties.remove(&id) else { return };
        self.by_address.remove(&party.address);
        for (_, wire) in party.nodes {
            self.leave(wire, id);
        }
    }

    /// An end takes no part any more; the other side is told.
    fn leave(&mut self, wire: Wire, id: EndpointId) {
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        let side = usize::from(connection.ends[1] == id);
        connection.open[side] = false;
        let ends = connection.ends;
        let alone = !connection.open[1 - side];
        self.pairs.remove(&pair(ends[0], ends[1]));
        if alone {
            self.connections.remove(&wire);
            return;
        }
        let at = self.agenda.now.after(self.config.detection);
        self.plan(at, Plan::Notice { wire, side: 1 - side, reason: LostReason::Closed });
    }

    /// Lets a node go.
    pub(super) fn close(&mut self, id: EndpointId, node: Node) {
        let Some(party) = self.parties.get_mut(&id) else { return };
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
        self.admit_all(id);
        self.leave(wire, id);
    }

    /// An end learns that the other is lost.
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

    pub(super) fn dial(&mut self, from: EndpointId, to: &Address, patience: Duration) {
        let until = self.agenda.now.after(patience);
        let now = self.agenda.now;
        let Some(party) = self.parties.get_mut(&from) else { return };
        if let Some((end, longest)) = party.dials.get_mut(to) {
            (*end, *longest) = ((*end).max(until), (*longest).max(patience));
            return;
        }
        party.dials.insert(to.clone(), (until, patience));
        self.plan(now.after(self.config.latency), Plan::Dial { from, to: to.clone() });
    }

    fn connect(&mut self, from: EndpointId, to: Address) {
        let now = self.agenda.now;
        let Some(caller) = self.parties.get_mut(&from) else { return };
        let Some(&(until, patience)) = caller.dials.get(&to) else { return };
        let Some(&id) = self.by_address.get(&to) else {
            if now >= until {
                caller.dials.remove(&to);
                let reason = LostReason::Unreachable(patience, "there is no endpoint".to_owned());
                let event = DeviceEvent::Unreachable { address: to, reason };
                caller.mail.push_back(event);
                return;
            }
            return self.plan(now.after(RETRY).min(until), Plan::Dial { from, to });
        };
        caller.dials.remove(&to);
        // Both may have called: one connection is enough.
        if id == from || self.pairs.contains_key(&pair(from, id)) {
            return;
        }
        let wire = self.number();
        let mut nodes = [Node(0); 2];
        for (node, id) in nodes.iter_mut().zip([from, id]) {
            if let Some(party) = self.parties.get_mut(&id) {
                *node = Node(party.nodes.insert(wire) as u32);
            }
        }
        let (open, ends) = ([true; 2], [from, id]);
        let directions = Default::default();
        let connection = Connection { ends, nodes, open, directions, cut: None };
        self.connections.insert(wire, connection);
        self.pairs.insert(pair(from, id), wire);
        // The called side learns of it first, so that nothing arrives from a node before it is up.
        for (side, delay) in [(1, 0), (0, 1)] {
            let other = &self.parties[&ends[1 - side]];
            let (address, incarnation) = (other.address.clone(), other.incarnation);
            let at = now.after(self.config.latency * delay);
            self.plan(at, Plan::Up { at: ends[side], node: nodes[side], address, incarnation });
        }
        // Nor does anything arrive from the caller before the called side knows.
        let ready = now.after(self.config.latency);
        if let Some(connection) = self.connections.get_mut(&wire) {
            for direction in &mut connection.directions {
                (direction.free, direction.last) = (ready, [ready; 3]);
            }
        }
    }

    // Memory.

    pub(super) fn register(
        &mut self,
        id: EndpointId,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        let secret = self.random.number();
        let limit = self.config.registrations;
        let gone = || RegisterError::System("the device is dead".to_owned());
        let party = self.parties.get_mut(&id).ok_or_else(gone)?;
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
        id: EndpointId,
        registration: Registration,
        ticket: Option<Ticket>,
    ) {
        let Some(party) = self.parties.get_mut(&id) else { return };
        if let Some(gone) = party.regions.try_remove(registration.0 as usize) {
            party.registered -= gone.memory.len();
        }
        let done = |ticket| DeviceEvent::Done { ticket, result: Ok(SmallVec::new()) };
        party.mail.extend(ticket.map(done));
    }

    pub(super) fn account(&self, id: EndpointId) -> Option<Account> {
        let party = self.parties.get(&id)?;
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

    /// Cuts the line between two endpoints: nothing comes through, and no event is raised.
    pub(super) fn cut(&mut self, a: EndpointId, b: EndpointId) {
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
    pub(super) fn heal(&mut self, a: EndpointId, b: EndpointId) {
        let Some(&wire) = self.pairs.get(&pair(a, b)) else { return };
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        connection.cut = None;
        let held =
            connection.directions.each_mut().map(|direction| std::mem::take(&mut direction.held));
        for (side, flying) in held.into_iter().enumerate() {
            for what in flying {
                self.land(wire, side, what);
            }
        }
    }

    // Time.

    /// Lets everything happen up to a time, and then it is that time.
    pub(super) fn run_until(&mut self, time: Time) {
        while self.agenda.next().is_some_and(|next| next <= time) {
            self.step();
        }
        self.agenda.reach(time);
    }

    /// Lets the next thing happen. False if nothing will.
    pub(super) fn step(&mut self) -> bool {
        let Some(plan) = self.agenda.take() else { return false };
        match plan {
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
