//! What arrives: in a slot, in memory, or as an answer.

use super::world::{Connection, EndpointId, InFlight, Kind, Party, Wire, World};
use petasos_channel::{
    DeviceEvent,
    device::{Class, Fault, Node, Target},
};
use petasos_fabric::{Access, Lease, OpErrorKind, Slice};
use smallvec::SmallVec;

type Outcome = Result<SmallVec<[u8; 16]>, Fault>;

impl Party {
    /// Ends the accesses of a connection.
    pub(super) fn fail_operations(&mut self, wire: Wire) {
        let of_wire = self.operations.iter().filter(|(_, operation)| operation.wire == wire);
        let numbers: Vec<u64> = of_wire.map(|(number, _)| *number).collect();
        for number in numbers {
            if let Some(operation) = self.operations.remove(&number) {
                let (ticket, result) = (operation.ticket, Err(Fault::Lost));
                self.mail.push_back(DeviceEvent::Done { ticket, result });
            }
        }
    }

    /// Checks an access to this party's memory.
    fn reach(&self, target: &Target, len: usize, needed: Access) -> Result<(Slice, u64), Fault> {
        let (slot, secret) = target.key.as_bytes().split_first_chunk::<8>().ok_or(Fault::Stale)?;
        let slot = usize::try_from(u64::from_le_bytes(*slot)).map_err(|_| Fault::Stale)?;
        let secret = secret.try_into().map(u64::from_le_bytes).map_err(|_| Fault::Stale)?;
        let region = self.regions.get(slot).filter(|region| region.secret == secret);
        let region = region.ok_or(Fault::Stale)?;
        if !region.access.allows(needed) {
            return Err(Fault::Denied);
        }
        let offset = usize::try_from(target.offset).map_err(|_| Fault::OutOfBounds)?;
        let memory = region.memory.part(offset, len).ok_or(Fault::OutOfBounds)?;
        Ok((memory, region.tag))
    }
}

impl World {
    /// Something sent from one side of a connection arrives at the other.
    pub(super) fn land(&mut self, wire: Wire, side: usize, what: InFlight) {
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        if connection.cut.is_some() {
            connection.directions[side].held.push_back(what);
            return;
        }
        let Connection { ends, nodes, open, .. } = *connection;
        let (from, to, node) = (ends[side], ends[1 - side], nodes[1 - side]);
        // An endpoint that closed sends nothing that the other could still see, and takes nothing
        // in.
        if !open[1 - side] || !self.parties.contains_key(&to) {
            return;
        }
        match what {
            InFlight::Packet { class, bytes } => self.packet(wire, side, to, class, bytes),
            InFlight::Immediate { target, bytes, event } => {
                let result = self.write(to, node, &target, event, bytes.len(), |memory| {
                    memory.write(0, &bytes);
                });
                self.count_down(wire, side, 2);
                if let Err(fault) = result {
                    let node = nodes[side];
                    if open[side]
                        && let Some(party) = self.parties.get_mut(&from)
                    {
                        party.mail.push_back(DeviceEvent::Refused { node, fault });
                    }
                }
            }
            InFlight::Operation(number) => {
                let Some(party) = self.parties.get_mut(&from) else { return };
                let Some(operation) = party.operations.get(&number) else { return };
                let target = operation.target.clone();
                let (mut data, mut result) = (Vec::new(), Ok(SmallVec::new()));
                match &operation.kind {
                    Kind::Put { from, event } => {
                        let (from, event) = (from.clone(), *event);
                        let written = self.write(to, node, &target, event, from.len(), |memory| {
                            from.copy_to(memory);
                        });
                        result = written.map(|()| SmallVec::new());
                    }
                    Kind::Get { into } => {
                        let len = into.len();
                        match self.parties[&to].reach(&target, len, Access::READ) {
                            Ok((memory, _)) => data = memory.to_vec(),
                            Err(fault) => result = Err(fault),
                        }
                        self.stats.gets += 1;
                        self.stats.bytes += len as u64;
                    }
                    Kind::Atomic(access) => {
                        let access = access.clone();
                        result = self.atomic(to, &target, &access);
                    }
                }
                self.stats.refused += u64::from(result.is_err());
                let answer = InFlight::Answer { operation: number, result, data };
                self.fly(wire, 1 - side, answer);
            }
            InFlight::Answer { operation, result, data } => {
                self.count_down(wire, 1 - side, 2);
                let Some(party) = self.parties.get_mut(&to) else { return };
                let Some(operation) = party.operations.remove(&operation) else { return };
                if let Kind::Get { into } = &operation.kind
                    && result.is_ok()
                {
                    into.write(0, &data);
                }
                let ticket = operation.ticket;
                party.mail.push_back(DeviceEvent::Done { ticket, result });
            }
        }
    }

