//! What the author of a transport supplies.

use crate::{Faults, Faulty};
use petasos_fabric::{Address, Clock, Endpoint, Time};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A transport under test: how its endpoints are opened and ended, and what time it is there.
///
/// Shared between threads by the probes of sleeping and waking. What a transport cannot do it
/// says by its [`Capabilities`](petasos_fabric::Capabilities), and by having no descriptor: the
/// probes ask there, and leave out what makes no sense; nothing else can be left out.
pub trait Fixture: Send + Sync {
    /// An address that no endpoint has or had, complete enough to be passed to others before it is
    /// opened (not a wildcard).
    fn fresh(&self) -> Address;

    /// Opens an endpoint at this address, also at one whose last endpoint was killed.
    fn open(&self, at: &Address) -> Box<dyn Endpoint>;

    /// The time now.
    fn now(&self) -> Time;

    /// Why this transport cannot be tested here, as when a library that it loads is not installed:
    /// then each probe ends at once, and its test is the fixture's to report. `None` if it can.
    fn missing(&self) -> Option<String> {
        None
    }

    /// Why an endpoint's calls may not return here for as long as a peer is stopped, as in a
    /// library whose processes wait for each other's locks. `None`, as it should be: then tests
    /// fail that see it.
    fn stands_still(&self) -> Option<&'static str> {
        None
    }

    /// Why an access to one peer may not complete here for as long as another peer, to which there
    /// is one, does nothing, as in a library that completes the sends of all peers in order.
    /// `None`, as it should be: then tests fail that see it.
    fn holds_up_others(&self) -> Option<&'static str> {
        None
    }

    /// Why memory of an operation may stay in use here, by a library below, for as long as the
    /// endpoint lives, when its peer was killed: as of one that never completes a send to it.
    /// `None`, as it should be: then tests fail that see it.
    fn keeps_memory(&self) -> Option<&'static str> {
        None
    }

    /// Whether a connection to an address at which nothing listens is refused, so that
    /// [`Endpoint::resolve_running`] need not wait. As far as this says no the probe takes what
    /// `resolve` does.
    fn refuses(&self) -> bool {
        false
    }

    /// Lets a little time pass, when no endpoint had anything to do. Virtual time: to the next
    /// event, or by 100 microseconds. Real time: the more the longer nothing has happened, which
    /// was in the last `idle` passes, as a probe that waits for a deadline needs no processor.
    fn pass(&self, idle: u32) {
        wait(idle);
    }

    /// Makes what this process has written to memory visible to endpoints of other processes, and
    /// what arrived there visible here. For [`OutOfProcess`](crate::OutOfProcess); where all
    /// endpoints are in this process there is nothing to do.
    fn settle(&self) {}

    /// Ends an endpoint without closing it, as a crash does.
    fn kill(&self, endpoint: Box<dyn Endpoint>) {
        drop(endpoint);
    }

    /// How long a probe waits for what must happen, before it fails. Longer than a killed peer
    /// may go unnoticed.
    fn deadline(&self) -> Duration {
        Duration::from_secs(20)
    }
}

/// Sleeps for 20 microseconds, and up to 320 where nothing has happened for long.
pub(crate) fn wait(idle: u32) {
    std::thread::sleep(Duration::from_micros(20 << (idle / 16).min(4)));
}

/// A fixture all of whose endpoints are [`Faulty`].
pub struct FaultyFixture {
    inner: Box<dyn Fixture>,
    faults: Faults,
    seed: AtomicU64,
}

impl FaultyFixture {
    /// Injects these faults below; endpoints get seeds from this one on.
    pub fn new(inner: impl Fixture + 'static, faults: Faults, seed: u64) -> FaultyFixture {
        FaultyFixture { inner: Box::new(inner), faults, seed: AtomicU64::new(seed) }
    }
}

impl Fixture for FaultyFixture {
    fn fresh(&self) -> Address {
        self.inner.fresh()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        Box::new(Faulty::new(self.inner.open(at), self.faults, seed))
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn missing(&self) -> Option<String> {
        self.inner.missing()
    }

    fn holds_up_others(&self) -> Option<&'static str> {
        self.inner.holds_up_others()
    }

    fn keeps_memory(&self) -> Option<&'static str> {
        self.inner.keeps_memory()
    }

    fn refuses(&self) -> bool {
        self.inner.refuses()
    }

    fn pass(&self, idle: u32) {
        self.inner.pass(idle);
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline() * 2
    }
}

/// The time of a fixture on real time, and numbers for its fresh addresses.
#[derive(Debug, Default)]
pub struct RealTime {
    clock: Clock,
    count: AtomicU64,
}

impl RealTime {
    /// For [`Fixture::now`].
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// A name that no other test of this machine uses.
    #[must_use]
    pub fn name(&self) -> String {
        static ALL: AtomicU64 = AtomicU64::new(0);
        let (all, own) =
            (ALL.fetch_add(1, Ordering::Relaxed), self.count.fetch_add(1, Ordering::Relaxed));
        format!("conformance-{}-{all}-{own}", std::process::id())
    }
}
