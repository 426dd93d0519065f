//! What a peer has under way here: the packet that arrives, its requests, its long messages.

use super::{
    MAX_BODIES, MAX_REQUESTS, Placement, Violation,
    header::{Header, Status},
    matching::Posted,
    operations::Sort,
    registry::Exposed,
    violation::{at_most, broken},
};
use crate::{Buffer, Slices, memory::Fault};
use std::{collections::HashMap, mem};

#[derive(Debug)]
pub(super) struct Incoming {
    /// The packet that arrives.
    pub(super) landing: Option<Landing>,
    /// Memory of a device, if its payload goes there by way of a buffer.
    bounced: Option<Box<Slices>>,
    /// What was placed last found no memory.
    faulted: bool,
    /// Requests that wait for our answer.
    serving: u32,
    /// Puts that failed and are not over, by the peer's ids.
    failed: HashMap<u64, Status>,
    /// Of puts that ask for no answer: fragments that were refused and not reported yet, and why
    /// the first one was.
    refusals: u64,
    refusal: Status,
    /// Long messages that were not received yet: the lengths of their bodies, by the peer's ids.
    announced: HashMap<u64, u64>,
    /// Bodies, by sort, of which we have not said that we are done with them.
    bodies: [u32; 2],
}

/// What to do when the payload is there.
#[derive(Debug)]
pub(super) enum Landing {
    Nothing,
    Message {
        id: Option<u64>,
    },
    Long {
        body: u64,
        len: u64,
    },
    /// An eager message: where it goes if it was matched already.
    Tagged {
        tag: u64,
        id: Option<u64>,
        len: usize,
        posted: Option<Posted>,
    },
    Put {
        header: Header,
        /// Where the payload goes, if it is placed.
        at: Option<Exposed>,
        status: Status,
    },
    Atomic {
        header: Header,
    },
    Data {
        id: u64,
        len: u64,
        placed: bool,
    },
    Reply {
        id: u64,
        status: Status,
    },
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming {
            landing: None,
            bounced: None,
            faulted: false,
            serving: 0,
            failed: HashMap::new(),
            refusals: 0,
            refusal: Status::Good,
            announced: HashMap::new(),
            bodies: [0; 2],
        }
    }
}

impl Incoming {
    /// Whether the peer has nothing under way here.
    pub(super) fn is_empty(&self) -> bool {
        let tables = self.failed.len() + self.announced.len();
        let open = self.bodies != [0; 2] || self.serving > 0 || self.refusals > 0;
        tables == 0 && !open && self.landing.is_none()
    }

    /// Keeps no memory for what is empty.
    pub(super) fn trim(&mut self) {
        self.failed.shrink_to_fit();
        self.announced.shrink_to_fit();
    }

    // The packet that arrives.

    /// Its payload, of `len` bytes, belongs in memory to which there is no pointer: gets a buffer.
    pub(super) fn bounce(&mut self, memory: Slices, len: usize) -> Placement {
        self.bounced = Some(Box::new(memory));
        Placement::Buffer(Buffer::scratch(len))
    }

    /// Its payload is there. What is in such a buffer goes to where it belongs.
    #[inline]
    pub(super) fn unbounce(&mut self, placement: Placement) -> Placement {
        match self.bounced.is_some() {
            false => placement,
            true => self.place_bounced(placement),
        }
    }

    /// Whether there was no such memory, or none that may be written.
    pub(super) fn take_fault(&mut self) -> Result<(), Fault> {
        match mem::take(&mut self.faulted) {
            true => Err(Fault),
            false => Ok(()),
        }
    }

    #[cold]
    fn place_bounced(&mut self, placement: Placement) -> Placement {
        match (self.bounced.take(), placement) {
            (Some(memory), Placement::Buffer(buffer)) => {
                let mut rest = &buffer[..];
                let placed = memory.iter().try_for_each(|piece| {
                    let (now, later) = rest.split_at(piece.len());
                    rest = later;
                    piece.try_write(0, now)
                });
                self.faulted = placed.is_err();
                Placement::Memory(*memory)
            }
            // It goes nowhere any more.
            (_, placement) => placement,
        }
    }

    // Requests.

    /// Another request waits for an answer.
    pub(super) fn begin_serving(&mut self) -> Result<(), Violation> {
        if self.serving >= MAX_REQUESTS {
            return broken("more requests than allowed", self.serving.into());
        }
        self.serving += 1;
        Ok(())
    }

    /// The last packet of an answer is sent.
    pub(super) fn end_serving(&mut self) {
        self.serving -= 1;
    }

    // Bodies.

    /// Another body is announced. `room` is how many expected ones the peer may announce.
    pub(super) fn announce(&mut self, sort: Sort, room: u16) -> Result<(), Violation> {
        let most = match sort {
            Sort::Long => MAX_BODIES,
            Sort::Tagged => room.into(),
        };
        let open = &mut self.bodies[sort as usize];
        if *open >= most {
            return broken("more bodies than allowed", (*open).into());
        }
        *open += 1;
        Ok(())
    }

    /// The peer is told that we are done with a body.
    pub(super) fn body_done(&mut self, sort: Sort) {
        self.bodies[sort as usize] -= 1;
    }

    /// Bodies of a sort that are open.
    pub(super) fn bodies(&self, sort: Sort) -> u32 {
        self.bodies[sort as usize]
    }

    /// Whether a long message with this body waits to be received.
    pub(super) fn is_announced(&self, body: u64) -> bool {
        self.announced.contains_key(&body)
    }

    /// A long message waits to be received.
    pub(super) fn keep_body(&mut self, body: u64, len: u64) {
        self.announced.insert(body, len);
    }

    /// The length of a body that is to be received or discarded.
    pub(super) fn take_body(&mut self, body: u64) -> Option<u64> {
        self.announced.remove(&body)
    }

    // Puts.

    /// A fragment of a put failed that is not over.
    pub(super) fn put_failed(&mut self, id: u64, status: Status) -> Result<(), Violation> {
        self.failed.entry(id).or_insert(status);
        at_most("more failing puts than allowed", self.failed.len(), MAX_REQUESTS as usize)
    }

    /// A put is over: why an earlier fragment of it failed, if one did.
    pub(super) fn end_put(&mut self, id: u64) -> Option<Status> {
        self.failed.remove(&id)
    }

    /// A fragment of a put that asks for no answer was refused.
    pub(super) fn refuse(&mut self, status: Status) {
        if self.refusals == 0 {
            self.refusal = status;
        }
        self.refusals += 1;
    }

    /// The report of the fragments that were refused, if some were.
    pub(super) fn poll_refusals(&mut self) -> Option<Header> {
        let count = mem::take(&mut self.refusals);
        (count > 0).then_some(Header::Refused { count, status: self.refusal })
    }

    /// Whether the peer keeps to its bounds, when it may announce so many expected messages.
    #[cfg(test)]
    pub(super) fn is_within_bounds(&self, room: u16) -> bool {
        let [_, tagged] = self.bodies;
        let bodies = self.bodies.iter().all(|open| *open <= MAX_BODIES);
        self.serving <= MAX_REQUESTS && tagged <= room.into() && bodies
    }

    /// Whether nothing is open but long messages that were not received.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.serving == 0 && self.bodies == [0; 2] && self.failed.is_empty()
    }
}
