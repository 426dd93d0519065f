//! What the program and the thread share: the endpoint, what was found for the program, and which of
//! the two drives.

use super::{AttendedConfig, Times, unread::Unread, unread::Verdict};
use crate::{
    Completion, Doorbell, Endpoint, Event, Lease, LostReason, Notify, Peer, PeerQuota, PeerUsage,
    QuotaError, Sleep, Time,
};
use rustix::{
    io::{Errno, read},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use std::{
    any::Any,
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU32, Ordering},
    },
    thread::yield_now,
    time::Duration,
};

/// How long the thread waits, after the program has called in, before it looks whether it has more.
pub(super) const FIRST_LOOK: Duration = Duration::from_micros(200);
/// Without its thread, a program that sleeps looks so often.
const UNATTENDED: Duration = Duration::from_millis(1);
/// Events of one pass of the thread.
const BUDGET: usize = 64;

pub(super) struct Shared {
    core: Mutex<Core>,
    /// Calls of the program that wait for the lock.
    wanted: AtomicU32,
    timer: Timer,
    /// Where the program sleeps.
    news: Arc<Doorbell>,
}

/// Where the thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On its way to the lock, or in a pass.
    Awake,
    /// Asleep on the endpoint's descriptor, which is armed, and on the timer.
    Attends,
    /// The same, but the program has used the endpoint, and the timer is set.
    Interrupted,
    /// Asleep on the timer alone.
    Watches,
    /// It has ended.
    Over,
}

/// All of it lies behind the lock.
pub(super) struct Core {
    /// Until the end.
    endpoint: Option<Box<dyn Endpoint>>,
    unread: Unread,
    times: Times,
    place: Place,
    /// Calls of the program, and how many there were when the thread last looked.
    calls: u64,
    seen: u64,
    /// The program sleeps, or is about to: what is found for it is signalled.
    asleep: bool,
    /// The panic of a pass of the thread.
    failure: Option<Box<dyn Any + Send>>,
    ending: bool,
    /// Peers that the program has asked for.
    asked: HashSet<Peer>,
    /// Between two passes of the thread, empty.
    found: Vec<Event>,
}

/// For how long the thread is to sleep, and on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another pass.
    Pass,
    /// On the endpoint's descriptor, and the timer.
    Attend,
    /// On the timer.
    Watch,
    /// It ends.
    End,
}

impl Shared {
    pub(super) fn new(
        endpoint: Box<dyn Endpoint>,
        config: AttendedConfig,
    ) -> Result<Shared, Errno> {
        let core = Core {
            endpoint: Some(endpoint),
            unread: Unread::new(config),
            times: Times::new(),
            place: Place::Awake,
            calls: 0,
            seen: 0,
            asleep: false,
            failure: None,
            ending: false,
            asked: HashSet::new(),
            found: Vec::new(),
        };
        Ok(Shared {
            core: Mutex::new(core),
            wanted: AtomicU32::new(0),
            timer: Timer::new()?,
            news: Arc::new(Doorbell::new()?),
        })
    }

    /// Where the program sleeps.
    pub(super) fn news(&self) -> &Arc<Doorbell> {
        &self.news
    }

