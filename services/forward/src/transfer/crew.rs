//! What many futures of one job share: a set that grows while it is driven, budgets, gates.

use futures_util::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

/// Futures that run side by side; each may add more. They are polled by [`Crew::drive`] alone.
#[derive(Default)]
pub(super) struct Crew {
    fresh: RefCell<Vec<LocalBoxFuture<'static, ()>>>,
}

impl Crew {
    /// Adds a future. From within one that is driven, or before.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.fresh.borrow_mut().push(Box::pin(future));
    }

    /// Drives all, until none is left. Dropping this drops them all.
    pub(super) async fn drive(&self) {
        let _none_is_left = Clear(self);
        let mut running = FuturesUnordered::new();
        poll_fn(|context| {
            loop {
                running.extend(self.fresh.borrow_mut().drain(..));
                match running.poll_next_unpin(context) {
                    Poll::Ready(Some(())) => {}
                    _ if !self.fresh.borrow().is_empty() => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }
}

/// Futures may hold what holds the crew.
struct Clear<'a>(&'a Crew);

impl Drop for Clear<'_> {
    fn drop(&mut self) {
        let rest = std::mem::take(&mut *self.0.fresh.borrow_mut());
        drop(rest);
    }
}

/// So much of something: a task that takes a share waits until there is enough, first come, first
/// served.
#[derive(Debug)]
pub(super) struct Budget {
    total: u64,
    free: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    next: Cell<u64>,
}

/// A part of a budget; given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Rc<Budget>,
    amount: u64,
}

impl Budget {
    pub(super) fn new(total: u64) -> Rc<Budget> {
        let (free, next) = (Cell::new(total), Cell::new(0));
        Rc::new(Budget { total, free, waiting: RefCell::default(), next })
    }

    /// Waits for a share. More than all there is counts as all there is.
    pub(super) async fn take(self: &Rc<Self>, amount: u64) -> Share {
        let amount = amount.min(self.total);
        let mut place = Place { budget: self, number: None };
        poll_fn(|context| {
            let mut waiting = self.waiting.borrow_mut();
            let first = match place.number {
                None => waiting.is_empty(),
                Some(number) => waiting.front().is_some_and(|(n, _)| *n == number),
            };
            if first && self.free.get() >= amount {
                if place.number.take().is_some() {
                    waiting.pop_front();
                }
                self.free.set(self.free.get() - amount);
                if let Some((_, next)) = waiting.front() {
                    next.wake_by_ref();
                }
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            match place.number {
                Some(number) => {
                    if let Some((_, old)) = waiting.iter_mut().find(|(n, _)| *n == number) {
                        *old = waker;
                    }
                }
                None => {
                    let number = self.next.replace(self.next.get() + 1);
                    place.number = Some(number);
                    waiting.push_back((number, waker));
                }
            }
            Poll::Pending
        })
        .await;
        Share { budget: Rc::clone(self), amount }
    }

    /// Whether nothing is left.
    pub(super) fn is_spent(&self) -> bool {
        self.free.get() == 0
    }

    fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.borrow().front() {
            first.wake_by_ref();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.free.set(self.budget.free.get() + self.amount);
        self.budget.wake_first();
    }
}

/// A place in the queue; left when dropped.
struct Place<'a> {
    budget: &'a Budget,
    number: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.budget.waiting.borrow_mut().retain(|(n, _)| *n != number);
            self.budget.wake_first();
        }
    }
}

/// Opened once, for better or worse: whether a directory is there that others wait for.
#[derive(Debug, Default)]
pub(super) struct Gate {
    passable: Cell<Option<bool>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Gate {
    pub(super) fn open(&self, passable: bool) {
        self.passable.set(Some(passable));
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Whether it was opened for the better.
    pub(super) fn is_passable(&self) -> bool {
        self.passable.get() == Some(true)
    }

    /// Waits until it is opened; whether one may pass.
    pub(super) async fn pass(&self) -> bool {
        poll_fn(|context| match self.passable.get() {
            Some(passable) => Poll::Ready(passable),
            None => {
                self.waiting.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn first_come_first_served() {
        let budget = Budget::new(3);
        let two = budget.take(2).now_or_never().unwrap();
        let mut three = Box::pin(budget.take(9));
        let mut one = Box::pin(budget.take(1));
        assert!(three.as_mut().now_or_never().is_none());
        assert!(one.as_mut().now_or_never().is_none(), "it came later");
        drop(three);
        let one = one.now_or_never().unwrap();
        drop((one, two));
        assert_eq!(budget.free.get(), 3);
    }

    #[test]
    fn a_crew_grows_and_ends() {
        let (crew, done) = (Rc::new(Crew::default()), Rc::new(Cell::new(0)));
        let gate = Rc::new(Gate::default());
        for _ in 0..3 {
            let (crew2, done, gate) = (crew.clone(), done.clone(), gate.clone());
            crew.spawn(async move {
                assert!(gate.pass().await);
                crew2.spawn(async move { done.set(done.get() + 1) });
            });
        }
        let opener = gate.clone();
        crew.spawn(async move { opener.open(true) });
        crew.drive().now_or_never().unwrap();
        assert_eq!(done.get(), 3);
    }
}
