//! Counting events.

use super::{
    answer, elements, place,
    queues::{POLLED, patience},
};
use crate::{
    abi::{ABORTED, ARG_INVALID, CHandle, CT_NONE_REACHED, Code, ptl_ct_event_t},
    interface::{self, code, is_aborted},
};
use petasos_portals::{Count, Error};
use std::{ffi::c_uint, time::Duration};

fn waited(error: &Error) -> Code {
    if *error == Error::Timeout { CT_NONE_REACHED } else { code(error) }
}

pub(super) fn count(value: ptl_ct_event_t) -> Count {
    Count { success: value.success, failure: value.failure }
}

fn value(count: Count) -> ptl_ct_event_t {
    ptl_ct_event_t { success: count.success, failure: count.failure }
}

/// # Safety
/// A handle may be written where `ct_handle` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlCTAlloc(ni_handle: CHandle, ct_handle: *mut CHandle) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        let out = place(ct_handle)?;
        let counter = ni.interface.counter().map_err(|error| code(&error))?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(ni.counters.give(counter, 0)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlCTFree(ct_handle: CHandle) -> Code {
    answer(|| {
        let ni = interface::of(ct_handle)?;
        let counter = ni.counter(ct_handle)?;
        ni.interface.free_counter(counter).map_err(|error| code(&error))?;
        ni.counters.forget(counter);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlCTCancelTriggered(ct_handle: CHandle) -> Code {
    answer(|| {
        let ni = interface::of(ct_handle)?;
        let counter = ni.counter(ct_handle)?;
        ni.interface.cancel_triggered(counter).map_err(|error| code(&error))
    })
}

/// # Safety
/// A value may be written where `event` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlCTGet(ct_handle: CHandle, event: *mut ptl_ct_event_t) -> Code {
    answer(|| {
        let ni = interface::of(ct_handle)?;
        let (counter, out) = (ni.counter(ct_handle)?, place(event)?);
        // A program that only looks makes progress, too.
        ni.interface.progress();
        let count = ni.interface.count(counter).map_err(|error| code(&error))?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(value(count)) };
        Ok(())
    })
}

/// # Safety
/// A value may be written where `event` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlCTWait(ct_handle: CHandle, test: u64, event: *mut ptl_ct_event_t) -> Code {
    answer(|| {
        if is_aborted() {
            return Err(ABORTED);
        }
        let ni = interface::of(ct_handle)?;
        let (counter, out) = (ni.counter(ct_handle)?, place(event)?);
        let now = ni.interface.count(counter).map_err(|error| code(&error))?;
        let count = if now.success >= test || now.failure > 0 {
            now
        } else {
            // The interface may be ended meanwhile.
            let shared = ni.share();
            drop(ni);
            let waiting = shared.interface.wait_count(counter, test, Duration::MAX);
            waiting.map_err(|error| waited(&error))?
        };
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(value(count)) };
        Ok(())
    })
}

/// # Safety
/// `size` handles and numbers are where `ct_handles` and `tests` point; a value and a number may be
/// written where the others point; or these are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlCTPoll(
    ct_handles: *const CHandle,
    tests: *const u64,
    size: c_uint,
    timeout: c_uint,
    event: *mut ptl_ct_event_t,
    which: *mut c_uint,
) -> Code {
    answer(|| {
        if is_aborted() {
            return Err(ABORTED);
        }
        if !interface::is_started() {
            return Err(crate::abi::NO_INIT);
        }
        // SAFETY: the caller's promise.
        let handles = unsafe { elements(ct_handles, size.into(), POLLED) }?;
        // SAFETY: the caller's promise.
        let tests = unsafe { elements(tests, size.into(), POLLED) }?;
        let (out, out_which) = (place(event)?, place(which)?);
        let ni = interface::of(handles[0])?.share();
        let pairs = handles.iter().zip(tests);
        let pairs = pairs.map(|(one, test)| Ok((ni.counter(*one)?, *test)));
        let pairs: Result<Vec<_>, Code> = pairs.collect();
        let polled = ni.interface.poll_counts(&pairs?, patience(timeout));
        let (at, count) = polled.map_err(|error| waited(&error))?;
        let at = c_uint::try_from(at).map_err(|_| ARG_INVALID)?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe {
            out_which.write(at);
            out.write(value(count));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlCTSet(ct_handle: CHandle, new_ct: ptl_ct_event_t) -> Code {
    answer(|| {
        let ni = interface::of(ct_handle)?;
        let counter = ni.counter(ct_handle)?;
        ni.interface.set(counter, count(new_ct)).map_err(|error| code(&error))
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlCTInc(ct_handle: CHandle, increment: ptl_ct_event_t) -> Code {
    answer(|| {
        // One of both, as the specification has it.
        if increment.success != 0 && increment.failure != 0 {
            return Err(ARG_INVALID);
        }
        let ni = interface::of(ct_handle)?;
        let counter = ni.counter(ct_handle)?;
        ni.interface.add(counter, count(increment)).map_err(|error| code(&error))
    })
}
