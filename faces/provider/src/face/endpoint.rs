//! `fid_ep`: endpoints, as objects.

use super::{
    access,
    counter::Counting,
    domain::{self, Shared},
    events::Events,
    format::{Format, tell, whole},
    info, log, message,
    object::{Kind, close, get, give, int, size},
    queue::Completions,
    refuse,
    vector::Addresses,
};
use crate::{
    limits::LEAVE,
    state::{Endpoint, State, error::Errno, open as fabric},
};
use petasos_ofi_sys::*;
use std::{
    ffi::{c_int, c_void},
    mem,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::Instant,
};

/// An endpoint of a domain.
pub(super) struct Side {
    pub(super) domain: Arc<Shared>,
    pub(super) at: usize,
    /// Whether receives may name their source.
    pub(super) directed: bool,
    /// Where the program wants it to be.
    source: Option<SocketAddr>,
}

static OPS: fi_ops = fi_ops {
    size: mem::size_of::<fi_ops>(),
    close: close_endpoint,
    bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static ENDPOINT: fi_ops_ep = fi_ops_ep {
    size: mem::size_of::<fi_ops_ep>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: refuse::tx_ctx,
    rx_ctx: refuse::rx_ctx,
    rx_size_left: refuse::size_left,
    tx_size_left: refuse::size_left,
};

static CONNECTIONS: fi_ops_cm = fi_ops_cm {
    size: mem::size_of::<fi_ops_cm>(),
    setname: refuse::setname,
    getname,
    getpeer: refuse::getpeer,
    connect: refuse::connect,
    listen: refuse::listen,
    accept: refuse::accept,
    reject: refuse::reject,
    shutdown: refuse::shutdown,
    join: refuse::join,
};

impl Kind for Side {
    type Fid = fid_ep;
    const CLASS: usize = FI_CLASS_EP;
    fn ops() -> &'static fi_ops {
        &OPS
    }
    fn descriptor(&self, fid: fid) -> fid_ep {
        fid_ep {
            fid,
            ops: &ENDPOINT,
            cm: &CONNECTIONS,
            msg: &message::PLAIN,
            rma: &access::RMA,
            tagged: &message::TAGGED,
            atomic: &access::ATOMIC,
            collective: std::ptr::null(),
        }
    }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives a domain, a description from `fi_getinfo`, and a place.
    int(|| unsafe {
        let domain = domain::of(domain)?;
        let info = info.as_ref().ok_or(libc::EINVAL)?;
        if let Some(attributes) = info.ep_attr.as_ref()
            && !matches!(attributes.r#type, FI_EP_UNSPEC | FI_EP_RDM)
        {
            return Err(libc::ENOSYS);
        }
        let transmit = info.tx_attr.as_ref().map_or(0, |attributes| attributes.op_flags);
        let order = info.tx_attr.as_ref().map_or(0, |attributes| attributes.msg_order);
        let receive = info.rx_attr.as_ref().map_or(0, |attributes| attributes.op_flags);
        let directed = domain::directed(info.caps);
        let format = Format::of(info.addr_format).ok_or(libc::EINVAL)?;
        let source = format.given(info.src_addr, info.src_addrlen)?.and_then(|at| at.place());
        give(out, context, || {
            let mut endpoint = Endpoint::new(transmit, receive);
            endpoint.ordered_atomics = order & info::ATOMIC_ORDER != 0;
            let at = domain.lock().endpoints.insert(endpoint);
            Ok(Side { domain: Arc::clone(domain), at, directed, source })
        })
    })
}

pub(super) unsafe extern "C" fn open2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_EBADFLAGS;
    }
    // SAFETY: as there.
    unsafe { open(domain, info, out, context) }
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: descriptors that are open, or null.
    int(|| unsafe {
        let of = get::<Side, _>(fid)?;
        let mut state = of.domain.lock();
        if state.endpoints[of.at].is_enabled() {
            return Err(FI_EOPBADSTATE);
        }
        let here = |domain: &Arc<Shared>| match Arc::ptr_eq(domain, &of.domain) {
            true => Ok(()),
            false => Err(petasos_ofi_sys::FI_EDOMAIN),
        };
        if let Ok(vector) = get::<Addresses, _>(other) {
            here(&vector.domain)?;
            bind_vector(&mut state, of.at, vector.at)
        } else if let Ok(queue) = get::<Completions, _>(other) {
            here(&queue.domain)?;
            bind_queue(&mut state, of.at, queue.at, flags)
        } else if let Ok(counter) = get::<Counting, _>(other) {
            here(&counter.domain)?;
            bind_counter(&mut state, of.at, counter.at, flags)
        } else {
            // There are no events.
            get::<Events, _>(other).map(|_| ())
        }?;
        Ok(0)
    })
}

