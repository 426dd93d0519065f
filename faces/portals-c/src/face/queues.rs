//! Event queues.

use super::{answer, elements, events::give, place};
use crate::{
    abi::{ABORTED, ARG_INVALID, CHandle, Code, EQ_EMPTY, NO_SPACE, TIME_FOREVER, ptl_event_t},
    interface::{self, code, is_aborted},
};
use petasos_portals::Error;
use std::{
    ffi::{c_int, c_uint},
    time::Duration,
};

/// Events that a queue may be made for.
const LONGEST: u64 = 1 << 24;
/// Queues or counters that may be polled together.
pub(super) const POLLED: usize = 1 << 16;

/// How long a wait with a timeout of C is.
pub(super) fn patience(timeout: c_uint) -> Duration {
    if timeout == TIME_FOREVER { Duration::MAX } else { Duration::from_millis(timeout.into()) }
}

/// What a failed wait for events is in C.
fn waited(error: &Error) -> Code {
    match error {
        Error::Empty | Error::Timeout => EQ_EMPTY,
        error => code(error),
    }
}

/// # Safety
/// A handle may be written where `eq_handle` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlEQAlloc(ni_handle: CHandle, count: u64, eq_handle: *mut CHandle) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        let out = place(eq_handle)?;
        if count > LONGEST {
            return Err(NO_SPACE);
        }
        let queue = ni.interface.queue(count as usize).map_err(|error| code(&error))?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(ni.queues.give(queue, 0)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlEQFree(eq_handle: CHandle) -> Code {
    answer(|| {
        let ni = interface::of(eq_handle)?;
        let queue = ni.queue(eq_handle)?;
        ni.interface.free_queue(queue).map_err(|error| code(&error))?;
        ni.queues.forget(queue);
        Ok(())
    })
}

/// # Safety
/// An event may be written where `event` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlEQGet(eq_handle: CHandle, event: *mut ptl_event_t) -> c_int {
    answer(|| {
        let ni = interface::of(eq_handle)?;
        let (queue, out) = (ni.queue(eq_handle)?, place(event)?);
        let taken = match ni.interface.take_event(queue) {
            // A program that only looks makes progress, too.
            Err(Error::Empty) => {
                ni.interface.progress();
                ni.interface.take_event(queue)
            }
            taken => taken,
        };
        let taken = taken.map_err(|error| waited(&error))?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { give(&ni, taken, out) }
    })
}

/// # Safety
/// An event may be written where `event` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlEQWait(eq_handle: CHandle, event: *mut ptl_event_t) -> c_int {
    answer(|| {
        if is_aborted() {
            return Err(ABORTED);
        }
        let ni = interface::of(eq_handle)?;
        let (queue, out) = (ni.queue(eq_handle)?, place(event)?);
        let (taken, ni) = match ni.interface.take_event(queue) {
            Err(Error::Empty) => {
                // The interface may be ended meanwhile.
                let shared = ni.share();
                drop(ni);
                (shared.interface.wait_event(queue, Duration::MAX), shared)
            }
            taken => (taken, ni.share()),
        };
        let taken = taken.map_err(|error| waited(&error))?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { give(&ni, taken, out) }
    })
}

/// # Safety
/// `size` handles are where `eq_handles` points; an event and a number may be written where the
/// others point; or these are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlEQPoll(
    eq_handles: *const CHandle,
    size: c_uint,
    timeout: c_uint,
    event: *mut ptl_event_t,
    which: *mut c_uint,
) -> c_int {
    answer(|| {
        if is_aborted() {
            return Err(ABORTED);
        }
        if !interface::is_started() {
            return Err(crate::abi::NO_INIT);
        }
        // SAFETY: the caller's promise.
        let handles = unsafe { elements(eq_handles, size.into(), POLLED) }?;
        let (out, out_which) = (place(event)?, place(which)?);
        let ni = interface::of(handles[0])?.share();
        let queues: Result<Vec<_>, Code> = handles.iter().map(|one| ni.queue(*one)).collect();
        let polled = ni.interface.poll_events(&queues?, patience(timeout));
        let (at, taken) = polled.map_err(|error| waited(&error))?;
        let at = c_uint::try_from(at).map_err(|_| ARG_INVALID)?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe {
            out_which.write(at);
            give(&ni, taken, out)
        }
    })
}
