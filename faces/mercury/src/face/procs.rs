//! `hg_proc_*`: what is not in the headers.

use super::{answer, some, value};
use crate::{
    abi::{
        Code, DECODE, ENCODE, FREE, INVALID_ARG, OVERFLOW, PROC_BULK_EAGER, PROTOCOL_ERROR,
        hg_class, hg_proc,
    },
    bulk::{Bulk, BulkRef, deserialise},
    class::Class,
    proc::bytes,
};
use std::{
    ffi::{c_uint, c_void},
    ptr,
};

/// The longest descriptor of bulk data that is taken.
const LONGEST: u64 = 8192;

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_create(
    class: *mut hg_class,
    hash: c_uint,
    out: *mut *mut hg_proc,
) -> Code {
    answer(|| {
        let (class, out) = (some(class, "the class")?, some(out, "the place for the proc")?);
        // SAFETY: a place.
        unsafe { out.write(Box::into_raw(Box::new(hg_proc::new(class, hash)))) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_create_set(
    class: *mut hg_class,
    buf: *mut c_void,
    size: u64,
    op: c_uint,
    hash: c_uint,
    out: *mut *mut hg_proc,
) -> Code {
    answer(|| {
        let (class, out) = (some(class, "the class")?, some(out, "the place for the proc")?);
        let mut proc = Box::new(hg_proc::new(class, hash));
        proc.reset(buf.cast(), size, op)?;
        // SAFETY: a place. The box does not move what is in it.
        unsafe { out.write(Box::into_raw(proc)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_free(proc: *mut hg_proc) -> Code {
    answer(|| {
        if !proc.is_null() {
            // SAFETY: one of the functions above made it, and the program gives it back.
            drop(unsafe { Box::from_raw(proc) });
        }
        Ok(())
    })
}

/// # Safety
/// It is null, or one that the program has, for as long as the result is used.
unsafe fn of<'a>(proc: *mut hg_proc) -> Result<&'a mut hg_proc, Code> {
    // SAFETY: the caller's promise.
    unsafe { proc.as_mut() }.ok_or(INVALID_ARG)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_reset(
    proc: *mut hg_proc,
    buf: *mut c_void,
    size: u64,
    op: c_uint,
) -> Code {
    // SAFETY: as `of`.
    answer(|| unsafe { of(proc) }?.reset(buf.cast(), size, op))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_set_size(proc: *mut hg_proc, size: u64) -> Code {
    // SAFETY: as `of`.
    answer(|| unsafe { of(proc) }?.grow(size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_save_ptr(proc: *mut hg_proc, len: u64) -> *mut c_void {
    value(ptr::null_mut(), || {
        // SAFETY: as `of`.
        let proc = unsafe { of(proc) }.ok()?;
        if proc.op == FREE { None } else { proc.take(len).ok() }
    })
    .cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_restore_ptr(proc: *mut hg_proc, data: *mut c_void, len: u64) -> Code {
    answer(|| {
        // SAFETY: as `of`; so many bytes are there.
        unsafe { of(proc)?.add(bytes(data, len)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_set_extra_buf_is_mine(proc: *mut hg_proc, theirs: u8) -> Code {
    answer(|| {
        // SAFETY: as `of`.
        let proc = unsafe { of(proc) }?;
        if !proc.has_extra() {
            return Err(INVALID_ARG);
        }
        proc.extra.is_mine = u8::from(theirs == 0);
        Ok(())
    })
}

/// Sums are complete at any time.
#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_flush(proc: *mut hg_proc) -> Code {
    // SAFETY: as `of`.
    answer(|| unsafe { of(proc) }.map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_checksum_get(proc: *mut hg_proc, out: *mut c_void, len: u64) -> Code {
    answer(|| {
        // SAFETY: as `of`.
        let (sum, size) = unsafe { of(proc) }?.checksum();
        let out = some(out, "the place for the checksum")?;
        if size == 0 {
            return Err(INVALID_ARG);
        }
        if len < size as u64 {
            return Err(OVERFLOW);
        }
        // SAFETY: so many bytes are there.
        unsafe { ptr::copy_nonoverlapping(sum.to_le_bytes().as_ptr(), out.cast(), size) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_checksum_verify(
    proc: *mut hg_proc,
    expected: *const c_void,
    len: u64,
) -> Code {
    // SAFETY: as `of`; so many bytes are there.
    answer(|| unsafe { of(proc)?.verify(bytes(expected, len)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_checksum_update(proc: *mut hg_proc, data: *mut c_void, len: u64) {
    answer(|| {
        // SAFETY: as `of`; so many bytes are there.
        unsafe { of(proc)?.add(bytes(data, len)) };
        Ok(())
    });
}

/// A descriptor of bulk data: its length, and its bytes; no bytes for `HG_BULK_NULL`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_hg_bulk_t(proc: *mut hg_proc, data: *mut c_void) -> Code {
    answer(|| {
        // SAFETY: as `of`; a place for a descriptor.
        let (proc, place) =
            unsafe { (of(proc)?, some(data, "the descriptor")?.cast::<*mut Bulk>()) };
        match proc.op {
            ENCODE => {
                // SAFETY: the place has null, or one that the program has.
                let bulk = unsafe { BulkRef::borrow(place.read()) };
                let eager = proc.flags & PROC_BULK_EAGER != 0;
                let said = bulk.map(|bulk| bulk.get().serialise(eager)).transpose()?;
                let said = said.unwrap_or_default();
                proc.put(&(said.len() as u64).to_le_bytes())?;
                proc.put(&said)
            }
            DECODE => {
                let len = proc.get(8)?.try_into().map(u64::from_le_bytes);
                let len = len.map_err(|_| PROTOCOL_ERROR)?;
                if len > LONGEST {
                    return Err(PROTOCOL_ERROR);
                }
                // SAFETY: the class outlives what is decoded with it.
                let shared = unsafe { (*proc.hg_class.cast::<Class>()).shared.clone() };
                let said = proc.get(len)?;
                let bulk = match len {
                    0 => ptr::null_mut(),
                    _ => deserialise(&shared, said)?.into_raw(),
                };
                // SAFETY: a place.
                unsafe { place.write(bulk) };
                Ok(())
            }
            _ => {
                // SAFETY: what was decoded, or null.
                let bulk = unsafe { BulkRef::borrow(place.replace(ptr::null_mut())) };
                bulk.map_or(Ok(()), BulkRef::free)
            }
        }
    })
}
