//! Endpoints that are driven while their program computes.
//!
//! A transport whose network or kernel does not carry out the accesses of others by itself needs the
//! owner of the memory to drive its endpoint. [`Attended`] wraps an endpoint of any transport, and
//! has a thread that drives it whenever the program does not.
//!
//! # How it works
//!
//! The endpoint lies behind a lock. The program's calls take it, and do what they did before: while
//! the program drives, the thread only looks now and then, at growing intervals
//! ([`AttendedConfig::watch`]), whether it still does. Once it does not, the thread makes passes
//! until there is nothing to do, and sleeps on the endpoint's descriptor. What its passes find for
//! the program is kept (`unread.rs`), and is what the program's next `progress` gets first. A program
//! that sleeps does so on an event of the wrapper, which is signalled when there is something for
//! it; what concerns others alone does not wake it.
//!
//! A program that calls in, however briefly, interrupts the thread's sleep by a timer alone: most
//! calls are followed by others, or by sleep, and need no switch of threads.

mod shared;
mod thread;
mod times;
mod unread;

#[cfg(test)]
mod tests;

use self::{
    shared::{Core, Shared},
    times::Times,
};
use crate::{
    Access, Address, AllocError, Capabilities, ChannelUse, Completion, Endpoint, Event,
    ExportError, Full, Home, ImportError, InUse, Incarnation, InjectError, Key, KeyId, Lease,
    Notifier, Operation, Peer, PeerInfo, PeerQuota, PeerUsage, QuotaError, Refused, Region,
    RegionId, RegisterError, Remote, ResolveError, Sleep, Slice, Time, Token,
};
use rustix::io::Errno;
use std::{
    fmt, mem,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    panic::resume_unwind,
    sync::{Arc, MutexGuard, OnceLock},
    thread::JoinHandle,
    time::Duration,
};

/// How an [`Attended`] endpoint is driven, and what is kept for its program.
///
/// ```
/// use petasos_fabric::AttendedConfig;
///
/// let config = AttendedConfig::default().unread_per_peer(64).unread(4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttendedConfig {
    /// How many messages and arrivals of puts with event are kept of one peer, for a program that
    /// does not take them. A peer with more is told to keep what it sends ([`PeerQuota::deferred`]),
    /// until the program has taken half; its accesses, and all of other peers, go on. What is on
    /// its way at that moment still comes. Default: 1024.
    pub unread_per_peer: usize,
    /// The same of all peers together: beyond that each is told so with the next thing that it
    /// sends. Default: 65,536.
    pub unread: usize,
    /// The longest interval at which the thread looks whether the program still drives: for so long
    /// at most others may wait when it has stopped to. Default: 2 ms.
    pub watch: Duration,
}

impl Default for AttendedConfig {
    fn default() -> AttendedConfig {
        AttendedConfig { unread_per_peer: 1024, unread: 65_536, watch: Duration::from_millis(2) }
    }
}

impl AttendedConfig {
    /// Sets how many messages and arrivals are kept of one peer: at least 1.
    #[must_use]
    pub fn unread_per_peer(self, unread_per_peer: usize) -> AttendedConfig {
        AttendedConfig { unread_per_peer: unread_per_peer.max(1), ..self }
    }

    /// Sets how many are kept of all peers: at least 1.
    #[must_use]
    pub fn unread(self, unread: usize) -> AttendedConfig {
        AttendedConfig { unread: unread.max(1), ..self }
    }

    /// Sets the longest interval between two looks at a program that drives.
    #[must_use]
    pub fn watch(self, watch: Duration) -> AttendedConfig {
        AttendedConfig { watch, ..self }
    }
}

/// Why an endpoint is not attended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttendError {
    /// It has no descriptor to sleep on, as the simulated network.
    #[error("an endpoint without a descriptor to sleep on cannot be driven by a thread")]
    NoDescriptor,
    /// The process or the system has no descriptor, thread or memory for it.
    #[error("the system refused what a thread for the endpoint needs: {0}")]
    System(#[from] std::io::Error),
}

impl From<Errno> for AttendError {
    fn from(error: Errno) -> AttendError {
        AttendError::System(error.into())
    }
}

