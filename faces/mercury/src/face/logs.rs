//! What the library says.

use super::{answer, text};
use crate::log::{self, LogFn};
use std::ffi::{c_char, c_void};

/// # Safety
/// `name` is null, or a string.
unsafe fn set_level(name: *const c_char) {
    answer(|| {
        // SAFETY: the caller's promise.
        if let Some(level) = log::level(unsafe { text(name) }?) {
            log::set_level(level);
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Set_log_level(name: *const c_char) {
    // SAFETY: as `set_level`.
    unsafe { set_level(name) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Util_set_log_level(name: *const c_char) {
    // SAFETY: as `set_level`.
    unsafe { set_level(name) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Set_log_subsys(list: *const c_char) {
    answer(|| {
        // SAFETY: null, or a string.
        log::set_parts(unsafe { text(list) }?);
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn HG_Set_log_func(function: Option<LogFn>) {
    answer(|| {
        log::set_function(function);
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Set_log_stream(level: *const c_char, stream: *mut c_void) {
    answer(|| {
        // SAFETY: null, or a string.
        if let Some(level) = log::level(unsafe { text(level) }?) {
            log::set_stream(level, stream);
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Util_version_get(major: *mut u32, minor: *mut u32, patch: *mut u32) {
    for (at, number) in [(major, 4), (minor, 0), (patch, 0)] {
        if !at.is_null() {
            // SAFETY: not null, and a place for a number.
            unsafe { at.write(number) };
        }
    }
}
