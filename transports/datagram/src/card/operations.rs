//! Puts and gets of a card that are under way.

use petasos_channel::device::Ticket;
use petasos_fabric::{Peer, Slice};
use slab::Slab;

/// How a put or get goes on.
#[derive(Debug)]
pub(super) enum Kind {
    /// The node's card writes what it is sent.
    Put,
    /// The library reads: into our memory, or into the first of these, which is then copied to the
    /// second.
    Read { copy: Option<(Slice, Slice)> },
    /// The node's card sends it; so much has arrived.
    Get { into: Slice, filled: usize },
}

/// One of them.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) peer: Peer,
    /// `None` if its user was told the end already: the node was lost, and the library has not
    /// completed it.
    pub(super) ticket: Option<Ticket>,
    pub(super) kind: Kind,
    serial: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Operations {
    list: Slab<Running>,
    serial: u32,
    /// Those that the library carries out, with nodes that are not lost.
    reads: usize,
}

impl Operations {
    /// Adds one. Returns its slot, and what tells it from other users of the slot.
    pub(super) fn add(&mut self, peer: Peer, ticket: Ticket, kind: Kind) -> (u32, u32) {
        self.serial = self.serial.wrapping_add(1);
        self.reads += usize::from(matches!(kind, Kind::Read { .. }));
        let (serial, ticket) = (self.serial, Some(ticket));
        let slot = self.list.insert(Running { peer, ticket, kind, serial });
        (slot as u32, serial)
    }

    /// How many more reads the library is given, of so many sends and accesses; one node has no
    /// more of them than that, so that one which stands still leaves some to the others.
    pub(super) fn reads_left(&self, sends: usize) -> usize {
        (sends / 2).saturating_sub(self.reads)
    }

    /// The operation in a slot, of which a peer says something.
    pub(super) fn of_peer(&mut self, slot: u32, peer: Peer) -> Option<&mut Running> {
        let running = self.list.get_mut(slot as usize)?;
        let asked = !matches!(running.kind, Kind::Read { .. });
        (asked && running.peer == peer && running.ticket.is_some()).then_some(running)
    }

    /// Removes an operation that is over, or was not begun.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Running> {
        let running = self.list.try_remove(slot as usize)?;
        let read = running.ticket.is_some() && matches!(running.kind, Kind::Read { .. });
        self.reads -= usize::from(read);
        Some(running)
    }

    /// Removes a read that the library has completed.
    pub(super) fn read(&mut self, slot: u32, serial: u32) -> Option<Running> {
        let running = self.list.get(slot as usize)?;
        match running.serial == serial && matches!(running.kind, Kind::Read { .. }) {
            true => self.remove(slot),
            false => None,
        }
    }

    /// A peer is lost: the tickets of what was under way with it. What the library does is kept
    /// until it has completed that; our memory is not touched any more.
    pub(super) fn lose(&mut self, peer: Peer) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        let Operations { list, reads, .. } = self;
        list.retain(|_, running| {
            if running.peer != peer {
                return true;
            }
            let Some(ticket) = running.ticket.take() else { return true };
            tickets.push(ticket);
            match &mut running.kind {
                Kind::Read { copy } => {
                    *reads -= 1;
                    *copy = None;
                    true
                }
                _ => false,
            }
        });
        tickets
    }
}
