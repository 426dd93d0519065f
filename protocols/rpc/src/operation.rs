//! Fabric operations as futures.

use crate::inner::Inner;
use petasos_fabric::{Done, OpError, OpErrorKind, Operation, RegionId, Token};
use slab::Slab;
use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Operations under way, by token.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    slots: Slab<Slot>,
}

#[derive(Debug)]
enum Slot {
    Pending(Option<Waker>),
    Done(Result<Done, OpError>),
    /// It is not awaited any more.
    Orphan,
    /// The same, and it closes this region: until that is done.
    Closing(RegionId),
}

impl Operations {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Takes in a completion. Gives a region that is to be closed again under the same token, for
    /// it is still reached.
    #[must_use]
    pub(crate) fn complete(
        &mut self,
        token: Token,
        result: Result<Done, OpError>,
    ) -> Option<RegionId> {
        let at = usize::try_from(token.0).ok()?;
        match self.slots.get_mut(at) {
            Some(slot @ Slot::Pending(_)) => {
                let before = std::mem::replace(slot, Slot::Done(result));
                if let Slot::Pending(Some(waker)) = before {
                    waker.wake();
                }
            }
            Some(Slot::Closing(region)) if is_still_reached(&result) => return Some(*region),
            Some(Slot::Orphan | Slot::Closing(_)) => {
                self.slots.remove(at);
            }
            Some(Slot::Done(_)) | None => {
                tracing::error!(token = token.0, "the transport completed an operation twice");
            }
        }
        None
    }
}

fn is_still_reached(result: &Result<Done, OpError>) -> bool {
    matches!(result, Err(error) if error.kind == OpErrorKind::StillReached)
}

fn deregister(token: Token, region: RegionId) -> Operation {
    Operation::Deregister { token, region, patience: Operation::PATIENCE }
}

/// An operation that was submitted. Dropping it asks for its end; its memory stays with the
/// endpoint until then.
#[derive(Debug)]
pub(crate) struct Pending {
    inner: Rc<Inner>,
    at: usize,
    over: bool,
    /// The region that it closes. It is closed also where that is not awaited.
    closes: Option<RegionId>,
}

impl Inner {
    /// Submits the operation that `make` builds for a token.
    pub(crate) fn operate(self: &Rc<Self>, make: impl FnOnce(Token) -> Operation) -> Pending {
        let at = self.operations.borrow_mut().slots.insert(Slot::Pending(None));
        self.submit(make(Token(at as u64)));
        Pending { inner: Rc::clone(self), at, over: false, closes: None }
    }

    /// Deregisters. When a peer still reaches the region after a while, that is the result, and the
    /// engine goes on asking until it is closed; so it does when the future is dropped.
    pub(crate) fn deregister(self: &Rc<Self>, region: RegionId) -> Pending {
        let mut pending = self.operate(|token| deregister(token, region));
        pending.closes = Some(region);
        pending
    }

    /// Deregisters, and lets the engine finish that by itself.
    pub(crate) fn deregister_later(&self, region: RegionId) {
        let at = self.operations.borrow_mut().slots.insert(Slot::Closing(region));
        self.submit(deregister(Token(at as u64), region));
    }

    /// An operation has ended.
    pub(crate) fn completed(&self, token: Token, result: Result<Done, OpError>) {
        let again = self.operations.borrow_mut().complete(token, result);
        if let Some(region) = again {
            self.submit(deregister(token, region));
        }
    }
}

impl Future for Pending {
    type Output = Result<Done, OpError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let at = self.at;
        let mut operations = self.inner.operations.borrow_mut();
        if let Slot::Pending(waker) = &mut operations.slots[at] {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let Slot::Done(result) = operations.slots.remove(at) else {
            unreachable!("an operation that somebody waits for is no orphan");
        };
        drop(operations);
        self.over = true;
        if let Some(region) = self.closes.filter(|_| is_still_reached(&result)) {
            self.inner.deregister_later(region);
        }
        Poll::Ready(result)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut operations = self.inner.operations.borrow_mut();
        let slot = &mut operations.slots[self.at];
        match (&*slot, self.closes) {
            (Slot::Pending(_), Some(region)) => *slot = Slot::Closing(region),
            (Slot::Pending(_), None) => {
                *slot = Slot::Orphan;
                drop(operations);
                self.inner.cancel_operation(Token(self.at as u64));
            }
            (Slot::Done(result), closes) => {
                let again = closes.filter(|_| is_still_reached(result));
                operations.slots.remove(self.at);
                drop(operations);
                if let Some(region) = again {
                    self.inner.deregister_later(region);
                }
            }
            _ => unreachable!("an operation that somebody waits for is no orphan"),
        }
    }
}
