//! What we have under way with one peer: operations, requests, bodies.
//!
//! An id is a slot with a serial number before it, so that an id that is over is never taken for a
//! later one. The serial numbers are the peer's, so that they go on when this is dropped.

use super::{
    MAX_BODIES, MAX_REQUESTS,
    operations::{Op, Sort},
};
use slab::Slab;

#[derive(Debug, Default)]
pub(super) struct Outstanding {
    ops: Slab<Op>,
    /// Our requests without an answer.
    requests: Slab<Request>,
    /// Our bodies, by sort, with which the peer is not done.
    bodies: [u32; 2],
}

#[derive(Debug)]
pub(super) struct Request {
    serial: u32,
    pub(super) op: u64,
    /// Which bytes of the operation it is for.
    pub(super) base: u64,
    pub(super) len: u64,
    pub(super) got: u64,
}

fn id(serial: u32, slot: usize) -> u64 {
    u64::from(serial) << 32 | slot as u64
}

impl Outstanding {
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.requests.is_empty() && self.bodies == [0; 2]
    }

    /// Keeps no memory for what is empty.
    pub(super) fn trim(&mut self) {
        // Numbers are not used again: the serials go on.
        if self.ops.is_empty() {
            self.ops = Slab::new();
        }
        if self.requests.is_empty() {
            self.requests = Slab::new();
        }
    }

    // Operations.

    /// All that are not over.
    pub(super) fn all(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter().map(|(_, op)| op)
    }

    /// Operations that are not over.
    pub(super) fn ops(&self) -> usize {
        self.ops.len()
    }

    /// Takes in an operation, which has its serial number.
    pub(super) fn insert(&mut self, op: Op) -> u64 {
        id(op.serial, self.ops.insert(op))
    }

    pub(super) fn op(&mut self, id: u64) -> Option<&mut Op> {
        let op = self.ops.get_mut(id as u32 as usize)?;
        (u64::from(op.serial) == id >> 32).then_some(op)
    }

    /// Forgets an operation that [`Outstanding::op`] knows.
    pub(super) fn remove(&mut self, id: u64) -> Op {
        self.ops.remove(id as u32 as usize)
    }

    /// Takes all operations out, with their ids.
    pub(super) fn take_ops(&mut self) -> impl Iterator<Item = (u64, Op)> + use<> {
        let ops = std::mem::take(&mut self.ops);
        ops.into_iter().map(|(slot, op)| (id(op.serial, slot), op))
    }

    // Requests.

    /// Whether another request may be sent.
    pub(super) fn may_ask(&self) -> bool {
        self.requests.len() < MAX_REQUESTS as usize
    }

    pub(super) fn ask(&mut self, serial: u32, op: u64, base: u64, len: u64) -> u64 {
        id(serial, self.requests.insert(Request { serial, op, base, len, got: 0 }))
    }

    pub(super) fn request(&mut self, id: u64) -> Option<&mut Request> {
        let request = self.requests.get_mut(id as u32 as usize)?;
        (u64::from(request.serial) == id >> 32).then_some(request)
    }

    /// The request was answered, or will not be. False if there is no such request.
    pub(super) fn answered(&mut self, id: u64) -> bool {
        let Some(op) = self.request(id).map(|request| request.op) else {
            return false;
        };
        self.requests.remove(id as u32 as usize);
        if let Some(op) = self.op(op) {
            op.awaiting -= 1;
        }
        true
    }

    // Bodies.

    /// Whether another body of this sort may be announced. `room` is how many expected ones the
    /// peer takes.
    pub(super) fn may_announce(&self, sort: Sort, room: u16) -> bool {
        let most = match sort {
            Sort::Long => MAX_BODIES,
            Sort::Tagged => room.into(),
        };
        self.bodies[sort as usize] < most
    }

    pub(super) fn announced(&mut self, sort: Sort) {
        self.bodies[sort as usize] += 1;
    }

    pub(super) fn body_done(&mut self, sort: Sort) {
        self.bodies[sort as usize] -= 1;
    }
}