fn bind_vector(state: &mut State, at: usize, vector: usize) -> Result<(), Errno> {
    if state.endpoints[at].vector.is_some() {
        return Err(libc::EINVAL);
    }
    state.endpoints[at].vector = Some(vector);
    enter(&mut state.shared.vectors[vector].endpoints, at);
    Ok(())
}

fn bind_queue(state: &mut State, at: usize, queue: usize, flags: u64) -> Result<(), Errno> {
    let directions = FI_TRANSMIT | FI_RECV;
    if flags & !(directions | FI_SELECTIVE_COMPLETION) != 0 {
        return Err(FI_EBADFLAGS);
    }
    let endpoint = &mut state.endpoints[at];
    let ways = [(FI_TRANSMIT, &mut endpoint.transmit), (FI_RECV, &mut endpoint.receive)];
    for (direction, binding) in ways {
        if flags & direction != 0 {
            if binding.queue.is_some() {
                return Err(libc::EINVAL);
            }
            binding.queue = Some(queue);
            binding.selective = flags & FI_SELECTIVE_COMPLETION != 0;
        }
    }
    enter(&mut state.shared.queues[queue].endpoints, at);
    Ok(())
}

fn bind_counter(state: &mut State, at: usize, counter: usize, flags: u64) -> Result<(), Errno> {
    let counts = &mut state.endpoints[at].counts;
    let mut ways = [
        (FI_SEND, &mut counts.send),
        (FI_RECV, &mut counts.receive),
        (FI_READ, &mut counts.read),
        (FI_WRITE, &mut counts.write),
    ];
    let known = ways.iter().fold(0, |all, (flag, _)| all | flag);
    // What peers do to memory here is not seen.
    if flags & !known != 0 {
        return Err(libc::ENOSYS);
    }
    for (flag, place) in &mut ways {
        if flags & *flag != 0 {
            **place = Some(counter);
        }
    }
    enter(&mut state.shared.counters[counter].endpoints, at);
    Ok(())
}

fn enter(list: &mut Vec<usize>, at: usize) {
    if !list.contains(&at) {
        list.push(at);
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    int(|| {
        // SAFETY: an endpoint, or null.
        let of = unsafe { get::<Side, _>(fid) }?;
        if command == FI_ENABLE {
            return enable(of).map(|()| 0);
        }
        if !matches!(command, FI_GETOPSFLAG | FI_SETOPSFLAG) {
            return Err(libc::ENOSYS);
        }
        // SAFETY: for these commands it is null or a place for flags.
        let flags = unsafe { argument.cast::<u64>().as_mut() }.ok_or(libc::EINVAL)?;
        let mut state = of.domain.lock();
        let endpoint = &mut state.endpoints[of.at];
        let own = match *flags & (FI_TRANSMIT | FI_RECV) {
            FI_TRANSMIT => &mut endpoint.transmit_flags,
            FI_RECV => &mut endpoint.receive_flags,
            _ => return Err(libc::EINVAL),
        };
        match command {
            FI_GETOPSFLAG => *flags = *own,
            _ => *own = *flags & !(FI_TRANSMIT | FI_RECV),
        }
        Ok(0)
    })
}

fn enable(of: &Side) -> Result<(), Errno> {
    let mut state = of.domain.lock();
    let (endpoint, shared) = state.endpoint(of.at);
    if endpoint.is_enabled() {
        return Ok(());
    }
    if endpoint.vector.is_none() {
        return Err(FI_ENOAV);
    }
    let opened = fabric::open(of.source).map_err(|why| {
        log::warn(&format!("no endpoint: {why}"));
        libc::EADDRNOTAVAIL
    })?;
    endpoint.enable(opened, shared)?;
    state.kick();
    Ok(())
}

unsafe extern "C" fn getname(fid: *mut fid, out: *mut c_void, len: *mut usize) -> c_int {
    int(|| {
        // SAFETY: an endpoint, or null.
        let of = unsafe { get::<Side, _>(fid) }?;
        let name = of.domain.lock().endpoints[of.at].name().ok_or(FI_EOPBADSTATE)?;
        let name = of.domain.format.encode(&name).ok_or(libc::EADDRNOTAVAIL)?;
        // SAFETY: the program says how much room there is.
        whole(unsafe { tell(&name, out, len) }?)
    })
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    size(|| {
        // SAFETY: an endpoint, or null.
        let of = unsafe { get::<Side, _>(fid) }?;
        let mut state = of.domain.lock();
        let (endpoint, shared) = state.endpoint(of.at);
        endpoint.cancel(shared, context.addr());
        state.kick();
        Ok(0)
    })
}

unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    option: c_int,
    out: *mut c_void,
    len: *mut usize,
) -> c_int {
    int(|| {
        // SAFETY: an endpoint, or null; and a length, or null.
        let (of, len) = unsafe { (get::<Side, _>(fid)?, len.as_mut()) };
        if level != FI_OPT_ENDPOINT || option != FI_OPT_MIN_MULTI_RECV {
            return Err(libc::ENOPROTOOPT);
        }
        let len = len.ok_or(libc::EINVAL)?;
        if out.is_null() || *len < size_of::<usize>() {
            return Err(FI_ETOOSMALL);
        }
        *len = size_of::<usize>();
        let value = of.domain.lock().endpoints[of.at].min_multi;
        // SAFETY: not null, and there is room for a number; wherever it is aligned.
        unsafe { out.cast::<usize>().write_unaligned(value) };
        Ok(0)
    })
}

unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    int(|| {
        // SAFETY: an endpoint, or null.
        let of = unsafe { get::<Side, _>(fid) }?;
        if level != FI_OPT_ENDPOINT || option != FI_OPT_MIN_MULTI_RECV {
            return Err(libc::ENOPROTOOPT);
        }
        if value.is_null() || len != size_of::<usize>() {
            return Err(libc::EINVAL);
        }
        // SAFETY: not null, and so long; wherever it is aligned.
        let value = unsafe { value.cast::<usize>().read_unaligned() };
        of.domain.lock().endpoints[of.at].min_multi = value;
        Ok(0)
    })
}

/// Passes in a row while an endpoint ends, as long as something happens.
const PASSES: usize = 256;

unsafe extern "C" fn close_endpoint(fid: *mut fid) -> c_int {
    // SAFETY: the program closes an object once.
    int(|| unsafe {
        close::<Side, _>(fid, |of| {
            let began = Instant::now();
            of.domain.lock().endpoints[of.at].leave();
            loop {
                let mut state = of.domain.lock();
                let (endpoint, shared) = state.endpoint(of.at);
                // Thousands of messages may be under way, of which each pass ends a few: where others
                // have the processors, each word to them costs milliseconds.
                for _ in 0..PASSES {
                    if !endpoint.progress(shared) {
                        break;
                    }
                }
                if endpoint.has_left(began.elapsed()) {
                    let refused = endpoint.refused_connections();
                    forget(&mut state, of.at);
                    if refused > 0 {
                        log::warn(&format!(
                            "{refused} connections were refused: their processes did not prove \
                             that they know this job's secret, or sent something else"
                        ));
                    }
                    return Ok(());
                }
                let busy = began.elapsed() > 2 * LEAVE;
                let under_way = busy.then(|| endpoint.under_way());
                drop(state);
                if let Some(under_way) = under_way {
                    log::warn(&format!("an endpoint is not closed yet: {under_way}"));
                    // A peer that is stopped may be in memory of the program's, which has to stay.
                    return Err(libc::EBUSY);
                }
                thread::yield_now();
            }
        })
    })
}

/// Removes an endpoint, and from all that it was bound to.
fn forget(state: &mut State, at: usize) {
    state.endpoints.remove(at);
    let shared = &mut state.shared;
    let queues = shared.queues.iter_mut().map(|(_, queue)| &mut queue.endpoints);
    let counters = shared.counters.iter_mut().map(|(_, counter)| &mut counter.endpoints);
    let vectors = shared.vectors.iter_mut().map(|(_, vector)| &mut vector.endpoints);
    for list in queues.chain(counters).chain(vectors) {
        list.retain(|other| *other != at);
    }
}
