//! The device, and what the endpoint has handed to it.

use crate::{
    Device, DeviceEvent,
    bounce::Bounce,
    device::{Class, Node, Refusal, Target, Ticket},
    fifo::{PAD_MARK, Reservation},
    flow::OutFifo,
    header::{HEADER, Header},
};
use petasos_fabric::{Peer, Region, RegionId, Slice, Time};
use slab::Slab;

/// What a completion of the device is for.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A put of the FIFO's image.
    Put { peer: Peer, seq: u32 },
    /// A pad that went as a put.
    Pad,
    /// A fetch ahead of turn.
    Ahead { peer: Peer, seq: u32, bounce: Bounce },
    /// A fetch.
    Get { peer: Peer, seq: u32, bounce: Option<(Bounce, usize, usize)> },
    /// A region of the user's is being closed.
    Deregister(RegionId),
    /// A piece of an access of the user's.
    Access { slot: usize, serial: u32 },
}

/// A device with the operations that it has not completed.
pub(crate) struct Port<D> {
    device: D,
    /// Its longest packet, in bytes.
    packet: usize,
    tickets: Slab<Pending>,
    /// The longest record that goes as an immediate put, header included, as far as the device has
    /// them.
    immediate: usize,
    /// A record that is being put together.
    scratch: Vec<u8>,
    /// Room for events, used again.
    events: Vec<DeviceEvent>,
}

impl<D: Device> Port<D> {
    pub(crate) fn new(device: D, immediate: usize) -> Port<D> {
        let (tickets, scratch, events) = (Slab::new(), Vec::new(), Vec::new());
        let packet = device.limits().packet;
        Port { device, packet, tickets, immediate, scratch, events }
    }

    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    /// The longest packet of the device, in bytes.
    #[inline]
    pub(crate) fn packet(&self) -> usize {
        self.packet
    }

    pub(crate) fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// A ticket for an operation that is about to be handed to the device.
    pub(crate) fn issue(&mut self, pending: Pending) -> Ticket {
        Ticket(self.tickets.insert(pending) as u64)
    }

    /// What a ticket was for: the operation has completed, or was not accepted.
    pub(crate) fn redeem(&mut self, ticket: Ticket) -> Option<Pending> {
        self.tickets.try_remove(ticket.0 as usize)
    }

    /// Polls the device, and keeps its events. True if it did anything.
    #[inline]
    pub(crate) fn poll(&mut self, now: Time, data: bool, most: usize) -> bool {
        self.device.poll(now, data, most, &mut self.events)
    }

    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The events of the device. Their vector is to be given back by [`Port::reuse`].
    pub(crate) fn take_events(&mut self) -> Vec<DeviceEvent> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn reuse(&mut self, events: Vec<DeviceEvent>) {
        self.events = events;
    }

    /// Sends a record as a short packet. `fill` appends its body.
    pub(crate) fn send_record(
        &mut self,
        node: Node,
        header: &Header,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Refusal> {
        self.scratch.clear();
        self.scratch.extend_from_slice(&header.encode());
        fill(&mut self.scratch);
        debug_assert_eq!(self.scratch.len(), HEADER + header.len as usize);
        self.device.send(node, Class::Data, &[&self.scratch])
    }

    /// Puts a record to the reserved cells of the peer's FIFO. `fill` appends its body. True if it
    /// went as an immediate put, for which no completion comes.
    pub(crate) fn put_record(
        &mut self,
        (peer, node): (Peer, Node),
        out: &OutFifo,
        at: &Reservation,
        header: &Header,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool, Refusal> {
        self.scratch.clear();
        self.scratch.extend_from_slice(&header.encode());
        // The remote event writes the mark.
        self.scratch[..8].fill(0);
        fill(&mut self.scratch);
        debug_assert_eq!(self.scratch.len(), HEADER + header.len as usize);
        let mark = Some(header.mark());
        if self.scratch.len() <= self.device.limits().immediate.min(self.immediate) {
            self.device.put_immediate(node, &out.target, &self.scratch, mark)?;
            return Ok(true);
        }
        let image = out.fifo.slice(at, header.len as usize);
        image.write(0, &self.scratch);
        self.put(node, &out.target, &image, mark, Pending::Put { peer, seq: header.seq })?;
        Ok(false)
    }

    /// Puts a pad to where the target points.
    pub(crate) fn put_pad(&mut self, node: Node, target: &Target) -> Result<(), Refusal> {
        if self.device.limits().immediate > 0 {
            return self.device.put_immediate(node, target, &[], Some(PAD_MARK));
        }
        let nothing = Region::zeroed(0).whole();
        self.put(node, target, &nothing, Some(PAD_MARK), Pending::Pad)
    }

    fn put(
        &mut self,
        node: Node,
        target: &Target,
        from: &Slice,
        event: Option<u64>,
        pending: Pending,
    ) -> Result<(), Refusal> {
        let ticket = self.issue(pending);
        let result = self.device.put(node, target, from, event, ticket);
        if result.is_err() {
            self.redeem(ticket);
        }
        result
    }
}
