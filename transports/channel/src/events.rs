//! What the device reports.

use crate::{
    Channels, Device, DeviceEvent,
    device::{Class, Fault, Node, Ticket},
    port::Pending,
    tag,
};
use petasos_fabric::{Address, Event, Incarnation, LostReason, Peer, PeerState};
use smallvec::SmallVec;

impl<D: Device> Channels<D> {
    pub(crate) fn handle_event(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Up { node, address, incarnation } => {
                self.node_up(node, &address, incarnation);
            }
            DeviceEvent::Unreachable { address, reason } => {
                if let Some(peer) = self.engine.find_peer(&address)
                    && !self.engine.is_up(peer)
                {
                    self.lose(peer, reason);
                }
            }
            DeviceEvent::Lost { node, reason } => {
                if let Some(peer) = self.peer_of(node) {
                    self.peers.forget_node(node);
                    // What the peer sent before it was lost.
                    let delivered = self.deliver(peer, usize::MAX).map(|_| ());
                    self.check(peer, delivered);
                    self.peers.get_mut(peer.index).clear_node();
                    self.lose(peer, reason);
                }
            }
            DeviceEvent::Packet { node, class, bytes } => {
                if let Some(peer) = self.peer_of(node) {
                    let taken = match class {
                        Class::Data => self.packet(peer, bytes),
                        Class::Control => self.control(peer, &bytes),
                    };
                    self.check(peer, taken);
                }
            }
            DeviceEvent::PutArrived { node, tag, offset, len, data } => {
                if let Some(peer) = self.peer_of(node) {
                    self.put_arrived(peer, tag, offset, len, data);
                }
            }
            DeviceEvent::Done { ticket, result } => self.completed(ticket, result),
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

    /// A node can be reached.
    fn node_up(&mut self, node: Node, address: &Address, incarnation: Incarnation) {
        let known = self.engine.find_peer(address);
        let waiting = known.filter(|peer| {
            let info = self.engine.peer_info(*peer);
            info.is_some_and(|info| info.state == PeerState::Connecting)
        });
        if waiting.is_none()
            && let Some(earlier) = known
        {
            // The loss of the earlier incarnation is still to be reported.
            self.lose(earlier, LostReason::Restarted);
        }
        match waiting.map_or_else(|| self.add(address, false), Ok) {
            Ok(peer) => {
                self.peers.set_node(peer.index, node);
                self.engine.peer_up(peer, incarnation);
                // It is dropped after a while, if it stays idle.
                let flow = self.peers.open_flow(peer.index);
                self.peers.put_flow(peer.index, flow);
                self.resume(peer.index);
            }
            Err(_) => self.port.device_mut().close(node),
        }
    }

    /// There is room on the way to a peer.
    fn resume(&mut self, index: u32) {
        let Some(mut flow) = self.peers.take_flow(index) else { return };
        self.flush_control(index, &mut flow);
        self.fetch(index, &mut flow);
        self.schedule.list_output(index, &mut flow);
        self.peers.put_flow(index, flow);
    }

    fn put_arrived(&mut self, peer: Peer, tag: u64, offset: u64, len: u64, data: u64) {
        if let Some(region) = tag::region(tag) {
            if self.regions.contains(region) {
                self.engine.raise(Event::PutArrived { peer, region, offset, len, data });
            }
            return;
        }
        if tag != tag::of_fifo(peer.index) {
            return self.cut_off(peer, "a put into the exclusive channel of another".to_owned());
        }
        let Some(mut flow) = self.peers.take_flow(peer.index) else { return };
        let ack = match flow.inward.fifo() {
            None => Ok(None),
            Some(inward) => {
                inward.used = self.now;
                inward.fifo.arrived(offset, data)
            }
        };
        self.schedule.list_input(peer.index, &mut flow);
        let result = ack.and_then(|ack| match ack {
            Some(ack) => self.acknowledged(peer, &mut flow, ack),
            None => Ok(()),
        });
        self.peers.put_flow(peer.index, flow);
        self.check(peer, result);
    }

    /// The device has completed an operation.
    fn completed(&mut self, ticket: Ticket, result: Result<SmallVec<[u8; 16]>, Fault>) {
        let Some(pending) = self.port.redeem(ticket) else { return };
        match pending {
            Pending::Pad => {}
            // If no operation waits, the engine keeps the region until one closes it again.
            Pending::Deregister(region) => {
                if let Some(waiting) = self.regions.closed(region) {
                    self.engine.submit(waiting.into_operation(region));
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
                        self.fetching.replace(bounce, self.port.device_mut());
                        self.resume_starved_input();
                        None
                    }
                    Err(fault) => {
                        self.cannot_read(peer, fault);
                        Some(bounce)
                    }
                };
                if let Some(bounce) = unclaimed {
                    self.fetching.give_back(bounce, self.port.device_mut());
                    self.resume_starved_input();
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
                    let device = self.port.device_mut();
                    match lost {
                        true => self.fetching.replace(bounce, device),
                        false => self.fetching.give_back(bounce, device),
                    }
                    self.resume_starved_input();
                }
                self.check(peer, taken);
            }
        }
    }

    fn cannot_read(&mut self, peer: Peer, fault: Fault) {
        self.cut_off(peer, format!("memory that it lent cannot be read: {fault}"));
    }
}
