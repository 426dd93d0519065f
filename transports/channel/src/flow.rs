//! What is kept of a peer while there is traffic with it.

use crate::{
    ack::AckDue,
    assembly::Assembly,
    deferred::{Ahead, Deferred},
    device::{Registration, RemoteKey, Target},
    fifo::{ReceiveFifo, SendFifo},
    header::Kind,
    loans::LentTo,
    packet::OutPacket,
    sent::Sent,
};
use petasos_fabric::Time;
use std::collections::VecDeque;

/// What is kept while there is traffic with a peer.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Used since idle flows were last dropped.
    pub(crate) used: bool,
    /// In the list of peers with something to send.
    pub(crate) in_output: bool,
    /// In the list of peers with something to deliver.
    pub(crate) in_input: bool,
    /// The engine has packets for the peer.
    pub(crate) pending: bool,

    // Out.
    /// The packet that is being sent.
    pub(crate) current: Option<OutPacket>,
    pub(crate) sent: Sent,
    pub(crate) lent: LentTo,
    pub(crate) out: Out,
    pub(crate) control: Control,
    /// Accesses of the user's that wait for their turn.
    pub(crate) accesses: VecDeque<usize>,

    // In.
    /// Packets whose turn has not come, by number.
    pub(crate) deferred: VecDeque<Deferred>,
    pub(crate) assembly: Option<Assembly>,
    pub(crate) inward: In,
    pub(crate) ack: AckDue,
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
    /// When the last record went through it.
    pub(crate) used: Time,
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

/// Control packets to be sent: a bit for each kind.
#[derive(Debug, Default)]
pub(crate) struct Control(u8);

impl Control {
    /// In which order they are sent. Each has an acknowledgement.
    const ORDER: [Kind; 6] =
        [Kind::Closed, Kind::Ask, Kind::Recall, Kind::Refuse, Kind::Grant, Kind::Ack];

    #[inline]
    pub(crate) fn add(&mut self, kind: Kind) {
        self.0 |= 1 << kind as u8;
    }

    #[inline]
    pub(crate) fn remove(&mut self, kind: Kind) {
        self.0 &= !(1 << kind as u8);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// The kind of the next one.
    #[inline]
    pub(crate) fn next(&self) -> Option<Kind> {
        Control::ORDER.into_iter().find(|kind| self.0 & 1 << *kind as u8 != 0)
    }
}

impl Flow {
    /// The peer may be asked for an exclusive channel again, once the time has come.
    pub(crate) fn end_refusal(&mut self, now: Time) {
        if matches!(self.out, Out::Refused(until) if now >= until) {
            self.out = Out::None;
        }
    }

    /// How many buffers hold data whose turn has not come, or are being filled with it.
    pub(crate) fn ahead(&self) -> usize {
        self.deferred.iter().filter(|deferred| !matches!(deferred.ahead, Ahead::No)).count()
    }

    /// Whether the flow holds nothing that is still needed.
    pub(crate) fn is_idle(&self) -> bool {
        !self.in_output
            && !self.pending
            && !self.in_input
            && self.current.is_none()
            && self.sent.is_empty()
            && self.accesses.is_empty()
            && self.deferred.is_empty()
            && self.assembly.is_none()
            && !self.ack.is_timed()
            && self.control.is_empty()
            && matches!(self.inward, In::None)
            && matches!(self.out, Out::None)
    }
}
