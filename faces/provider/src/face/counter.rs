//! `fid_cntr`: counters of completions.

use super::{
    domain::{self, Shared},
    object::{Kind, close, get, give, int},
    queue::{bed, tell_wait, wait},
    refuse,
};
use crate::state::{State, error::Errno, queue::Counter, sleep::Bed};
use petasos_ofi_sys::*;
use std::{
    ffi::{c_int, c_void},
    mem,
    sync::Arc,
    time::Duration,
};

/// A counter of a domain.
pub(super) struct Counting {
    pub(super) domain: Arc<Shared>,
    pub(super) at: usize,
    bed: Arc<Bed>,
    wait: c_int,
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_counter,
    bind: refuse::bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static COUNTER: fi_ops_cntr = fi_ops_cntr {
    size: mem::size_of::<fi_ops_cntr>(),
    read,
    readerr,
    add,
    set,
    wait: wait_for,
    adderr,
    seterr,
};

impl Kind for Counting {
    type Fid = fid_cntr;
    const CLASS: usize = FI_CLASS_CNTR;
    fn ops() -> &'static fi_ops {
        &OPS
    }
    fn descriptor(&self, fid: fid) -> fid_cntr {
        fid_cntr { fid, ops: &COUNTER }
    }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_cntr_attr,
    out: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives a domain, attributes or null, and a place.
    int(|| unsafe {
        let domain = domain::of(domain)?;
        let mut kind = FI_WAIT_NONE;
        if let Some(attributes) = attributes.as_ref() {
            if attributes.events != FI_CNTR_EVENTS_COMP {
                return Err(libc::ENOSYS);
            }
            kind = attributes.wait_obj;
        }
        give(out, context, || {
            // `fi_cntr_wait` is for all counters.
            let of = if kind == FI_WAIT_NONE { FI_WAIT_UNSPEC } else { kind };
            let (own, signal) = bed(of)?.ok_or(libc::ENOSYS)?;
            let counter = Counter::new(Some((Arc::clone(&own), signal)));
            let at = domain.lock().shared.counters.insert(counter);
            Ok(Counting { domain: Arc::clone(domain), at, bed: own, wait: kind })
        })
    })
}

unsafe extern "C" fn close_counter(fid: *mut fid) -> c_int {
    // SAFETY: the program closes an object once.
    int(|| unsafe {
        close::<Counting, _>(fid, |of| {
            let mut state = of.domain.lock();
            let counter = state.shared.counters.get(of.at);
            if counter.is_some_and(|counter| !counter.endpoints.is_empty()) {
                return Err(libc::EBUSY);
            }
            state.shared.counters.try_remove(of.at);
            Ok(())
        })
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: a counter, or null.
    int(|| unsafe {
        let of = get::<Counting, _>(fid)?;
        tell_wait(of.wait, Some(&of.bed), command, argument)
    })
}

fn progress(of: &Counting, state: &mut State) {
    if let Some(counter) = state.shared.counters.get(of.at) {
        let endpoints = counter.endpoints.clone();
        state.progress(&endpoints);
    }
}

/// Both values, after a pass.
///
/// # Safety
/// As [`get`].
unsafe fn values(counter: *mut fid_cntr) -> Result<(u64, u64), Errno> {
    // SAFETY: the caller's promise.
    let of = unsafe { get::<Counting, _>(counter) }?;
    let mut state = of.domain.lock();
    progress(of, &mut state);
    let counter = state.shared.counters.get(of.at).ok_or(libc::EINVAL)?;
    Ok((counter.value, counter.errors))
}

unsafe extern "C" fn read(counter: *mut fid_cntr) -> u64 {
    let mut value = 0;
    // SAFETY: a counter, or null.
    int(|| unsafe { values(counter).map(|(of, _)| value = of).map(|()| 0) });
    value
}

unsafe extern "C" fn readerr(counter: *mut fid_cntr) -> u64 {
    let mut errors = 0;
    // SAFETY: a counter, or null.
    int(|| unsafe { values(counter).map(|(_, of)| errors = of).map(|()| 0) });
    errors
}

/// Changes a counter.
///
/// # Safety
/// As [`get`].
unsafe fn change(counter: *mut fid_cntr, change: impl FnOnce(&mut Counter)) -> c_int {
    // SAFETY: the caller's promise.
    int(|| unsafe {
        let of = get::<Counting, _>(counter)?;
        let mut state = of.domain.lock();
        let counter = state.shared.counters.get_mut(of.at).ok_or(libc::EINVAL)?;
        change(counter);
        counter.signal.raise();
        Ok(0)
    })
}

unsafe extern "C" fn add(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: a counter, or null.
    unsafe { change(counter, |counter| counter.add(value, 0)) }
}

unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: a counter, or null.
    unsafe { change(counter, |counter| counter.value = value) }
}

unsafe extern "C" fn adderr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: a counter, or null.
    unsafe { change(counter, |counter| counter.add(0, value)) }
}

unsafe extern "C" fn seterr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: a counter, or null.
    unsafe { change(counter, |counter| counter.errors = value) }
}

unsafe extern "C" fn wait_for(counter: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: a counter, or null.
    int(|| unsafe {
        let of = get::<Counting, _>(counter)?;
        let errors = of.domain.lock().shared.counters.get(of.at).map_or(0, |it| it.errors);
        let look = |sleeps| {
            let mut state = of.domain.lock();
            progress(of, &mut state);
            let counter = state.shared.counters.get(of.at)?;
            if counter.value >= threshold {
                return Some(Ok(0));
            }
            if counter.errors != errors {
                return Some(Err(FI_EAVAIL as Errno));
            }
            if sleeps {
                arm(&mut state, of);
            }
            None
        };
        wait(&of.bed, timeout, look).map_err(|errno| match errno {
            libc::EAGAIN => libc::ETIMEDOUT,
            other => other,
        })
    })
}

fn arm(state: &mut State, of: &Counting) -> bool {
    let Some(counter) = state.shared.counters.get(of.at) else { return false };
    let endpoints = counter.endpoints.clone();
    let longest = state.arm(&endpoints);
    let Some(counter) = state.shared.counters.get_mut(of.at) else { return false };
    of.bed.arm(&mut counter.signal, longest.unwrap_or(Some(Duration::ZERO)));
    longest.is_some()
}

/// Whether a program may sleep on the descriptor of a counter.
///
/// # Errors
/// `EAGAIN`: there is something to do.
pub(super) fn may_sleep(of: &Counting) -> Result<(), Errno> {
    let mut state = of.domain.lock();
    let value = |state: &State| state.shared.counters.get(of.at).map(|it| (it.value, it.errors));
    let before = value(&state);
    progress(of, &mut state);
    if value(&state) == before && arm(&mut state, of) { Ok(()) } else { Err(libc::EAGAIN) }
}
