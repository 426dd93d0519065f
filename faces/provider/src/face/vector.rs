//! `fid_av`: address vectors.

use super::{
    domain::{self, Shared},
    events::{EventQueue, Events, Failed},
    format::{Format, tell},
    hosts::{self, Wanted},
    log,
    object::{Kind, close, get, give, int},
    refuse,
};
use crate::state::{
    error::Errno,
    name::Named,
    open::{SECRET_FILE, has_secret},
    vector::{NotEntered, Vector},
};
use petasos_ofi_sys::*;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem, ptr, slice,
    sync::{Arc, Mutex, PoisonError},
};

/// The most hosts and ports that are entered by one call.
const MOST: usize = 1 << 20;

/// An address vector of a domain.
pub(super) struct Addresses {
    pub(super) domain: Arc<Shared>,
    pub(super) at: usize,
    /// `FI_EVENT`: what was entered is told by events, of this queue.
    tells: bool,
    events: Mutex<Option<Arc<EventQueue>>>,
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_vector,
    bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static VECTOR: fi_ops_av = fi_ops_av {
    size: mem::size_of::<fi_ops_av>(),
    insert,
    insertsvc,
    insertsym,
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
        // There are none by a name, by which several processes share them.
        if !attributes.name.is_null() {
            return Err(libc::ENOSYS);
        }
        if attributes.flags & !(FI_EVENT | FI_SYMMETRIC) != 0 {
            return Err(FI_EBADFLAGS);
        }
        let tells = attributes.flags & FI_EVENT != 0;
        if attributes.rx_ctx_bits != 0 {
            return Err(libc::EINVAL);
        }
        if attributes.r#type == 0 {
            attributes.r#type = FI_AV_TABLE;
        }
        give(out, context, || {
            let at = domain.lock().shared.vectors.insert(Vector::default());
            let (domain, events) = (Arc::clone(domain), Mutex::new(None));
            Ok(Addresses { domain, at, tells, events })
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

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: two descriptors that are open, or null.
    int(|| unsafe {
        let (of, events) = (get::<Addresses, _>(fid)?, get::<Events, _>(other)?);
        if flags != 0 {
            return Err(FI_EBADFLAGS);
        }
        *of.events.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&events.0));
        Ok(0)
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
        if count > 0 && names.is_null() {
            return Err(libc::EINVAL);
        }
        let mut at = names.cast::<u8>();
        let all = (0..count).map(|_| {
            // SAFETY: there are `count` addresses, one behind the other, in the format that the
            // domain was opened with.
            unsafe {
                let (named, len) = of.domain.format.read(at);
                at = at.add(len);
                named
            }
        });
        // SAFETY: as the program says, see there.
        unsafe { enter(of, av, all.collect(), numbers, flags, context) }
    })
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    number: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as below, for one host and one port.
    unsafe { insertsym(av, node, 1, service, 1, number, flags, context) }
}

unsafe extern "C" fn insertsym(
    av: *mut fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    int(|| {
        // SAFETY: a vector, or null.
        let of = unsafe { get::<Addresses, _>(av) }?;
        let count = nodes.checked_mul(services).filter(|count| *count <= MOST);
        if count.is_none() || node.is_null() || service.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: not null, with a zero at the end.
        let (node, service) = unsafe { (CStr::from_ptr(node), CStr::from_ptr(service)) };
        let (host, port) = (node.to_str(), service.to_str());
        let (Ok(host), Ok(port)) = (host, port) else { return Err(libc::EINVAL) };
        let wanted = Wanted { six: of.domain.format == Format::Internet6, ..Wanted::default() };
        let find = |nth: usize, service: usize| {
            let (host, port) = (hosts::after(host, nth)?, hosts::after(port, service)?);
            let (host, port) = (CString::new(host).ok()?, CString::new(port).ok()?);
            hosts::find(Some(&host), Some(&port), wanted.flags(flags)).ok()
        };
        let all = (0..nodes).flat_map(|node| (0..services).map(move |service| (node, service)));
        let all = all.map(|(node, service)| find(node, service)).collect();
        // SAFETY: as the program says, see there.
        unsafe { enter(of, av, all, numbers, flags & !FI_NUMERICHOST, context) }
    })
}

