//! Control packets: those that acknowledge, and those about exclusive channels.

use crate::{
    Channels, Device, Garbage,
    assembly::Assembly,
    device::Class,
    flow::{Flow, In},
    header::{Header, Kind, grant},
};
use petasos_fabric::Peer;

impl<D: Device> Channels<D> {
    // Acknowledgements.

    /// The number before which all records of a peer have been taken.
    pub(crate) fn taken(&self, index: u32, flow: &Flow) -> u32 {
        let fetching = flow.assembly.as_ref().and_then(Assembly::first_lent);
        fetching.unwrap_or(self.peers.get(index).next_in())
    }

    /// An acknowledgement was sent: in a packet of its own, if it was `explicit`.
    pub(crate) fn acknowledgement_sent(
        &mut self,
        index: u32,
        flow: &mut Flow,
        ack: u32,
        explicit: bool,
    ) {
        if self.peers.get_mut(index).tell(ack) {
            match explicit {
                true => self.counters.acks_explicit += 1,
                false => self.counters.acks_ridden += 1,
            }
        }
        flow.ack.clear();
    }

    /// Acknowledges now, if that is needed, or sets the timer.
    pub(crate) fn settle_ack(&mut self, peer: Peer, flow: &mut Flow) {
        if self.taken(peer.index, flow) == self.peers.get(peer.index).told() {
            return;
        }
        let (cells, leaving) = match &flow.inward {
            In::Open(inward) => (inward.fifo.cells(), inward.leaving),
            _ => (u32::MAX, false),
        };
        if leaving || flow.ack.is_now(self.config.window, cells) {
            flow.control.add(Kind::Ack);
            self.flush_control(peer.index, flow);
        } else if !flow.ack.is_timed() {
            flow.ack.set_timed(true);
            self.schedule.delay_ack(self.now.after(self.config.ack_delay), peer);
        }
    }

    /// Acknowledges where no record came along to ride on, and drops idle flows.
    #[inline]
    pub(crate) fn run_timers(&mut self) {
        if self.now >= self.schedule.deadline(true) {
            self.run_due_timers();
        }
    }

    fn run_due_timers(&mut self) {
        while let Some(peer) = self.schedule.pop_due_ack(self.now) {
            if self.engine.peer_at(peer.index) != Some(peer) {
                continue;
            }
            let Some(mut flow) = self.peers.take_flow(peer.index) else { continue };
            flow.ack.set_timed(false);
            if self.taken(peer.index, &flow) != self.peers.get(peer.index).told() {
                flow.control.add(Kind::Ack);
                self.flush_control(peer.index, &mut flow);
            }
            self.peers.put_flow(peer.index, flow);
        }
        if self.schedule.sweep_is_due(self.now, self.config.idle) {
            let Channels { peers, engine, .. } = self;
            peers.drop_idle_flows(self.now, |index| {
                if let Some(peer) = engine.peer_at(index) {
                    engine.trim(peer);
                }
            });
        }
    }

    // Control packets.

    /// Sends the control packets that are due, as far as there is room.
    pub(crate) fn flush_control(&mut self, index: u32, flow: &mut Flow) {
        if flow.control.is_empty() {
            return;
        }
        let Some(node) = self.peers.node(index) else { return };
        while let Some(kind) = flow.control.next() {
            let body = match (kind, &flow.inward) {
                (Kind::Ask, _) => self.config.exclusive.cells.to_le_bytes().to_vec(),
                (Kind::Grant, In::Open(inward)) => grant(inward.fifo.cells(), &inward.key),
                _ => Vec::new(),
            };
            let ack = self.taken(index, flow);
            let header = Header { len: body.len() as u32, seq: 0, ack, kind, flags: 0 };
            let packet = [&header.encode()[..], &body];
            if self.port.device_mut().send(node, Class::Control, &packet).is_err() {
                self.counters.retries += 1;
                return;
            }
            flow.control.remove(kind);
            flow.control.remove(Kind::Ack);
            self.acknowledgement_sent(index, flow, ack, true);
        }
    }

    /// A control packet came.
    pub(crate) fn control(&mut self, peer: Peer, packet: &[u8]) -> Result<(), Garbage> {
        let mut flow = self.peers.open_flow(peer.index);
        let result = self.control_within(peer, &mut flow, packet);
        self.peers.put_flow(peer.index, flow);
        result
    }

    fn control_within(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        packet: &[u8],
    ) -> Result<(), Garbage> {
        let (header, body) = self.read_header(peer, flow, packet)?;
        let index = peer.index;
        match header.kind {
            Kind::Ask | Kind::Grant => {}
            Kind::Record => return Err(Garbage::new("a record as a control packet", 0)),
            _ if !body.is_empty() => {
                return Err(Garbage::new("a body where none belongs", header.len.into()));
            }
            _ => {}
        }
        match header.kind {
            Kind::Ack | Kind::Record => {}
            Kind::Ask => self.channel_asked_for(peer, flow, body)?,
            Kind::Grant => self.channel_granted(index, flow, body)?,
            Kind::Refuse => self.channel_refused(index, flow)?,
            Kind::Recall => self.close_out(index, flow),
            Kind::Closed => self.channel_closed(index, flow)?,
        }
        Ok(())
    }
}
