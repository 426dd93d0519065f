//! `fid_domain`: what an endpoint needs, and the thread that drives it where that was asked for.

use super::{
    counter, endpoint,
    fabric::Fabric,
    format::Format,
    info, memory,
    object::{Kind, close, get, give, int},
    queue, refuse, vector,
};
use crate::state::{State, error::Errno, sleep::Bed};
use petasos_ofi_sys::*;
use std::{
    ffi::{c_int, c_void},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// What the objects of a domain have in common.
pub(super) struct Shared {
    state: Mutex<State>,
    /// How peers name memory: by addresses of the owner's, or by offsets.
    pub(super) by_address: bool,
    /// How the program carries addresses.
    pub(super) format: Format,
    /// Whether the provider chooses the keys of memory.
    pub(super) own_keys: bool,
    next_key: AtomicU64,
    /// Ends the thread.
    stop: AtomicBool,
}

impl Shared {
    /// A panic of another call has left no more than that call undone.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_key(&self) -> u64 {
        self.next_key.fetch_add(1, Relaxed)
    }
}

/// A domain.
pub(super) struct Domain(pub(super) Arc<Shared>);

impl Drop for Domain {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
        self.0.lock().kick();
    }
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_domain,
    bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static DOMAIN: fi_ops_domain = fi_ops_domain {
    size: mem::size_of::<fi_ops_domain>(),
    av_open: vector::open,
    cq_open: queue::open,
    endpoint: endpoint::open,
    scalable_ep: refuse::scalable_ep,
    cntr_open: counter::open,
    poll_open: refuse::poll_open,
    stx_ctx: refuse::stx_ctx,
    srx_ctx: refuse::srx_ctx,
    query_atomic: super::access::query_atomic,
    query_collective: refuse::query_collective,
    endpoint2: endpoint::open2,
};

impl Kind for Domain {
    type Fid = fid_domain;
    const CLASS: usize = FI_CLASS_DOMAIN;
    fn ops() -> &'static fi_ops {
        &OPS
    }
    fn descriptor(&self, fid: fid) -> fid_domain {
        fid_domain { fid, ops: &DOMAIN, mr: &memory::OPS_MR }
    }
}

pub(super) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives a fabric, a description from `fi_getinfo`, and a place.
    int(|| unsafe {
        get::<Fabric, _>(fabric)?;
        let info = info.as_ref().ok_or(libc::EINVAL)?;
        let format = Format::of(info.addr_format).ok_or(libc::EINVAL)?;
        let domain = info.domain_attr.as_ref();
        let mode = domain.map_or(0, |domain| domain.mr_mode);
        let automatic = domain.is_some_and(|domain| domain.data_progress == FI_PROGRESS_AUTO);
        give(out, context, || make(mode, automatic, format))
    })
}

pub(super) unsafe extern "C" fn open2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_EBADFLAGS;
    }
    // SAFETY: as there.
    unsafe { open(fabric, info, out, context) }
}

fn make(mode: c_int, automatic: bool, format: Format) -> Result<Domain, Errno> {
    let bed = if automatic {
        let (bed, signal) = Bed::new().map_err(|error| error.raw_os_error())?;
        Some((Arc::new(bed), signal))
    } else {
        None
    };
    let own = bed.as_ref().map(|(bed, _)| Arc::clone(bed));
    let shared = Arc::new(Shared {
        state: Mutex::new(State::new(bed)),
        format,
        by_address: mode & (FI_MR_BASIC | FI_MR_VIRT_ADDR) != 0,
        own_keys: mode & (FI_MR_BASIC | FI_MR_PROV_KEY) != 0,
        next_key: AtomicU64::new(1),
        stop: AtomicBool::new(false),
    });
    if let Some(bed) = own {
        let of = Arc::downgrade(&shared);
        let drive = move || {
            // It ends with the last object of the domain.
            while let Some(shared) = of.upgrade() {
                if shared.stop.load(Relaxed) {
                    return;
                }
                let asleep = shared.lock().drive();
                drop(shared);
                if asleep {
                    Bed::sleep(bed.fd(), Some(Duration::from_secs(1)));
                } else {
                    thread::yield_now();
                }
            }
        };
        let builder = thread::Builder::new().name("petasos-provider".to_owned());
        builder.spawn(drive).map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
    }
    Ok(Domain(shared))
}

unsafe extern "C" fn close_domain(fid: *mut fid) -> c_int {
    // SAFETY: the program closes an object once.
    int(|| unsafe {
        close::<Domain, _>(fid, |Domain(shared)| {
            let state = shared.lock();
            let parts = &state.shared;
            let empty = state.endpoints.is_empty()
                && parts.queues.is_empty()
                && parts.counters.is_empty()
                && parts.vectors.is_empty()
                && parts.memory.is_empty();
            if empty { Ok(()) } else { Err(libc::EBUSY) }
        })
    })
}

/// An event queue: there are no events for it.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, _: u64) -> c_int {
    // SAFETY: two descriptors that are open, or null.
    int(|| unsafe {
        get::<Domain, _>(fid)?;
        get::<super::events::Events, _>(other).map(|_| 0)
    })
}

/// The domain behind a pointer.
///
/// # Errors
/// It is none.
///
/// # Safety
/// As [`get`].
pub(super) unsafe fn of<'a>(domain: *mut fid_domain) -> Result<&'a Arc<Shared>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { get::<Domain, _>(domain) }.map(|domain| &domain.0)
}

/// Whether an attribute `info` of an endpoint asks for directed receives.
pub(super) fn directed(capabilities: u64) -> bool {
    capabilities & FI_DIRECTED_RECV != 0 || capabilities == 0 && info::ALL & FI_DIRECTED_RECV != 0
}
