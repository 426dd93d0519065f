//! Puts and gets of a NIC that are under way.

use petasos_channel::{
    device::{Fault, Ticket},
    immediate::Name,
};
use petasos_fabric::{Peer, Slice, Time};
use slab::Slab;
use std::collections::VecDeque;

/// How a put or get goes on.
#[derive(Debug)]
pub(super) enum Kind {
    /// The node's NIC writes what it is sent; the library writes this many parts now. How it went,
    /// once the node has said so.
    Put { writes: u32, over: Option<Result<(), Fault>> },
    /// The library does it.
    Native(Native),
    /// The node's NIC sends it; so much has arrived.
    Get { into: Slice, filled: usize },
}

/// An access of the library's.
#[derive(Debug)]
pub(super) struct Native {
    /// Whether it reads.
    pub(super) get: bool,
    /// It works on the first of these, in place of the second, which is not held.
    pub(super) copy: Option<(Slice, Slice)>,
    /// The memory of a program that it is for, by a grant.
    pub(super) granted: Option<Name>,
    /// The put of which it writes a part.
    pub(super) part_of: Option<u32>,
}

impl Native {
    /// Whether it may write to memory of a program until it is complete.
    fn writes(&self) -> bool {
        self.get && self.copy.is_none() && self.granted.is_some()
    }
}

/// One of them.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) peer: Peer,
    /// `None` if its user was told the end already, or it is a part of a put.
    pub(super) ticket: Option<Ticket>,
    pub(super) kind: Kind,
    serial: u32,
    /// The node is lost, and the library has not completed it.
    pub(super) lost: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Operations {
    list: Slab<Running>,
    serial: u32,
    /// Those that the library carries out, with nodes that are not lost.
    native: usize,
    /// Gets of programs from nodes that are lost, while the library may write to their memory:
    /// until when, slot, and serial number. By their times.
    orphans: VecDeque<(Time, u32, u32)>,
}

impl Operations {
    /// Adds one. Returns its slot, and what tells it from other users of the slot.
    pub(super) fn add(&mut self, peer: Peer, ticket: Option<Ticket>, kind: Kind) -> (u32, u32) {
        self.serial = self.serial.wrapping_add(1);
        self.native += usize::from(matches!(kind, Kind::Native(_)));
        let serial = self.serial;
        let slot = self.list.insert(Running { peer, ticket, kind, serial, lost: false });
        (slot as u32, serial)
    }

    /// How many more accesses the library is given, of so many sends and accesses; one node has no
    /// more of them than that, so that one which stands still leaves some to the others.
    pub(super) fn native_left(&self, sends: usize) -> usize {
        (sends / 2).saturating_sub(self.native)
    }

    /// The operation in a slot, of which a peer says something.
    pub(super) fn of_peer(&mut self, slot: u32, peer: Peer) -> Option<&mut Running> {
        let running = self.list.get_mut(slot as usize)?;
        let asked = !matches!(running.kind, Kind::Native(_));
        (asked && running.peer == peer && running.ticket.is_some()).then_some(running)
    }

    /// How an operation of a peer goes on.
    pub(super) fn kind(&mut self, slot: u32, peer: Peer) -> Option<&mut Kind> {
        let running = self.list.get_mut(slot as usize)?;
        (running.peer == peer).then_some(&mut running.kind)
    }

    /// Removes an operation that is over, or was not begun.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Running> {
        let running = self.list.try_remove(slot as usize)?;
        let counted = !running.lost && matches!(running.kind, Kind::Native(_));
        self.native -= usize::from(counted);
        Some(running)
    }

    /// Removes an access that the library has completed.
    pub(super) fn native_done(&mut self, slot: u32, serial: u32) -> Option<Running> {
        let running = self.list.get(slot as usize)?;
        match running.serial == serial && matches!(running.kind, Kind::Native(_)) {
            true => self.remove(slot),
            false => None,
        }
    }

    /// The library has completed an access, and its user is not told any more. Returns whose memory
    /// it was for, if it was by a grant.
    pub(super) fn granted(&mut self, slot: u32, serial: u32) -> Option<(Peer, Name)> {
        match self.native_done(slot, serial)? {
            Running { peer, kind: Kind::Native(access), .. } => Some((peer, access.granted?)),
            _ => None,
        }
    }

    /// A peer is lost: the tickets of what ends with it. What the library does is kept until it has
    /// completed that, and what of that may write to memory of a program ends then, or at this
    /// time; no other memory of ours is touched any more.
    pub(super) fn lose(&mut self, peer: Peer, until: Time) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        let Operations { list, native, orphans, .. } = self;
        list.retain(|slot, running| {
            if running.peer != peer || running.lost {
                return true;
            }
            let Kind::Native(access) = &mut running.kind else {
                tickets.extend(running.ticket.take());
                return false;
            };
            *native -= 1;
            running.lost = true;
            match access.writes() {
                true => orphans.push_back((until, slot as u32, running.serial)),
                false => {
                    tickets.extend(running.ticket.take());
                    access.copy = None;
                }
            }
            true
        });
        tickets
    }

    /// The tickets of gets from lost nodes whose time has come.
    pub(super) fn take_late(&mut self, now: Time) -> Vec<Ticket> {
        let Operations { list, orphans, .. } = self;
        let mut late = Vec::new();
        orphans.retain(|(until, slot, serial)| {
            let Some(running) = list.get_mut(*slot as usize) else { return false };
            let is_there = running.serial == *serial;
            if is_there && *until <= now {
                late.extend(running.ticket.take());
            }
            is_there && *until > now
        });
        late
    }

    /// When that is to be called next.
    pub(super) fn until(&self) -> Time {
        self.orphans.front().map_or(Time::NEVER, |(until, ..)| *until)
    }
}
