//! The state of the network: who is there, who is connected, what is on the way.

use super::{DeviceConfig, DeviceStats};
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
pub(super) enum Plan {
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
    pub(super) held: VecDeque<Flying>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) config: DeviceConfig,
    pub(super) random: Random,
    pub(super) stats: DeviceStats,
    pub(super) agenda: Agenda<Plan>,
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
            stats: DeviceStats::default(),
            agenda: Agenda::new(),
            parties: HashMap::new(),
            places: BTreeMap::new(),
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

    // Who is there.

    /// Takes an address; `None` if somebody has it.
    pub(super) fn open(&mut self, address: &Address) -> Option<(Place, Incarnation)> {
        if self.places.contains_key(address) {
            return None;
        }
        let incarnation = self.random.incarnation();
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
        let at = self.agenda.now.after(self.config.detection);
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

    fn connect(&mut self, from: Place, to: Address) {
        let now = self.agenda.now;
        let Some(caller) = self.parties.get_mut(&from) else { return };
        let Some(&(until, patience)) = caller.dials.get(&to) else { return };
        let Some(&place) = self.places.get(&to) else {
            if now >= until {
                caller.dials.remove(&to);
                let reason = "there is no endpoint".to_owned();
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
        let (now, silence) = (self.agenda.now, self.config.silence);
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
