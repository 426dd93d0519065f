//! Memory of the program, as it is given to operations: pointers with lengths become slices.

use crate::{limits::PIECES, state::error::Errno};
use petasos_fabric::{Slice, operation::Slices};
use petasos_ofi_sys::fi_ioc;
use std::{ffi::c_void, ptr::NonNull, slice};

/// One piece of memory.
///
/// # Errors
/// A null pointer to bytes, or more bytes than memory can have.
///
/// # Safety
/// The program keeps to what libfabric asks of it: the memory is there, and is written and
/// unmapped by nothing else, until the operation has completed, or its endpoint or registration is
/// closed. That is what [`Slice::raw`] asks for; that it is initialised cannot be seen from
/// outside, and it is only copied.
pub(super) unsafe fn piece(at: *const c_void, len: usize) -> Result<Option<Slice>, Errno> {
    if len == 0 {
        return Ok(None);
    }
    let at = NonNull::new(at.cast_mut().cast::<u8>()).ok_or(libc::EINVAL)?;
    let end = at.addr().get().checked_add(len);
    if len > isize::MAX as usize || end.is_none() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise; not null, no longer than memory can be.
    Ok(Some(unsafe { Slice::raw(at, len) }))
}

/// One piece of memory, as the only one of an operation.
///
/// # Errors
/// As [`piece`].
///
/// # Safety
/// As [`piece`].
pub(super) unsafe fn one(at: *const c_void, len: usize) -> Result<Slices, Errno> {
    // SAFETY: the caller's promise.
    Ok(unsafe { piece(at, len) }?.into_iter().collect())
}

/// `count` values from `at` on.
///
/// # Errors
/// A null pointer to values, or more of them than an operation may have.
///
/// # Safety
/// From `at` on there are so many values, which do not change until what is returned is used no
/// more, unless there are none.
pub(super) unsafe fn list<'a, T>(at: *const T, count: usize) -> Result<&'a [T], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() || count > PIECES {
        return Err(libc::EINVAL);
    }
    // SAFETY: not null, aligned, few, and there (the caller's promise).
    Ok(unsafe { slice::from_raw_parts(at, count) })
}

/// Several pieces.
///
/// # Errors
/// As [`list`] and [`piece`].
///
/// # Safety
/// As both.
pub(super) unsafe fn vector(at: *const libc::iovec, count: usize) -> Result<Slices, Errno> {
    let mut pieces = Slices::new();
    // SAFETY: the caller's promise.
    for entry in unsafe { list(at, count) }? {
        // SAFETY: the caller's promise.
        pieces.extend(unsafe { piece(entry.iov_base, entry.iov_len) }?);
    }
    Ok(pieces)
}

/// Several pieces of elements of this size.
///
/// # Errors
/// As [`list`] and [`piece`].
///
/// # Safety
/// As both.
pub(super) unsafe fn elements(
    at: *const fi_ioc,
    count: usize,
    size: usize,
) -> Result<Slices, Errno> {
    let mut pieces = Slices::new();
    // SAFETY: the caller's promise.
    for entry in unsafe { list(at, count) }? {
        let len = entry.count.checked_mul(size).ok_or(libc::EINVAL)?;
        // SAFETY: the caller's promise.
        pieces.extend(unsafe { piece(entry.addr, len) }?);
    }
    Ok(pieces)
}
