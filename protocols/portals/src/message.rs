//! What an operation tells its target: which process asks for what.

use crate::{Datatype, Operator, ProcessId, matching::Envelope};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Data for the target.
    Put,
    /// Data from the target.
    Get,
    /// Data for the target, which gives what was there before (Portals 3).
    GetPut,
    /// Elements are changed.
    Atomic(Operator, Datatype),
    /// Elements are changed, and those of before are given.
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

/// The head of a request, as the target sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What is asked for.
    pub request: Request,
    /// By which process: as the directory says, not as the message does.
    pub initiator: ProcessId,
    /// The user that asks.
    pub user: u32,
    /// The job that asks (Portals 3).
    pub job: u32,
    /// At which portal.
    pub portal: u16,
    /// For what.
    pub bits: u64,
    /// The length that was asked for, in bytes.
    pub len: u64,
    /// The offset that was asked for, in bytes.
    pub offset: u64,
    /// What the initiator sent along.
    pub header_data: u64,
}

impl Arrival {
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope { bits: self.bits, source: self.initiator.to_bits() }
    }
}
