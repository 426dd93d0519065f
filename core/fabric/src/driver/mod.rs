//! Driving: one thread makes what is driven progress, and any number of threads wait, submit and
//! read meanwhile.
//!
//! [`Driver`] has all of it for a protocol that many threads use:
//!
//! * **Lock.** What is driven ([`Driven`]) lies behind one lock. It is not held during sleep, and a
//!   thread that wants it gets it between two passes, also while messages never end.
//! * **Turns.** Of the threads that wait one drives. The others look at a word of their own for a
//!   while, and then sleep on an event of their own. When the thread that drives has what it waits
//!   for, one of the others is woken to drive; so nothing stands still, and no more than one thread
//!   is woken for it. A thread that serves ([`Driver::serve`]) drives when none waits.
//! * **News.** After a pass, and after a change by another thread, those are woken for whom
//!   something is there ([`Driven::is_ready`]), and no others.
//! * **Spin, arm, sleep.** A thread that drives polls for as long as [`Spin`] says, then arms the
//!   endpoint, and sleeps on its descriptor until its own time is over at the latest.
//! * **Kick.** A change that the endpoint does not signal ends that sleep.
//! * **Reading without the lock.** What many threads read, as the values of counters, is written to
//!   a [`Board`] under the lock, and read there without it.
//!
//! A protocol that belongs to one thread, as an engine for remote calls whose handlers need not be
//! `Send`, has no turns. It uses the parts: [`Spin`], [`Kick`], which other threads use to wake it,
//! and [`sleep_on`].
//!
//! # When a thread ends
//!
//! A panic in [`Driven::pass`], or in what a thread does under the lock, ends that thread's turn,
//! and another one takes it. The lock is not poisoned: what is driven has to bear that. A thread
//! that is stopped within a pass, as by a debugger, stops all others that need the lock: readers
//! that do without it go on. One that is stopped while it sleeps has given the lock back, but not
//! its turn; a thread that comes then takes the turn from it, one that waits already does not, and
//! ends at its time.

mod board;
mod driven;
mod guard;
mod kick;
mod seat;
mod sleep;
mod spin;
mod sync;
mod turn;
mod waiter;

#[cfg(all(test, loom))]
mod interleavings;
#[cfg(all(test, not(loom)))]
mod tests;

pub use board::Board;
pub use driven::{Armed, Driven};
pub use guard::Guard;
pub use kick::{Kick, MainKick};
pub use sleep::sleep_on;
pub use spin::{Idle, Spin};

use rustix::io::Errno;
use seat::{Limit, Seat};
use sleep::Bed;
use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{Arc, TryLockError},
    time::Duration,
};
use sync::{AtomicU32, Mutex, Ordering, PoisonError, yield_now};
use turn::{Role, Turn};
use waiter::Waiter;

/// How often a thread that serves checks whether others still drive.
const WATCH: Duration = Duration::from_micros(250);
/// One in so many idle passes is full.
const FULL: u32 = 4;

/// Lets any number of threads drive, use and wait for one thing: see [the module](self).
///
/// ```
/// use petasos_fabric::driver::{Armed, Driven, Driver};
/// use petasos_fabric::{Clock, Endpoint, Event, Sleep};
/// use std::{sync::Arc, time::Duration};
///
/// /// An endpoint whose messages are counted.
/// struct Inbox { endpoint: petasos_self::Local, clock: Clock, events: Vec<Event>, came: u64, news: bool }
///
/// impl Driven for Inbox {
///     /// So many messages.
///     type Wait = u64;
///     fn pass(&mut self, _full: bool) -> bool {
///         let busy = self.endpoint.progress(self.clock.now(), 16, &mut self.events);
///         for event in self.events.drain(..) {
///             let message = matches!(event, Event::Message { .. });
///             self.came += u64::from(message);
///             self.news |= message;
///         }
///         busy
///     }
///     fn is_ready(&mut self, what: &u64) -> bool {
///         self.came >= *what
///     }
///     fn take_news(&mut self) -> bool {
///         std::mem::take(&mut self.news)
///     }
///     fn arm(&mut self) -> Armed {
///         let now = self.clock.now();
///         match self.endpoint.arm(now) {
///             Sleep::Busy => Armed::Busy,
///             Sleep::Until(until) => Armed::For(Some(until.since(now))),
///         }
///     }
/// }
///
/// let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let (fd, address) = (endpoint.fd().map(|fd| fd.try_clone_to_owned()).transpose()?, endpoint.address().clone());
/// let inbox = Inbox { endpoint, clock: Clock::start(), events: Vec::new(), came: 0, news: false };
/// let driver = Arc::new(Driver::new(inbox, fd, Some(Duration::from_micros(50)))?);
/// // Several threads wait, each for something else; one of them drives.
/// let waiting: Vec<_> = (1..=3)
///     .map(|count| (count, Arc::clone(&driver)))
///     .map(|(count, driver)| std::thread::spawn(move || driver.wait(Duration::from_secs(10), &count).is_ready()))
///     .collect();
/// // Another one sends: here to itself.
/// for _ in 0..3 {
///     let mut inbox = driver.lock();
///     let peer = inbox.endpoint.resolve(&address, Duration::from_secs(1))?;
///     inbox.endpoint.inject(peer, &[b"hello"])?;
/// }
/// assert!(waiting.into_iter().all(|thread| thread.join().unwrap()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Driver<D: Driven> {
    core: Mutex<Core<D>>,
    /// Threads that want the lock.
    wanted: AtomicU32,
    bed: Bed,
    spin: Option<Duration>,
}

