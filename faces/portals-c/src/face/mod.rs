//! The functions of `portals4.h`, by the sections of the specification.

mod counters;
mod entries;
mod events;
mod identity;
mod job;
mod memory;
mod operations;
mod queues;
mod start;
mod triggered;

use crate::abi::{ARG_INVALID, Code, FAIL, OK};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a function of C returns. A panic, which must not pass the border, is [`FAIL`].
#[inline]
fn answer(body: impl FnOnce() -> Result<(), Code>) -> Code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err(code)) => code,
        Err(_) => FAIL,
    }
}

/// Checks a place for a result.
///
/// # Errors
/// [`ARG_INVALID`] if there is none.
#[inline]
fn place<T>(out: *mut T) -> Result<*mut T, Code> {
    if out.is_null() || !out.is_aligned() { Err(ARG_INVALID) } else { Ok(out) }
}

/// Reads what the program points at.
///
/// # Errors
/// [`ARG_INVALID`] if it points at nothing.
///
/// # Safety
/// `at` is null, or a `T` is there that nothing changes during the call.
#[inline]
unsafe fn read<T: Copy>(at: *const T) -> Result<T, Code> {
    if at.is_null() || !at.is_aligned() {
        return Err(ARG_INVALID);
    }
    // SAFETY: not null, aligned, and a `T` is there (the caller's promise).
    Ok(unsafe { at.read() })
}

/// The elements that the program points at.
///
/// # Errors
/// [`ARG_INVALID`] if it points at nothing, or there are none, or more than `most`.
///
/// # Safety
/// `at` is null, or `count` of them are there, which nothing changes while the slice is used.
unsafe fn elements<'a, T>(at: *const T, count: u64, most: usize) -> Result<&'a [T], Code> {
    let count = usize::try_from(count).map_err(|_| ARG_INVALID)?;
    if at.is_null() || !at.is_aligned() || count == 0 || count > most {
        return Err(ARG_INVALID);
    }
    // SAFETY: not null, aligned, of a length that fits, and there (the caller's promise).
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}