/// An endpoint that a thread drives whenever its program does not: put, get, atomics, flushes,
/// expected messages and the bodies of long ones go on at it while its program computes. See
/// [the module](self) for how, and [`AttendedConfig`] for the bounds.
///
/// It is an endpoint as any other, for one thread of the program at a time. Peers are told that it
/// is attended ([`PeerInfo::attended`]), and [`Capabilities::attended`] says so here.
///
/// Dropping it ends the thread, and then the endpoint. In a forked child, which must not use it, the
/// thread does not exist, and dropping it does nothing that the parent would notice. If a pass of
/// the thread panics, the thread ends, and the program's next `progress` or `poll_message` panics
/// with the same message, as it would have, had it made that pass; from then on only the program
/// drives.
///
/// ```
/// use petasos_fabric::{
///     Access, Attended, AttendedConfig, Clock, Done, Endpoint, Event, Operation, Region,
///     RemoteSpan, Token,
/// };
///
/// let owner = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let mut owner = Attended::new(owner, AttendedConfig::default())?;
/// let region = owner.register(&Region::from_vec(b"hello".to_vec()).whole(), Access::READ)?;
/// let key = owner.export(region)?;
///
/// // From here on the owner computes, and makes no call.
/// let mut reader = petasos_self::Local::open(&"self://*".parse()?)?;
/// let into = Region::zeroed(5);
/// let get = Operation::Get {
///     token: Token(1),
///     remote: reader.import(&key)?,
///     local: [into.whole()].into(),
///     spans: [RemoteSpan { offset: 0, len: 5 }].into(),
/// };
/// reader.submit(&mut [get].into());
/// let (clock, mut events) = (Clock::start(), Vec::new());
/// while !events.iter().any(|event| matches!(event, Event::Done { result: Ok(Done::Got), .. })) {
///     reader.progress(clock.now(), 64, &mut events);
/// }
/// assert_eq!(into.to_vec(), b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Attended {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    home: Home,
    address: Address,
    incarnation: Incarnation,
    capabilities: Capabilities,
    routes: Known,
}

/// What is known of peers' capabilities: few that differ, which stay where they are.
#[derive(Default)]
struct Known(OnceLock<Box<(Capabilities, Known)>>);

impl Known {
    fn get(&self, wanted: &Capabilities) -> &Capabilities {
        let one = || Box::new((wanted.clone(), Known::default()));
        let (known, rest) = &**self.0.get_or_init(one);
        if known == wanted { known } else { rest.get(wanted) }
    }
}

impl Attended {
    /// Has a thread drive `endpoint` from now on, whenever the caller does not. It is one that was
    /// just opened, and not driven: its time begins here, whatever the clock of its program says.
    ///
    /// # Errors
    /// [`AttendError`]: the endpoint has no descriptor, or the system refuses a thread, or a
    /// descriptor.
    pub fn new(
        mut endpoint: Box<dyn Endpoint>,
        config: AttendedConfig,
    ) -> Result<Attended, AttendError> {
        let fd = endpoint.fd().ok_or(AttendError::NoDescriptor)?.try_clone_to_owned()?;
        endpoint.set_attended();
        let (address, incarnation) = (endpoint.address().clone(), endpoint.incarnation());
        let mut capabilities = endpoint.capabilities().clone();
        capabilities.attended = true;
        let shared = Arc::new(Shared::new(endpoint, config)?);
        let theirs = Arc::clone(&shared);
        let run = move || thread::run(&theirs, &fd, config.watch);
        let thread = std::thread::Builder::new().name("petasos-attends".to_owned()).spawn(run)?;
        Ok(Attended {
            shared,
            thread: Some(thread),
            home: Home::current(),
            address,
            incarnation,
            capabilities,
            routes: Known::default(),
        })
    }

    /// To look at the endpoint.
    fn core(&self) -> MutexGuard<'_, Core> {
        self.shared.lock()
    }

    /// To use it.
    #[inline]
    fn call(&self) -> MutexGuard<'_, Core> {
        let mut core = self.shared.lock();
        self.shared.called(&mut core);
        core
    }

    /// To drive it: a sleep of the program is over.
    #[inline]
    fn drive(&self) -> MutexGuard<'_, Core> {
        let mut core = self.call();
        if core.is_asleep() || core.has_failed() {
            self.shared.rise(&mut core);
            if let Some(panic) = core.take_failure() {
                drop(core);
                resume_unwind(panic);
            }
        }
        core
    }
}

