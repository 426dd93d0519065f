//! The functions of the headers.

mod addresses;
mod bulks;
mod calls;
mod contexts;
mod core_calls;
mod handles;
mod logs;
mod na;
mod procs;
mod progress;
mod registered;
mod start;
mod strings;

use crate::{
    abi::{Code, FAULT, INVALID_ARG, SUCCESS},
    log::{Level, say},
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a function of C returns. A panic, which must not pass the border, is [`FAULT`].
#[inline]
pub(crate) fn answer(body: impl FnOnce() -> Result<(), Code>) -> Code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => FAULT,
    }
}

/// What a function of C returns that has no code; a panic is `otherwise`.
#[inline]
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> Option<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Some(value)) => value,
        _ => otherwise,
    }
}

/// Checks a pointer of the program's.
///
/// # Errors
/// [`INVALID_ARG`] if it is null; the log says which one.
#[inline]
fn some<T>(at: *mut T, what: &str) -> Result<*mut T, Code> {
    if at.is_null() {
        say(Level::Error, "cls", || format!("{what} is NULL"));
        return Err(INVALID_ARG);
    }
    Ok(at)
}

/// A text of the program's.
///
/// # Errors
/// [`INVALID_ARG`] if it is null, or not UTF-8.
///
/// # Safety
/// `at` is null, or a string that nothing changes meanwhile.
unsafe fn text<'a>(at: *const std::ffi::c_char) -> Result<&'a str, Code> {
    some(at.cast_mut(), "a string")?;
    // SAFETY: not null, and a string (the caller's promise).
    unsafe { std::ffi::CStr::from_ptr(at) }.to_str().map_err(|_| INVALID_ARG)
}
