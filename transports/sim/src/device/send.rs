//! What is sent: it counts against the sender's bounds, and then takes its time.

use super::world::{Flying, Kind, Operation, Place, Plan, Wire, World};
use petasos_channel::{
    DeviceEvent,
    device::{Class, Node, Refusal, Target, Ticket},
};
use std::time::Duration;

impl World {
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
        let (now, latency) = (self.agenda.now, self.config.latency);
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
