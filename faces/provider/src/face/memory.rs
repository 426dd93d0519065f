//! `fid_mr`: registered memory.

use super::{
    domain::{Domain, Shared},
    endpoint::Side,
    local,
    object::{Kind, close, get, give, int, is},
    refuse,
};
use crate::{
    limits::LEAVE,
    state::{Registered, error::Errno},
};
use petasos_fabric::{Access, Region, Slice};
use petasos_ofi_sys::*;
use std::{
    ffi::{c_int, c_void},
    mem, ptr,
    sync::Arc,
    thread,
    time::Instant,
};

/// Memory that a domain has registered.
pub(super) struct Memory {
    domain: Arc<Shared>,
    key: u64,
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_memory,
    bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

pub(super) static OPS_MR: fi_ops_mr =
    fi_ops_mr { size: mem::size_of::<fi_ops_mr>(), reg, regv, regattr };

impl Kind for Memory {
    type Fid = fid_mr;
    const CLASS: usize = FI_CLASS_MR;
    fn ops() -> &'static fi_ops {
        &OPS
    }
    fn descriptor(&self, fid: fid) -> fid_mr {
        fid_mr { fid, mem_desc: ptr::null_mut(), key: self.key }
    }
}

unsafe extern "C" fn reg(
    domain: *mut fid,
    at: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives a domain, memory that stays until it is closed, and a place.
    int(|| unsafe {
        let piece = local::piece(at, len)?;
        let request = Request { piece, access, offset, key, flags };
        request.serve(domain, out, context)
    })
}

unsafe extern "C" fn regv(
    domain: *mut fid,
    pieces: *const libc::iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    int(|| unsafe {
        let piece = only(pieces, count)?;
        let request = Request { piece, access, offset, key, flags };
        request.serve(domain, out, context)
    })
}

unsafe extern "C" fn regattr(
    domain: *mut fid,
    attributes: *const fi_mr_attr,
    flags: u64,
    out: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: as above.
    int(|| unsafe {
        let of = attributes.as_ref().ok_or(libc::EINVAL)?;
        // Memory of devices is not claimed.
        if of.iface != 0 {
            return Err(libc::ENOSYS);
        }
        let piece = only(of.mr_iov, of.iov_count)?;
        let (access, offset, key) = (of.access, of.offset, of.requested_key);
        Request { piece, access, offset, key, flags }.serve(domain, out, of.context)
    })
}

/// The one piece that a registration may have.
///
/// # Safety
/// As [`local::vector`].
unsafe fn only(pieces: *const libc::iovec, count: usize) -> Result<Option<Slice>, Errno> {
    // SAFETY: the caller's promise.
    let mut pieces = unsafe { local::vector(pieces, count) }?;
    match (count, pieces.pop()) {
        (0 | 1, piece) => Ok(piece),
        _ => Err(libc::EINVAL),
    }
}

struct Request {
    piece: Option<Slice>,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
}

impl Request {
    /// # Safety
    /// As [`get`] and [`give`].
    unsafe fn serve(
        self,
        domain: *mut fid,
        out: *mut *mut fid_mr,
        context: *mut c_void,
    ) -> Result<isize, Errno> {
        let Request { piece, access, offset, key, flags } = self;
        // SAFETY: the caller's promise.
        let domain = unsafe { &get::<Domain, _>(domain)?.0 };
        if offset != 0 {
            return Err(libc::EINVAL);
        }
        if flags & !FI_MORE != 0 {
            return Err(FI_EBADFLAGS);
        }
        let mut rights = Access::NONE;
        if access & FI_REMOTE_READ != 0 {
            rights = rights.with(Access::READ);
        }
        if access & FI_REMOTE_WRITE != 0 {
            rights = rights.with(Access::WRITE).with(Access::ATOMIC);
        }
        let memory = match piece {
            Some(piece) if rights != Access::NONE => {
                check(&piece)?;
                piece
            }
            // Local memory need not be known.
            _ => Region::zeroed(0).whole(),
        };
        let at = if memory.is_empty() { 0 } else { memory.as_ptr().addr() as u64 };
        let base = if domain.by_address { at } else { 0 };
        let key = if domain.own_keys { domain.next_key() } else { key };
        // SAFETY: the caller's promise.
        unsafe {
            give(out, context, || {
                domain.lock().register(key, Registered { memory, rights, base })?;
                Ok(Memory { domain: Arc::clone(domain), key })
            })
        }
    }
}

/// Whether there is memory in all of a piece: peers would meet what is not there in this process.
fn check(piece: &Slice) -> Result<(), Errno> {
    const PAGE: usize = 4096;
    let at = piece.as_ptr();
    let before = at.addr() % PAGE;
    let start = at.wrapping_byte_sub(before);
    // SAFETY: with this flag the call only looks which pages there are; it takes any address.
    let result = unsafe { libc::msync(start.cast(), piece.len() + before, libc::MS_ASYNC) };
    if result == 0 { Ok(()) } else { Err(libc::EFAULT) }
}

unsafe extern "C" fn close_memory(fid: *mut fid) -> c_int {
    // SAFETY: the program closes an object once.
    int(|| unsafe {
        close::<Memory, _>(fid, |of| {
            let began = Instant::now();
            loop {
                let mut state = of.domain.lock();
                if state.deregister(of.key) {
                    return Ok(());
                }
                state.progress_all();
                drop(state);
                if began.elapsed() > LEAVE {
                    // A peer that is stopped may be in it: the program has to keep it.
                    return Err(libc::EBUSY);
                }
                thread::yield_now();
            }
        })
    })
}

/// To an endpoint memory is bound anyway; counters of what peers do to it are not had.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, _: u64) -> c_int {
    // SAFETY: descriptors that are open, or null.
    int(|| unsafe {
        get::<Memory, _>(fid)?;
        if is::<Side, _>(other) { Ok(0) } else { Err(libc::ENOSYS) }
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    // SAFETY: registered memory, or null.
    int(|| unsafe {
        get::<Memory, _>(fid)?;
        if command == FI_ENABLE { Ok(0) } else { Err(libc::ENOSYS) }
    })
}
