//! Calls of the upper layer: input and output as structures of the program's.

use super::{answer, core_calls, some};
use crate::{
    abi::{
        Cb, Code, DECODE, ENCODE, FAULT, FREE, INVALID_ARG, NOENTRY, OVERFLOW, PROC_BULK_EAGER,
        ProcCb, hg_handle, hg_proc,
    },
    handle::{Callback, Handle, HandleRef},
    log::refuse,
    queue::Arg,
    wire::{LEN, SUM},
};
use petasos_fabric::Region;
use std::ffi::c_void;

/// Input or output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    In,
    Out,
}

impl Handle {
    fn proc_cb(&self, side: Side) -> Result<ProcCb, Code> {
        let procs = self.rpc.as_ref().and_then(|rpc| rpc.procs).ok_or_else(|| {
            refuse(NOENTRY, "rpc", || format!("{:#x} is not registered here", self.core.info.id))
        })?;
        Ok(if side == Side::In { procs.0 } else { procs.1 })
    }

    fn proc_of(&mut self, side: Side) -> &mut hg_proc {
        if side == Side::In { &mut self.in_proc } else { &mut self.out_proc }
    }

    /// Where the payload begins: behind the headers, and what the program has reserved.
    ///
    /// # Errors
    /// [`OVERFLOW`] if that is more than there is.
    fn payload(&self, side: Side, used_only: bool) -> Result<(*mut u8, usize), Code> {
        let class = self.shared.class();
        // SAFETY: the class outlives its handles.
        let hg = unsafe { &(*class).hg };
        let core = &self.core;
        let (buf, size, used, offset) = match side {
            Side::In => (core.in_buf, core.in_buf_size, core.in_buf_used, hg.in_offset),
            Side::Out => (core.out_buf, core.out_buf_size, core.out_buf_used, hg.out_offset),
        };
        let offset = LEN + SUM + usize::try_from(offset).map_err(|_| OVERFLOW)?;
        let end = if used_only { used.min(size) } else { size };
        let len = end.checked_sub(offset).ok_or(OVERFLOW)?;
        Ok((buf.cast::<u8>().wrapping_add(offset), len))
    }

    fn sum_place(&self, side: Side) -> *mut u8 {
        let buf = if side == Side::In { self.core.in_buf } else { self.core.out_buf };
        buf.cast::<u8>().wrapping_add(LEN)
    }
}

/// Encodes a structure; how many bytes follow the header of the core layer, and what did not fit.
///
/// # Safety
/// The program has the handle, and nothing is under way with it; the structure is what its function
/// takes.
unsafe fn encode(
    handle: *mut Handle,
    side: Side,
    structure: *mut c_void,
) -> Result<(usize, Option<Region>), Code> {
    // SAFETY: the caller's promise. The program's function gets the proc alone, as a pointer, and
    // no reference to the handle is used meanwhile.
    unsafe {
        let shared = &(*handle).shared;
        let settings = &shared.settings;
        let callback = (*handle).proc_cb(side)?;
        let (buf, len) = (*handle).payload(side, false)?;
        let reserved = buf.addr() - (*handle).sum_place(side).addr();
        (*handle).sum_place(side).write_bytes(0, SUM);
        let Some(callback) = callback.filter(|_| !structure.is_null()) else {
            return Ok((reserved, None));
        };
        let proc: *mut hg_proc = (*handle).proc_of(side);
        (*proc).reset(buf, len as u64, ENCODE)?;
        let is_self = (*handle).addr.as_ref().is_some_and(|addr| addr.is_self());
        if settings.bulk_eager && !is_self {
            (*proc).flags = PROC_BULK_EAGER;
        }
        let code = callback(proc, structure);
        if code != 0 {
            return Err(refuse(code, "proc", || {
                "the program's structure was not encoded".to_owned()
            }));
        }
        if settings.sum_payload {
            let (sum, _) = (*proc).checksum();
            let sum = (sum as u32).to_le_bytes();
            (*handle).sum_place(side).copy_from_nonoverlapping(sum.as_ptr(), SUM);
        }
        if !(*proc).has_extra() {
            return Ok((reserved + (*proc).used() as usize, None));
        }
        if settings.no_overflow {
            return Err(refuse(OVERFLOW, "rpc", || {
                "more than fits into a message, and no_overflow was said".to_owned()
            }));
        }
        Ok((reserved, (*proc).take_extra()))
    }
}

