//! What is sent: it counts against the sender's bounds, and then takes its time.

use super::world::{EndpointId, InFlight, Kind, Operation, Plan, Wire, World};
use petasos_channel::{
    DeviceEvent,
    device::{Class, Node, Refusal, Target, Ticket},
};
use std::time::Duration;

impl World {
    /// The connection behind a node, and the side at which the endpoint is.
    fn wire(&self, id: EndpointId, node: Node) -> Result<(Wire, usize), Refusal> {
        let wire = self.parties.get(&id).and_then(|p| p.nodes.get(node.0 as usize));
        let wire = *wire.ok_or(Refusal::Gone)?;
        let connection = self.connections.get(&wire).ok_or(Refusal::Gone)?;
        let side = usize::from(connection.ends[1] == id);
        if connection.open[side] { Ok((wire, side)) } else { Err(Refusal::Gone) }
    }

    /// Sends something that needs no answer.
    pub(super) fn launch(
        &mut self,
        id: EndpointId,
        to: Node,
        what: InFlight,
    ) -> Result<(), Refusal> {
        let (wire, side) = self.wire(id, to)?;
        self.count_up(wire, side, &what)?;
        self.fly(wire, side, what);
        Ok(())
    }

    /// Begins an access.
    pub(super) fn operate(
        &mut self,
        id: EndpointId,
        to: Node,
        target: &Target,
        ticket: Ticket,
        kind: Kind,
    ) -> Result<(), Refusal> {
        let (wire, side) = self.wire(id, to)?;
        let number = self.number();
        self.count_up(wire, side, &InFlight::Operation(number))?;
        if let Some(party) = self.parties.get_mut(&id) {
            let operation = Operation { wire, ticket, target: target.clone(), kind };
            party.operations.insert(number, operation);
        }
        self.fly(wire, side, InFlight::Operation(number));
        Ok(())
    }

    fn count_up(&mut self, wire: Wire, side: usize, what: &InFlight) -> Result<(), Refusal> {
        let limits = [self.config.in_flight, self.config.in_flight, self.config.operations];
        let direction = &mut self.connections.get_mut(&wire).ok_or(Refusal::Gone)?.directions[side];
        let lane = what.lane();
        if direction.flying[lane] >= limits[lane] {
            direction.full[lane] = true;
            return Err(Refusal::Full);
        }
        direction.flying[lane] += 1;
        Ok(())
    }

    /// There is room again in the direction from one end.
    pub(super) fn count_down(&mut self, wire: Wire, side: usize, lane: usize) {
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        let direction = &mut connection.directions[side];
        direction.flying[lane] -= 1;
        if std::mem::take(&mut direction.full[lane]) {
            let (id, node) = (connection.ends[side], connection.nodes[side]);
            if connection.open[side]
                && let Some(party) = self.parties.get_mut(&id)
            {
                party.mail.push_back(DeviceEvent::Room { node });
            }
        }
    }

    /// Puts something on the line.
    pub(super) fn fly(&mut self, wire: Wire, side: usize, what: InFlight) {
        let jitter = self.random.time(self.config.jitter);
        let bytes = match &what {
            InFlight::Packet { bytes, .. } | InFlight::Immediate { bytes, .. } => bytes.len(),
            InFlight::Answer { data, .. } => data.len(),
            InFlight::Operation(number) => {
                let id = self.connections.get(&wire).map(|c| c.ends[side]);
                let party = id.and_then(|id| self.parties.get(&id));
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
        let direction = &mut connection.directions[side];
        direction.free = direction.free.max(now).after(Duration::from_nanos(takes as u64));
        let mut at = direction.free.after(latency + jitter);
        let lane = what.lane();
        if lane < 2 || ordered {
            at = at.max(direction.last[lane]);
            direction.last[lane] = at;
        }
        self.plan(at, Plan::Land { wire, side, what });
    }
}

impl InFlight {
    /// Which bound it counts against: packets of either class, and accesses.
    pub(super) fn lane(&self) -> usize {
        match self {
            InFlight::Packet { class: Class::Data, .. } => 0,
            InFlight::Packet { class: Class::Control, .. } => 1,
            _ => 2,
        }
    }
}
