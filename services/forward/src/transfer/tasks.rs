//! What many futures of one job share: a set of tasks that grows while it is driven, budgets,
//! latches.

use futures_util::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

/// Futures that run side by side; each may add more. They are polled by [`TaskSet::drive`] alone.
#[derive(Default)]
pub(super) struct TaskSet {
    fresh: RefCell<Vec<LocalBoxFuture<'static, ()>>>,
}

impl TaskSet {
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

/// Futures may hold what holds the set.
struct Clear<'a>(&'a TaskSet);

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

/// A part of a budget; returned when dropped.
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
        let mut queued = Queued { budget: self, number: None };
        poll_fn(|context| {
            let mut waiting = self.waiting.borrow_mut();
            let first = match queued.number {
                None => waiting.is_empty(),
                Some(number) => waiting.front().is_some_and(|(n, _)| *n == number),
            };
            if first && self.free.get() >= amount {
                if queued.number.take().is_some() {
                    waiting.pop_front();
                }
                self.free.set(self.free.get() - amount);
                if let Some((_, next)) = waiting.front() {
                    next.wake_by_ref();
                }
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            match queued.number {
                Some(number) => {
                    if let Some((_, old)) = waiting.iter_mut().find(|(n, _)| *n == number) {
                        *old = waker;
                    }
                }
                None => {
                    let number = self.next.replace(self.next.get() + 1);
                    queued.number = Some(number);
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

/// An entry in the queue; left when dropped.
struct Queued<'a> {
    budget: &'a Budget,
    number: Option<u64>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.budget.waiting.borrow_mut().retain(|(n, _)| *n != number);
            self.budget.wake_first();
        }
    }
}

/// Set once, to success or failure: whether a directory is there that other tasks wait for.
#[derive(Debug, Default)]
pub(super) struct Latch {
    outcome: Cell<Option<bool>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Latch {
    pub(super) fn set(&self, outcome: bool) {
        self.outcome.set(Some(outcome));
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Whether it was set to success.
    pub(super) fn is_ok(&self) -> bool {
        self.outcome.get() == Some(true)
    }

    /// Waits until it is set, and gives what to.
    pub(super) async fn wait(&self) -> bool {
        poll_fn(|context| match self.outcome.get() {
            Some(outcome) => Poll::Ready(outcome),
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
    fn a_set_of_tasks_grows_and_ends() {
        let (tasks, done) = (Rc::new(TaskSet::default()), Rc::new(Cell::new(0)));
        let latch = Rc::new(Latch::default());
        for _ in 0..3 {
            let (more, done, latch) = (tasks.clone(), done.clone(), latch.clone());
            tasks.spawn(async move {
                assert!(latch.wait().await);
                more.spawn(async move { done.set(done.get() + 1) });
            });
        }
        let opener = latch.clone();
        tasks.spawn(async move { opener.set(true) });
        tasks.drive().now_or_never().unwrap();
        assert_eq!(done.get(), 3);
    }
}
