//! Operations as a program starts them.

use crate::{Datatype, Error, Operator, Part, ProcessId, Request, message::Ack};

/// Where an operation goes: a portal of a process, and what matching compares there.
///
/// ```
/// use petasos_portals::{Target, ProcessId};
///
/// // At portal 4 of rank 12, 8 bytes into the memory of the entry with match bits 7.
/// let target = Target { bits: 7, offset: 8, ..Target::new(ProcessId::rank(12), 4) };
/// assert_eq!(target.process.process, 12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The process.
    pub process: ProcessId,
    /// Which of its portals.
    pub portal: u16,
    /// The match bits.
    pub bits: u64,
    /// The offset in the entry's memory in bytes, unless the entry decides
    /// ([`MatchEntry::local_offset`](crate::MatchEntry)).
    pub offset: u64,
}

impl Target {
    /// A portal of a process, with bits 0 and offset 0.
    #[must_use]
    pub fn new(process: ProcessId, portal: u16) -> Target {
        Target { process, portal, bits: 0, offset: 0 }
    }
}

/// An operation to start: a put, a get, or an atomic operation.
///
/// ```
/// use petasos_portals::{Ack, Operation, Part, Target, ProcessId};
/// # fn f(part: Part) {
/// let target = Target { bits: 7, ..Target::new(ProcessId::rank(1), 0) };
/// let put = Operation { ack: Ack::Full, user_data: 1, ..Operation::put(part, target) };
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The kind of the operation.
    pub request: Request,
    /// The data that is sent; `None` for a get.
    pub data: Option<Part>,
    /// Where the reply goes; `None` for puts, and atomics that do not fetch.
    pub result: Option<Part>,
    /// Where it goes.
    pub target: Target,
    /// The acknowledgement that is wanted, of operations without a reply.
    pub ack: Ack,
    /// Header data: 64 bits for the target's event.
    pub header_data: u64,
    /// Comes back in the initiator's events.
    pub user_data: u64,
    /// The operand of a swap, little-endian.
    pub operand: [u8; 16],
    /// The index of the target's access control entry (Portals 3).
    pub cookie: u32,
}

impl Operation {
    fn new(
        request: Request,
        data: Option<Part>,
        result: Option<Part>,
        target: Target,
    ) -> Operation {
        Operation {
            request,
            data,
            result,
            target,
            ack: Ack::None,
            header_data: 0,
            user_data: 0,
            operand: [0; 16],
            cookie: 0,
        }
    }

    /// Sends data, any length.
    #[must_use]
    pub fn put(data: Part, target: Target) -> Operation {
        Operation::new(Request::Put, Some(data), None, target)
    }

    /// Fetches data, any length.
    #[must_use]
    pub fn get(result: Part, target: Target) -> Operation {
        Operation::new(Request::Get, None, Some(result), target)
    }

    /// Exchanges data (Portals 3), up to [`Limits::atomic`](crate::Limits) bytes.
    #[must_use]
    pub fn get_put(result: Part, data: Part, target: Target) -> Operation {
        Operation::new(Request::GetPut, Some(data), Some(result), target)
    }

    /// Changes elements, up to [`Limits::atomic`](crate::Limits) bytes. `op` is none of the swaps.
    #[must_use]
    pub fn atomic(op: Operator, kind: Datatype, data: Part, target: Target) -> Operation {
        Operation::new(Request::Atomic(op, kind), Some(data), None, target)
    }

    /// Changes elements, up to [`Limits::atomic`](crate::Limits) bytes, and fetches the old ones. A
    /// swap with an operand is for one element.
    #[must_use]
    pub fn fetch_atomic(
        op: Operator,
        kind: Datatype,
        result: Part,
        data: Part,
        target: Target,
    ) -> Operation {
        Operation::new(Request::FetchAtomic(op, kind), Some(data), Some(result), target)
    }

    /// The length that it asks for.
    pub(crate) fn len(&self) -> u64 {
        self.data.or(self.result).map_or(0, |part| part.len)
    }

    /// Checks what can be checked without an interface.
    pub(crate) fn check(&self, atomic_limit: usize) -> Result<(), Error> {
        let parts = (self.data.is_some(), self.result.is_some());
        if parts != (self.request.writes(), self.request.reads()) {
            return Err(Error::Argument(
                "data to send, and a target for the reply, go with requests",
            ));
        }
        if !self.target.process.is_exact() {
            return Err(Error::Argument("an operation goes to one process"));
        }
        let len = self.len();
        if parts == (true, true) && self.result.map(|part| part.len) != Some(len) {
            return Err(Error::Argument("what is sent and what comes back must be of one length"));
        }
        let whole = self.request == Request::GetPut || self.request.elements().is_some();
        if whole && len > atomic_limit as u64 {
            return Err(Error::AtomicTooLong { len, limit: atomic_limit as u64 });
        }
        match self.request {
            Request::Atomic(op, _) if op.is_swap() => Err(Error::Argument("a swap fetches")),
            Request::Atomic(op, kind) | Request::FetchAtomic(op, kind) => {
                check_elements(op, kind, len).map_err(Error::Argument)
            }
            _ => Ok(()),
        }
    }
}

/// Checks that an operator is for a type, and for so many bytes.
pub(crate) fn check_elements(op: Operator, kind: Datatype, len: u64) -> Result<(), &'static str> {
    if !op.is_for(kind) {
        return Err("the operator is not for this type");
    }
    if !len.is_multiple_of(kind.size() as u64) {
        return Err("elements are cut");
    }
    if op.has_operand() && len != kind.size() as u64 {
        return Err("a swap with an operand is for one element");
    }
    Ok(())
}
