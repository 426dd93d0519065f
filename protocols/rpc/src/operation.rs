//! Fabric operations as futures.

use crate::{bulk::Lending, inner::Inner, transport::Transport};
use petasos_fabric::{Done, OpError, OpErrorKind, Operation, RegionId, Token};
use slab::Slab;
use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Operations under way, by token.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    slots: RefCell<Slab<Slot>>,
}

#[derive(Debug)]
enum Slot {
    Pending(Option<Waker>),
    Done(Result<Done, OpError>),
    /// Its future was dropped.
    Orphan,
    /// Its future was dropped, or there never was one, and it closes this region: it stays until
    /// the region is closed. What it is of is told.
    Closing(RegionId, Option<Rc<Lending>>),
}

impl Operations {
    pub(crate) fn len(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Submits an operation whose completion is awaited; returns its slot.
    fn start(&self, transport: &Transport, make: impl FnOnce(Token) -> Operation) -> usize {
        let at = self.slots.borrow_mut().insert(Slot::Pending(None));
        transport.submit(make(Token(at as u64)));
        at
    }

    /// Deregisters a region without a future, and tells what it is of. The engine finishes that by
    /// itself.
    pub(crate) fn close(&self, transport: &Transport, region: RegionId, of: Option<Rc<Lending>>) {
        let at = self.slots.borrow_mut().insert(Slot::Closing(region, of));
        transport.submit(deregister(Token(at as u64), region));
    }

    /// Takes in a completion. A region that is still reached and whose end is not awaited is
    /// deregistered again, under the same token.
    pub(crate) fn complete(
        &self,
        transport: &Transport,
        token: Token,
        result: Result<Done, OpError>,
    ) {
        let Ok(at) = usize::try_from(token.0) else { return };
        let mut slots = self.slots.borrow_mut();
        match slots.get_mut(at) {
            Some(slot @ Slot::Pending(_)) => {
                let before = std::mem::replace(slot, Slot::Done(result));
                if let Slot::Pending(Some(waker)) = before {
                    waker.wake();
                }
            }
            Some(Slot::Closing(region, of)) if is_still_reached(&result) => {
                let (again, of) = (deregister(token, *region), of.clone());
                drop(slots);
                transport.submit(again);
                if let (Some(of), Err(error)) = (of, result) {
                    of.still_reached(error);
                }
            }
            Some(Slot::Orphan | Slot::Closing(..)) => {
                let slot = slots.remove(at);
                drop(slots);
                if let Slot::Closing(_, Some(of)) = slot {
                    of.closed(result.err());
                }
            }
            Some(Slot::Done(_)) | None => {
                tracing::error!(token = token.0, "the transport completed an operation twice");
            }
        }
    }

    /// The result of an operation, which then is over; or notes the waker.
    fn poll(&self, at: usize, waker: &Waker) -> Poll<Result<Done, OpError>> {
        let mut slots = self.slots.borrow_mut();
        if let Slot::Pending(known) = &mut slots[at] {
            *known = Some(waker.clone());
            return Poll::Pending;
        }
        match slots.remove(at) {
            Slot::Done(result) => Poll::Ready(result),
            _ => unreachable!("an operation with a future is no orphan"),
        }
    }

    /// The future of an operation was dropped. `closes` is the region that it deregisters: it is
    /// deregistered nevertheless. Any other operation is cancelled.
    fn abandon(&self, transport: &Transport, at: usize, closes: Option<RegionId>) {
        let mut slots = self.slots.borrow_mut();
        match (&slots[at], closes) {
            (Slot::Pending(_), Some(region)) => slots[at] = Slot::Closing(region, None),
            (Slot::Pending(_), None) => {
                slots[at] = Slot::Orphan;
                drop(slots);
                if transport.cancel(Token(at as u64)) {
                    self.slots.borrow_mut().remove(at);
                }
            }
            (Slot::Done(result), closes) => {
                let again = closes.filter(|_| is_still_reached(result));
                slots.remove(at);
                drop(slots);
                if let Some(region) = again {
                    self.close(transport, region, None);
                }
            }
            _ => unreachable!("an operation with a future is no orphan"),
        }
    }
}

fn is_still_reached(result: &Result<Done, OpError>) -> bool {
    matches!(result, Err(error) if error.kind == OpErrorKind::StillReached)
}

fn deregister(token: Token, region: RegionId) -> Operation {
    Operation::Deregister { token, region, patience: Operation::PATIENCE }
}

/// An operation that was submitted. Dropping it asks for its end; the endpoint keeps its memory
/// until then.
#[derive(Debug)]
pub(crate) struct Pending {
    inner: Rc<Inner>,
    at: usize,
    over: bool,
    /// The region that it closes. The region is closed even if this is dropped.
    closes: Option<RegionId>,
}

impl Pending {
    /// Submits the operation that `make` builds for a token.
    pub(crate) fn submit(inner: &Rc<Inner>, make: impl FnOnce(Token) -> Operation) -> Pending {
        let at = inner.operations.start(&inner.transport, make);
        Pending { inner: Rc::clone(inner), at, over: false, closes: None }
    }

    /// Deregisters a region. If a peer still reaches it after a while, that is the result, and the
    /// engine goes on asking until it is closed; so it does when the future is dropped.
    pub(crate) fn closing(inner: &Rc<Inner>, region: RegionId) -> Pending {
        let mut pending = Pending::submit(inner, |token| deregister(token, region));
        pending.closes = Some(region);
        pending
    }
}

impl Future for Pending {
    type Output = Result<Done, OpError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(result) = self.inner.operations.poll(self.at, context.waker()) else {
            return Poll::Pending;
        };
        self.over = true;
        if let Some(region) = self.closes.filter(|_| is_still_reached(&result)) {
            self.inner.deregister(region);
        }
        Poll::Ready(result)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.over {
            self.inner.operations.abandon(&self.inner.transport, self.at, self.closes);
        }
    }
}
