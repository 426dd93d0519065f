//! Fabric operations as futures.

use crate::inner::Inner;
use petasos_fabric::{Done, OpError, Operation, RegionId, Token};
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
    /// Nobody waits for it any more.
    Orphan,
}

impl Operations {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Takes in a completion.
    pub(crate) fn complete(&mut self, token: Token, result: Result<Done, OpError>) {
        let Ok(at) = usize::try_from(token.0) else { return };
        match self.slots.get_mut(at) {
            Some(slot @ Slot::Pending(_)) => {
                let before = std::mem::replace(slot, Slot::Done(result));
                if let Slot::Pending(Some(waker)) = before {
                    waker.wake();
                }
            }
            Some(Slot::Orphan) => {
                self.slots.remove(at);
            }
            Some(Slot::Done(_)) | None => {
                tracing::error!(token = token.0, "the transport completed an operation twice");
            }
        }
    }
}

/// An operation that was submitted. Dropping it asks for its end; its memory stays with the
/// endpoint until then.
#[derive(Debug)]
pub(crate) struct Pending {
    inner: Rc<Inner>,
    at: usize,
    over: bool,
}

impl Inner {
    /// Submits the operation that `make` builds for a token.
    pub(crate) fn operate(self: &Rc<Self>, make: impl FnOnce(Token) -> Operation) -> Pending {
        let at = self.operations.borrow_mut().slots.insert(Slot::Pending(None));
        self.submit(make(Token(at as u64)));
        Pending { inner: Rc::clone(self), at, over: false }
    }

    /// Deregisters, and lets the endpoint finish that by itself.
    pub(crate) fn deregister_later(&self, region: RegionId) {
        let at = self.operations.borrow_mut().slots.insert(Slot::Orphan);
        self.submit(Operation::Deregister {
            token: Token(at as u64),
            region,
            patience: Operation::PATIENCE,
        });
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
        Poll::Ready(result)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut operations = self.inner.operations.borrow_mut();
        match &mut operations.slots[self.at] {
            slot @ Slot::Pending(_) => {
                *slot = Slot::Orphan;
                drop(operations);
                self.inner.cancel_operation(Token(self.at as u64));
            }
            _ => {
                operations.slots.remove(self.at);
            }
        }
    }
}
