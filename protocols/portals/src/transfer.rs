//! What the endpoint moves for operations: what each transfer is for, and what follows when it has
//! ended.

use crate::{
    Failure, Handle, Memory, matching::Matched, message::Arrival, outstanding::Outstanding,
};
use petasos_fabric::{Peer, RegionId, Remote};

/// What an operation that was submitted to the endpoint is for.
#[derive(Debug)]
pub(crate) enum Transfer {
    /// The data of a long put leaves.
    Put(Handle<Outstanding>),
    /// The data of a long put comes, by way of a buffer if its memory is in pieces.
    Incoming { serving: Serving, scratch: Option<Memory> },
    /// A long reply leaves.
    Reply(Serving),
    /// The data of a long operation of another process is moved by the transport: from the memory
    /// that the process lent, or to it, by way of a buffer if ours is in too many pieces.
    Lent { serving: Serving, remote: Remote, scratch: Option<Memory> },
    /// Memory that was lent is closed; then the operation ends so.
    Recalled { region: RegionId, operation: Handle<Outstanding>, outcome: Recalled },
    /// Memory for which no key could be made is closed again.
    Unlent(RegionId),
    /// A long reply comes.
    Result { operation: Handle<Outstanding>, memory: Memory, scratch: Option<Memory>, len: u64 },
    /// A body that is not wanted is discarded.
    Discard,
}

/// A request of another process that was matched, and whose data is being moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serving {
    pub(crate) peer: Peer,
    pub(crate) arrival: Arrival,
    pub(crate) matched: Matched,
    /// The initiator's number, if it waits for an answer.
    pub(crate) number: Option<u64>,
    /// The answer only ends the operation: the entry acknowledges nothing.
    pub(crate) silent: bool,
    pub(crate) link: u64,
}

/// How an operation ends whose memory was lent, once no other process can reach that any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recalled {
    /// The target has answered: bytes moved, and the offset at the target.
    Answered(Result<(u64, u64), Failure>),
    /// The target is done, and acknowledges nothing.
    Silent,
    /// The request did not get there, or the target is lost.
    Unsent(Failure),
}
