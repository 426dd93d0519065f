//! A virtual connection: from one endpoint to another, one way.

use super::PortId;
use petasos_shm::link::Link;
use petasos_tenant::{
    Fifo, Name,
    wire::{CREDIT, HEAD, Pieces, WINDOW, cost},
};
use serde::Serialize;

/// What lies in the queue of a connection.
pub(super) mod mark {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const LENT: u8 = 1;
}

/// The longest packet, and the longest payload that is lent, in bytes: what goes through a ring.
pub(super) const PACKET: usize = Link::MAX - HEAD;
/// The least that may be on its way on a connection: one packet, whatever its length, beside what was
/// consumed and of which the receiver need not have told.
pub(super) const MIN_WINDOW: u32 = 264 << 10;
const _: () = assert!(MIN_WINDOW <= WINDOW && cost(PACKET) + CREDIT <= MIN_WINDOW);

/// One side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    From,
    To,
}

/// What a connection has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Messages that were delivered.
    pub messages: u64,
    /// Their bytes, those in place among them.
    pub bytes: u64,
    /// Bytes that were copied from memory to memory, and through no ring.
    pub bytes_in_place: u64,
}

impl Counters {
    pub(super) fn add(&mut self, more: Counters) {
        self.messages += more.messages;
        self.bytes += more.bytes;
        self.bytes_in_place += more.bytes_in_place;
    }
}

/// What the broker still has to say to one side.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Whether the connection is in the list of its port.
    pub(super) listed: bool,
    /// Of `To`: that there is a connection.
    pub(super) incoming: bool,
    /// Of `From`: room.
    pub(super) credit: u32,
    /// Of `From`: its memory is its own again.
    pub(super) returned: bool,
    /// Of `To`: whether the payload is where it was to go.
    pub(super) fetched: Option<bool>,
    /// The end, and why.
    pub(super) end: Option<String>,
}

impl Owed {
    pub(super) fn is_nothing(&self) -> bool {
        let Owed { incoming, credit, returned, fetched, end, .. } = self;
        !incoming && *credit == 0 && !returned && fetched.is_none() && end.is_none()
    }

    /// Nothing is to be said any more; the list of the port is as it was.
    pub(super) fn forgive(&mut self) {
        *self = Owed { listed: self.listed, ..Owed::default() };
    }
}

/// A payload that stays where it is.
#[derive(Debug)]
pub(super) struct Loan {
    pub(super) source: Pieces,
    pub(super) len: u64,
    /// Whether the receiver knows of it.
    pub(super) announced: bool,
    /// Where it is to go.
    pub(super) fetch: Option<Fetch>,
    /// The sender has ended: the connection ends in the place of this packet.
    pub(super) aborted: bool,
}

#[derive(Debug)]
pub(super) enum Fetch {
    Into(Pieces),
    Take,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) from: PortId,
    /// The sender's number.
    pub(super) number: u64,
    pub(super) to: PortId,
    /// The same two, for when they are gone.
    pub(super) names: [Name; 2],
    pub(super) tenants: [usize; 2],
    /// The rule that allows it, for people.
    pub(super) rule: String,
    /// The connection the other way to which this is the answer, where no rule allows it by itself.
    pub(super) licence: Option<u64>,
    /// Connections that this one is the licence of.
    pub(super) licensed: Vec<u64>,
    pub(super) queue: Fifo,
    /// What may be on its way.
    pub(super) window: u32,
    /// What is: sent, and not consumed.
    pub(super) used: u32,
    /// Of these, what the receiver has.
    pub(super) delivered: u32,
    pub(super) loan: Option<Loan>,
    /// Whether the receiver waits for [`Fetched`](petasos_tenant::wire::Answer::Fetched), or the end.
    pub(super) fetching: bool,
    /// Nothing more is taken from the sender: one side, or the broker, has ended it.
    pub(super) over: bool,
    /// Whether each side still has it.
    pub(super) from_open: bool,
    pub(super) to_open: bool,
    /// The receiver is to be told the end when the queue is empty, and why.
    pub(super) closing: Option<String>,
    pub(super) owed_from: Owed,
    pub(super) owed_to: Owed,
    /// In the list of its tenant, or of the port that has no room.
    pub(super) scheduled: bool,
    pub(super) deficit: i64,
    pub(super) counters: Counters,
}

impl Connection {
    /// Whether there is something to move.
    pub(super) fn has_work(&self) -> bool {
        self.to_open
            && match &self.loan {
                Some(loan) if loan.announced => loan.fetch.is_some(),
                _ => !self.queue.is_empty(),
            }
    }

    pub(super) fn owed(&mut self, side: Side) -> &mut Owed {
        match side {
            Side::From => &mut self.owed_from,
            Side::To => &mut self.owed_to,
        }
    }

    pub(super) fn port(&self, side: Side) -> PortId {
        match side {
            Side::From => self.from,
            Side::To => self.to,
        }
    }
}