impl Endpoint for Attended {
    fn address(&self) -> &Address {
        &self.address
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn capabilities_of(&self, peer: Peer) -> Option<&Capabilities> {
        let core = self.core();
        let mut capabilities = core.endpoint().capabilities_of(peer)?.clone();
        capabilities.attended = core.endpoint().peer(peer)?.attended;
        capabilities.passive_target |= capabilities.attended;
        drop(core);
        Some(self.routes.get(&capabilities))
    }

    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        let mut core = self.call();
        let peer = core.endpoint_mut().resolve(address, patience)?;
        core.note_asked(peer);
        Ok(peer)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        let mut core = self.call();
        let peer = core.endpoint_mut().resolve_running(address, patience)?;
        core.note_asked(peer);
        Ok(peer)
    }

    fn peer(&self, peer: Peer) -> Option<PeerInfo> {
        self.core().endpoint().peer(peer)
    }

    fn forget(&mut self, peer: Peer) {
        self.call().forget(peer);
    }

    fn set_quota(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        self.call().set_quota(peer, quota)
    }

    fn usage(&self, peer: Peer) -> Option<PeerUsage> {
        self.core().usage(peer)
    }

    fn channels_of(&self, peer: Peer) -> Vec<ChannelUse> {
        self.core().endpoint().channels_of(peer)
    }

    #[inline]
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let mut core = self.call();
        let injected = core.endpoint_mut().inject(peer, parts);
        if injected == Err(InjectError::Full) {
            core.full_again(peer);
        }
        injected
    }

    #[inline]
    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        let mut core = self.call();
        let refused = core.endpoint_mut().try_submit(operation);
        if let Err(Refused { operation, full: Full::Peer }) = &refused
            && let Some(peer) = operation.target()
        {
            core.full_again(peer);
        }
        refused
    }

    fn cancel(&mut self, token: Token) {
        self.call().endpoint_mut().cancel(token);
    }

    fn in_use(&self, memory: &Slice) -> Option<InUse> {
        self.core().endpoint().in_use(memory)
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let mut core = self.drive();
        core.progress(now, budget, events)
    }

    #[inline]
    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        self.drive().poll_message(message)
    }

    #[inline]
    fn poll_completion(&mut self) -> Option<Completion> {
        self.drive().poll_completion()
    }

    fn relax(&self) {
        match self.shared.try_lock() {
            Some(core) => core.endpoint().relax(),
            None => std::hint::spin_loop(),
        }
    }

    fn arm(&mut self, now: Time) -> Sleep {
        let mut core = self.call();
        self.shared.arm(&mut core, now)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.news().as_fd())
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(self.shared.news()) as _)
    }

    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        self.call().endpoint_mut().alloc(len)
    }

    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        self.call().endpoint_mut().register(memory, access)
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        self.core().endpoint().export(region)
    }

    fn export_part(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
    ) -> Result<(KeyId, Key), ExportError> {
        self.call().endpoint_mut().export_part(region, range, access)
    }

    fn export_number(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        self.call().endpoint_mut().export_number(region, range, access, number)
    }

    fn import(&mut self, key: &Key) -> Result<Remote, ImportError> {
        let mut core = self.call();
        let remote = core.endpoint_mut().import(key)?;
        core.note_asked(remote.peer);
        Ok(remote)
    }

    fn import_from(&mut self, key: &Key, from: Peer) -> Result<Remote, ImportError> {
        let mut core = self.call();
        let remote = core.endpoint_mut().import_from(key, from)?;
        core.note_asked(remote.peer);
        Ok(remote)
    }

    fn import_number(&mut self, peer: Peer, number: u64, len: u64) -> Result<Remote, ImportError> {
        self.call().endpoint_mut().import_number(peer, number, len)
    }

    fn release(&mut self, remote: Remote) {
        self.call().endpoint_mut().release(remote);
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.home.is_current() {
            self.shared.end();
            // It reports a panic itself.
            let _ = thread.join();
            drop(self.core().take_endpoint());
            return;
        }
        // A child has no such thread, whose handle is not to be used. It may have had the lock when
        // the child was forked: then the child's copy of the endpoint stays as it is.
        mem::forget(thread);
        drop(self.shared.try_lock().and_then(|mut core| core.take_endpoint()));
    }
}

impl fmt::Debug for Attended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attended({})", self.address)
    }
}
