//! Calls back what a context has to call back. No lock is held meanwhile.

use crate::{
    abi::{
        Code, INVALID_ARG, NOENTRY, SUCCESS, hg_cb_info, hg_cb_info_bulk, hg_cb_info_union,
        hg_core_cb_info, kind,
    },
    class::{Context, Shared},
    handle::{Callback, Handle, HandleRef, IDLE},
    log::{Level, say},
    queue::{Arrived, Entry, LookupCb, Transferred},
    wire,
};
use std::sync::atomic::Ordering;

/// Calls one entry back.
///
/// # Safety
/// The context is one of `Context::open`, and lives; callbacks do what C functions may.
pub(crate) unsafe fn trigger(context: *mut Context, entry: Entry) {
    match entry {
        // SAFETY: the caller's promise.
        Entry::Request(arrived) => unsafe { request(context, *arrived) },
        // SAFETY: the caller's promise.
        Entry::Forward(handle, code) => unsafe { called(&handle, code, kind::FORWARD) },
        // SAFETY: the caller's promise.
        Entry::Respond(handle, code) => unsafe { called(&handle, code, kind::RESPOND) },
        Entry::Lookup { callback, arg, addr } => {
            let addr = addr.into_raw();
            // SAFETY: the program's functions, with what they take.
            unsafe {
                match callback {
                    LookupCb::Upper(Some(callback)) => {
                        let info = hg_cb_info_union { addr };
                        callback(&info_of(info, arg.0, kind::LOOKUP, SUCCESS));
                    }
                    LookupCb::Core(Some(callback)) => {
                        callback(&core_info(addr.cast(), arg.0, kind::LOOKUP, SUCCESS));
                    }
                    _ => drop(crate::address::AddrRef::from_raw(addr)),
                }
            }
        }
        Entry::Bulk(over) => {
            let Transferred { callback, arg, origin, local, op, size, code } = *over;
            if let Some(callback) = callback {
                let (origin, local) = (origin.raw().cast(), local.raw().cast());
                let bulk = hg_cb_info_bulk { origin, local, op, size };
                let info = hg_cb_info_union { bulk };
                // SAFETY: the program's function, with what it takes; both descriptors live.
                unsafe { callback(&info_of(info, arg.0, kind::BULK, code)) };
            }
        }
    }
}

fn info_of(info: hg_cb_info_union, arg: *mut std::ffi::c_void, kind: u32, ret: Code) -> hg_cb_info {
    hg_cb_info { info, arg, kind, ret }
}

fn core_info(
    info: *mut std::ffi::c_void,
    arg: *mut std::ffi::c_void,
    kind: u32,
    ret: Code,
) -> hg_core_cb_info {
    hg_core_cb_info { info, arg, kind, ret }
}

/// A call or a response is over.
///
/// # Safety
/// As [`trigger`].
unsafe fn called(handle: &HandleRef, code: Code, kind: u32) {
    // SAFETY: nothing is under way with it, and this thread is the one that says so.
    let callback = unsafe {
        let inner = &mut *handle.raw();
        let place = if kind == kind::FORWARD { &mut inner.forward } else { &mut inner.respond };
        let callback = std::mem::replace(place, Callback::None);
        inner.state.store(IDLE, Ordering::Release);
        callback
    };
    // SAFETY: the program's functions, with what they take.
    unsafe {
        match callback {
            Callback::Upper(Some(callback), arg) => {
                let info = hg_cb_info_union { handle: &raw mut (*handle.raw()).hg };
                callback(&info_of(info, arg.0, kind, code));
            }
            Callback::Core(Some(callback), arg) => {
                callback(&core_info(handle.raw().cast(), arg.0, kind, code));
            }
            _ => {}
        }
    }
}

/// A request is here: its handler gets a handle.
///
/// # Safety
/// As [`trigger`].
unsafe fn request(context: *mut Context, arrived: Arrived) {
    // SAFETY: the caller's promise.
    let shared = unsafe { (*context).shared.clone() };
    shared.waiting.fetch_sub(1, Ordering::Relaxed);
    let (peer, header) = (arrived.peer, arrived.header);
    // SAFETY: the caller's promise.
    let handle = match unsafe { HandleRef::of_request(context, arrived) } {
        Ok(handle) => handle,
        Err(code) => return shared.driver.lock().refuse(peer, &header, code),
    };
    shared.counters.active.fetch_add(1, Ordering::Relaxed);
    // The program's, which it gives back by `HG_Destroy`.
    handle.count();
    // SAFETY: this thread alone has the handle.
    let rpc = unsafe { (*handle.raw()).rpc.clone() };
    // SAFETY: the program's handlers, with what they take.
    let code = unsafe {
        match &rpc {
            None => Err(NOENTRY),
            Some(rpc) => match (rpc.callback, rpc.core.rpc_cb) {
                (Some(callback), _) => Ok(callback(&raw mut (*handle.raw()).hg)),
                (None, Some(callback)) => Ok(callback(handle.raw().cast())),
                (None, None) => Err(INVALID_ARG),
            },
        }
    };
    shared.counters.active.fetch_sub(1, Ordering::Relaxed);
    let code = match code {
        Ok(SUCCESS) => return,
        // The handler has the handle, and destroys it.
        Ok(code) => code,
        Err(code) => {
            say(Level::Info, "rpc", || {
                format!("a request that nothing is registered for: {header:?}")
            });
            // No other thread does.
            // SAFETY: the one that was counted above.
            drop(unsafe { HandleRef::from_raw(handle.raw()) });
            code
        }
    };
    let _ = respond_code(&handle, code);
}

/// Answers a request by a code, unless it was answered.
///
/// # Errors
/// The peer is lost.
pub(crate) fn respond_code(handle: &HandleRef, code: Code) -> Result<(), Code> {
    // SAFETY: the handler has returned, and nothing else uses the handle's answer.
    let inner = unsafe { &mut *handle.raw() };
    let Some(reply) = inner.reply.filter(|_| !inner.responded) else { return Ok(()) };
    inner.responded = true;
    let mut message = [0; wire::LEN + wire::SUM];
    let shared = inner.shared.clone();
    let sent = shared.driver.lock().respond(handle, reply, code, &mut message, None);
    sent.map(drop)
}

/// What will have no callback.
pub(crate) fn give_up(shared: &Shared, entry: Entry) {
    if let Entry::Request(arrived) = &entry {
        shared.waiting.fetch_sub(1, Ordering::Relaxed);
        shared.driver.lock().refuse(arrived.peer, &arrived.header, crate::abi::CANCELED);
    }
    if let Entry::Forward(handle, _) | Entry::Respond(handle, _) = &entry {
        // SAFETY: nothing is under way with it any more.
        let handle: &mut Handle = unsafe { &mut *handle.raw() };
        handle.state.store(IDLE, Ordering::Release);
    }
}
