//! What is kept of a peer while there is traffic with it.

use crate::{
    bounce::Bounce,
    device::{Registration, RemoteKey, Target},
    fifo::{ReceiveFifo, SendFifo},
    header::{FIRST, LAST},
    loans::Loan,
};
use petasos_fabric::{
    Lease, Slice, Time,
    two_sided::{Outgoing, Packet, Placement},
};
use std::collections::VecDeque;

/// What is kept while there is traffic with a peer.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Used since idle flows were last dropped.
    pub(crate) used: bool,
    /// In the list of peers with something to send.
    pub(crate) in_output: bool,
    /// The engine has packets for the peer.
    pub(crate) pending: bool,
    /// In the list of peers with something to deliver.
    pub(crate) in_input: bool,

    // Out.
    /// The packet that is being sent.
    pub(crate) current: Option<OutPacket>,
    /// Short packets without acknowledgement, oldest first.
    pub(crate) sent: VecDeque<Sent>,
    /// Packets of which the engine was not told yet that they are sent: the last record of each
    /// that lends memory.
    pub(crate) unreported: VecDeque<Option<u32>>,
    pub(crate) out: Out,
    pub(crate) control: Control,
    /// When the last record went through the FIFO.
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
    /// The peer is waiting for our acknowledgement.
    pub(crate) urgent: bool,
    /// A timer runs for the acknowledgement.
    pub(crate) timed: bool,
}

/// A packet of the engine's that is sent in as many records as it takes.
#[derive(Debug)]
pub(crate) struct OutPacket {
    packet: Packet,
    /// Bytes that were sent, the header's included.
    pub(crate) at: usize,
    /// Its payload is lent, and fetched by the receiver.
    pub(crate) shared: bool,
    /// The last record that lends memory.
    pub(crate) lent: Option<u32>,
}

impl OutPacket {
    /// The packet, of which nothing was sent. `shared` says whether its payload is to be lent.
    #[inline]
    pub(crate) fn new(packet: Packet, shared: bool) -> OutPacket {
        OutPacket { packet, at: 0, shared, lent: None }
    }

    /// Its length with the header, in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.packet.len()
    }

    /// The length of its header, in bytes.
    #[inline]
    pub(crate) fn header(&self) -> usize {
        self.packet.header.len()
    }

    /// The flags of a record from where it is up to `end`.
    #[inline]
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

/// The exclusive channel to a peer.
#[derive(Debug, Default)]
pub(crate) enum Out {
    /// There is none.
    #[default]
    None,
    /// The peer refused; it is not asked again before this time.
    Refused(Time),
    /// It was asked for.
    Asked,
    /// There is one.
    Open(Box<OutFifo>),
    /// There is one, through which no more records go.
    Closing(Box<OutFifo>),
}

#[derive(Debug)]
pub(crate) struct OutFifo {
    pub(crate) fifo: SendFifo,
    /// The receiver's buffer, and where the last put went.
    pub(crate) target: Target,
    /// The registration of the image.
    pub(crate) registration: Registration,
}

impl Out {
    #[inline]
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
    /// The peer waits until another has given its channel back. The cells that it asked for.
    Waiting(u32),
    /// There is one.
    Open(Box<InFifo>),
}

#[derive(Debug)]
pub(crate) struct InFifo {
    pub(crate) fifo: ReceiveFifo,
    pub(crate) registration: Registration,
    pub(crate) key: RemoteKey,
    pub(crate) used: Time,
    /// The peer was asked to give it back.
    pub(crate) leaving: bool,
}

impl In {
    #[inline]
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
    #[inline]
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
    /// Not begun.
    No,
    /// Under way.
    Running,
    /// Complete.
    Done(Bounce),
}

/// A packet of the engine's that is being received.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) placement: Placement,
    /// Bytes of the payload that have arrived or are being fetched.
    pub(crate) at: usize,
    pub(crate) total: usize,
    /// The last record has arrived.
    pub(crate) complete: bool,
    /// Records that lend memory, and how many fetches each still needs, begun or not.
    pub(crate) lent: VecDeque<(u32, usize)>,
    /// Fetches that have not begun.
    pub(crate) todo: VecDeque<Fetch>,
    pub(crate) running: usize,
}

/// A piece of lent memory that is to be fetched.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) seq: u32,
    pub(crate) key: RemoteKey,
    pub(crate) offset: u64,
    pub(crate) into: Into,
}

/// Where it is fetched to.
#[derive(Debug)]
pub(crate) enum Into {
    Memory(Slice),
    /// The buffer of the placement, from `at` on.
    Buffer {
        at: usize,
        len: usize,
    },
}

impl Flow {
    /// The peer may be asked for an exclusive channel again, once the time has come.
    pub(crate) fn end_refusal(&mut self, now: Time) {
        if matches!(self.out, Out::Refused(until) if now >= until) {
            self.out = Out::None;
        }
    }

    /// Whether the flow holds nothing that is still needed.
    pub(crate) fn is_idle(&self) -> bool {
        !self.in_output
            && !self.pending
            && !self.in_input
            && self.current.is_none()
            && self.sent.is_empty()
            && self.unreported.is_empty()
            && self.accesses.is_empty()
            && self.deferred.is_empty()
            && self.assembly.is_none()
            && !self.timed
            && !self.control.any()
            && matches!(self.inward, In::None)
            && matches!(self.out, Out::None)
    }
}