/// Enters these addresses, and says what has become of each.
///
/// # Errors
/// No peer can be reached, nothing can be told, or the flags are of something else.
///
/// # Safety
/// `numbers` is null or has room for as many numbers; `context` is, where the flags ask for
/// errors, null or has room for as many of these.
unsafe fn enter(
    of: &Addresses,
    av: *mut fid_av,
    all: Vec<Option<Named>>,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> Result<isize, Errno> {
    let errors = flags & FI_SYNC_ERR != 0;
    if flags & !(FI_MORE | FI_SYNC_ERR) != 0 || errors && of.tells {
        return Err(FI_EBADFLAGS);
    }
    if errors && context.is_null() && !all.is_empty() {
        return Err(libc::EINVAL);
    }
    let events = of.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let events = match (of.tells, events) {
        (false, _) => None,
        (true, None) => return Err(FI_ENOEQ),
        (true, Some(events)) if events.is_full() => return Err(libc::EAGAIN),
        (true, events) => events,
    };
    let (mut failed, mut fresh) = (Vec::new(), false);
    let (mut foreign, mut unfound, secret) = (0, 0, has_secret());
    let mut state = of.domain.lock();
    let job = state.shared.job().map_err(|why| {
        log::warn(&format!("no peers: {why}"));
        libc::EADDRNOTAVAIL
    })?;
    let vector = state.shared.vectors.get_mut(of.at).ok_or(libc::EINVAL)?;
    for (nth, named) in all.iter().enumerate() {
        let entry = match named {
            Some(Named::Place(place)) if !secret && place.port() != 0 => {
                unfound += 1;
                Err(NotEntered::NoName)
            }
            Some(named) => vector.insert(named, job),
            None => Err(NotEntered::NoName),
        };
        fresh |= entry.is_ok_and(|(_, new)| new);
        foreign += usize::from(entry == Err(NotEntered::OtherJob));
        let error = match entry {
            Ok(_) => 0,
            Err(NotEntered::NoName) => libc::EINVAL,
            Err(NotEntered::OtherJob) => libc::EACCES,
        };
        if error != 0 {
            let (fid, context) = (av.addr(), context.addr());
            failed.push(Failed { fid, context, data: nth as u64, error });
        }
        // SAFETY: where they are not null there is room for all (the caller's promise).
        unsafe {
            if !numbers.is_null() {
                numbers.add(nth).write(entry.map_or(FI_ADDR_UNSPEC, |(number, _)| number));
            }
            if errors {
                context.cast::<c_int>().add(nth).write(error);
            }
        }
    }
    if fresh {
        state.renumber(of.at);
    }
    drop(state);
    let count = all.len();
    if foreign > 0 {
        log::warn(&format!(
            "{foreign} of {count} names are of processes with another secret, and so of another \
             job ({SECRET_FILE} is to name the same one for all processes of a job)"
        ));
    }
    if unfound > 0 {
        log::warn(&format!(
            "{unfound} of {count} peers are named by hosts and ports, which takes a secret, in a \
             file that {SECRET_FILE} names for all processes of the job"
        ));
    }
    let inserted = count - failed.len();
    let Some(events) = events else { return Ok(inserted as isize) };
    events.complete(FI_AV_COMPLETE, (av.addr(), context.addr()), inserted as u64, failed);
    Ok(0)
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
        let named = Named::of(address, job).ok_or(libc::EINVAL)?;
        let bytes = of.domain.format.encode(&named).ok_or(libc::EINVAL)?;
        // SAFETY: the program says how much room there is; see there.
        unsafe { tell(&bytes, out, len) }?;
        Ok(0)
    })
}

/// An address as text: the fabric's.
unsafe extern "C" fn straddr(
    av: *mut fid_av,
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
        // SAFETY: a vector or null, and an address in the format of its domain.
        let named = unsafe { get::<Addresses, _>(av)?.domain.format.read(name.cast()) }.0;
        let text = named.map_or("not an address of petasos".to_owned(), |it| it.to_text());
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
