//! `fi_ops_msg` and `fi_ops_tagged`: messages.

use super::{
    endpoint::Side,
    local,
    object::{get, size},
};
use crate::{
    limits::INJECT,
    state::{
        Peek, Receive, Send,
        error::Errno,
        wire::{Header, List},
    },
};
use petasos_fabric::operation::Slices;
use petasos_ofi_sys::*;
use std::{ffi::c_void, mem};

pub(super) static PLAIN: fi_ops_msg = fi_ops_msg {
    size: mem::size_of::<fi_ops_msg>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

pub(super) static TAGGED: fi_ops_tagged = fi_ops_tagged {
    size: mem::size_of::<fi_ops_tagged>(),
    recv: trecv,
    recvv: trecvv,
    recvmsg: trecvmsg,
    send: tsend,
    sendv: tsendv,
    sendmsg: tsendmsg,
    inject: tinject,
    senddata: tsenddata,
    injectdata: tinjectdata,
};

/// What a message is matched by.
#[derive(Clone, Copy)]
struct Match {
    list: List,
    source: fi_addr_t,
    tag: u64,
    ignore: u64,
}

/// The flags of an operation: those that it was given, or those of its endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flags {
    Own(u64),
    Endpoint,
    /// `fi_inject`: success is not reported.
    Inject,
}

fn plain(source: fi_addr_t) -> Match {
    Match { list: List::Plain, source, tag: 0, ignore: 0 }
}

fn tagged(source: fi_addr_t, tag: u64, ignore: u64) -> Match {
    Match { list: List::Tagged, source, tag, ignore }
}

fn header(tag: Option<u64>, data: Option<u64>) -> Header {
    let list = if tag.is_some() { List::Tagged } else { List::Plain };
    Header { list, tag: tag.unwrap_or(0), data }
}

/// What the flags of an operation may be.
const SEND_FLAGS: u64 = FI_MORE
    | FI_FENCE
    | FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_REMOTE_CQ_DATA;
const RECEIVE_FLAGS: u64 = FI_MORE | FI_COMPLETION | FI_MULTI_RECV;
const PEEK_FLAGS: u64 = FI_PEEK | FI_CLAIM | FI_DISCARD;

/// Sends.
///
/// # Safety
/// `ep` is null or an endpoint that is open.
unsafe fn transmit(
    ep: *mut fid_ep,
    local: Result<Slices, Errno>,
    header: Header,
    to: fi_addr_t,
    context: *mut c_void,
    flags: Flags,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let of = unsafe { get::<Side, _>(ep) }?;
    let local = local?;
    let mut state = of.domain.lock();
    let (endpoint, shared) = state.endpoint(of.at);
    let own = match flags {
        Flags::Own(flags) if flags & !SEND_FLAGS != 0 => return Err(FI_EBADFLAGS),
        Flags::Own(flags) => flags,
        Flags::Endpoint => endpoint.transmit_flags,
        Flags::Inject => FI_INJECT,
    };
    let len: usize = local.iter().map(petasos_fabric::Slice::len).sum();
    if own & FI_INJECT != 0 && len > INJECT && flags != Flags::Endpoint {
        return Err(libc::EINVAL);
    }
    let send = Send {
        header,
        to,
        local,
        context: context.addr(),
        report: flags != Flags::Inject && endpoint.transmit.reports(own),
        delivered: own & FI_DELIVERY_COMPLETE != 0,
        fence: own & FI_FENCE != 0,
    };
    let sent = endpoint.send(shared, send);
    if sent == Err(libc::EAGAIN) {
        // So that a program that only tries again gets on.
        endpoint.progress(shared);
    }
    state.kick();
    sent.map(|()| 0)
}

