//! Handles: making, references, buffers.

use super::{answer, some, value};
use crate::{
    abi::{
        Code, INVALID_ARG, NOENTRY, hg_context, hg_core_addr, hg_core_context, hg_core_handle,
        hg_handle,
    },
    address::AddrRef,
    class::{Context, Rpc, Shared},
    handle::{Handle, HandleRef, IDLE},
    log::refuse,
    wire::{LEN, SUM},
};
use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, atomic::Ordering},
};

/// # Safety
/// The context is null or open, the address null or one that the program has.
unsafe fn create(
    context: *mut Context,
    addr: *mut hg_core_addr,
    id: u64,
) -> Result<*mut Handle, Code> {
    let context = some(context, "the context")?;
    // SAFETY: the caller's promise.
    unsafe {
        let shared = (*context).shared.clone();
        let rpc = registered(&shared, id)?;
        let handle = HandleRef::new(context)?;
        (*handle.raw()).set_target(AddrRef::borrow(addr), id, rpc);
        Ok(handle.into_raw())
    }
}

/// What is registered under a number; nothing under 0, which is no number yet.
///
/// # Errors
/// [`NOENTRY`] if there is nothing.
fn registered(shared: &Shared, id: u64) -> Result<Option<Arc<Rpc>>, Code> {
    let rpc = shared.rpc(id);
    if id != 0 && rpc.is_none() {
        return Err(refuse(NOENTRY, "rpc", || format!("{id:#x} is not registered here")));
    }
    Ok(rpc)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Create(
    context: *mut hg_context,
    addr: *mut hg_core_addr,
    id: u64,
    out: *mut *mut hg_handle,
) -> Code {
    answer(|| {
        let out = some(out, "the place for the handle")?;
        // SAFETY: as `create`; a place.
        unsafe { out.write(&raw mut (*create(context.cast(), addr, id)?).hg) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_create(
    context: *mut hg_core_context,
    addr: *mut hg_core_addr,
    id: u64,
    out: *mut *mut hg_core_handle,
) -> Code {
    answer(|| {
        let out = some(out, "the place for the handle")?;
        let context = Context::of_core(some(context, "the context")?);
        // SAFETY: as `create`; a place.
        unsafe { out.write(create(context, addr, id)?.cast()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_destroy(handle: *mut hg_core_handle) -> Code {
    answer(|| {
        // SAFETY: null, or one that the program has and gives back.
        drop(unsafe { HandleRef::from_raw(handle.cast()) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Destroy(handle: *mut hg_handle) -> Code {
    // SAFETY: as above.
    unsafe { HG_Core_destroy(Handle::of_hg(handle).cast()) }
}

/// # Safety
/// The handle is null or one that the program has, the address as in `create`.
unsafe fn reset(handle: *mut Handle, addr: *mut hg_core_addr, id: u64) -> Result<(), Code> {
    let handle = some(handle, "the handle")?;
    // SAFETY: the program has it, and nothing is under way with it (checked first).
    unsafe {
        if (*handle).state.load(Ordering::Acquire) != IDLE {
            return Err(refuse(crate::abi::BUSY, "rpc", || {
                "a handle whose call is under way cannot be reset".to_owned()
            }));
        }
        let inner = &mut *handle;
        let rpc = registered(&inner.shared, id)?;
        inner.clear();
        inner.set_target(AddrRef::borrow(addr), id, rpc);
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Reset(handle: *mut hg_handle, addr: *mut hg_core_addr, id: u64) -> Code {
    // SAFETY: as `reset`.
    answer(|| unsafe { reset(Handle::of_hg(handle), addr, id) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_reset(
    handle: *mut hg_core_handle,
    addr: *mut hg_core_addr,
    id: u64,
) -> Code {
    // SAFETY: as `reset`.
    answer(|| unsafe { reset(handle.cast(), addr, id) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_ref_incr(handle: *mut hg_core_handle) -> Code {
    answer(|| {
        // SAFETY: null, or one that the program has.
        unsafe { HandleRef::borrow(handle.cast()) }.ok_or(INVALID_ARG)?.count();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_ref_get(handle: *mut hg_core_handle) -> i32 {
    // SAFETY: null, or one that the program has. The one of this call does not count.
    value(-1, || Some(unsafe { HandleRef::borrow(handle.cast()) }?.refs() - 1))
}

/// Where input or output begins, and how much there can be.
///
/// # Safety
/// The handle is null or one that the program has; places are null or places.
unsafe fn buffer(
    handle: *mut hg_handle,
    is_input: bool,
    at: *mut *mut c_void,
    size: *mut u64,
) -> Result<(), Code> {
    let handle = some(Handle::of_hg(handle), "the handle")?;
    let at = some(at, "the place for the buffer")?;
    // SAFETY: the caller's promise; the buffers are longer than headers.
    unsafe {
        let core = &(*handle).core;
        let (buf, len) = match is_input {
            true => (core.in_buf, core.in_buf_size),
            false => (core.out_buf, core.out_buf_size),
        };
        at.write(buf.cast::<u8>().add(LEN + SUM).cast());
        if !size.is_null() {
            size.write((len - LEN - SUM) as u64);
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Get_input_buf(
    handle: *mut hg_handle,
    at: *mut *mut c_void,
    size: *mut u64,
) -> Code {
    // SAFETY: as `buffer`.
    answer(|| unsafe { buffer(handle, true, at, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Get_output_buf(
    handle: *mut hg_handle,
    at: *mut *mut c_void,
    size: *mut u64,
) -> Code {
    // SAFETY: as `buffer`.
    answer(|| unsafe { buffer(handle, false, at, size) })
}

/// What did not fit into the buffer; null if all did.
///
/// # Safety
/// As `buffer`.
unsafe fn extra(
    handle: *mut hg_handle,
    is_input: bool,
    at: *mut *mut c_void,
    size: *mut u64,
) -> Result<(), Code> {
    let handle = some(Handle::of_hg(handle), "the handle")?;
    let at = some(at, "the place for the buffer")?;
    // SAFETY: the caller's promise.
    unsafe {
        let region = if is_input { &(*handle).in_extra } else { &(*handle).out_extra };
        let (buf, len) = match region {
            Some(region) => (region.as_ptr().cast(), region.len() as u64),
            None => (ptr::null_mut(), 0),
        };
        at.write(buf);
        if !size.is_null() {
            size.write(len);
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Get_input_extra_buf(
    handle: *mut hg_handle,
    at: *mut *mut c_void,
    size: *mut u64,
) -> Code {
    // SAFETY: as `extra`.
    answer(|| unsafe { extra(handle, true, at, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Get_output_extra_buf(
    handle: *mut hg_handle,
    at: *mut *mut c_void,
    size: *mut u64,
) -> Code {
    // SAFETY: as `extra`.
    answer(|| unsafe { extra(handle, false, at, size) })
}

/// Bytes of a payload: what came or was sent, without headers.
///
/// # Safety
/// The handle is null or one that the program has.
unsafe fn payload_size(handle: *mut hg_handle, is_input: bool) -> u64 {
    value(0, || {
        let handle = some(Handle::of_hg(handle), "the handle").ok()?;
        // SAFETY: the caller's promise.
        let inner = unsafe { &*handle };
        let (extra, used) = match is_input {
            true => (&inner.in_extra, inner.core.in_buf_used),
            false => (&inner.out_extra, inner.core.out_buf_used),
        };
        let short = used.saturating_sub(LEN + SUM);
        Some(extra.as_ref().map_or(short, |region| region.len()) as u64)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Get_input_payload_size(handle: *mut hg_handle) -> u64 {
    // SAFETY: as `payload_size`.
    unsafe { payload_size(handle, true) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Get_output_payload_size(handle: *mut hg_handle) -> u64 {
    // SAFETY: as `payload_size`.
    unsafe { payload_size(handle, false) }
}

/// The input is the handle's own copy: nothing of the network's is held by it.
#[unsafe(no_mangle)]
extern "C" fn HG_Release_input_buf(handle: *mut hg_handle) -> Code {
    answer(|| some(handle, "the handle").map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn HG_Core_release_input(handle: *mut hg_core_handle) -> Code {
    answer(|| some(handle, "the handle").map(drop))
}
