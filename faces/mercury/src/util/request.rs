//! `mercury_request.h`: something that is waited for while progress is made.

use crate::{
    abi::{ProgressFn, TriggerFn, hg_request, hg_request_class},
    face::value,
};
use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::atomic::{AtomicI32, Ordering},
    time::{Duration, Instant},
};

/// Progress is made for so long at a time: what another thread has called back is seen then.
const STEP: Duration = Duration::from_millis(100);

#[unsafe(no_mangle)]
extern "C" fn hg_request_init(
    progress: ProgressFn,
    trigger: TriggerFn,
    arg: *mut c_void,
) -> *mut hg_request_class {
    if progress.is_none() || trigger.is_none() {
        return ptr::null_mut();
    }
    Box::into_raw(Box::new(hg_request_class { progress, trigger, arg }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_request_finalize(class: *mut hg_request_class, arg: *mut *mut c_void) {
    if class.is_null() {
        return;
    }
    // SAFETY: `hg_request_init` made it, and the program gives it back; a place, or null.
    unsafe {
        let class = Box::from_raw(class);
        if !arg.is_null() {
            arg.write(class.arg);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn hg_request_create(class: *mut hg_request_class) -> *mut hg_request {
    if class.is_null() {
        return ptr::null_mut();
    }
    let completed = AtomicI32::new(0);
    Box::into_raw(Box::new(hg_request { class, data: ptr::null_mut(), completed }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_request_destroy(request: *mut hg_request) {
    if !request.is_null() {
        // SAFETY: `hg_request_create` made it, and the program gives it back.
        drop(unsafe { Box::from_raw(request) });
    }
}

/// Makes progress until it is complete, for so many milliseconds at most.
#[unsafe(no_mangle)]
unsafe extern "C" fn hg_request_wait(
    request: *mut hg_request,
    timeout: c_uint,
    flag: *mut c_uint,
) -> c_int {
    value(-1, || {
        if request.is_null() {
            return None;
        }
        let until = Instant::now() + Duration::from_millis(timeout.into());
        // SAFETY: the program has the request, and its class, until this returns. No reference is
        // kept while functions of the program run.
        unsafe {
            let class = (*request).class;
            let (progress, trigger, arg) = ((*class).progress?, (*class).trigger?, (*class).arg);
            let is_complete = || (*request).completed.load(Ordering::SeqCst) != 0;
            let complete = loop {
                let mut again = 0;
                while trigger(0, &raw mut again, arg) == 0 && again != 0 {
                    again = 0;
                }
                if is_complete() {
                    break true;
                }
                let left = until.saturating_duration_since(Instant::now());
                progress(left.min(STEP).as_millis() as c_uint, arg);
                if left.is_zero() {
                    break is_complete();
                }
            };
            if !flag.is_null() {
                flag.write(c_uint::from(complete));
            }
        }
        Some(0)
    })
}
