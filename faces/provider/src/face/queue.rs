//! `fid_cq`: completion queues.

use super::{
    domain::{self, Shared},
    object::{Kind, close, get, give, int, size},
    refuse,
};
use crate::state::{
    State,
    error::Errno,
    queue::{Entry, Queue},
    sleep::Bed,
};
use petasos_ofi_sys::*;
use std::{
    ffi::{CString, c_char, c_int, c_void},
    mem,
    os::fd::AsRawFd,
    ptr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// A completion queue of a domain.
pub(super) struct Completions {
    pub(super) domain: Arc<Shared>,
    pub(super) at: usize,
    /// Bytes of an entry.
    entry: usize,
    bed: Option<Arc<Bed>>,
    wait: c_int,
    /// What was said of the last failure that was read.
    said: Mutex<CString>,
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_queue,
    bind: refuse::bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static QUEUE: fi_ops_cq = fi_ops_cq {
    size: mem::size_of::<fi_ops_cq>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
};

impl Kind for Completions {
    type Fid = fid_cq;
    const CLASS: usize = FI_CLASS_CQ;
    fn ops() -> &'static fi_ops {
        &OPS
    }
    fn descriptor(&self, fid: fid) -> fid_cq {
        fid_cq { fid, ops: &QUEUE }
    }
}

/// What is needed to wait by this kind of object.
///
/// # Errors
/// There is no such kind here.
pub(super) fn bed(wait: c_int) -> Result<Option<(Arc<Bed>, crate::state::sleep::Signal)>, Errno> {
    match wait {
        FI_WAIT_NONE => Ok(None),
        FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => {
            let (bed, signal) = Bed::new().map_err(|error| error.raw_os_error())?;
            Ok(Some((Arc::new(bed), signal)))
        }
        _ => Err(libc::ENOSYS),
    }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives a domain, attributes or null, and a place.
    int(|| unsafe {
        let domain = domain::of(domain)?;
        let (mut entries, mut format, mut wait) = (0, FI_CQ_FORMAT_UNSPEC, FI_WAIT_NONE);
        if let Some(attributes) = attributes.as_ref() {
            (entries, format, wait) = (attributes.size, attributes.format, attributes.wait_obj);
        }
        let entry = match format {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => 8,
            FI_CQ_FORMAT_MSG => 24,
            FI_CQ_FORMAT_DATA => mem::size_of::<fi_cq_data_entry>(),
            FI_CQ_FORMAT_TAGGED => mem::size_of::<fi_cq_tagged_entry>(),
            _ => return Err(libc::ENOSYS),
        };
        give(out, context, || {
            let made = bed(wait)?;
            let own = made.as_ref().map(|(bed, _)| Arc::clone(bed));
            let at = domain.lock().shared.queues.insert(Queue::new(entries, made));
            let (domain, said) = (Arc::clone(domain), Mutex::default());
            Ok(Completions { domain, at, entry, bed: own, wait, said })
        })
    })
}

unsafe extern "C" fn close_queue(fid: *mut fid) -> c_int {
    // SAFETY: the program closes an object once.
    int(|| unsafe {
        close::<Completions, _>(fid, |of| {
            let mut state = of.domain.lock();
            if state.shared.queues.get(of.at).is_some_and(|queue| !queue.endpoints.is_empty()) {
                return Err(libc::EBUSY);
            }
            state.shared.queues.try_remove(of.at);
            Ok(())
        })
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: a queue, or null.
    int(|| unsafe {
        let of = get::<Completions, _>(fid)?;
        tell_wait(of.wait, of.bed.as_deref(), command, argument)
    })
}

/// Tells of the object by which something is waited for.
///
/// # Errors
/// There is none, or the command is another one.
///
/// # Safety
/// `argument` is null or what the command writes to.
pub(super) unsafe fn tell_wait(
    wait: c_int,
    bed: Option<&Bed>,
    command: c_int,
    argument: *mut c_void,
) -> Result<isize, Errno> {
    if argument.is_null() {
        return Err(libc::EINVAL);
    }
    let value = match (command, bed) {
        (FI_GETWAIT, Some(bed)) if wait == FI_WAIT_FD => bed.fd().as_raw_fd(),
        (FI_GETWAIT, _) => return Err(libc::ENODATA),
        (FI_GETWAITOBJ, _) => wait,
        _ => return Err(libc::ENOSYS),
    };
    // SAFETY: not null, and both commands write an `int`.
    unsafe { argument.cast::<c_int>().write(value) };
    Ok(0)
}

unsafe extern "C" fn read(cq: *mut fid_cq, out: *mut c_void, count: usize) -> isize {
    // SAFETY: as there.
    unsafe { readfrom(cq, out, count, ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    out: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
) -> isize {
    // SAFETY: a queue or null, and room for `count` entries and sources.
    size(|| unsafe {
        let of = get::<Completions, _>(cq)?;
        take(of, &mut of.domain.lock(), out, count, sources)
    })
}

/// Takes what there is, after a pass if there is nothing.
///
/// # Errors
/// `EAGAIN`: nothing; `FI_EAVAIL`: a failure comes next.
///
/// # Safety
/// There is room for `count` entries at `out`, and for as many sources where they are not null.
unsafe fn take(
    of: &Completions,
    state: &mut State,
    out: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
) -> Result<isize, Errno> {
    if count > 0 && out.is_null() {
        return Err(libc::EINVAL);
    }
    let queue = state.shared.queues.get(of.at).ok_or(libc::EINVAL)?;
    if queue.is_empty() || count == 0 {
        progress(of.at, state);
    }
    let queue = state.shared.queues.get_mut(of.at).ok_or(libc::EINVAL)?;
    let mut taken = 0;
    while taken < count
        && let Some(entry) = queue.pop()
    {
        // SAFETY: less than `count` entries were written; all formats are beginnings of the
        // longest, of which `of.entry` bytes are written. The program's room has no alignment that
        // would be relied on.
        unsafe {
            let entry_out = out.cast::<u8>().add(taken * of.entry);
            let tagged = tagged(&entry);
            ptr::copy_nonoverlapping((&raw const tagged).cast(), entry_out, of.entry);
            if !sources.is_null() {
                sources.add(taken).write(entry.source);
            }
        }
        taken += 1;
    }
    match taken {
        0 if queue.fails() => Err(FI_EAVAIL as Errno),
        0 => Err(libc::EAGAIN),
        _ => Ok(taken as isize),
    }
}

/// A pass of the endpoints of a queue.
fn progress(at: usize, state: &mut State) {
    let Some(queue) = state.shared.queues.get_mut(at) else { return };
    // The list is given back: it is not changed by a pass.
    let endpoints = mem::take(&mut queue.endpoints);
    state.progress(&endpoints);
    if let Some(queue) = state.shared.queues.get_mut(at) {
        queue.endpoints = endpoints;
    }
}

fn tagged(entry: &Entry) -> fi_cq_tagged_entry {
    fi_cq_tagged_entry {
        op_context: ptr::without_provenance_mut(entry.context),
        flags: entry.flags,
        len: entry.len,
        buf: ptr::without_provenance_mut(entry.buffer),
        data: entry.data,
        tag: entry.tag,
    }
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, out: *mut fi_cq_err_entry, _: u64) -> isize {
    // SAFETY: a queue or null.
    size(|| unsafe {
        let of = get::<Completions, _>(cq)?;
        if out.is_null() {
            return Err(libc::EINVAL);
        }
        let failure = {
            let mut state = of.domain.lock();
            let queue = state.shared.queues.get_mut(of.at).ok_or(libc::EINVAL)?;
            queue.pop_failure().ok_or(libc::EAGAIN)?
        };
        let entry = tagged(&failure.entry);
        // Field by field, and no more than versions before 1.20 have.
        (*out).op_context = entry.op_context;
        (*out).flags = entry.flags;
        (*out).len = entry.len;
        (*out).buf = entry.buf;
        (*out).data = entry.data;
        (*out).tag = entry.tag;
        (*out).olen = failure.beyond;
        (*out).err = failure.error;
        (*out).prov_errno = failure.error;
        // What is said of it comes by `fi_cq_strerror`.
        if (*out).err_data_size == 0 {
            (*out).err_data = ptr::null_mut();
        }
        (*out).err_data_size = 0;
        let text = CString::new(failure.text).unwrap_or_default();
        *of.said.lock().unwrap_or_else(PoisonError::into_inner) = text;
        Ok(1)
    })
}

/// What was said of the failure that was read last.
unsafe extern "C" fn strerror(
    cq: *mut fid_cq,
    _: c_int,
    _: *const c_void,
    out: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: a queue, or null.
    let Ok(of) = (unsafe { get::<Completions, _>(cq) }) else { return c"no queue".as_ptr() };
    let said = of.said.lock().unwrap_or_else(PoisonError::into_inner);
    if !out.is_null() && len > 0 {
        let fits = said.as_bytes().len().min(len - 1);
        // SAFETY: one byte less than there is room for, and the zero behind it.
        unsafe {
            ptr::copy_nonoverlapping(said.as_ptr(), out, fits);
            out.add(fits).write(0);
        }
        return out;
    }
    // It stays until the next failure is read.
    said.as_ptr()
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    out: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: as there.
    unsafe { sreadfrom(cq, out, count, ptr::null_mut(), condition, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    out: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
    _: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: a queue or null, and room for `count` entries and sources.
    size(|| unsafe {
        let of = get::<Completions, _>(cq)?;
        let bed = of.bed.as_deref().ok_or(libc::ENOSYS)?;
        wait(bed, timeout, |sleeps| {
            let mut state = of.domain.lock();
            match take(of, &mut state, out, count, sources) {
                Err(libc::EAGAIN) => {}
                result => return Some(result),
            }
            if mem::take(&mut state.shared.queues.get_mut(of.at)?.signalled) {
                return Some(Err(libc::EAGAIN));
            }
            if sleeps {
                arm(&mut state, bed, of.at);
            }
            None
        })
    })
}

/// Looks for something until it is there: a few times in a row, and then whenever the bed's sleep
/// ends. `look` is told whether sleep follows, for which it has to arm the bed.
///
/// # Errors
/// `EAGAIN`: it is not there after so many milliseconds; less than none is for ever.
pub(super) fn wait(
    bed: &Bed,
    timeout: c_int,
    mut look: impl FnMut(bool) -> Option<Result<isize, Errno>>,
) -> Result<isize, Errno> {
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    let began = Instant::now();
    for nth in 0u32.. {
        let sleeps = nth >= 64;
        if let Some(result) = look(sleeps) {
            return result;
        }
        let rest = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if rest == Some(Duration::ZERO) {
            break;
        }
        if sleeps {
            Bed::sleep(bed.fd(), rest);
        } else {
            thread::yield_now();
        }
    }
    Err(libc::EAGAIN)
}

/// Prepares sleep for a queue.
fn arm(state: &mut State, bed: &Bed, at: usize) -> bool {
    let Some(queue) = state.shared.queues.get(at) else { return false };
    let endpoints = queue.endpoints.clone();
    let longest = state.arm(&endpoints);
    let Some(queue) = state.shared.queues.get_mut(at) else { return false };
    // Where there is more to do, sleep ends at once.
    bed.arm(&mut queue.signal, longest.unwrap_or(Some(Duration::ZERO)));
    longest.is_some()
}

/// Whether a program may sleep on the descriptor of a queue.
///
/// # Errors
/// `EAGAIN`: there is something to do.
pub(super) fn may_sleep(of: &Completions) -> Result<(), Errno> {
    let bed = of.bed.as_deref().ok_or(libc::EINVAL)?;
    let mut state = of.domain.lock();
    let empty = |state: &State| state.shared.queues.get(of.at).is_none_or(Queue::is_empty);
    if !empty(&state) {
        return Err(libc::EAGAIN);
    }
    progress(of.at, &mut state);
    if empty(&state) && arm(&mut state, bed, of.at) { Ok(()) } else { Err(libc::EAGAIN) }
}

/// Ends the sleep of a thread that waits for a queue.
unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    // SAFETY: a queue, or null.
    int(|| unsafe {
        let of = get::<Completions, _>(cq)?;
        let mut state = of.domain.lock();
        let queue = state.shared.queues.get_mut(of.at).ok_or(libc::EINVAL)?;
        queue.signalled = true;
        queue.signal.raise();
        Ok(0)
    })
}
