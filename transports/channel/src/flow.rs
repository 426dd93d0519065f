//! What is known of a peer: a small entry for each, and more for those with whom something is going
//! on.

use crate::{
    bounce::Bounce,
    device::{Node, Registration, RemoteKey, Target},
    fifo::{ReceiveFifo, SendFifo},
    head::{FIRST, LAST},
    policy::Traffic,
};
use petasos_fabric::{
    Lease, Slice, Time,
    two_sided::{Outgoing, Packet, Placement},
};
use std::collections::VecDeque;

/// What is kept for every peer.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) node: Option<Node>,
    /// The number of the next record to it.
    pub(crate) next_out: u32,
    /// It has acknowledged all before this one.
    pub(crate) heard: u32,
    /// The number of the next record from it.
    pub(crate) next_in: u32,
    /// We have acknowledged all before this one.
    pub(crate) told: u32,
    pub(crate) traffic: Traffic,
    /// Somebody here asked for the peer.
    pub(crate) asked: bool,
    pub(crate) flow: Option<Box<Flow>>,
}

/// What is kept while something is going on.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Used since the last look.
    pub(crate) used: bool,
    /// In the list of those to be served, and whether the engine waits for us to ask.
    pub(crate) listed: bool,
    pub(crate) pending: bool,
    /// In the list of those with something to deliver.
    pub(crate) stirred: bool,

    // Out.
    pub(crate) train: Option<Train>,
    /// Short packets without acknowledgement, oldest first.
    pub(crate) sent: VecDeque<Sent>,
    /// Packets of the engine's that it was not told are sent: the last record that lends memory.
    pub(crate) packets: VecDeque<Option<u32>>,
    pub(crate) out: Out,
    pub(crate) control: Control,
    /// The last record that went through the FIFO.
    pub(crate) fifo_used: Time,
    /// Accesses of the user's that wait for their turn.
    pub(crate) accesses: VecDeque<usize>,

    // In.
    /// Packets whose turn has not come, by number.
    pub(crate) deferred: VecDeque<Deferred>,
    pub(crate) assembly: Option<Assembly>,
    pub(crate) inward: In,
    /// Records and cells taken since the last acknowledgement.
    pub(crate) records: u32,
    pub(crate) cells: u32,
    /// The peer is waiting for us to acknowledge.
    pub(crate) urgent: bool,
    /// A timer runs for the acknowledgement.
    pub(crate) timed: bool,
}

/// A packet of the engine's on its way out, in as many records as it takes.
#[derive(Debug)]
pub(crate) struct Train {
    pub(crate) packet: Packet,
    /// Bytes that are gone, the header's included.
    pub(crate) at: usize,
    /// Its payload is lent.
    pub(crate) shared: bool,
    /// The last record that lends memory.
    pub(crate) lent: Option<u32>,
}

impl Train {
    pub(crate) fn header(&self) -> usize {
        self.packet.header.len()
    }

    /// The flags of a record from where it is up to `end`.
    pub(crate) fn flags(&self, end: usize) -> u8 {
        let first = if self.at == 0 { FIRST } else { 0 };
        let last = if end == self.packet.len() { LAST } else { 0 };
        first | last
    }

    /// Appends bytes of the packet to `out`.
    pub(crate) fn copy(&self, at: usize, len: usize, out: &mut Vec<u8>) {
        let header = self.header();
        let (from, to) = (at.min(header), (at + len).min(header));
        out.extend_from_slice(&self.packet.header[from..to]);
        let (mut skip, mut left) = (at.max(header) - header, len - (to - from));
        match &self.packet.payload {
            Outgoing::Nothing => {}
            Outgoing::Bytes(bytes) => out.extend_from_slice(&bytes[skip..skip + left]),
            Outgoing::Memory(pieces) => {
                for piece in pieces {
                    let from = skip.min(piece.len());
                    let now = left.min(piece.len() - from);
                    let end = out.len();
                    out.resize(end + now, 0);
                    piece.read(from, &mut out[end..]);
                    (skip, left) = (skip - from, left - now);
                }
            }
        }
    }

