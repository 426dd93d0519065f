//! Addresses.

use super::{answer, some, text, value};
use crate::{
    abi::{
        Cb, Code, CoreCb, INVALID_ARG, OP_ID_IGNORE, OVERFLOW, hg_class, hg_context, hg_core_addr,
        hg_core_class, hg_core_context,
    },
    address::AddrRef,
    class::{Class, Context, Shared},
    log::{Level, say},
    names,
    queue::{Arg, Entry, LookupCb},
};
use petasos_fabric::Address;
use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::Arc,
};

fn find(shared: &Shared, name: &str) -> Result<AddrRef, Code> {
    let parsed = names::peer(name).and_then(|url| {
        let url = Address::parse(&url).map_err(|error| error.to_string())?;
        Ok(url)
    });
    let url = parsed.map_err(|why| {
        say(Level::Error, "addr", || why);
        INVALID_ARG
    })?;
    Ok(shared.driver.lock().addr(url))
}

/// # Safety
/// The context is null or open; `name` is null or a string; `op_id` is null, `HG_OP_ID_IGNORE`, or a
/// place.
unsafe fn lookup1(
    context: *mut Context,
    callback: LookupCb,
    arg: *mut c_void,
    name: *const c_char,
    op_id: *mut *mut c_void,
) -> Result<(), Code> {
    let context = some(context, "the context")?;
    // SAFETY: the caller's promise.
    let (shared, queue, name) = unsafe {
        let context = &*context;
        (&context.shared, &context.queue, text(name)?)
    };
    let addr = find(shared, name)?;
    if !op_id.is_null() && op_id.addr() != OP_ID_IGNORE {
        // Nothing is left that could be cancelled.
        // SAFETY: a place (the caller's promise).
        unsafe { op_id.write(ptr::null_mut()) };
    }
    let entry = Entry::Lookup { callback, arg: Arg(arg), addr };
    shared.driver.lock().push(queue, entry);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Addr_lookup1(
    context: *mut hg_context,
    callback: Cb,
    arg: *mut c_void,
    name: *const c_char,
    op_id: *mut *mut c_void,
) -> Code {
    // SAFETY: as `lookup1`.
    answer(|| unsafe { lookup1(context.cast(), LookupCb::Upper(callback), arg, name, op_id) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_lookup1(
    context: *mut hg_core_context,
    callback: CoreCb,
    arg: *mut c_void,
    name: *const c_char,
    op_id: *mut *mut c_void,
) -> Code {
    answer(|| {
        let context = Context::of_core(some(context, "the context")?);
        // SAFETY: as `lookup1`.
        unsafe { lookup1(context, LookupCb::Core(callback), arg, name, op_id) }
    })
}

/// # Safety
/// The class is open.
unsafe fn shared<'a>(class: *mut Class) -> &'a Arc<Shared> {
    // SAFETY: the caller's promise.
    unsafe { &(*class).shared }
}

/// # Safety
/// The class is null or open, `name` null or a string, `out` null or a place.
unsafe fn lookup2(
    class: *mut Class,
    name: *const c_char,
    out: *mut *mut hg_core_addr,
) -> Result<(), Code> {
    let (class, out) = (some(class, "the class")?, some(out, "the place for the address")?);
    // SAFETY: the caller's promise.
    unsafe { out.write(find(shared(class), text(name)?)?.into_raw()) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Addr_lookup2(
    class: *mut hg_class,
    name: *const c_char,
    out: *mut *mut hg_core_addr,
) -> Code {
    // SAFETY: as `lookup2`.
    answer(|| unsafe { lookup2(class.cast(), name, out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_lookup2(
    class: *mut hg_core_class,
    name: *const c_char,
    out: *mut *mut hg_core_addr,
) -> Code {
    // SAFETY: as `lookup2`.
    answer(|| unsafe { lookup2(Class::of_core(some(class, "the class")?), name, out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_free(addr: *mut hg_core_addr) -> Code {
    answer(|| {
        // SAFETY: null, or one that the program has.
        drop(unsafe { AddrRef::from_raw(addr) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Addr_free(_: *mut hg_class, addr: *mut hg_core_addr) -> Code {
    // SAFETY: as above.
    unsafe { HG_Core_addr_free(addr) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_set_remove(addr: *mut hg_core_addr) -> Code {
    answer(|| {
        // SAFETY: null, or one that the program has, of a class that is open.
        let addr = unsafe { AddrRef::borrow(addr) }.ok_or(INVALID_ARG)?;
        if !addr.is_self() {
            // SAFETY: as above.
            unsafe { shared(Class::of_core(addr.class())) }.driver.lock().forget(&addr);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Addr_set_remove(_: *mut hg_class, addr: *mut hg_core_addr) -> Code {
    // SAFETY: as above.
    unsafe { HG_Core_addr_set_remove(addr) }
}

/// # Safety
/// The class is null or open, `out` null or a place.
unsafe fn own(class: *mut Class, out: *mut *mut hg_core_addr) -> Result<(), Code> {
    let (class, out) = (some(class, "the class")?, some(out, "the place for the address")?);
    // SAFETY: the caller's promise.
    let shared = unsafe { shared(class) };
    let engine = shared.driver.lock();
    let addr = engine.addr(engine.address().clone());
    drop(engine);
    // SAFETY: a place (the caller's promise).
    unsafe { out.write(addr.into_raw()) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Addr_self(class: *mut hg_class, out: *mut *mut hg_core_addr) -> Code {
    // SAFETY: as `own`.
    answer(|| unsafe { own(class.cast(), out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_self(
    class: *mut hg_core_class,
    out: *mut *mut hg_core_addr,
) -> Code {
    // SAFETY: as `own`.
    answer(|| unsafe { own(Class::of_core(some(class, "the class")?), out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_dup(
    addr: *mut hg_core_addr,
    out: *mut *mut hg_core_addr,
) -> Code {
    answer(|| {
        let out = some(out, "the place for the address")?;
        // SAFETY: null, or one that the program or a handle has; a place.
        unsafe { out.write(AddrRef::borrow(addr).ok_or(INVALID_ARG)?.into_raw()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Addr_dup(
    _: *mut hg_class,
    addr: *mut hg_core_addr,
    out: *mut *mut hg_core_addr,
) -> Code {
    // SAFETY: as above.
    unsafe { HG_Core_addr_dup(addr, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_cmp(one: *mut hg_core_addr, two: *mut hg_core_addr) -> u8 {
    value(0, || {
        if one == two {
            return Some(1);
        }
        // SAFETY: null, or addresses that the program has.
        let (one, two) = unsafe { (AddrRef::borrow(one)?, AddrRef::borrow(two)?) };
        Some(u8::from(one.url() == two.url()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Addr_cmp(
    _: *mut hg_class,
    one: *mut hg_core_addr,
    two: *mut hg_core_addr,
) -> u8 {
    // SAFETY: as above.
    unsafe { HG_Core_addr_cmp(one, two) }
}

/// # Safety
/// `buf` is null or has `*size` bytes; `size` is null or a length.
unsafe fn put(text: &[u8], buf: *mut c_char, size: *mut u64) -> Result<(), Code> {
    let size = some(size, "the length of the buffer")?;
    let need = text.len() as u64 + 1;
    // SAFETY: a length (the caller's promise).
    let has = unsafe { size.replace(need) };
    if buf.is_null() {
        return Ok(());
    }
    if has < need {
        return Err(OVERFLOW);
    }
    // SAFETY: there is room for it and the zero at its end.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), text.len());
        buf.add(text.len()).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_to_string(
    buf: *mut c_char,
    size: *mut u64,
    addr: *mut hg_core_addr,
) -> Code {
    answer(|| {
        // SAFETY: null, or one that the program has; a buffer of that length.
        unsafe {
            let addr = AddrRef::borrow(addr).ok_or(INVALID_ARG)?;
            put(addr.url().as_str().as_bytes(), buf, size)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Addr_to_string(
    _: *mut hg_class,
    buf: *mut c_char,
    size: *mut u64,
    addr: *mut hg_core_addr,
) -> Code {
    // SAFETY: as above.
    unsafe { HG_Core_addr_to_string(buf, size, addr) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_get_serialize_size(addr: *mut hg_core_addr, _: u64) -> u64 {
    // SAFETY: null, or one that the program has.
    value(0, || Some(unsafe { AddrRef::borrow(addr) }?.url().as_str().len() as u64 + 1))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_serialize(
    buf: *mut c_void,
    size: u64,
    _: u64,
    addr: *mut hg_core_addr,
) -> Code {
    let mut size = size;
    match buf.is_null() {
        true => INVALID_ARG,
        // SAFETY: a buffer of that length; null, or an address that the program has.
        false => unsafe { HG_Core_addr_to_string(buf.cast(), &raw mut size, addr) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_addr_deserialize(
    class: *mut hg_core_class,
    out: *mut *mut hg_core_addr,
    buf: *const c_void,
    size: u64,
    _: u64,
) -> Code {
    answer(|| {
        let class = Class::of_core(some(class, "the class")?);
        let out = some(out, "the place for the address")?;
        // SAFETY: null, or so many bytes that the program has received.
        let bytes = unsafe { crate::proc::bytes(buf, size) };
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(OVERFLOW)?;
        let name = std::str::from_utf8(&bytes[..end]).map_err(|_| INVALID_ARG)?;
        // SAFETY: an open class, and a place.
        unsafe { out.write(find(shared(class), name)?.into_raw()) };
        Ok(())
    })
}
