//! The network interfaces of this process: at most one of each combination of matching and naming.

use crate::{
    abi::{
        ABORTED, ARG_INVALID, CHandle, CT_NONE, Code, EQ_NONE, FAIL, IN_USE, NO_INIT, NO_SPACE,
        PID_IN_USE, PT_FULL, PT_IN_USE, features, ni, ptl_ni_limits_t, ptl_process_t,
    },
    directory::Processes,
    handle::{self, Kind, Slots},
    job,
    place::{Claim, INTERFACES, Place},
};
use petasos_fabric::Endpoint;
use petasos_portals::{
    Config, Counter, Descriptor, Engine, Error, EventQueue, Handle, Interface, Limits, MatchEntry,
};
use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a process that is not there is waited for. A program learns physical ids from processes
/// that are there.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an interface that ends waits for what it has sent.
const FLUSH: Duration = Duration::from_secs(1);
/// How long it waits for threads whose waits it has ended.
const WAITERS: Duration = Duration::from_secs(5);

/// An interface that is open.
pub(crate) struct Ni {
    number: u32,
    handle: CHandle,
    pub(crate) matching: bool,
    pub(crate) interface: Interface,
    pub(crate) processes: Arc<Processes>,
    pub(crate) limits: ptl_ni_limits_t,
    pub(crate) queues: Slots,
    pub(crate) counters: Slots,
    pub(crate) descriptors: Slots,
    pub(crate) entries: Slots,
    engine: Mutex<Option<Engine>>,
}

/// An open interface, and how often it was initialised.
struct Open {
    ni: Arc<Ni>,
    times: usize,
}

static OPEN: [RwLock<Option<Open>>; INTERFACES as usize] =
    [const { RwLock::new(None) }; INTERFACES as usize];
/// How often `PtlInit` was called, without `PtlFini`.
static STARTED: AtomicUsize = AtomicUsize::new(0);
/// Whether all waiting was ended.
static ABORT: AtomicBool = AtomicBool::new(false);
/// How often an interface was opened.
static OPENINGS: AtomicU32 = AtomicU32::new(0);
/// Where this process is, from its first interface on, and its number, which it keeps until the
/// last `PtlFini`.
static SITE: Mutex<Option<(Place, Claim)>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn is_started() -> bool {
    STARTED.load(Ordering::Acquire) > 0
}

