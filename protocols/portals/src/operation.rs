//! Operations as a program starts them, at once or when a counter has reached a number.

use crate::{
    Datatype, Error, Operator, Part, ProcessId, Request,
    counter::{Count, Counter},
    handle::Handle,
};

/// Where an operation goes.
///
/// ```
/// use petasos_portals::{Target, ProcessId};
///
/// // Eight bytes into what the entry with bits 7 says, at portal 4 of rank 12.
/// let target = Target { bits: 7, offset: 8, ..Target::new(ProcessId::rank(12), 4) };
/// assert_eq!(target.process.process, 12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The process.
    pub process: ProcessId,
    /// Which of its portals.
    pub portal: u16,
    /// What the message shows to the match entries.
    pub bits: u64,
    /// Where in the memory of the entry that takes it, unless that decides itself, in bytes.
    pub offset: u64,
}

impl Target {
    /// A portal of a process, with bits 0 and offset 0.
    #[must_use]
    pub fn new(process: ProcessId, portal: u16) -> Target {
        Target { process, portal, bits: 0, offset: 0 }
    }
}

/// Which acknowledgement of a put or an atomic operation is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ack {
    /// None.
    #[default]
    None,
    /// An event, and it counts.
    Full,
    /// It counts, without an event.
    Counting,
    /// The same; that the target is done is all that is asked for.
    Completed,
}

/// An operation to start.
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
    /// What is asked for.
    pub request: Request,
    /// The data that is sent; of a get: none.
    pub data: Option<Part>,
    /// Where the reply goes; of puts and plain atomics: none.
    pub result: Option<Part>,
    /// Where to.
    pub target: Target,
    /// Which acknowledgement is wanted, where there is no reply.
    pub ack: Ack,
    /// Comes out of the target's event.
    pub header_data: u64,
    /// Comes out of one's own events.
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

    /// Sends data.
    #[must_use]
    pub fn put(data: Part, target: Target) -> Operation {
        Operation::new(Request::Put, Some(data), None, target)
    }

    /// Fetches data.
    #[must_use]
    pub fn get(result: Part, target: Target) -> Operation {
        Operation::new(Request::Get, None, Some(result), target)
    }

    /// Exchanges data (Portals 3).
    #[must_use]
    pub fn get_put(result: Part, data: Part, target: Target) -> Operation {
        Operation::new(Request::GetPut, Some(data), Some(result), target)
    }

    /// Changes elements: `op` is none of the swaps.
    #[must_use]
    pub fn atomic(op: Operator, kind: Datatype, data: Part, target: Target) -> Operation {
        Operation::new(Request::Atomic(op, kind), Some(data), None, target)
    }

    /// Changes elements, and gives those of before. Of swaps with an operand: one element.
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

/// What can wait for a counter.
///
/// See [`Counter`] for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Action {
    /// An operation is started.
    Start(Operation),
    /// A counter is moved on.
    Add(Handle<Counter>, Count),
    /// A counter is set.
    Set(Handle<Counter>, Count),
    /// What waits for a counter is forgotten.
    Cancel(Handle<Counter>),
}
