//! The calls of ours that are not over: their slots, and how each ends.

use crate::{
    Method,
    body::{Body, Kept},
    bulk::Lending,
    peers::SELF,
};
use petasos_fabric::{Lease, LostReason, Peer, RegionId, driver::MainKick};
use petasos_wire::rpc::{CallId, Status};
use smallvec::SmallVec;
use std::{
    mem,
    rc::Rc,
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

/// How a call ended, before it becomes a result or a [`CallError`](crate::CallError).
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The target answered; the result lies in the slot.
    Answer(Status),
    /// Its time limit has passed.
    TooLate,
    PeerLost(LostReason),
    /// The result is larger than this side takes.
    TooLarge(String),
    /// The result could not be fetched.
    Unfetched(String),
    EngineEnded,
}

/// What was called, and how: for its deadline, and for errors about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) method: Method,
    pub(crate) provider: u16,
    pub(crate) timeout: Duration,
}

/// Room for one call of ours. It is reused, and stays where it is: moving it would cost as much as
/// everything else that is done with it.
#[derive(Debug)]
pub(crate) struct Slot {
    serial: u32,
    /// Whether there is a call. If not, there is no waiter, no outcome, and no extra part.
    live: bool,
    /// Whether the peer owes an answer: then the slot stays in use, and so does the credit.
    owed: bool,
    /// The outcome is not awaited any more.
    abandoned: bool,
    /// It is in the list of slots that were used since the clock was read.
    recent: bool,
    peer: Peer,
    /// Here and not in the future, which the caller may have to move.
    about: About,
    waiter: Waiter,
    outcome: Option<Outcome>,
    /// The result, a field of its own so that it is moved as a whole: see [`Lease`].
    body: Body,
    extra: Option<Box<Extra>>,
}

/// What waits for the outcome.
#[derive(Debug)]
enum Waiter {
    None,
    /// The future that blocks on the engine: most waiters, and no reference is counted for it.
    Main,
    Other(Waker),
}

/// What only few calls have.
#[derive(Debug, Default)]
struct Extra {
    /// The request, while it waits for credit.
    queued: Option<Vec<u8>>,
    lent: LentBy,
    /// When it began, if latencies are recorded, and the method.
    started: Option<(Instant, &'static str)>,
}

/// What a call has lent, until it ends.
#[derive(Debug, Default)]
pub(crate) struct LentBy {
    /// Arguments that did not fit.
    pub(crate) arguments: Option<RegionId>,
    /// Memory of the program's.
    pub(crate) memory: SmallVec<[Rc<Lending>; 1]>,
}

/// All calls of ours.
#[derive(Debug)]
pub(crate) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots that were used since the clock was read, each once, however many calls it has had.
    /// Most calls are over when the clock is read, and need no timer.
    recent: Vec<u32>,
    serial: u32,
    main: Arc<MainKick>,
}