    /// What ends the thread's sleep.
    pub(super) fn timer(&self) -> BorrowedFd<'_> {
        self.timer.0.as_fd()
    }

    /// For the program, before which the thread gives way. A panic leaves the state as it is: it is
    /// for what is driven to bear that.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.try_lock().unwrap_or_else(|| self.lock_contended())
    }

    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, Core> {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        core
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    // The program's side.

    /// The program uses the endpoint. The thread is left asleep for a moment: mostly more calls
    /// follow, or the program's own sleep.
    #[inline]
    pub(super) fn called(&self, core: &mut Core) {
        core.calls += 1;
        if core.place == Place::Attends {
            self.interrupt(core);
        }
    }

    #[cold]
    fn interrupt(&self, core: &mut Core) {
        (core.place, core.seen) = (Place::Interrupted, core.calls);
        self.timer.set(Some(FIRST_LOOK));
    }

    /// The program's sleep is over.
    pub(super) fn rise(&self, core: &mut Core) {
        core.asleep = false;
        self.news.awake();
        self.news.take();
    }

    /// The program is about to sleep: the thread attends.
    pub(super) fn arm(&self, core: &mut Core, now: Time) -> Sleep {
        let noticed = self.news.prepare();
        core.asleep = true;
        if noticed || !core.unread.is_empty() || core.failure.is_some() {
            return Sleep::Busy;
        }
        let inner = core.times.of_program(now);
        let until = match core.endpoint_mut().arm(inner) {
            Sleep::Busy => return Sleep::Busy,
            Sleep::Until(until) => until,
        };
        match core.place {
            // Its sleep is as it is to be: the endpoint is armed.
            Place::Attends | Place::Interrupted => {
                (core.place, core.seen) = (Place::Attends, core.calls);
                self.timer.set(core.times.until(until));
            }
            Place::Watches => self.timer.set(Some(Duration::ZERO)),
            Place::Awake => {}
            Place::Over => {
                let rest = core.times.until(until).unwrap_or(UNATTENDED).min(UNATTENDED);
                return Sleep::Until(now.after(rest));
            }
        }
        Sleep::Until(Time::NEVER)
    }

    /// Has the thread end.
    pub(super) fn end(&self) {
        let mut core = self.lock();
        core.ending = true;
        self.timer.set(Some(Duration::ZERO));
    }

    // The thread's side.

    /// The same lock for the thread.
    pub(super) fn lock_behind(&self) -> MutexGuard<'_, Core> {
        for _ in 0..64 {
            if self.wanted.load(Ordering::Relaxed) == 0 {
                break;
            }
            yield_now();
        }
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does now. `watch`: the interval of its looks, which grows up to `longest`.
    pub(super) fn attend(&self, core: &mut Core, watch: &mut Duration, longest: Duration) -> Next {
        if core.ending {
            return Next::End;
        }
        let active = core.calls != core.seen && !core.asleep;
        core.seen = core.calls;
        if active {
            core.place = Place::Watches;
            self.timer.set(Some(*watch));
            *watch = (*watch * 2).min(longest);
            return Next::Watch;
        }
        *watch = FIRST_LOOK.min(longest);
        core.place = Place::Awake;
        if core.is_stuck() {
            // The program's next call is what there is to wait for.
            core.place = Place::Watches;
            self.timer.set(Some(longest));
            return Next::Watch;
        }
        let next = core.pass();
        if core.asleep && !core.unread.is_empty() {
            self.news.ring();
        }
        match next {
            Sleep::Busy => Next::Pass,
            Sleep::Until(until) => {
                core.place = Place::Attends;
                self.timer.set(core.times.until(until));
                Next::Attend
            }
        }
    }

    /// A pass of the thread has panicked.
    pub(super) fn fail(&self, core: &mut Core, panic: Box<dyn Any + Send>) {
        (core.place, core.failure) = (Place::Over, Some(panic));
        self.news.notify();
    }
}

impl Core {
    const THERE: &str = "the endpoint is there until the end";

    #[inline]
    pub(super) fn endpoint(&self) -> &dyn Endpoint {
        &**self.endpoint.as_ref().expect(Core::THERE)
    }

    #[inline]
    pub(super) fn endpoint_mut(&mut self) -> &mut dyn Endpoint {
        &mut **self.endpoint.as_mut().expect(Core::THERE)
    }

    pub(super) fn take_endpoint(&mut self) -> Option<Box<dyn Endpoint>> {
        self.endpoint.take()
    }