/// Posts a receive, or looks at what has come.
///
/// # Safety
/// As [`transmit`].
unsafe fn receive(
    ep: *mut fid_ep,
    local: Result<Slices, Errno>,
    by: Match,
    context: *mut c_void,
    flags: Flags,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let of = unsafe { get::<Side, _>(ep) }?;
    let into = local?;
    let mut state = of.domain.lock();
    let (endpoint, shared) = state.endpoint(of.at);
    if !endpoint.is_enabled() {
        return Err(FI_EOPBADSTATE);
    }
    let flags = match flags {
        Flags::Own(flags) => flags,
        _ => endpoint.receive_flags & RECEIVE_FLAGS,
    };
    if flags & !(RECEIVE_FLAGS | PEEK_FLAGS) != 0 {
        return Err(FI_EBADFLAGS);
    }
    let source = (of.directed && by.source != FI_ADDR_UNSPEC).then_some(by.source);
    let (tag, context) = ((by.tag, by.ignore), context.addr());
    let report = endpoint.receive.reports(flags);
    let multi = flags & FI_MULTI_RECV != 0;
    let (claim, discard) = (flags & FI_CLAIM != 0, flags & FI_DISCARD != 0);
    if flags & FI_PEEK != 0 {
        if claim && endpoint.has_claimed(context) {
            // It is by its context that it will be received.
            return Err(libc::EBUSY);
        }
        endpoint.progress(shared);
        endpoint.peek(shared, by.list, source, tag, Peek { context, claim, discard });
    } else if claim {
        let receive = Receive { context, into, report, multi: false };
        if !endpoint.claimed(shared, receive, discard) {
            return Err(libc::ENOMSG);
        }
    } else if discard {
        return Err(FI_EBADFLAGS);
    } else if multi && into.is_empty() {
        return Err(libc::EINVAL);
    } else {
        endpoint.post(shared, by.list, source, tag, Receive { context, into, report, multi });
    }
    state.kick();
    Ok(0)
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    at: *mut c_void,
    len: usize,
    _: *mut c_void,
    source: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program gives an endpoint, and memory that stays until the completion.
    size(|| unsafe { receive(ep, local::one(at, len), plain(source), context, Flags::Endpoint) })
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    pieces: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    source: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as above.
    size(|| unsafe {
        receive(ep, local::vector(pieces, count), plain(source), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let of = message.as_ref().ok_or(libc::EINVAL)?;
        let into = local::vector(of.msg_iov, of.iov_count);
        receive(ep, into, plain(of.addr), of.context, Flags::Own(flags))
    })
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let header = header(None, None);
    // SAFETY: as above.
    size(|| unsafe { transmit(ep, local::one(at, len), header, to, context, Flags::Endpoint) })
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    pieces: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let header = header(None, None);
    // SAFETY: as above.
    size(|| unsafe {
        transmit(ep, local::vector(pieces, count), header, to, context, Flags::Endpoint)
    })
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let of = message.as_ref().ok_or(libc::EINVAL)?;
        let header = header(None, (flags & FI_REMOTE_CQ_DATA != 0).then_some(of.data));
        let from = local::vector(of.msg_iov, of.iov_count);
        transmit(ep, from, header, of.addr, of.context, Flags::Own(flags))
    })
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    to: fi_addr_t,
) -> isize {
    let (header, none) = (header(None, None), std::ptr::null_mut());
    // SAFETY: the program gives an endpoint, and memory that stays until this returns.
    size(|| unsafe { transmit(ep, local::one(at, len), header, to, none, Flags::Inject) })
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let header = header(None, Some(data));
    // SAFETY: as for `send`.
    size(|| unsafe { transmit(ep, local::one(at, len), header, to, context, Flags::Endpoint) })
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
) -> isize {
    let (header, none) = (header(None, Some(data)), std::ptr::null_mut());
    // SAFETY: as for `inject`.
    size(|| unsafe { transmit(ep, local::one(at, len), header, to, none, Flags::Inject) })
}

unsafe extern "C" fn trecv(
    ep: *mut fid_ep,
    at: *mut c_void,
    len: usize,
    _: *mut c_void,
    source: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let by = tagged(source, tag, ignore);
    // SAFETY: the program gives an endpoint, and memory that stays until the completion.
    size(|| unsafe { receive(ep, local::one(at, len), by, context, Flags::Endpoint) })
}

unsafe extern "C" fn trecvv(
    ep: *mut fid_ep,
    pieces: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    source: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let by = tagged(source, tag, ignore);
    // SAFETY: as above.
    size(|| unsafe { receive(ep, local::vector(pieces, count), by, context, Flags::Endpoint) })
}

unsafe extern "C" fn trecvmsg(ep: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let of = message.as_ref().ok_or(libc::EINVAL)?;
        let by = tagged(of.addr, of.tag, of.ignore);
        let into = local::vector(of.msg_iov, of.iov_count);
        receive(ep, into, by, of.context, Flags::Own(flags))
    })
}

unsafe extern "C" fn tsend(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let header = header(Some(tag), None);
    // SAFETY: as above.
    size(|| unsafe { transmit(ep, local::one(at, len), header, to, context, Flags::Endpoint) })
}

unsafe extern "C" fn tsendv(
    ep: *mut fid_ep,
    pieces: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let header = header(Some(tag), None);
    // SAFETY: as above.
    size(|| unsafe {
        transmit(ep, local::vector(pieces, count), header, to, context, Flags::Endpoint)
    })
}

unsafe extern "C" fn tsendmsg(ep: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let of = message.as_ref().ok_or(libc::EINVAL)?;
        let header = header(Some(of.tag), (flags & FI_REMOTE_CQ_DATA != 0).then_some(of.data));
        let from = local::vector(of.msg_iov, of.iov_count);
        transmit(ep, from, header, of.addr, of.context, Flags::Own(flags))
    })
}

unsafe extern "C" fn tinject(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    let (header, none) = (header(Some(tag), None), std::ptr::null_mut());
    // SAFETY: as for `inject`.
    size(|| unsafe { transmit(ep, local::one(at, len), header, to, none, Flags::Inject) })
}

unsafe extern "C" fn tsenddata(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let header = header(Some(tag), Some(data));
    // SAFETY: as for `send`.
    size(|| unsafe { transmit(ep, local::one(at, len), header, to, context, Flags::Endpoint) })
}

unsafe extern "C" fn tinjectdata(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    let (header, none) = (header(Some(tag), Some(data)), std::ptr::null_mut());
    // SAFETY: as for `inject`.
    size(|| unsafe { transmit(ep, local::one(at, len), header, to, none, Flags::Inject) })
}