/// An interface in use by a call, which ends soon: it is not closed meanwhile.
pub(crate) struct Using(RwLockReadGuard<'static, Option<Open>>);

impl Using {
    /// The interface for a wait, which may take long.
    pub(crate) fn share(&self) -> Arc<Ni> {
        let open = self.0.as_ref().expect("it is made of one that is open");
        Arc::clone(&open.ni)
    }
}

impl Deref for Using {
    type Target = Ni;
    #[inline]
    fn deref(&self) -> &Ni {
        &self.0.as_ref().expect("it is made of one that is open").ni
    }
}

/// The interface that a handle of any kind says that it is of.
///
/// # Errors
/// [`NO_INIT`], or [`ARG_INVALID`] if there is none.
#[inline]
pub(crate) fn of(handle: CHandle) -> Result<Using, Code> {
    let open = OPEN[handle::interface_of(handle)].read().unwrap_or_else(PoisonError::into_inner);
    match open.is_some() {
        true => Ok(Using(open)),
        false => Err(if is_started() { ARG_INVALID } else { NO_INIT }),
    }
}

/// The interface that this handle names.
///
/// # Errors
/// As [`of`]; [`ARG_INVALID`] if it names something else, or one that was ended.
#[inline]
pub(crate) fn named(handle: CHandle) -> Result<Using, Code> {
    let using = of(handle)?;
    if using.handle == handle { Ok(using) } else { Err(ARG_INVALID) }
}

impl Ni {
    /// The interface's own handle.
    pub(crate) fn handle(&self) -> CHandle {
        self.handle
    }

    #[inline]
    pub(crate) fn queue(&self, handle: CHandle) -> Result<Handle<EventQueue>, Code> {
        Ok(self.queues.get(handle)?.0)
    }

    #[inline]
    pub(crate) fn counter(&self, handle: CHandle) -> Result<Handle<Counter>, Code> {
        Ok(self.counters.get(handle)?.0)
    }

    /// A descriptor, and what is known of it.
    #[inline]
    pub(crate) fn descriptor(&self, handle: CHandle) -> Result<(Handle<Descriptor>, u8), Code> {
        self.descriptors.get(handle)
    }

    pub(crate) fn entry(&self, handle: CHandle) -> Result<Handle<MatchEntry>, Code> {
        Ok(self.entries.get(handle)?.0)
    }

    pub(crate) fn optional_queue(&self, h: CHandle) -> Result<Option<Handle<EventQueue>>, Code> {
        if h == EQ_NONE { Ok(None) } else { self.queue(h).map(Some) }
    }

    pub(crate) fn optional_counter(&self, h: CHandle) -> Result<Option<Handle<Counter>>, Code> {
        if h == CT_NONE { Ok(None) } else { self.counter(h).map(Some) }
    }
}

/// `PtlInit`.
pub(crate) fn start() {
    STARTED.fetch_add(1, Ordering::AcqRel);
}

/// `PtlFini`: the last one ends all interfaces.
pub(crate) fn finish() {
    let less = |times: usize| times.checked_sub(1);
    let before = STARTED.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    if before != Ok(1) {
        return;
    }
    let all: Vec<Arc<Ni>> = (0..INTERFACES as usize).filter_map(take).collect();
    all.into_iter().for_each(close);
    ABORT.store(false, Ordering::SeqCst);
    *lock(&SITE) = None;
}

/// `PtlAbort`.
pub(crate) fn abort() {
    if !is_started() {
        return;
    }
    ABORT.store(true, Ordering::SeqCst);
    for open in &OPEN {
        let open = open.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*open {
            open.ni.interface.abort();
        }
    }
}

/// Whether all waiting was ended.
#[inline]
pub(crate) fn is_aborted() -> bool {
    ABORT.load(Ordering::Acquire)
}

fn take(number: usize) -> Option<Arc<Ni>> {
    let mut open = OPEN[number].write().unwrap_or_else(PoisonError::into_inner);
    open.take().map(|open| open.ni)
}

/// Ends an interface that no call finds any more.
fn close(ni: Arc<Ni>) {
    // What is for a process that is lost is not waited for. Where waiting was ended there is none.
    if ni.interface.flush(FLUSH) == Err(Error::Aborted) {
        until(FLUSH, || ni.interface.has_left());
    }
    ni.interface.abort();
    drop(lock(&ni.engine).take());
    // Its address is free when the last thread has left it.
    until(WAITERS, || Arc::strong_count(&ni) == 1);
}

/// Looks until something is so, at most for so long.
fn until(longest: Duration, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() && begin.elapsed() < longest {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// `PtlNIFini`.
///
/// # Errors
/// As [`named`].
pub(crate) fn end(handle: CHandle) -> Result<(), Code> {
    let number = named(handle)?.number as usize;
    let taken = {
        let mut open = OPEN[number].write().unwrap_or_else(PoisonError::into_inner);
        let Some(one) = open.as_mut().filter(|open| open.ni.handle == handle) else {
            return Err(ARG_INVALID);
        };
        one.times -= 1;
        if one.times > 0 { None } else { open.take() }
    };
    if let Some(open) = taken {
        close(open.ni);
    }
    Ok(())
}

/// `PtlNIInit`: the handle, and the limits.
///
/// # Errors
/// [`NO_INIT`], [`PID_IN_USE`], [`NO_SPACE`] if all process numbers are taken, [`FAIL`] if no
/// endpoint can be opened; [`ARG_INVALID`].
pub(crate) fn open(
    options: u32,
    pid: Option<u32>,
    desired: Option<&ptl_ni_limits_t>,
) -> Result<(CHandle, ptl_ni_limits_t), Code> {
    if !is_started() {
        return Err(NO_INIT);
    }
    let one_of = |a: u32, b: u32| (options & a != 0) != (options & b != 0);
    let known = options & !ni::MASK == 0;
    if !known || !one_of(ni::MATCHING, ni::NO_MATCHING) || !one_of(ni::LOGICAL, ni::PHYSICAL) {
        return Err(ARG_INVALID);
    }
    let (matching, logical) = (options & ni::MATCHING != 0, options & ni::LOGICAL != 0);
    let number = u32::from(!matching) * 2 + u32::from(logical);
    let mut slot = OPEN[number as usize].write().unwrap_or_else(PoisonError::into_inner);
    let mut site = lock(&SITE);
    if let Some(open) = slot.as_mut() {
        // All interfaces of a process have its one number.
        let own = open.ni.processes.own.pid;
        if pid.is_some_and(|wanted| wanted != own) {
            return Err(ARG_INVALID);
        }
        open.times += 1;
        return Ok((open.ni.handle, open.ni.limits));
    }
    let (place, own, endpoint) = open_endpoint(&mut site, number, pid)?;
    let asked = Asked::new(desired);
    let failed = |error: &dyn std::fmt::Display| say(own, error);
    let processes = Arc::new(Processes::new(place.clone(), number, logical, own));
    let limits = asked.limits;
    let config = Config { limits, named_later: logical, patience: PATIENCE, ..Config::default() };
    let opened = Interface::open(endpoint, processes.clone(), config);
    let interface = opened.map_err(|error| failed(&error))?;
    let engine = Engine::start(&interface).map_err(|error| failed(&error))?;
    if is_aborted() {
        interface.abort();
    }
    let opening = OPENINGS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let slots = |kind| Slots::new(kind, (number, opening), interface.id());
    let handle = handle::of_interface(number, opening);
    let limits = asked.actual(&interface);
    let ni = Ni {
        number,
        handle,
        matching,
        queues: slots(Kind::Queue),
        counters: slots(Kind::Counter),
        descriptors: slots(Kind::Descriptor),
        entries: slots(Kind::Entry),
        processes,
        limits,
        engine: Mutex::new(Some(engine)),
        interface,
    };
    *slot = Some(Open { ni: Arc::new(ni), times: 1 });
    Ok((handle, limits))
}

/// Says why an interface was not opened.
fn say(own: ptl_process_t, error: &dyn std::fmt::Display) -> Code {
    eprintln!("portals: process {} of node {:08x}: {error}", own.pid, own.nid);
    FAIL
}

/// Process numbers that are tried where none is wanted: ports may be those of other programs.
const TRIES: usize = 32;

/// Opens the endpoint of an interface, and finds out where this process is, and which, if that was
/// not known.
fn open_endpoint(
    site: &mut Option<(Place, Claim)>,
    number: u32,
    wanted: Option<u32>,
) -> Result<(Place, ptl_process_t, Box<dyn Endpoint>), Code> {
    let named = |place: &Place, claim: &Claim| ptl_process_t { nid: place.nid(), pid: claim.pid };
    if let Some((place, claim)) = site {
        if wanted.is_some_and(|wanted| wanted != claim.pid) {
            return Err(ARG_INVALID);
        }
        let own = named(place, claim);
        let endpoint = place.open(number, own.pid).map_err(|error| say(own, &error))?;
        return Ok((place.clone(), own, endpoint));
    }
    let failed = |error: &dyn std::fmt::Display| {
        eprintln!("portals: {error}");
        FAIL
    };
    let place = Place::find(&job::place()).map_err(|error| failed(&error))?;
    // Numbers that were tried are kept until one is good, so that others are tried.
    let mut tried: Vec<Claim> = Vec::new();
    loop {
        let claim = place.claim(wanted).map_err(|error| failed(&error))?;
        let claim = claim.ok_or(if wanted.is_some() { PID_IN_USE } else { NO_SPACE })?;
        let own = named(&place, &claim);
        match place.open(number, own.pid) {
            Ok(endpoint) => {
                *site = Some((place.clone(), claim));
                return Ok((place, own, endpoint));
            }
            Err(error) if wanted.is_some() || tried.len() + 1 >= TRIES => {
                return Err(say(own, &error));
            }
            Err(_) => tried.push(claim),
        }
    }
}

/// Limits as they are asked for.
struct Asked {
    limits: Limits,
    max_iovecs: i32,
    max_msg_size: u64,
    max_volatile_size: u64,
    features: u32,
}

/// Pieces of one memory, where nothing else is asked for.
const IOVECS: i32 = 1024;
/// Bytes of a message, where nothing else is asked for: programs allocate buffers of this size.
const MESSAGE: u64 = 16 << 20;
/// Bytes of an atomic operation, as far as the transport takes them: as many as of a volatile one,
/// which Sandia OpenSHMEM takes for granted.
const ATOMIC: u64 = 16 << 10;
/// Portal table entries, where nothing else is asked for, and at most.
const PORTALS: (i32, i32) = (256, 4096);

impl Asked {
    fn new(desired: Option<&ptl_ni_limits_t>) -> Asked {
        let cap = |wanted: i32, default: usize, most: usize| match usize::try_from(wanted) {
            Ok(wanted) if wanted > 0 => wanted.min(most),
            _ => default.min(most),
        };
        let size = |wanted: u64, default: u64| if wanted > 0 { wanted } else { default };
        let none = ptl_ni_limits_t {
            max_entries: 0,
            max_unexpected_headers: 0,
            max_mds: 0,
            max_cts: 0,
            max_eqs: 0,
            max_pt_index: 0,
            max_iovecs: 0,
            max_list_size: 0,
            max_triggered_ops: 0,
            max_msg_size: 0,
            max_atomic_size: 0,
            max_fetch_atomic_size: 0,
            max_waw_ordered_size: 0,
            max_war_ordered_size: 0,
            max_volatile_size: 0,
            features: u32::MAX,
        };
        let wanted = desired.unwrap_or(&none);
        let usual = Limits::default();
        let atomic = size(wanted.max_atomic_size, u64::MAX);
        let fetching = size(wanted.max_fetch_atomic_size, u64::MAX);
        let portals = match wanted.max_pt_index {
            index if index > 0 => index.min(PORTALS.1 - 1) + 1,
            _ => PORTALS.0,
        };
        let limits = Limits {
            portals: portals as u16,
            entries: cap(wanted.max_entries, usual.entries, Kind::Entry.most()),
            list: cap(wanted.max_list_size, usual.list, usize::MAX),
            headers: cap(wanted.max_unexpected_headers, usual.headers, 1 << 24),
            descriptors: cap(wanted.max_mds, usual.descriptors, Kind::Descriptor.most()),
            queues: cap(wanted.max_eqs, usual.queues, Kind::Queue.most()),
            counters: cap(wanted.max_cts, usual.counters, Kind::Counter.most()),
            triggered: cap(wanted.max_triggered_ops, usual.triggered, 1 << 24),
            atomic: ATOMIC.min(atomic).min(fetching) as usize,
            ..usual
        };
        Asked {
            limits,
            max_iovecs: if wanted.max_iovecs > 0 { wanted.max_iovecs.min(1 << 20) } else { IOVECS },
            max_msg_size: size(wanted.max_msg_size, MESSAGE).min(isize::MAX as u64 / 2),
            max_volatile_size: size(wanted.max_volatile_size, u64::MAX),
            features: wanted.features,
        }
    }

    /// Limits as they are.
    fn actual(&self, interface: &Interface) -> ptl_ni_limits_t {
        let (has, promises) = interface.limits();
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let coherent = if promises.coherent_atomics { features::COHERENT_ATOMICS } else { 0 };
        ptl_ni_limits_t {
            max_entries: number(has.entries),
            max_unexpected_headers: number(has.headers),
            max_mds: number(has.descriptors),
            max_cts: number(has.counters),
            max_eqs: number(has.queues),
            max_pt_index: i32::from(has.portals) - 1,
            max_iovecs: self.max_iovecs,
            max_list_size: number(has.list.min(has.entries)),
            max_triggered_ops: number(has.triggered),
            max_msg_size: self.max_msg_size,
            max_atomic_size: has.atomic as u64,
            max_fetch_atomic_size: has.atomic as u64,
            max_waw_ordered_size: promises.ordered,
            max_war_ordered_size: promises.ordered,
            max_volatile_size: promises.volatile.min(self.max_volatile_size),
            features: self.features & (coherent | features::BIND_INACCESSIBLE),
        }
    }
}

/// What a call of the crate's is in the words of C.
pub(crate) fn code(error: &Error) -> Code {
    match error {
        Error::NoPortal => PT_FULL,
        Error::PortalTaken(_) | Error::InUse("the portal") => PT_IN_USE,
        Error::InUse(_) => IN_USE,
        // Programs know the one that the reference implementation returns for both.
        Error::ListTooLong { .. } | Error::NoSpace { .. } => NO_SPACE,
        Error::Aborted => ABORTED,
        Error::System(_) => FAIL,
        _ => ARG_INVALID,
    }
}