    #[inline]
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep
    }

    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(super) fn take_failure(&mut self) -> Option<Box<dyn Any + Send>> {
        self.failure.take()
    }

    /// The program has asked for this peer: it is told of it.
    pub(super) fn note_asked(&mut self, peer: Peer) {
        self.asked.insert(peer);
    }

    /// It does not want it any more.
    pub(super) fn forget(&mut self, peer: Peer) {
        self.asked.remove(&peer);
        self.unread.forget(peer);
        self.endpoint_mut().forget(peer);
    }

    /// The program has found this peer full.
    #[cold]
    pub(super) fn full_again(&mut self, peer: Peer) {
        self.unread.full_again(peer);
    }

    // Driven by the program.

    #[inline]
    pub(super) fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let now = self.times.of_program(now);
        if self.unread.is_empty() {
            return self.endpoint_mut().progress(now, budget, events);
        }
        let limit = events.len().saturating_add(budget);
        while events.len() < limit
            && let Some((event, released)) = self.unread.pop()
        {
            self.release(released);
            events.push(event);
        }
        let rest = limit.saturating_sub(events.len());
        if rest > 0 {
            self.endpoint_mut().progress(now, rest, events);
        }
        true
    }

    #[inline]
    pub(super) fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        match self.unread.is_empty() {
            true => self.endpoint_mut().poll_message(message),
            false => self.next_unread(message),
        }
    }

    /// Of what was kept, only that is no pass of the transport: so a driver that always finds one
    /// makes passes as soon as that is taken.
    #[inline]
    pub(super) fn poll_completion(&mut self) -> Option<Completion> {
        match self.unread.is_empty() {
            true => self.endpoint_mut().poll_completion(),
            false => self.unread.pop_completion(),
        }
    }

    #[cold]
    fn next_unread(&mut self, message: &mut Lease) -> Option<Peer> {
        let (event, released) = self.unread.pop_message()?;
        self.release(released);
        let Event::Message { peer, message: unread } = event else { return None };
        *message = unread;
        Some(peer)
    }

    // Driven by the thread.

    /// One pass, and what follows if it finds nothing.
    fn pass(&mut self) -> Sleep {
        let now = self.times.of_thread();
        let mut found = std::mem::take(&mut self.found);
        let busy = self.endpoint_mut().progress(now, BUDGET, &mut found);
        for event in found.drain(..) {
            self.keep(event);
        }
        self.found = found;
        if busy { Sleep::Busy } else { self.endpoint_mut().arm(now) }
    }

    fn keep(&mut self, event: Event) {
        let stranger = match &event {
            Event::PeerLost { peer, .. } => !self.asked.remove(peer),
            _ => false,
        };
        match self.unread.push(event, stranger) {
            None => {}
            Some(Verdict::Hold(peer)) => self.hold(peer, true),
            Some(Verdict::CutOff(peer)) => {
                let reason = LostReason::Protocol("it sends though it was told to wait".to_owned());
                tracing::warn!(?peer, %reason, "a peer is cut off");
                // What it had sent before is told, and then that it is lost.
                self.asked.remove(&peer);
                self.endpoint_mut().forget(peer);
                self.unread.push(Event::PeerLost { peer, reason }, false);
            }
        }
    }

    /// Nothing more can be kept, and the transport cannot hold peers back.
    fn is_stuck(&self) -> bool {
        self.unread.is_full() && !self.endpoint().capabilities().peer_quotas
    }

    // Peers that are held back. What the program has set stays beside that.

    fn hold(&mut self, peer: Peer, held: bool) {
        let endpoint = self.endpoint_mut();
        let Some(usage) = endpoint.usage(peer) else { return };
        let quota = usage.quota.with_deferred(held);
        // The peer may be lost meanwhile, or its transport have no quotas.
        let _ = endpoint.set_quota(peer, quota);
    }

    #[inline]
    fn release(&mut self, peer: Option<Peer>) {
        if let Some(peer) = peer {
            self.hold(peer, false);
        }
    }

    pub(super) fn set_quota(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        let held = quota.deferred || self.unread.is_deferred(peer);
        self.endpoint_mut().set_quota(peer, quota.with_deferred(held))
    }

    pub(super) fn usage(&self, peer: Peer) -> Option<PeerUsage> {
        let mut usage = self.endpoint().usage(peer)?;
        usage.quota.deferred &= !self.unread.is_deferred(peer);
        Some(usage)
    }
}

/// Wakes the thread at a time.
struct Timer(OwnedFd);

impl Timer {
    fn new() -> Result<Timer, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// In so long; `None`: never.
    fn set(&self, after: Option<Duration>) {
        const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        // No time at all would disarm it.
        let after = after.map(|after| after.max(Duration::from_nanos(1)));
        let it_value = after.and_then(|after| Timespec::try_from(after).ok()).unwrap_or(NEVER);
        let to = Itimerspec { it_interval: NEVER, it_value };
        // A time that is too long to be told is never.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &to);
    }
}

impl Shared {
    /// The timer has gone off, and is not readable any more.
    pub(super) fn take_timer(&self) {
        let _ = read(&self.timer.0, &mut [0; 8]);
    }
}