/// What lies behind the lock.
struct Core<D: Driven> {
    driven: D,
    turn: Turn<D::Wait>,
}

impl<D: Driven> Driver<D> {
    /// A driver of `driven`. `fd`: a duplicate of its endpoint's descriptor; without one, a thread
    /// that drives sleeps for 50 us at a time. `spin`: for how long to poll before sleep; `None`:
    /// for ever.
    ///
    /// # Errors
    /// The process or the system has no descriptor or memory for what wakes threads.
    pub fn new(driven: D, fd: Option<OwnedFd>, spin: Option<Duration>) -> Result<Driver<D>, Errno> {
        let core = Mutex::new(Core { driven, turn: Turn::default() });
        Ok(Driver { core, wanted: AtomicU32::new(0), bed: Bed::new(fd)?, spin })
    }

    /// Locks what is driven: to use it, or to read it. Waits for the end of a pass at most, and for
    /// other threads that have it. Dropping the guard wakes those for whom there is something now.
    ///
    /// It is not to be locked twice by one thread.
    #[inline]
    pub fn lock(&self) -> Guard<'_, D> {
        match self.core.try_lock() {
            Ok(core) => Guard::new(self, core),
            Err(TryLockError::Poisoned(poisoned)) => Guard::new(self, poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => self.lock_contended(),
        }
    }