    /// The longest piece of memory from `at` on, if the payload lies in memory.
    pub(crate) fn piece(&self, at: usize) -> Option<Slice> {
        let Outgoing::Memory(pieces) = &self.packet.payload else { return None };
        let mut skip = at - self.header();
        for piece in pieces {
            if skip < piece.len() {
                return piece.part(skip, piece.len() - skip);
            }
            skip -= piece.len();
        }
        None
    }
}

/// A short packet that was sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) seq: u32,
    pub(crate) lent: Option<Loan>,
}

/// Memory lent for one record.
#[derive(Debug)]
pub(crate) enum Loan {
    /// The packet's own.
    Memory(Registration),
    /// A copy.
    Bounce(Bounce),
}

/// The exclusive channel to a peer.
#[derive(Debug, Default)]
pub(crate) enum Out {
    /// There is none.
    #[default]
    None,
    /// It said no; not asked before this time.
    Refused(Time),
    /// It was asked.
    Asked,
    /// There is one.
    Open(Box<OutFifo>),
    /// No more goes through it.
    Closing(Box<OutFifo>),
}

#[derive(Debug)]
pub(crate) struct OutFifo {
    pub(crate) fifo: SendFifo,
    /// The receiver's buffer, and where the last put went.
    pub(crate) target: Target,
    /// Of the image.
    pub(crate) registration: Registration,
}

impl Out {
    pub(crate) fn fifo(&mut self) -> Option<&mut OutFifo> {
        match self {
            Out::Open(fifo) | Out::Closing(fifo) => Some(fifo),
            _ => None,
        }
    }
}

/// The exclusive channel from a peer.
#[derive(Debug, Default)]
pub(crate) enum In {
    /// There is none.
    #[default]
    None,
    /// It waits for another to give way.
    Waiting(u32),
    /// It has one.
    Open(Box<InFifo>),
}

#[derive(Debug)]
pub(crate) struct InFifo {
    pub(crate) fifo: ReceiveFifo,
    pub(crate) registration: Registration,
    pub(crate) key: RemoteKey,
    pub(crate) used: Time,
    /// It was asked to let it go.
    pub(crate) leaving: bool,
}

impl In {
    pub(crate) fn fifo(&mut self) -> Option<&mut InFifo> {
        match self {
            In::Open(fifo) => Some(fifo),
            _ => None,
        }
    }
}

/// Control packets to be sent.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) ack: bool,
    pub(crate) ask: bool,
    pub(crate) grant: bool,
    pub(crate) refuse: bool,
    pub(crate) recall: bool,
    pub(crate) closed: bool,
}

impl Control {
    pub(crate) fn any(&self) -> bool {
        self.ack || self.ask || self.grant || self.refuse || self.recall || self.closed
    }
}

/// A packet whose turn has not come.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) seq: u32,
    pub(crate) bytes: Lease,
    pub(crate) ahead: Ahead,
}

/// The data of a record that lends memory, fetched before its turn.
#[derive(Debug)]
pub(crate) enum Ahead {
    No,
    Running,
    Here(Bounce),
}

/// A packet of the engine's that is coming in.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) placement: Placement,
    /// Bytes of the payload that are there, or on their way.
    pub(crate) at: usize,
    pub(crate) total: usize,
    /// The last record was seen.
    pub(crate) complete: bool,
    /// Records that lend memory, and how many fetches each still needs, begun or not.
    pub(crate) lent: VecDeque<(u32, usize)>,
    /// Fetches that were not begun.
    pub(crate) todo: VecDeque<Fetch>,
    pub(crate) running: usize,
}

/// Something to be fetched.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) seq: u32,
    pub(crate) key: RemoteKey,
    pub(crate) offset: u64,
    pub(crate) into: Into,
}

/// Where to.
#[derive(Debug)]
pub(crate) enum Into {
    Memory(Slice),
    /// Into the buffer of the placement, from `at` on.
    Buffer {
        at: usize,
        len: usize,
    },
}

impl Flow {
    /// Nothing would be missed.
    pub(crate) fn is_idle(&self) -> bool {
        !self.listed
            && !self.pending
            && !self.stirred
            && self.train.is_none()
            && self.sent.is_empty()
            && self.packets.is_empty()
            && self.accesses.is_empty()
            && self.deferred.is_empty()
            && self.assembly.is_none()
            && !self.timed
            && !self.control.any()
            && matches!(self.inward, In::None)
            && matches!(self.out, Out::None)
    }
}