impl Calls {
    pub(crate) fn new(main: Arc<MainKick>) -> Calls {
        Calls { slots: Vec::new(), free: Vec::new(), recent: Vec::new(), serial: 0, main }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// A slot for a call that is sent at once, unless [`Calls::queue`] or [`Calls::close`] follows.
    #[inline]
    pub(crate) fn open(&mut self, peer: Peer, about: About) -> CallId {
        let at = self.free.pop().unwrap_or_else(|| self.add());
        let slot = &mut self.slots[at as usize];
        self.serial = self.serial.wrapping_add(1);
        slot.serial = self.serial;
        slot.peer = peer;
        // Field by field: as a whole it would be built elsewhere, and copied.
        slot.about.method = about.method;
        (slot.about.provider, slot.about.timeout) = (about.provider, about.timeout);
        (slot.live, slot.owed, slot.abandoned) = (true, true, false);
        if !slot.recent {
            slot.recent = true;
            self.recent.push(at);
        }
        CallId { slot: at, generation: self.serial }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self) -> u32 {
        let method = Method { name: "", id: 0, signature: 0 };
        self.slots.push(Slot {
            serial: 0,
            live: false,
            owed: false,
            abandoned: false,
            recent: false,
            peer: SELF,
            about: About { method, provider: 0, timeout: Duration::MAX },
            waiter: Waiter::None,
            outcome: None,
            body: Body::default(),
            extra: None,
        });
        u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 calls at a time")
    }

    /// Sets the peer of a call that was not sent.
    pub(crate) fn redirect(&mut self, id: CallId, peer: Peer) {
        if let Some(slot) = self.get(id) {
            slot.peer = peer;
        }
    }

    /// Frees the slot of a call that was never sent; returns what it lent.
    pub(crate) fn close(&mut self, id: CallId) -> LentBy {
        let Some(slot) = self.get(id) else { return LentBy::default() };
        let lent = slot.withdraw();
        self.free(id.slot);
        lent
    }

    #[inline]
    fn free(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        debug_assert!(slot.outcome.is_none(), "it was taken, or there never was one");
        (slot.live, slot.waiter, slot.extra) = (false, Waiter::None, None);
        self.free.push(at);
    }

    #[inline]
    fn get(&mut self, id: CallId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.serial == id.generation && slot.live).then_some(slot)
    }

    /// Notes what only few calls have.
    pub(crate) fn note(
        &mut self,
        id: CallId,
        lent: Option<RegionId>,
        method: Option<&'static str>,
    ) {
        if let Some(slot) = self.get(id) {
            let extra = slot.extra.get_or_insert_default();
            extra.lent.arguments = lent;
            extra.started = method.map(|method| (Instant::now(), method));
        }
    }

    /// Notes memory that is lent to a call. False if that has ended.
    pub(crate) fn lend(&mut self, id: CallId, memory: &[Rc<Lending>]) -> bool {
        let Some(slot) = self.get(id).filter(|slot| slot.is_waiting()) else { return false };
        slot.extra.get_or_insert_default().lent.memory.extend(memory.iter().cloned());
        true
    }

    /// The request has to wait for credit.
    pub(crate) fn queue(&mut self, id: CallId, request: Vec<u8>) {
        if let Some(slot) = self.get(id) {
            slot.owed = false;
            slot.extra.get_or_insert_default().queued = Some(request);
        }
    }

    /// The request that waited, which is sent now. None if the call ended meanwhile.
    pub(crate) fn unqueue(&mut self, id: CallId) -> Option<Vec<u8>> {
        let slot = self.get(id)?;
        let request = slot.extra.as_mut()?.queued.take()?;
        slot.owed = true;
        Some(request)
    }

    /// The result of a call that has ended, if there is one. Call [`Calls::close_answered`] once it
    /// is read.
    #[inline]
    pub(crate) fn take_result(&mut self, id: CallId) -> Option<Body> {
        let slot = self.get(id)?;
        let answered = matches!(slot.outcome, Some(Outcome::Answer(Status::Ok)));
        answered.then(|| mem::take(&mut slot.body))
    }

    /// The outcome of a call, which must be known, with the body of the answer and what the call is
    /// about. The call is over then.
    #[cold]
    pub(crate) fn take_outcome(&mut self, id: CallId) -> (Outcome, Body, About) {
        let slot = self.get(id).expect("a call's slot lives as long as the call");
        let outcome = slot.outcome.take().expect("the outcome is taken once");
        let (body, about) = (mem::take(&mut slot.body), slot.about);
        slot.abandoned = true;
        if !slot.owed {
            self.free(id.slot);
        }
        (outcome, body, about)
    }

    /// What a call that is not over is about.
    pub(crate) fn about(&mut self, id: CallId) -> About {
        self.get(id).expect("a call's slot lives as long as the call").about
    }

    /// Notes the waker to wake with the outcome. False if the outcome is known.
    #[inline]
    pub(crate) fn wait(&mut self, id: CallId, waker: &Waker, main: &Waker) -> bool {
        let slot = self.get(id).expect("a call's slot lives as long as the call");
        if slot.outcome.is_some() {
            return false;
        }
        match &mut slot.waiter {
            waiter if waker.will_wake(main) => *waiter = Waiter::Main,
            Waiter::Other(known) => known.clone_from(waker),
            waiter => *waiter = Waiter::Other(waker.clone()),
        }
        true
    }

