//! `fid_eq`: event queues. In them are the events that the program writes itself, and those of
//! address vectors that were opened for it (`FI_EVENT`).

use super::{
    fabric::Fabric,
    object::{Kind, close, get, give, int, size},
    queue::{bed, tell_wait, wait},
    refuse,
};
use crate::state::{
    error::Errno,
    sleep::{Bed, Signal},
};
use petasos_ofi_sys::*;
use std::{
    collections::VecDeque,
    ffi::{c_char, c_int, c_void},
    mem, ptr, slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The longest event, in bytes, and the most of them.
const LONGEST: usize = 4096;
const MOST: usize = 1024;

/// An event queue, which what is bound to it keeps.
pub(super) struct Events(pub(super) Arc<EventQueue>);

/// What is in it, and how it is waited for.
pub(super) struct EventQueue {
    inner: Mutex<Inner>,
    bed: Option<Arc<Bed>>,
    wait: c_int,
}

struct Inner {
    events: VecDeque<Event>,
    signal: Signal,
}

enum Event {
    /// Its number, and what is told of it.
    Happened(u32, Vec<u8>),
    Failed(Failed),
}

/// Something that failed: of which object, with which context, as a number says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) fid: usize,
    pub(super) context: usize,
    pub(super) data: u64,
    pub(super) error: Errno,
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no room for an event.
    pub(super) fn is_full(&self) -> bool {
        self.lock().events.len() >= MOST
    }

    /// Tells of what was done for an object: first what failed, and then how much did not. The
    /// caller has looked for room before.
    pub(super) fn complete(
        &self,
        number: u32,
        (fid, context): (usize, usize),
        done: u64,
        failures: impl IntoIterator<Item = Failed>,
    ) {
        // Of a `fi_eq_entry`, whose fields are all of one size.
        let entry = [fid as u64, context as u64, done];
        let bytes = entry.into_iter().flat_map(u64::to_ne_bytes).collect();
        let mut inner = self.lock();
        inner.events.extend(failures.into_iter().map(Event::Failed));
        inner.events.push_back(Event::Happened(number, bytes));
        inner.signal.raise();
    }

    /// Whether a program may sleep on its descriptor.
    ///
    /// # Errors
    /// `EAGAIN`: there are events.
    pub(super) fn may_sleep(&self) -> Result<(), Errno> {
        let bed = self.bed.as_deref().ok_or(libc::EINVAL)?;
        let mut inner = self.lock();
        if !inner.events.is_empty() {
            return Err(libc::EAGAIN);
        }
        bed.arm(&mut inner.signal, None);
        Ok(())
    }
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_events,
    bind: refuse::bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static EVENTS: fi_ops_eq =
    fi_ops_eq { size: mem::size_of::<fi_ops_eq>(), read, readerr, write, sread, strerror };

impl Kind for Events {
    type Fid = fid_eq;
    const CLASS: usize = FI_CLASS_EQ;
    fn ops() -> &'static fi_ops {
        &OPS
    }
    fn descriptor(&self, fid: fid) -> fid_eq {
        fid_eq { fid, ops: &EVENTS }
    }
}

pub(super) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    attributes: *mut fi_eq_attr,
    out: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives a fabric, attributes or null, and a place.
    int(|| unsafe {
        get::<Fabric, _>(fabric)?;
        let kind = attributes.as_ref().map_or(FI_WAIT_NONE, |attributes| attributes.wait_obj);
        give(out, context, || {
            let (bed, signal) = bed(kind)?.unzip();
            let inner = Inner { events: VecDeque::new(), signal: signal.unwrap_or_default() };
            Ok(Events(Arc::new(EventQueue { inner: Mutex::new(inner), bed, wait: kind })))
        })
    })
}

unsafe extern "C" fn close_events(fid: *mut fid) -> c_int {
    // SAFETY: the program closes an object once.
    int(|| unsafe { close::<Events, _>(fid, |_| Ok(())) })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: an event queue, or null.
    int(|| unsafe {
        let of = &get::<Events, _>(fid)?.0;
        tell_wait(of.wait, of.bed.as_deref(), command, argument)
    })
}

