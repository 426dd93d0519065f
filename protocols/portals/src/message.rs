//! What a request says to its target, and the answer that it asks for.

use crate::{Datatype, Operator, ProcessId};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Data for the target.
    Put,
    /// Data from the target.
    Get,
    /// Data for the target, which sends back what was there before (Portals 3).
    GetPut,
    /// Elements at the target are changed.
    Atomic(Operator, Datatype),
    /// Elements at the target are changed, and the old ones are sent back.
    FetchAtomic(Operator, Datatype),
}

impl Request {
    pub(crate) fn writes(self) -> bool {
        self != Request::Get
    }

    pub(crate) fn reads(self) -> bool {
        matches!(self, Request::Get | Request::GetPut | Request::FetchAtomic(..))
    }

    /// The type of elements, if it is an atomic operation.
    pub(crate) fn elements(self) -> Option<Datatype> {
        match self {
            Request::Atomic(_, kind) | Request::FetchAtomic(_, kind) => Some(kind),
            _ => None,
        }
    }
}

/// The acknowledgement of a put or an atomic operation (`ptl_ack_req_t`, section *Data movement
/// operations*). One that would have no effect is not requested: the descriptor needs a queue for
/// its event, or a counter that counts it ([`Counts::ACK`](crate::Counts::ACK)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ack {
    /// None.
    #[default]
    None,
    /// An event, which is also counted.
    Full,
    /// It is counted, without an event.
    Counting,
    /// The same; it says that the target is done, and no more (`PTL_OC_ACK_REQ`).
    Completed,
}

/// The header of a request, as the target sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The kind of the operation.
    pub request: Request,
    /// The process that started it: as the directory says, not as the message does.
    pub initiator: ProcessId,
    /// The user of that process: the one that the transport vouches for, or else the one that the
    /// message names; `u32::MAX` if that is not trusted
    /// ([`Config::trust_claimed_user`](crate::Config::trust_claimed_user)).
    pub user: u32,
    /// The job of that process, as the message says (Portals 3).
    pub job: u32,
    /// The portal.
    pub portal: u16,
    /// The match bits.
    pub bits: u64,
    /// The length that was asked for, in bytes.
    pub len: u64,
    /// The offset that was asked for, in bytes.
    pub offset: u64,
    /// The header data that the initiator gave ([`Operation::header_data`](crate::Operation)).
    pub header_data: u64,
}
