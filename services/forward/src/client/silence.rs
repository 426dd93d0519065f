//! A server that sends nothing any more: stopped, or behind a network that is broken.
//!
//! Nothing tells a client of that. While it waits for something, it counts for how long nothing
//! came, and asks in between whether the server is there (a call that no disk is needed for). What
//! counts is time in which this process ran: one that was stopped itself, and goes on, has heard
//! nothing either.

use super::Session;
use crate::timer::TimerThread;
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::pin,
    rc::Rc,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

/// How often to check within the time after which a server is given up.
const CHECKS: u32 = 8;

/// The longest time between two checks.
const LONGEST: Duration = Duration::from_secs(1);

/// What is known of whether the server is there.
#[derive(Default)]
pub(super) struct Liveness {
    /// Something came since the last check.
    heard: Cell<bool>,
    ever: Cell<bool>,
    silence: Cell<Duration>,
    asking: Cell<bool>,
    given_up: Cell<bool>,
    /// The calls that wait for an answer.
    waiting: RefCell<Slab<Waker>>,
}

impl Liveness {
    /// An operation was answered.
    pub(super) fn hear(&self) {
        self.heard.set(true);
        self.ever.set(true);
    }

    pub(super) fn ever(&self) -> bool {
        self.ever.get()
    }

    pub(super) fn silence(&self) -> Duration {
        self.silence.get()
    }

    /// What a call gives; `None` when the server is given up before.
    pub(super) async fn until_given_up<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let mut call = pin!(call);
        let mut place = Place { liveness: self, at: None };
        poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if self.given_up.get() => Poll::Ready(None),
            Poll::Pending => {
                place.wait(context.waker());
                Poll::Pending
            }
        })
        .await
    }

    fn give_up(&self) {
        self.given_up.set(true);
        for (_, waker) in &*self.waiting.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// A place among the waiting calls; left when dropped.
struct Place<'a> {
    liveness: &'a Liveness,
    at: Option<usize>,
}

impl Place<'_> {
    fn wait(&mut self, waker: &Waker) {
        let mut waiting = self.liveness.waiting.borrow_mut();
        match self.at {
            Some(at) => waiting[at].clone_from(waker),
            None => self.at = Some(waiting.insert(waker.clone())),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.liveness.waiting.borrow_mut().remove(at);
        }
    }
}

/// Gives a session up whose server sends nothing for so long.
pub(super) fn watch(session: &Rc<Session>, longest: Duration) {
    let Some(timer) = TimerThread::of_process() else { return };
    let pause = (longest / CHECKS).clamp(Duration::from_millis(10), LONGEST);
    let weak = Rc::downgrade(session);
    session.engine.spawn(async move {
        let mut busy = false;
        loop {
            let before = Instant::now();
            timer.sleep(pause).await;
            let Some(session) = weak.upgrade() else { return };
            if session.ended.borrow().is_some() {
                return;
            }
            let passed = before.elapsed().min(2 * pause);
            let was_busy = std::mem::replace(&mut busy, session.calls.get() > 0);
            let liveness = &session.liveness;
            if liveness.heard.take() || !was_busy || !busy {
                liveness.silence.set(Duration::ZERO);
                continue;
            }
            liveness.silence.set(liveness.silence.get() + passed);
            if liveness.silence.get() >= longest {
                let reason = format!("the server has said nothing for {longest:?}");
                session.ended.replace(Some(reason));
                return liveness.give_up();
            }
            if !liveness.asking.replace(true) {
                ask(&session);
            }
        }
    });
}

/// Asks whether the server is there.
fn ask(session: &Rc<Session>) {
    let asked = session.client.renew(session.welcome.session);
    let weak = Rc::downgrade(session);
    session.engine.spawn(async move {
        let answer = asked.await;
        if let Some(session) = weak.upgrade() {
            session.liveness.asking.set(false);
            // That a session has ended is an answer as well: operations hear it themselves.
            if answer.is_ok() {
                session.liveness.heard.set(true);
            }
        }
    });
}