/// Takes the next event, or with `FI_PEEK` looks at it.
///
/// # Errors
/// `EAGAIN`: there is none; `FI_EAVAIL`: something that failed comes next; `FI_ETOOSMALL`: it does
/// not fit.
///
/// # Safety
/// `event` is null or a place for a number, `out` null or room for `len` bytes.
unsafe fn take(
    of: &EventQueue,
    event: *mut u32,
    out: *mut c_void,
    len: usize,
    flags: u64,
) -> Result<isize, Errno> {
    let mut inner = of.lock();
    let Event::Happened(number, bytes) = inner.events.front().ok_or(libc::EAGAIN)? else {
        return Err(FI_EAVAIL as Errno);
    };
    if bytes.len() > len || event.is_null() || out.is_null() && !bytes.is_empty() {
        return Err(FI_ETOOSMALL);
    }
    // SAFETY: not null, and there is room (the caller's promise).
    unsafe {
        event.write(*number);
        ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len());
    }
    let len = bytes.len() as isize;
    if flags & FI_PEEK == 0 {
        inner.events.pop_front();
    }
    Ok(len)
}

unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    out: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: an event queue or null, and room for an event.
    size(|| unsafe { take(&get::<Events, _>(eq)?.0, event, out, len, flags) })
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, out: *mut fi_eq_err_entry, flags: u64) -> isize {
    // SAFETY: an event queue or null, and a place for an entry, or null.
    size(|| unsafe {
        let mut inner = get::<Events, _>(eq)?.0.lock();
        let Some(&Event::Failed(failed)) = inner.events.front() else { return Err(libc::EAGAIN) };
        let out = out.as_mut().ok_or(libc::EINVAL)?;
        out.fid = ptr::without_provenance_mut(failed.fid);
        out.context = ptr::without_provenance_mut(failed.context);
        out.data = failed.data;
        (out.err, out.prov_errno) = (failed.error, failed.error);
        // Where the program has room for more that is said of it, there is nothing.
        if out.err_data_size == 0 {
            out.err_data = ptr::null_mut();
        }
        out.err_data_size = 0;
        if flags & FI_PEEK == 0 {
            inner.events.pop_front();
        }
        Ok(size_of::<fi_eq_err_entry>() as isize)
    })
}

/// What failed is said where it fails, in libfabric's log.
unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    _: c_int,
    _: *const c_void,
    out: *mut c_char,
    len: usize,
) -> *const c_char {
    let text = c"what failed is said in libfabric's log (FI_LOG_LEVEL=warn)";
    if !out.is_null() && len > 0 {
        let fits = text.count_bytes().min(len - 1);
        // SAFETY: one byte less than there is room for, and the zero behind it.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), out, fits);
            out.add(fits).write(0);
        }
    }
    text.as_ptr()
}

unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    from: *const c_void,
    len: usize,
    _: u64,
) -> isize {
    size(|| {
        // SAFETY: an event queue, or null.
        let of = unsafe { &get::<Events, _>(eq)?.0 };
        if len > LONGEST || from.is_null() && len > 0 {
            return Err(libc::EINVAL);
        }
        let bytes = match len {
            0 => Vec::new(),
            // SAFETY: not null, and the program says how long it is.
            _ => unsafe { slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec(),
        };
        let mut inner = of.lock();
        if inner.events.len() >= MOST {
            return Err(libc::EAGAIN);
        }
        inner.events.push_back(Event::Happened(event, bytes));
        inner.signal.raise();
        Ok(len as isize)
    })
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    out: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    // SAFETY: an event queue or null, and room for an event.
    size(|| unsafe {
        let of = &get::<Events, _>(eq)?.0;
        let bed = of.bed.as_deref().ok_or(libc::ENOSYS)?;
        wait(bed, timeout, |sleeps| {
            match take(of, event, out, len, flags) {
                Err(libc::EAGAIN) => {}
                result => return Some(result),
            }
            if sleeps {
                let _ = of.may_sleep();
            }
            None
        })
    })
}