    /// To be called when the clock was read: calls `each` with the time limit of every call that
    /// was made since the reading before, and is still awaited.
    pub(crate) fn take_recent(&mut self, mut each: impl FnMut(Duration, CallId)) {
        for at in self.recent.drain(..) {
            let slot = &mut self.slots[at as usize];
            slot.recent = false;
            if slot.is_waiting() && slot.about.timeout != Duration::MAX {
                each(slot.about.timeout, CallId { slot: at, generation: slot.serial });
            }
        }
    }

    /// Whether the outcome is known of a call that is not over.
    pub(crate) fn is_ended(&self, id: CallId) -> bool {
        self.slots.get(id.slot as usize).is_some_and(|slot| slot.outcome.is_some())
    }

    /// Whether a deadline still matters.
    #[inline]
    pub(crate) fn is_waiting(&self, id: CallId) -> bool {
        let slot = self.slots.get(id.slot as usize);
        slot.is_some_and(|slot| slot.serial == id.generation && slot.is_waiting())
    }

    /// The slot of a plain call, as most are: the peer owes the answer, a future waits for it, and
    /// nothing else has to be done when it comes.
    #[inline]
    pub(crate) fn awaited(&mut self, peer: Peer, id: CallId) -> Option<&mut Slot> {
        let slot = self.get(id)?;
        let owed = slot.peer == peer && slot.owed;
        let plain = !slot.abandoned && slot.extra.is_none() && slot.outcome.is_none();
        (owed && plain).then_some(slot)
    }

    /// Takes in the result of the only call under way, if that is a plain call and the future that
    /// blocks on the engine waits for it. True if so: then the result stays in the message, and the
    /// future is to be polled.
    #[inline(always)]
    pub(crate) fn answer_only(&mut self, peer: Peer, id: CallId) -> bool {
        if self.len() != 1 {
            return false;
        }
        let Some(slot) = self.awaited(peer, id) else { return false };
        let only = matches!(slot.waiter, Waiter::Main);
        if only {
            slot.waiter = Waiter::None;
            slot.owed = false;
            mem::forget(slot.outcome.replace(Outcome::Answer(Status::Ok)));
        }
        only
    }

    /// The result has been read, wherever it lay: the call is over.
    #[inline(always)]
    pub(crate) fn close_answered(&mut self, id: CallId) {
        if let Some(slot) = self.get(id) {
            // An answer, no waiter, no extra part: nothing in it has to be dropped, which the
            // compiler does not see.
            mem::forget(slot.outcome.take());
            slot.live = false;
            self.free.push(id.slot);
        }
    }

    /// The result was not read, and its message is needed: it is kept with the call, if that is not
    /// over.
    pub(crate) fn keep(&mut self, id: CallId, body: Body) {
        if let Some(slot) = self.get(id)
            && matches!(slot.outcome, Some(Outcome::Answer(_)))
        {
            slot.body = body;
        }
    }

    /// Takes in the answer to any call: the peer owes nothing any more. None if there is no such
    /// call.
    pub(crate) fn answered(&mut self, peer: Peer, id: CallId) -> Option<Answered> {
        let slot = self.get(id).filter(|slot| slot.peer == peer && slot.owed)?;
        slot.owed = false;
        let Extra { lent, started, .. } = slot.extra.take().map(|extra| *extra).unwrap_or_default();
        let wanted = slot.outcome.is_none() && !slot.abandoned;
        if slot.abandoned {
            self.free(id.slot);
        }
        Some(Answered { wanted, lent, started })
    }

    /// Ends a call with an answer.
    pub(crate) fn finish_answered(&mut self, id: CallId, status: Status, body: Body) -> Ended {
        if let Some(slot) = self.get(id).filter(|slot| slot.outcome.is_none() && !slot.abandoned) {
            slot.body = body;
        }
        self.finish(id, Outcome::Answer(status))
    }