    #[inline(never)]
    fn lock_contended(&self) -> Guard<'_, D> {
        // Whoever drives gives way between two passes.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        Guard::new(self, core)
    }

    /// One full pass. False if there was nothing to do.
    pub fn progress(&self) -> bool {
        self.lock().pass(true)
    }

    /// Ends the sleep of the thread that drives: it makes a pass, and looks at all it waits for.
    pub fn kick(&self) {
        let mut guard = self.lock();
        guard.kick();
    }

    /// Waits until [`Driven::is_ready`] says so, for at most `timeout`, and drives meanwhile unless
    /// another thread does. For no time, it passes until there is nothing to do.
    ///
    /// The guard says whether it is ready; as long as it lives, it remains so. Polling and sleep
    /// are as [`Driver::new`] was told. It returns at most a pass, and what the system takes to
    /// wake a thread, after its time.
    #[inline]
    pub fn wait(&self, timeout: Duration, what: &D::Wait) -> Guard<'_, D> {
        let mut guard = self.lock();
        if guard.look(what) {
            return guard;
        }
        // Mostly it comes with the next message, and there is nothing to prepare.
        let short = self.spin != Some(Duration::ZERO) && !timeout.is_zero();
        if short && guard.begin(Role::Waits, true) && guard.pass(false) {
            guard.tell();
            if guard.look(what) {
                return guard;
            }
            guard = self.give_way(guard);
        }
        self.wait_until(guard, timeout, what)
    }

    fn wait_until<'a>(
        &'a self,
        mut guard: Guard<'a, D>,
        timeout: Duration,
        what: &D::Wait,
    ) -> Guard<'a, D> {
        if timeout.is_zero() {
            while guard.pass(true) && !guard.look(what) {
                guard = self.after_pass(guard);
            }
            return guard;
        }
        let mut limit = Limit::new(timeout);
        let mut seat = Seat::new(self.spin);
        let mut fresh = true;
        loop {
            if guard.has_turn() || guard.begin(Role::Waits, fresh) {
                fresh = false;
                guard = self.drive(guard, &mut seat, Some(what), &mut limit);
            } else {
                guard = self.stand_by(guard, &mut seat, what, &mut limit);
            }
            if guard.look(what) || limit.is_over() {
                return guard;
            }
        }
    }

    /// Drives for other threads until `stop` says otherwise: a protocol's own thread. It sleeps
    /// while there is nothing to do, and leaves the driving to threads that wait, or that make
    /// passes, while there are any: then it looks every 250 us whether they still do.
    ///
    /// To stop it, make `stop` true and call [`Driver::interrupt`].
    pub fn serve(&self, stop: impl Fn() -> bool) {
        let mut seat = Seat::new(self.spin);
        let mut limit = Limit::new(Duration::MAX);
        let mut guard = self.lock();
        let mut seen = guard.passes();
        while !stop() {
            let others = guard.passes() != seen;
            if !others && (guard.has_turn() || guard.begin(Role::Serves, false)) {
                guard = self.drive(guard, &mut seat, None, &mut limit);
                // Others may have passed while the lock was free.
                seen = seat.passes;
            } else {
                seen = guard.passes();
                guard = self.watch(guard, &mut seat);
            }
        }
    }

    /// Wakes threads that serve, to see that they are to stop.
    pub fn interrupt(&self) {
        let mut guard = self.lock();
        guard.wake_servers();
    }

    /// One pass of the thread whose turn it is, and what follows if it finds nothing.
    #[inline]
    fn drive<'a>(
        &'a self,
        mut guard: Guard<'a, D>,
        seat: &mut Seat<D::Wait>,
        what: Option<&D::Wait>,
        limit: &mut Limit,
    ) -> Guard<'a, D> {
        let full = self.spin == Some(Duration::ZERO) || seat.spin.passes() % FULL == FULL - 1;
        let busy = guard.pass(full);
        seat.passes = guard.passes();
        limit.count();
        if busy {
            seat.spin.reset();
            return self.after_pass(guard);
        }
        guard.tell();
        match seat.spin.idle() {
            Idle::Poll => {
                guard.relax();
                self.give_way(guard)
            }
            Idle::Yield => guard.unlocked(|| seat.spin.yield_now()),
            Idle::Sleep => self.sleep(guard, seat.waiter(what), limit),
        }
    }

    /// There was something: tells those who wait, and lets others have the lock.
    #[inline]
    fn after_pass<'a>(&'a self, mut guard: Guard<'a, D>) -> Guard<'a, D> {
        guard.tell();
        self.give_way(guard)
    }

    /// Lets threads that want the lock have it.
    #[inline]
    fn give_way<'a>(&'a self, guard: Guard<'a, D>) -> Guard<'a, D> {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            return guard;
        }
        guard.unlocked(|| {
            let wanted = || self.wanted.load(Ordering::Relaxed) > 0;
            if (0..64).all(|_| wanted()) {
                yield_now();
            }
        })
    }

    /// Sleeps in the bed, unless there is something to do.
    fn sleep<'a>(
        &'a self,
        mut guard: Guard<'a, D>,
        waiter: &Arc<Waiter<D::Wait>>,
        limit: &mut Limit,
    ) -> Guard<'a, D> {
        if guard.is_bed_taken() {
            // By a thread that was replaced, and woken.
            return guard.unlocked(yield_now);
        }
        let rest = limit.rest();
        let (deaf, longest) = match guard.arm() {
            _ if rest == Some(Duration::ZERO) => return guard,
            Armed::Busy => return self.give_way(guard),
            Armed::For(longest) => (false, longest.into_iter().chain(rest).min()),
            Armed::Deaf => (true, rest),
        };
        guard.lie_down(waiter);
        let mut guard = guard.unlocked(|| self.bed.sleep(deaf, longest));
        guard.rise(waiter);
        guard
    }

    /// Waits while another thread drives.
    fn stand_by<'a>(
        &'a self,
        mut guard: Guard<'a, D>,
        seat: &mut Seat<D::Wait>,
        what: &D::Wait,
        limit: &mut Limit,
    ) -> Guard<'a, D> {
        let waiter = Arc::clone(seat.waiter(Some(what)));
        guard.register(&waiter);
        drop(guard);
        seat.spin.reset();
        waiter.wait(&mut seat.spin, limit.rest());
        seat.spin.reset();
        let mut guard = self.lock();
        guard.arrive(&waiter);
        limit.rest();
        guard
    }

    /// Sleeps while other threads drive: for a short time, or, as the one that drives does, until
    /// it has left.
    fn watch<'a>(&'a self, mut guard: Guard<'a, D>, seat: &mut Seat<D::Wait>) -> Guard<'a, D> {
        let waiter = Arc::clone(seat.waiter(None));
        let longest = if guard.driver_sleeps() {
            guard.register(&waiter);
            None
        } else {
            Some(WATCH)
        };
        drop(guard);
        waiter.wait(&mut Spin::new(Some(Duration::ZERO)), longest);
        seat.spin.reset();
        let mut guard = self.lock();
        guard.arrive(&waiter);
        guard
    }
}

impl<D: Driven> fmt::Debug for Driver<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driver")
    }
}
