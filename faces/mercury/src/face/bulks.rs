//! Bulk data.

use super::{answer, some, value};
use crate::{
    abi::{
        BULK_EAGER, Cb, Code, INVALID_ARG, OP_ID_IGNORE, OPNOTSUPPORTED, OVERFLOW, PERMISSION,
        PULL, READ_ONLY, SUCCESS, WRITE_ONLY, hg_bulk_attr, hg_class, hg_context, hg_core_addr,
    },
    address::AddrRef,
    bulk::{Bulk, BulkRef, copy, deserialise},
    class::{Class, Context, lock, numbered},
    log::refuse,
    queue::{Arg, Entry, Transferred},
};
use std::{
    ffi::{c_uint, c_void},
    ptr,
};

/// Pieces of one descriptor, at most.
const MOST: u32 = 1 << 20;

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_create(
    class: *mut hg_class,
    count: u32,
    pieces: *mut *mut c_void,
    sizes: *const u64,
    flags: u8,
    out: *mut *mut Bulk,
) -> Code {
    // SAFETY: as `HG_Bulk_create_attr`.
    unsafe { HG_Bulk_create_attr(class, count, pieces, sizes, flags, ptr::null(), out) }
}

/// # Safety
/// The class is null or open; `pieces` is null or has so many pointers, `sizes` as many lengths;
/// that memory stays until the descriptor is freed; `attrs` is null or attributes, `out` null or a
/// place.
#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_create_attr(
    class: *mut hg_class,
    count: u32,
    pieces: *mut *mut c_void,
    sizes: *const u64,
    flags: u8,
    attrs: *const hg_bulk_attr,
    out: *mut *mut Bulk,
) -> Code {
    answer(|| {
        let class = some(class, "the class")?.cast::<Class>();
        let out = some(out, "the place for the descriptor")?;
        let sizes = some(sizes.cast_mut(), "the sizes")?;
        if count == 0 || count > MOST || !matches!(flags, 1..=3) {
            return Err(INVALID_ARG);
        }
        // SAFETY: the caller's promise.
        unsafe {
            if !attrs.is_null() && !matches!((*attrs).mem_type, 0 | 4) {
                return Err(refuse(OPNOTSUPPORTED, "bulk", || {
                    "memory of devices is not moved".to_owned()
                }));
            }
            let piece = |nth: usize| {
                let at = if pieces.is_null() { ptr::null_mut() } else { pieces.add(nth).read() };
                (at, sizes.add(nth).read())
            };
            let all: Vec<_> = (0..count as usize).map(piece).collect();
            let bulk = BulkRef::local(&(*class).shared, &all, flags)?;
            out.write(bulk.into_raw());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_free(bulk: *mut Bulk) -> Code {
    // SAFETY: null, or one that the program has, and gives back.
    answer(|| unsafe { BulkRef::borrow(bulk) }.map_or(Ok(()), BulkRef::free))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_ref_incr(bulk: *mut Bulk) -> Code {
    answer(|| {
        // SAFETY: null, or one that the program has.
        unsafe { BulkRef::borrow(bulk) }.ok_or(INVALID_ARG)?.count();
        Ok(())
    })
}

/// From now on it carries this process's address, and the number of the context.
#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_bind(bulk: *mut Bulk, context: *mut hg_context) -> Code {
    answer(|| {
        let context = some(context, "the context")?.cast::<Context>();
        // SAFETY: an open context; null, or one that the program has.
        let (shared, id, bulk) = unsafe {
            let context = &*context;
            (&context.shared, context.core.id, BulkRef::borrow(bulk).ok_or(INVALID_ARG)?)
        };
        if bulk.get().memory().is_none() {
            return Err(INVALID_ARG);
        }
        let engine = shared.driver.lock();
        let addr = engine.addr(engine.address().clone());
        drop(engine);
        *lock(&bulk.get().bound) = Some((addr, id));
        Ok(())
    })
}

/// The address that it is bound to; it lives as long as the descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_get_addr(bulk: *mut Bulk) -> *mut hg_core_addr {
    value(ptr::null_mut(), || {
        // SAFETY: null, or one that the program has.
        let bulk = unsafe { BulkRef::borrow(bulk) }?;
        lock(&bulk.get().bound).as_ref().map(|(addr, _)| addr.as_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_get_context_id(bulk: *mut Bulk) -> u8 {
    value(0, || {
        // SAFETY: null, or one that the program has.
        let bulk = unsafe { BulkRef::borrow(bulk) }?;
        lock(&bulk.get().bound).as_ref().map(|(_, id)| *id)
    })
}

/// Pieces of memory of this process, or that came with the descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_access(
    bulk: *mut Bulk,
    offset: u64,
    size: u64,
    flags: u8,
    most: u32,
    pieces: *mut *mut c_void,
    sizes: *mut u64,
    count: *mut u32,
) -> Code {
    answer(|| {
        // SAFETY: null, or one that the program has.
        let bulk = unsafe { BulkRef::borrow(bulk) }.ok_or(INVALID_ARG)?;
        let bulk = bulk.get();
        if bulk.info.flags & BULK_EAGER != 0 && flags & WRITE_ONLY != 0 {
            return Err(PERMISSION);
        }
        let parts = bulk.part(offset, size)?;
        let given = parts.len().min(most as usize);
        for (nth, part) in parts.iter().take(given).enumerate() {
            // SAFETY: null, or as many places as was said.
            unsafe {
                if !pieces.is_null() {
                    pieces.add(nth).write(part.as_ptr().cast());
                }
                if !sizes.is_null() {
                    sizes.add(nth).write(part.len() as u64);
                }
            }
        }
        if !count.is_null() {
            // SAFETY: a place.
            unsafe { count.write(given as u32) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_get_serialize_size(bulk: *mut Bulk, flags: u64) -> u64 {
    value(0, || {
        // SAFETY: null, or one that the program has.
        let bulk = unsafe { BulkRef::borrow(bulk) }?;
        let eager = flags as u32 & BULK_EAGER != 0;
        Some(bulk.get().serialise(eager).ok()?.len() as u64)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_serialize(
    buf: *mut c_void,
    size: u64,
    flags: u64,
    bulk: *mut Bulk,
) -> Code {
    answer(|| {
        let buf = some(buf, "the buffer")?;
        // SAFETY: null, or one that the program has.
        let bulk = unsafe { BulkRef::borrow(bulk) }.ok_or(INVALID_ARG)?;
        let bytes = bulk.get().serialise(flags as u32 & BULK_EAGER != 0)?;
        if bytes.len() as u64 > size {
            return Err(OVERFLOW);
        }
        // SAFETY: a buffer of this length.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_deserialize(
    class: *mut hg_class,
    out: *mut *mut Bulk,
    buf: *const c_void,
    size: u64,
) -> Code {
    answer(|| {
        let class = some(class, "the class")?.cast::<Class>();
        let out = some(out, "the place for the descriptor")?;
        some(buf.cast_mut(), "the buffer")?;
        // SAFETY: an open class, so many bytes, a place. What is behind the end of the descriptor
        // is not of it.
        unsafe {
            let bytes = crate::proc::bytes(buf, size);
            out.write(deserialise(&(*class).shared, crate::bulk::trim(bytes))?.into_raw());
        }
        Ok(())
    })
}

/// A transfer as it is asked for.
struct Transfer {
    context: *mut hg_context,
    callback: Cb,
    arg: *mut c_void,
    op: c_uint,
    origin: *mut Bulk,
    origin_offset: u64,
    local: *mut Bulk,
    local_offset: u64,
    size: u64,
    op_id: *mut *mut c_void,
}

/// Checks a transfer, and begins it, with the peer that `of` finds for the origin.
///
/// # Safety
/// Context and descriptors are null or open, `op_id` null, `HG_OP_ID_IGNORE`, or a place.
unsafe fn begin(
    transfer: Transfer,
    of: impl FnOnce(&Bulk) -> Result<AddrRef, Code>,
) -> Result<(), Code> {
    let Transfer { context, callback, arg, op, size, op_id, .. } = transfer;
    let context = some(context, "the context")?.cast::<Context>();
    // SAFETY: the caller's promise.
    let (shared, queue, origin, local) = unsafe {
        let [origin, local] = [transfer.origin, transfer.local].map(|bulk| BulkRef::borrow(bulk));
        let (origin, local) = (origin.ok_or(INVALID_ARG)?, local.ok_or(INVALID_ARG)?);
        (&(*context).shared, &(*context).queue, origin, local)
    };
    let from = of(origin.get())?;
    if op > PULL {
        return Err(INVALID_ARG);
    }
    let is_pull = op == PULL;
    let within =
        |bulk: &Bulk, offset: u64| offset.checked_add(size).is_some_and(|end| end <= bulk.info.len);
    if !within(origin.get(), transfer.origin_offset) || !within(local.get(), transfer.local_offset)
    {
        return Err(refuse(INVALID_ARG, "bulk", || "beyond the end of memory".to_owned()));
    }
    let rights = if is_pull { (READ_ONLY, WRITE_ONLY) } else { (WRITE_ONLY, READ_ONLY) };
    let may = |bulk: &Bulk, right: u8| bulk.info.flags & u32::from(right) != 0;
    if !may(origin.get(), rights.0) || !may(local.get(), rights.1) {
        return Err(refuse(PERMISSION, "bulk", || "memory does not have this right".to_owned()));
    }
    let pieces = local.get().part(transfer.local_offset, size)?;
    let near = origin.get().memory().is_some();
    let remote = match near || size == 0 {
        true => None,
        false => Some(origin.get().remote(from.peer())?),
    };
    let code = match near {
        true => {
            let other = origin.get().part(transfer.origin_offset, size)?;
            let copied = if is_pull { copy(&other, &pieces) } else { copy(&pieces, &other) };
            copied.err().unwrap_or(SUCCESS)
        }
        false => SUCCESS,
    };
    local.get().mark_used();
    let (arg, ours) = (Arg(arg), !op_id.is_null() && op_id.addr() != OP_ID_IGNORE);
    let over = Box::new(Transferred { callback, arg, origin, local, op, size, code });
    let mut engine = shared.driver.lock();
    let number = match remote {
        None => {
            engine.push(queue, Entry::Bulk(over));
            0
        }
        Some(remote) => {
            let offset = transfer.origin_offset;
            let number = engine.transfer(over, queue, remote, offset, pieces.into_iter(), is_pull);
            number | u64::from(shared.number) << 56
        }
    };
    if ours {
        // Not null, whatever the number is; it is never used as a pointer.
        let id = ptr::without_provenance_mut((number << 1 | 1).max(1) as usize);
        // SAFETY: a place (the caller's promise).
        unsafe { op_id.write(id) };
    }
    drop(engine);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_transfer_id(
    context: *mut hg_context,
    callback: Cb,
    arg: *mut c_void,
    op: c_uint,
    addr: *mut hg_core_addr,
    _: u8,
    origin: *mut Bulk,
    origin_offset: u64,
    local: *mut Bulk,
    local_offset: u64,
    size: u64,
    op_id: *mut *mut c_void,
) -> Code {
    let transfer = Transfer {
        context,
        callback,
        arg,
        op,
        origin,
        origin_offset,
        local,
        local_offset,
        size,
        op_id,
    };
    // SAFETY: null, or what the program has; as `begin`.
    answer(|| unsafe {
        begin(transfer, |origin| {
            if lock(&origin.bound).is_some() {
                return Err(refuse(INVALID_ARG, "bulk", || {
                    "the descriptor is bound to an address: use HG_Bulk_bind_transfer".to_owned()
                }));
            }
            AddrRef::borrow(addr).ok_or(INVALID_ARG)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_transfer(
    context: *mut hg_context,
    callback: Cb,
    arg: *mut c_void,
    op: c_uint,
    addr: *mut hg_core_addr,
    origin: *mut Bulk,
    origin_offset: u64,
    local: *mut Bulk,
    local_offset: u64,
    size: u64,
    op_id: *mut *mut c_void,
) -> Code {
    // SAFETY: as above.
    unsafe {
        HG_Bulk_transfer_id(
            context,
            callback,
            arg,
            op,
            addr,
            0,
            origin,
            origin_offset,
            local,
            local_offset,
            size,
            op_id,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Bulk_bind_transfer(
    context: *mut hg_context,
    callback: Cb,
    arg: *mut c_void,
    op: c_uint,
    origin: *mut Bulk,
    origin_offset: u64,
    local: *mut Bulk,
    local_offset: u64,
    size: u64,
    op_id: *mut *mut c_void,
) -> Code {
    let transfer = Transfer {
        context,
        callback,
        arg,
        op,
        origin,
        origin_offset,
        local,
        local_offset,
        size,
        op_id,
    };
    // SAFETY: null, or what the program has; as `begin`.
    answer(|| unsafe {
        begin(transfer, |origin| {
            let bound = lock(&origin.bound).as_ref().map(|(addr, _)| addr.clone());
            bound.ok_or_else(|| {
                refuse(INVALID_ARG, "bulk", || {
                    "the descriptor is bound to no address: see HG_Bulk_bind".to_owned()
                })
            })
        })
    })
}

/// It ends once, soon: by its callback. One that is over stays as it is.
#[unsafe(no_mangle)]
extern "C" fn HG_Bulk_cancel(op_id: *mut c_void) -> Code {
    answer(|| {
        let number = op_id.addr() as u64;
        if number == 0 {
            return Err(INVALID_ARG);
        }
        let number = number >> 1;
        let class = numbered((number >> 56) as u8 & 0x7f);
        if let Some(shared) = class {
            shared.driver.lock().cancel_transfer(number & 0x00ff_ffff_ffff_ffff);
        }
        Ok(())
    })
}
