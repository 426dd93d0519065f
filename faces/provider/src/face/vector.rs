//! `fid_av`: address vectors.

use super::{
    domain::{self, Shared},
    log,
    object::{Kind, close, get, give, int},
    refuse,
};
use crate::state::{
    error::Errno,
    name::{self, LEN, Name},
    open::SECRET_FILE,
    vector::{NotEntered, Vector},
};
use petasos_ofi_sys::*;
use std::{
    ffi::{c_char, c_int, c_void},
    mem, ptr, slice,
    sync::Arc,
};

/// An address vector of a domain.
pub(super) struct Addresses {
    pub(super) domain: Arc<Shared>,
    pub(super) at: usize,
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_vector,
    bind: refuse::bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static VECTOR: fi_ops_av = fi_ops_av {
    size: mem::size_of::<fi_ops_av>(),
    insert,
    insertsvc: refuse::insertsvc,
    insertsym: refuse::insertsym,
    remove,
    lookup,
    straddr,
    av_set: refuse::av_set,
};

impl Kind for Addresses {
    type Fid = fid_av;
    const CLASS: usize = FI_CLASS_AV;
    fn ops() -> &'static fi_ops {
        &OPS
    }
    fn descriptor(&self, fid: fid) -> fid_av {
        fid_av { fid, ops: &VECTOR }
    }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives a domain, attributes and a place.
    int(|| unsafe {
        let domain = domain::of(domain)?;
        let attributes = attributes.as_mut().ok_or(libc::EINVAL)?;
        // Of a name, by which several processes share it, and of events there is nothing here.
        if !attributes.name.is_null() || attributes.flags & FI_EVENT != 0 {
            return Err(libc::ENOSYS);
        }
        if attributes.rx_ctx_bits != 0 {
            return Err(libc::EINVAL);
        }
        if attributes.r#type == 0 {
            attributes.r#type = FI_AV_TABLE;
        }
        give(out, context, || {
            let at = domain.lock().shared.vectors.insert(Vector::default());
            Ok(Addresses { domain: Arc::clone(domain), at })
        })
    })
}

unsafe extern "C" fn close_vector(fid: *mut fid) -> c_int {
    // SAFETY: the program closes an object once.
    int(|| unsafe {
        close::<Addresses, _>(fid, |of| {
            let mut state = of.domain.lock();
            if state.shared.vectors.get(of.at).is_some_and(|vector| !vector.endpoints.is_empty()) {
                return Err(libc::EBUSY);
            }
            state.shared.vectors.try_remove(of.at);
            Ok(())
        })
    })
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    names: *const c_void,
    count: usize,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    int(|| {
        // SAFETY: a vector, or null.
        let of = unsafe { get::<Addresses, _>(av) }?;
        let errors = flags & FI_SYNC_ERR != 0;
        if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
            return Err(FI_EBADFLAGS);
        }
        if count > 0 && (names.is_null() || errors && context.is_null()) {
            return Err(libc::EINVAL);
        }
        let (mut inserted, mut fresh, mut foreign) = (0, false, 0);
        let mut state = of.domain.lock();
        let job = state.shared.job().map_err(|why| {
            log::warn(&format!("no peers: {why}"));
            libc::EADDRNOTAVAIL
        })?;
        for nth in 0..count {
            let mut name: Name = [0; LEN];
            // SAFETY: there are `count` names of the length that `fi_getname` has told; bytes have
            // no alignment.
            unsafe {
                let from = names.cast::<u8>().add(nth * LEN);
                ptr::copy_nonoverlapping(from, name.as_mut_ptr(), LEN);
            }
            let vector = state.shared.vectors.get_mut(of.at).ok_or(libc::EINVAL)?;
            let entry = vector.insert(&name, job);
            inserted += isize::from(entry.is_ok());
            fresh |= entry.is_ok_and(|(_, new)| new);
            foreign += usize::from(entry == Err(NotEntered::OtherJob));
            // SAFETY: where they are not null there is room for `count` numbers, and where errors
            // are asked for, for as many of these.
            unsafe {
                if !numbers.is_null() {
                    numbers.add(nth).write(entry.map_or(FI_ADDR_UNSPEC, |(number, _)| number));
                }
                if errors {
                    let error = match entry {
                        Ok(_) => 0,
                        Err(NotEntered::NoName) => libc::EINVAL,
                        Err(NotEntered::OtherJob) => libc::EACCES,
                    };
                    context.cast::<c_int>().add(nth).write(error);
                }
            }
        }
        if foreign > 0 {
            log::warn(&format!(
                "{foreign} of {count} names are of processes with another secret, and so of \
                 another job ({SECRET_FILE} is to name the same one for all processes of a job)"
            ));
        }
        if fresh {
            state.renumber(of.at);
        }
        Ok(inserted)
    })
}

