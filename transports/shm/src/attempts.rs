//! Connections that this endpoint makes, until they are there or given up.

use crate::{name::Name, pair::Pair, poller::Ready, socket::Credentials};
use petasos_fabric::{Address, EventFd, Patience, Peer, Time};
use rustix::fd::OwnedFd;
use std::time::Duration;

const FIRST_RETRY: Duration = Duration::from_millis(1);
const LAST_RETRY: Duration = Duration::from_millis(100);

/// A connection that is wanted, until it is there or given up.
pub(crate) struct Attempt {
    pub(crate) peer: Peer,
    pub(crate) name: Name,
    pub(crate) address: Address,
    pub(crate) patience: Patience,
    /// The peer is to be running already: if nothing listens there, it is lost.
    pub(crate) running: bool,
    next: Time,
    delay: Duration,
    pub(crate) waiting: Option<Greeted>,
    /// Why the last try failed.
    pub(crate) reason: String,
    /// Whether the other side gave that reason: it is worth more than that it does not answer now.
    pub(crate) told: bool,
}

/// A connection on which the greeting was sent.
pub(crate) struct Greeted {
    pub(crate) socket: OwnedFd,
    pub(crate) pair: Pair,
    pub(crate) doorbell: EventFd,
    pub(crate) credentials: Credentials,
}

impl Attempt {
    /// When it must be polled if nothing happens.
    fn due(&self) -> Time {
        let end = self.patience.end();
        if self.waiting.is_some() { end } else { end.min(self.next) }
    }

    /// Whether it is time for another try.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.waiting.is_none() && now >= self.next
    }

    /// A try failed: another one follows, later each time.
    pub(crate) fn retry(&mut self, now: Time, reason: String) {
        self.waiting = None;
        self.reason = reason;
        self.next = now.after(self.delay);
        self.delay = (self.delay * 2).min(LAST_RETRY);
    }

    /// The greeting was sent.
    pub(crate) fn await_answer(&mut self, greeted: Greeted) {
        self.waiting = Some(greeted);
        if !self.told {
            self.reason = "it does not answer".to_owned();
        }
    }
}

/// All attempts to connect that are under way.
#[derive(Default)]
pub(crate) struct Attempts(Vec<Attempt>);

impl Attempts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn start(
        &mut self,
        peer: Peer,
        address: Address,
        name: Name,
        patience: Duration,
        running: bool,
    ) {
        self.0.push(Attempt {
            peer,
            name,
            address,
            patience: Patience::new(patience),
            running,
            next: Time::ZERO,
            delay: FIRST_RETRY,
            waiting: None,
            reason: "nothing was tried yet".to_owned(),
            told: false,
        });
    }

    /// The peer is asked for once more: the attempt, if there is one, has this patience from now
    /// on.
    pub(crate) fn renew(&mut self, peer: Peer, patience: Duration, running: bool) {
        if let Some(attempt) = self.0.iter_mut().find(|attempt| attempt.peer == peer) {
            attempt.patience.renew(patience);
            attempt.running &= running;
        }
    }

    /// The peer is connected, or lost.
    pub(crate) fn remove(&mut self, peer: Peer) {
        self.0.retain(|attempt| attempt.peer != peer);
    }

    /// The attempt at this place of the list.
    pub(crate) fn get(&self, at: usize) -> Option<&Attempt> {
        self.0.get(at)
    }

    pub(crate) fn at(&mut self, at: usize) -> &mut Attempt {
        &mut self.0[at]
    }

    /// Where the attempt stands whose socket is ready.
    pub(crate) fn position(&self, ready: Ready) -> Option<usize> {
        let of = |peer: Peer| peer.index == ready.index && ready.is_of(peer.generation);
        self.0.iter().position(|attempt| of(attempt.peer))
    }

    /// Takes out the attempt at this place.
    pub(crate) fn take(&mut self, at: usize) -> Attempt {
        self.0.swap_remove(at)
    }

    /// Whether a greeting was sent to this peer, and not answered yet.
    pub(crate) fn awaits_answer(&self, peer: Peer) -> bool {
        let attempt = self.0.iter().find(|attempt| attempt.peer == peer);
        attempt.is_some_and(|attempt| attempt.waiting.is_some())
    }

    /// When one of them must be polled, if nothing happens.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.0.iter().map(Attempt::due).min()
    }
}
