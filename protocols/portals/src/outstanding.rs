//! Operations that were started and have not ended, and what has to be known of them when their
//! answer comes.

use crate::{
    Ack, Completed, Error, Event, Handle, List, Operation, Part, ProcessId, Target, handle::Table,
};
use petasos_fabric::{Peer, RegionId};

/// An operation that was started.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) peer: Peer,
    pub(crate) details: Details,
    /// Whether its data, or its request, has not left yet.
    pub(crate) sending: bool,
    /// Whether its reply is being moved, or access to its memory ended: the endpoint will say how
    /// that went.
    receiving: bool,
    /// Its memory, while the target may reach it.
    lent: Option<RegionId>,
    /// The offset at the target from which a long reply comes.
    replied_at: u64,
    /// The target's list in which it was matched, as the answer says.
    pub(crate) list: List,
}

/// What has to be known of an operation when its answer comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Details {
    pub(crate) data: Option<Part>,
    pub(crate) result: Option<Part>,
    pub(crate) ack: Ack,
    pub(crate) target: Target,
    header_data: u64,
    user_data: u64,
    pub(crate) link: u64,
}

/// The answer that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Nothing,
    Ack,
    Reply(Part),
}

/// The part of an operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its data has left; whether an acknowledgement is to follow.
    Sent { acknowledged: bool },
    /// The acknowledgement.
    Acknowledged,
    /// An acknowledgement for which there is no event.
    Counted,
    /// An acknowledgement that was not asked for.
    Unasked,
    /// The reply.
    Replied,
}

impl Ending {
    #[inline]
    pub(crate) fn event(self, completed: Completed) -> Event {
        match self {
            Ending::Sent { .. } => Event::Send(completed),
            Ending::Replied => Event::Reply(completed),
            _ => Event::Ack(completed),
        }
    }

    pub(crate) fn has_event(self) -> bool {
        !matches!(self, Ending::Counted | Ending::Unasked)
    }

    pub(crate) fn is_answer(self) -> bool {
        !matches!(self, Ending::Sent { .. } | Ending::Unasked)
    }
}

impl Outstanding {
    pub(crate) fn new(
        peer: Peer,
        details: Details,
        sending: bool,
        lent: Option<RegionId>,
    ) -> Outstanding {
        let (receiving, replied_at, list) = (false, 0, List::Priority);
        Outstanding { peer, details, sending, receiving, lent, replied_at, list }
    }

    /// A fence: it is answered when all that was sent before it has come in.
    pub(crate) fn fence(peer: Peer) -> Outstanding {
        let target = Target::new(ProcessId::ANY, 0);
        let (ack, header_data, user_data, link) = (Ack::Completed, 0, 0, 0);
        let (data, result) = (None, None);
        let details = Details { data, result, ack, target, header_data, user_data, link };
        Outstanding::new(peer, details, true, None)
    }

    #[inline]
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Whether data of it has not left, or its memory is in use.
    fn is_moving(&self) -> bool {
        self.sending || self.receiving || self.lent.is_some()
    }
}

impl Details {
    #[inline(always)]
    pub(crate) fn new(operation: &Operation, ack: Ack, link: u64) -> Details {
        let Operation { data, result, user_data, header_data, target, .. } = *operation;
        Details { data, result, ack, target, header_data, user_data, link }
    }

    /// What an event about a part of it says if all went as it was asked for.
    #[inline(always)]
    pub(crate) fn completed(&self, part: Part) -> Completed {
        let Details { target, header_data, user_data, link, .. } = *self;
        Completed {
            descriptor: part.descriptor,
            user_data,
            target,
            header_data,
            requested: part.len,
            len: part.len,
            offset: target.offset,
            list: None,
            link,
            left: None,
            result: Ok(()),
            attached: None,
        }
    }

    pub(crate) fn awaited(&self) -> Awaited {
        match (self.result, self.ack) {
            (Some(part), _) => Awaited::Reply(part),
            (None, Ack::None) => Awaited::Nothing,
            (None, _) => Awaited::Ack,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.data.or(self.result).map_or(0, |part| part.len)
    }

    /// What the user gave the operation.
    pub(crate) fn user_data(&self) -> u64 {
        self.user_data
    }
}

/// The operations of an interface that have not ended.
#[derive(Debug)]
pub(crate) struct Operations {
    table: Table<Outstanding>,
}

impl Operations {
    pub(crate) fn new(limit: usize) -> Operations {
        Operations { table: Table::new(limit) }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn contains(&self, operation: Handle<Outstanding>) -> bool {
        self.table.get(operation).is_some()
    }

    /// Whether data of any operation has not left, or its memory is in use.
    pub(crate) fn are_moving(&self) -> bool {
        self.table.iter::<Outstanding>().any(|(_, operation)| operation.is_moving())
    }

    /// The handle that the next operation gets.
    #[inline]
    pub(crate) fn next(&self) -> Result<Handle<Outstanding>, Error> {
        let limit = self.table.limit();
        self.table.next().ok_or(Error::NoSpace { what: "operations", limit })
    }

    #[inline]
    pub(crate) fn insert(&mut self, operation: Outstanding) -> Option<Handle<Outstanding>> {
        self.table.insert(operation)
    }

    pub(crate) fn get(&self, operation: Handle<Outstanding>) -> Option<&Outstanding> {
        self.table.get(operation)
    }

    /// The operation that a peer answers: only the process that was asked may do that, and once.
    #[inline]
    pub(crate) fn answered_by(
        &mut self,
        peer: Peer,
        operation: Handle<Outstanding>,
    ) -> Option<&mut Outstanding> {
        self.table.get_mut(operation).filter(|op| op.peer == peer && !op.receiving)
    }

    /// The data of an operation has left, or never will. False if that was known.
    #[inline]
    pub(crate) fn end_sending(&mut self, operation: Handle<Outstanding>) -> bool {
        let operation = self.table.get_mut(operation);
        operation.is_some_and(|operation| std::mem::take(&mut operation.sending))
    }

    /// The reply of an operation is received from now on, from this offset at the target.
    pub(crate) fn begin_receiving(&mut self, operation: Handle<Outstanding>, replied_at: u64) {
        if let Some(operation) = self.table.get_mut(operation) {
            (operation.receiving, operation.replied_at) = (true, replied_at);
        }
    }

    pub(crate) fn replied_at(&self, operation: Handle<Outstanding>) -> Option<u64> {
        self.table.get(operation).map(|operation| operation.replied_at)
    }

    /// Access to the memory of an operation is ended from now on, if it was lent.
    pub(crate) fn take_lent(&mut self, operation: Handle<Outstanding>) -> Option<RegionId> {
        let operation = self.table.get_mut(operation)?;
        let region = operation.lent.take()?;
        operation.receiving = true;
        Some(region)
    }

    /// The operations that wait for a peer, and for nothing of the endpoint.
    pub(crate) fn waiting_for(&self, peer: Peer) -> Vec<Handle<Outstanding>> {
        let all = self.table.iter();
        let theirs = all.filter(|(_, op)| op.peer == peer && !op.sending && !op.receiving);
        theirs.map(|(handle, _)| handle).collect()
    }

    /// An operation has been answered.
    #[inline(always)]
    pub(crate) fn take(&mut self, operation: Handle<Outstanding>) -> Option<(Details, List)> {
        self.table.discard(operation, |&Outstanding { details, list, .. }| (details, list))
    }
}
