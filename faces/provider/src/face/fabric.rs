//! `fid_fabric`: opens domains and event queues.

use super::{
    counter::{self, Counting},
    domain,
    events::{self, Events},
    object::{Kind, close, get, give, int},
    queue::{self, Completions},
    refuse,
};
use petasos_ofi_sys::*;
use std::{
    ffi::{c_int, c_void},
    mem, slice,
};

/// A fabric: all there is to it is the interface that the program asked for.
pub(super) struct Fabric {
    api: u32,
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_fabric,
    bind: refuse::bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static FABRIC: fi_ops_fabric = fi_ops_fabric {
    size: mem::size_of::<fi_ops_fabric>(),
    domain: domain::open,
    passive_ep: refuse::passive_ep,
    eq_open: events::open,
    wait_open: refuse::wait_open,
    trywait,
    domain2: domain::open2,
};

impl Kind for Fabric {
    type Fid = fid_fabric;
    const CLASS: usize = FI_CLASS_FABRIC;
    fn ops() -> &'static fi_ops {
        &OPS
    }
    fn descriptor(&self, fid: fid) -> fid_fabric {
        fid_fabric { fid, ops: &FABRIC, api_version: self.api }
    }
}

pub(super) unsafe extern "C" fn open(
    attributes: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric gives attributes or null, and a place for the fabric.
    int(|| unsafe {
        let api = attributes.as_ref().map_or(VERSION, |attributes| attributes.api_version);
        give(out, context, || Ok(Fabric { api }))
    })
}

unsafe extern "C" fn close_fabric(fid: *mut fid) -> c_int {
    // SAFETY: the program closes an object once.
    int(|| unsafe { close::<Fabric, _>(fid, |_| Ok(())) })
}

/// Whether a program may sleep on the descriptors of all of these.
unsafe extern "C" fn trywait(_: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    int(|| {
        let count = usize::try_from(count).map_err(|_| libc::EINVAL)?;
        if count == 0 {
            return Ok(0);
        }
        if fids.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: not null, and the program says how many there are.
        for &fid in unsafe { slice::from_raw_parts(fids, count) } {
            // SAFETY: pointers to descriptors that are open, or null.
            unsafe {
                if let Ok(queue) = get::<Completions, _>(fid) {
                    queue::may_sleep(queue)?;
                } else if let Ok(counter) = get::<Counting, _>(fid) {
                    counter::may_sleep(counter)?;
                } else if let Ok(events) = get::<Events, _>(fid) {
                    events.0.may_sleep()?;
                } else {
                    return Err(libc::EINVAL);
                }
            }
        }
        Ok(0)
    })
}