unsafe extern "C" fn remove(
    av: *mut fid_av,
    numbers: *mut fi_addr_t,
    count: usize,
    _: u64,
) -> c_int {
    int(|| {
        // SAFETY: a vector, or null.
        let of = unsafe { get::<Addresses, _>(av) }?;
        if count == 0 {
            return Ok(0);
        }
        if numbers.is_null() {
            return Err(libc::EINVAL);
        }
        let mut state = of.domain.lock();
        let mut all = Ok(0);
        // SAFETY: not null, and the program says how many there are.
        for &number in unsafe { slice::from_raw_parts(numbers, count) } {
            let vector = state.shared.vectors.get_mut(of.at).ok_or(libc::EINVAL)?;
            if vector.remove(number).is_none() {
                all = Err(libc::EINVAL);
            }
        }
        state.renumber(of.at);
        all
    })
}

unsafe extern "C" fn lookup(
    av: *mut fid_av,
    number: fi_addr_t,
    out: *mut c_void,
    len: *mut usize,
) -> c_int {
    int(|| {
        // SAFETY: a vector, or null.
        let of = unsafe { get::<Addresses, _>(av) }?;
        let state = of.domain.lock();
        let vector = state.shared.vectors.get(of.at);
        let address = vector.and_then(|vector| vector.address(number)).ok_or(libc::EINVAL)?;
        let job = state.shared.job().map_err(|_| libc::EADDRNOTAVAIL)?;
        let name = name::encode(address, job).ok_or(libc::EINVAL)?;
        // SAFETY: the program says how much room there is; see there.
        unsafe { tell(&name, out, len) }?;
        Ok(0)
    })
}

/// Writes a name, or as much as there is room for, and its length.
///
/// # Errors
/// There is no length, or no place.
///
/// # Safety
/// `len` is null or that of the room at `out`, which is null or has so much.
pub(super) unsafe fn tell(name: &Name, out: *mut c_void, len: *mut usize) -> Result<bool, Errno> {
    // SAFETY: null, or a length (the caller's promise).
    let room = unsafe { len.as_mut() }.ok_or(libc::EINVAL)?;
    let fits = (*room).min(LEN);
    let whole = *room >= LEN;
    if fits > 0 && out.is_null() {
        return Err(libc::EINVAL);
    }
    *room = LEN;
    if fits > 0 {
        // SAFETY: no more than there is room for, in memory that is not ours.
        unsafe { ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), fits) };
    }
    Ok(whole)
}

/// A name as text: the fabric's address.
unsafe extern "C" fn straddr(
    _: *mut fid_av,
    name: *const c_void,
    out: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    let write = || {
        // SAFETY: null, or a length.
        let room = unsafe { len.as_mut() }.ok_or(libc::EINVAL)?;
        if name.is_null() || *room > 0 && out.is_null() {
            return Err(libc::EINVAL);
        }
        let mut bytes: Name = [0; LEN];
        // SAFETY: a name is so long.
        unsafe { ptr::copy_nonoverlapping(name.cast::<u8>(), bytes.as_mut_ptr(), LEN) };
        let address = name::decode(&bytes);
        let text = address.as_ref().map_or("not an address of petasos", |(it, _)| it.as_str());
        let fits = text.len().min(room.saturating_sub(1));
        if *room > 0 {
            // SAFETY: one byte less than there is room for, and the zero behind it.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr().cast(), out, fits);
                out.add(fits).write(0);
            }
        }
        *room = text.len() + 1;
        Ok(0)
    };
    if int(write) == 0 { out } else { ptr::null() }
}