    /// A put takes effect.
    fn write(
        &mut self,
        at: EndpointId,
        node: Node,
        target: &Target,
        event: Option<u64>,
        len: usize,
        copy: impl FnOnce(&Slice),
    ) -> Result<(), Fault> {
        let party = self.parties.get_mut(&at).ok_or(Fault::Lost)?;
        let (memory, tag) = party.reach(target, len, Access::WRITE)?;
        copy(&memory);
        self.stats.puts += 1;
        self.stats.bytes += len as u64;
        if let Some(data) = event {
            let (offset, len) = (target.offset, len as u64);
            party.mail.push_back(DeviceEvent::PutArrived { node, tag, offset, len, data });
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        at: EndpointId,
        target: &Target,
        access: &petasos_channel::device::AtomicAccess,
    ) -> Outcome {
        self.stats.atomics += 1;
        let party = self.parties.get(&at).ok_or(Fault::Lost)?;
        let (memory, _) = party.reach(target, access.operand.len(), Access::ATOMIC)?;
        memory.atomic(0, access.op, access.kind, &access.operand, &access.compare).map_err(|kind| {
            match kind {
                OpErrorKind::Misaligned { .. } => Fault::Misaligned,
                _ => Fault::Unsupported,
            }
        })
    }

    // Slots.

    fn packet(&mut self, wire: Wire, side: usize, to: EndpointId, class: Class, bytes: Lease) {
        let Some(connection) = self.connections.get_mut(&wire) else { return };
        let waiting = &mut connection.directions[side].waiting[class as usize];
        waiting.push_back(bytes);
        let (first, Some(party)) = (waiting.len() == 1, self.parties.get_mut(&to)) else { return };
        if first {
            party.queues[class as usize].push_back(wire);
        }
        if !self.admit(to, class) {
            self.stats.waited += 1;
        }
    }

    /// Gives a free slot to the next sender. False if none is free, or no sender waits.
    fn admit(&mut self, to: EndpointId, class: Class) -> bool {
        let (slots, control_slots) = (self.config.slots, self.config.control_slots);
        let Some(party) = self.parties.get_mut(&to) else { return false };
        let free = match class {
            Class::Data => party.data.len() < slots,
            Class::Control => party.control < control_slots,
        };
        if !free {
            return false;
        }
        let queue = &mut party.queues[class as usize];
        let Some(wire) = queue.pop_front() else { return false };
        let Some(connection) = self.connections.get_mut(&wire) else { return false };
        let side = usize::from(connection.ends[0] == to);
        let node = connection.nodes[1 - side];
        let waiting = &mut connection.directions[side].waiting[class as usize];
        let Some(bytes) = waiting.pop_front() else { return false };
        if !waiting.is_empty() {
            queue.push_back(wire);
        }
        self.stats.packets += 1;
        self.stats.bytes += bytes.len() as u64;
        match class {
            Class::Data => {
                party.data.push_back((node, bytes));
                party.data_most = party.data_most.max(party.data.len());
            }
            Class::Control => {
                party.control += 1;
                party.mail.push_back(DeviceEvent::Packet { node, class, bytes });
            }
        }
        self.count_down(wire, side, class as usize);
        true
    }

    pub(super) fn admit_all(&mut self, to: EndpointId) {
        for class in [Class::Data, Class::Control] {
            while self.admit(to, class) {}
        }
    }

    // What the NIC's user takes.

    pub(super) fn poll(
        &mut self,
        id: EndpointId,
        data: bool,
        most: usize,
        events: &mut Vec<DeviceEvent>,
    ) -> bool {
        let before = events.len();
        let Some(party) = self.parties.get_mut(&id) else { return false };
        while events.len() - before < most
            && let Some(event) = party.mail.pop_front()
        {
            match &event {
                DeviceEvent::Packet { .. } => party.control -= 1,
                DeviceEvent::Lost { node, .. } => {
                    // What it sent comes first.
                    let node = *node;
                    for (from, bytes) in std::mem::take(&mut party.data) {
                        match from == node {
                            true => {
                                let class = Class::Data;
                                events.push(DeviceEvent::Packet { node, class, bytes });
                            }
                            false => party.data.push_back((from, bytes)),
                        }
                    }
                    party.nodes.try_remove(node.0 as usize);
                }
                _ => {}
            }
            events.push(event);
        }
        while data
            && events.len() - before < most
            && let Some((node, bytes)) = party.data.pop_front()
        {
            events.push(DeviceEvent::Packet { node, class: Class::Data, bytes });
        }
        self.admit_all(id);
        events.len() > before
    }

    /// The data packet that is next; the outer `None` if events come before it.
    pub(super) fn find(&self, id: EndpointId) -> Option<Option<(Node, Vec<u8>)>> {
        let party = self.parties.get(&id).filter(|party| party.mail.is_empty())?;
        Some(party.data.front().map(|(node, bytes)| (*node, bytes.to_vec())))
    }

    /// The data packet that was next was taken.
    pub(super) fn take(&mut self, id: EndpointId) {
        if let Some(party) = self.parties.get_mut(&id) {
            party.data.pop_front();
        }
        self.admit_all(id);
    }

    pub(super) fn has_mail(&self, id: EndpointId, data: bool) -> bool {
        let party = self.parties.get(&id);
        party.is_some_and(|party| !party.mail.is_empty() || (data && !party.data.is_empty()))
    }
}