    /// Ends a call; its slot stays while something is owed or awaited.
    pub(crate) fn finish(&mut self, id: CallId, outcome: Outcome) -> Ended {
        let main = Arc::clone(&self.main);
        let Some(slot) = self.get(id) else { return Ended::default() };
        let lent = slot.withdraw();
        Ended { wake: slot.finish(outcome, &main), lent, owing: slot.owed.then_some(slot.peer) }
    }

    /// The call is not awaited any more.
    pub(crate) fn abandon(&mut self, id: CallId) -> Ended {
        let Some(slot) = self.get(id) else { return Ended::default() };
        slot.abandoned = true;
        let finished = slot.outcome.take().is_some();
        slot.body = Body::default();
        let lent = slot.withdraw();
        let owing = slot.owed.then_some(slot.peer).filter(|_| !finished);
        if !slot.owed {
            self.free(id.slot);
        }
        Ended { wake: None, lent, owing }
    }

    /// Ends the calls to one peer, or all of them. No answer is owed any more.
    pub(crate) fn end(&mut self, with: Option<Peer>, outcome: impl Fn() -> Outcome) -> Vec<Ended> {
        let (mut ended, main) = (Vec::new(), Arc::clone(&self.main));
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if !slot.live || with.is_some_and(|peer| slot.peer != peer) {
                continue;
            }
            slot.owed = false;
            let lent = slot.withdraw();
            ended.push(Ended { wake: slot.finish(outcome(), &main), lent, owing: None });
            if slot.abandoned {
                self.free(at as u32);
            }
        }
        ended
    }
}

/// What an answer leaves to be done.
pub(crate) struct Answered {
    /// Whether the outcome is awaited.
    pub(crate) wanted: bool,
    pub(crate) lent: LentBy,
    pub(crate) started: Option<(Instant, &'static str)>,
}

/// What the end of a call leaves to be done, once nothing is borrowed.
#[derive(Default)]
#[must_use]
pub(crate) struct Ended {
    pub(crate) wake: Option<Waker>,
    pub(crate) lent: LentBy,
    /// The peer that still works on it, and has to be told.
    pub(crate) owing: Option<Peer>,
}

impl Slot {
    /// Whether the outcome is not known yet, and awaited.
    #[inline]
    fn is_waiting(&self) -> bool {
        self.live && self.outcome.is_none() && !self.abandoned
    }

    /// Drops the request, if it waits for credit, and returns what was lent for it.
    fn withdraw(&mut self) -> LentBy {
        let Some(extra) = &mut self.extra else { return LentBy::default() };
        extra.queued = None;
        mem::take(&mut extra.lent)
    }

    /// The peer has answered an awaited call. Returns a waker to wake once nothing is borrowed.
    #[must_use]
    #[inline]
    pub(crate) fn answered(
        &mut self,
        status: Status,
        (message, start): (&mut Lease, usize),
        (kept, main): (&Kept, &MainKick),
    ) -> Option<Waker> {
        self.owed = false;
        self.body = Body::kept(mem::take(message), start, kept);
        self.outcome = Some(Outcome::Answer(status));
        self.wake(main)
    }

    /// The outcome is known. Returns a waker to wake once nothing is borrowed.
    #[must_use]
    #[inline]
    fn finish(&mut self, outcome: Outcome, main: &MainKick) -> Option<Waker> {
        if self.abandoned || self.outcome.is_some() {
            return None;
        }
        self.outcome = Some(outcome);
        self.wake(main)
    }

    /// Wakes the waiter, or returns its waker.
    #[inline]
    fn wake(&mut self, main: &MainKick) -> Option<Waker> {
        match mem::replace(&mut self.waiter, Waiter::None) {
            Waiter::None => None,
            Waiter::Main => {
                main.wake_at_home();
                None
            }
            Waiter::Other(waker) => Some(waker),
        }
    }
}
