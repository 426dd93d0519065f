//! Calls of the core layer: input and output as bytes.

use super::{answer, some};
use crate::{
    abi::{BUSY, Code, CoreCb, INVALID_ARG, MORE_DATA, OPNOTSUPPORTED, OVERFLOW, hg_core_handle},
    engine::Request,
    handle::{BUSY_NOW, Callback, Handle, HandleRef, IDLE},
    log::refuse,
    queue::{Arg, Entry},
    wire::LEN,
};
use std::{ffi::c_void, sync::atomic::Ordering};

/// From now on something is under way with this handle.
///
/// # Errors
/// [`BUSY`] if it is already.
///
/// # Safety
/// The program has the handle.
pub(super) unsafe fn claim(handle: *mut Handle) -> Result<(), Code> {
    // SAFETY: the caller's promise; the state is atomic.
    let state = unsafe { &(*handle).state };
    let claimed = state.compare_exchange(IDLE, BUSY_NOW, Ordering::AcqRel, Ordering::Acquire);
    claimed.map(drop).map_err(|_| {
        refuse(BUSY, "rpc", || "a call is under way with this handle already".to_owned())
    })
}

/// Unless it is, for an error.
///
/// # Safety
/// As [`claim`].
pub(super) unsafe fn unclaim(handle: *mut Handle, sent: Result<(), Code>) -> Result<(), Code> {
    if sent.is_err() {
        // SAFETY: the caller's promise.
        unsafe { (*handle).state.store(IDLE, Ordering::Release) };
    }
    sent
}

/// Sends a request: so many bytes of the input buffer behind the header, and the handle's long
/// input.
///
/// # Safety
/// The program has the handle, and has claimed it.
pub(super) unsafe fn forward(
    handle: *mut Handle,
    callback: Callback,
    len: usize,
) -> Result<(), Code> {
    // SAFETY: the caller's promise: until the callback this is the only use of the handle.
    unsafe {
        let one = HandleRef::borrow(handle).ok_or(INVALID_ARG)?;
        let inner = &mut *handle;
        let addr = inner
            .addr
            .clone()
            .ok_or_else(|| refuse(INVALID_ARG, "rpc", || "the handle has no address".to_owned()))?;
        let id = inner.core.info.id;
        if id == 0 {
            return Err(refuse(INVALID_ARG, "rpc", || "the handle has no id".to_owned()));
        }
        let used = LEN + len;
        if used > inner.core.in_buf_size {
            return Err(OVERFLOW);
        }
        (inner.core.in_buf_used, inner.core.out_buf_used) = (used, 0);
        (inner.out_extra, inner.forward) = (None, callback);
        let no_response =
            inner.rpc.as_ref().is_some_and(|rpc| rpc.no_response.load(Ordering::Relaxed));
        let message = std::slice::from_raw_parts_mut(inner.core.in_buf.cast::<u8>(), used);
        let body = inner.in_extra.as_ref().map(|region| region.whole());
        let (target, origin) = (inner.core.info.context_id, (*inner.context()).core.id);
        let shared = inner.shared.clone();
        let request = Request { addr: &addr, target, origin, id, no_response, message, body };
        let mut engine = shared.driver.lock();
        let sequence = engine.call(&one, request)?;
        // Under the lock: so it is there before anything of the call is over.
        (*handle).sequence.store(sequence, Ordering::Release);
        drop(engine);
    }
    Ok(())
}

/// Sends a response.
///
/// # Safety
/// As [`forward`].
pub(super) unsafe fn respond(
    handle: *mut Handle,
    callback: Callback,
    len: usize,
) -> Result<(), Code> {
    // SAFETY: as in `forward`.
    unsafe {
        let one = HandleRef::borrow(handle).ok_or(INVALID_ARG)?;
        let inner = &mut *handle;
        let reply = inner.reply.ok_or_else(|| {
            refuse(INVALID_ARG, "rpc", || "the handle is of no request that came".to_owned())
        })?;
        if inner.responded {
            return Err(refuse(OPNOTSUPPORTED, "rpc", || {
                "no response is waited for, or it was given".to_owned()
            }));
        }
        let used = LEN + len;
        if used > inner.core.out_buf_size {
            return Err(OVERFLOW);
        }
        inner.responded = true;
        inner.core.out_buf_used = used;
        inner.respond = callback;
        let message = std::slice::from_raw_parts_mut(inner.core.out_buf.cast::<u8>(), used);
        let body = inner.out_extra.as_ref().map(|region| region.whole());
        let (shared, queue) = (inner.shared.clone(), one.queue());
        let mut engine = shared.driver.lock();
        let (is_over, code) = match engine.respond(&one, reply, 0, message, body) {
            Ok(later) => (!later, 0),
            Err(code) => (true, code),
        };
        if is_over && !callback.is_some() {
            drop(engine);
            (*handle).state.store(IDLE, Ordering::Release);
        } else if is_over {
            engine.push(&queue, Entry::Respond(one, code));
        }
    }
    Ok(())
}

/// Ends what waits for a response. A response that is being sent is not stopped.
///
/// # Safety
/// The program has the handle.
pub(super) unsafe fn cancel(handle: *mut Handle) {
    // SAFETY: the caller's promise; what is read was set before the handle was given out, or is
    // atomic.
    unsafe {
        let shared = (*handle).shared.clone();
        let mut engine = shared.driver.lock();
        let sequence = (*handle).sequence.load(Ordering::Acquire);
        engine.cancel(sequence);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_forward(
    handle: *mut hg_core_handle,
    callback: CoreCb,
    arg: *mut c_void,
    flags: u8,
    payload_size: u64,
) -> Code {
    answer(|| {
        let handle = some(handle, "the handle")?.cast::<Handle>();
        if flags & MORE_DATA != 0 {
            return Err(OPNOTSUPPORTED);
        }
        let len = usize::try_from(payload_size).map_err(|_| OVERFLOW)?;
        // SAFETY: the program has the handle, which is claimed first.
        unsafe {
            claim(handle)?;
            (*handle).in_extra = None;
            unclaim(handle, forward(handle, Callback::Core(callback, Arg(arg)), len))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_respond(
    handle: *mut hg_core_handle,
    callback: CoreCb,
    arg: *mut c_void,
    flags: u8,
    payload_size: u64,
) -> Code {
    answer(|| {
        let handle = some(handle, "the handle")?.cast::<Handle>();
        if flags & MORE_DATA != 0 {
            return Err(OPNOTSUPPORTED);
        }
        let len = usize::try_from(payload_size).map_err(|_| OVERFLOW)?;
        // SAFETY: as above.
        unsafe {
            claim(handle)?;
            (*handle).out_extra = None;
            unclaim(handle, respond(handle, Callback::Core(callback, Arg(arg)), len))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_cancel(handle: *mut hg_core_handle) -> Code {
    answer(|| {
        let handle = some(handle, "the handle")?.cast::<Handle>();
        // SAFETY: the program has the handle.
        unsafe { cancel(handle) };
        Ok(())
    })
}