/// Decodes a structure.
///
/// # Safety
/// As [`encode`].
unsafe fn decode(handle: *mut Handle, side: Side, structure: *mut c_void) -> Result<(), Code> {
    // SAFETY: as in `encode`.
    unsafe {
        let shared = &(*handle).shared;
        let settings = &shared.settings;
        let callback = (*handle).proc_cb(side)?;
        let callback = callback.ok_or_else(|| {
            refuse(FAULT, "rpc", || "nothing was registered to decode it with".to_owned())
        })?;
        let extra = if side == Side::In { &(*handle).in_extra } else { &(*handle).out_extra };
        let (buf, len) = match extra {
            Some(region) => (region.as_ptr(), region.len()),
            None => (*handle).payload(side, true)?,
        };
        let mut sum = [0; SUM];
        sum.as_mut_ptr().copy_from_nonoverlapping((*handle).sum_place(side), SUM);
        let proc: *mut hg_proc = (*handle).proc_of(side);
        (*proc).reset(buf, len as u64, DECODE)?;
        let code = callback(proc, structure);
        if code != 0 {
            return Err(refuse(code, "proc", || "what came was not decoded".to_owned()));
        }
        if settings.sum_payload
            && let Err(code) = (*proc).verify(&sum)
        {
            // All of it was decoded, and the program will not free what it does not get.
            (*proc).reset(std::ptr::null_mut(), 0, FREE)?;
            callback(proc, structure);
            return Err(refuse(code, "proc", || "what came has another checksum".to_owned()));
        }
        // It stays until the structure is freed.
        HandleRef::borrow(handle).ok_or(INVALID_ARG)?.count();
    }
    Ok(())
}

/// Frees what was decoded.
///
/// # Safety
/// As [`encode`].
unsafe fn free(handle: *mut Handle, side: Side, structure: *mut c_void) -> Result<(), Code> {
    // SAFETY: as in `encode`; the reference is that of `decode`.
    unsafe {
        let callback = (*handle).proc_cb(side)?.ok_or(FAULT)?;
        let proc: *mut hg_proc = (*handle).proc_of(side);
        (*proc).reset(std::ptr::null_mut(), 0, FREE)?;
        let code = callback(proc, structure);
        drop(HandleRef::from_raw(handle));
        if code == 0 { Ok(()) } else { Err(code) }
    }
}

type Work = unsafe fn(*mut Handle, Side, *mut c_void) -> Result<(), Code>;

/// # Safety
/// As [`encode`].
unsafe fn checked(
    work: Work,
    handle: *mut hg_handle,
    side: Side,
    structure: *mut c_void,
) -> Result<(), Code> {
    let handle = some(Handle::of_hg(handle), "the handle")?;
    // SAFETY: the caller's promise.
    unsafe { work(handle, side, some(structure, "the structure")?) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Get_input(handle: *mut hg_handle, structure: *mut c_void) -> Code {
    // SAFETY: as `encode`.
    answer(|| unsafe { checked(decode, handle, Side::In, structure) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Free_input(handle: *mut hg_handle, structure: *mut c_void) -> Code {
    // SAFETY: as `encode`.
    answer(|| unsafe { checked(free, handle, Side::In, structure) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Get_output(handle: *mut hg_handle, structure: *mut c_void) -> Code {
    // SAFETY: as `encode`.
    answer(|| unsafe { checked(decode, handle, Side::Out, structure) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Free_output(handle: *mut hg_handle, structure: *mut c_void) -> Code {
    // SAFETY: as `encode`.
    answer(|| unsafe { checked(free, handle, Side::Out, structure) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Forward(
    handle: *mut hg_handle,
    callback: Cb,
    arg: *mut c_void,
    structure: *mut c_void,
) -> Code {
    answer(|| {
        let handle = some(Handle::of_hg(handle), "the handle")?;
        // SAFETY: the program has the handle; one call at a time is under way with it, which is
        // claimed first.
        unsafe {
            core_calls::claim(handle)?;
            let sent = encode(handle, Side::In, structure).and_then(|(len, extra)| {
                (*handle).in_extra = extra;
                core_calls::forward(handle, Callback::Upper(callback, Arg(arg)), len)
            });
            core_calls::unclaim(handle, sent)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Respond(
    handle: *mut hg_handle,
    callback: Cb,
    arg: *mut c_void,
    structure: *mut c_void,
) -> Code {
    answer(|| {
        let handle = some(Handle::of_hg(handle), "the handle")?;
        // SAFETY: as in `HG_Forward`.
        unsafe {
            core_calls::claim(handle)?;
            let sent = encode(handle, Side::Out, structure).and_then(|(len, extra)| {
                (*handle).out_extra = extra;
                core_calls::respond(handle, Callback::Upper(callback, Arg(arg)), len)
            });
            core_calls::unclaim(handle, sent)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Cancel(handle: *mut hg_handle) -> Code {
    answer(|| {
        let handle = some(Handle::of_hg(handle), "the handle")?;
        // SAFETY: the program has the handle.
        unsafe { core_calls::cancel(handle) };
        Ok(())
    })
}
