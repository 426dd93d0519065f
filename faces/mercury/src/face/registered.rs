//! Calls that are registered.

use super::{answer, some, text, value};
use crate::{
    abi::{
        Code, CoreRpcCb, FreeData, INVALID_ARG, NOENTRY, ProcCb, RpcCb, hg_class, hg_core_class,
    },
    class::{Class, Rpc, Shared, lock},
    queue::Arg,
};
use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::{Arc, Mutex, atomic::Ordering},
};

/// The number of a name: djb2, of 32 bits, as programs compute it, too.
fn number(name: &str) -> u64 {
    let hash = |hash: u32, byte: u8| (hash << 5).wrapping_add(hash).wrapping_add(u32::from(byte));
    u64::from(name.bytes().fold(5381, hash))
}

/// # Safety
/// The class is null, or open for as long as the result is used.
unsafe fn shared<'a>(class: *mut hg_class) -> Result<&'a Arc<Shared>, Code> {
    let class = some(class, "the class")?.cast::<Class>();
    // SAFETY: not null, and open (the caller's promise).
    Ok(unsafe { &(*class).shared })
}

/// # Safety
/// As [`shared`].
unsafe fn core_shared<'a>(class: *mut hg_core_class) -> Result<&'a Arc<Shared>, Code> {
    // SAFETY: the caller's promise.
    unsafe { shared(Class::of_core(some(class, "the class")?).cast()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Register_name(
    class: *mut hg_class,
    name: *const c_char,
    in_proc: ProcCb,
    out_proc: ProcCb,
    callback: RpcCb,
) -> u64 {
    value(0, || {
        // SAFETY: a class and a string of the program's.
        let (shared, name) = unsafe { (shared(class).ok()?, text(name).ok()?) };
        let id = number(name);
        shared.set_rpc(Rpc::upper(id, (in_proc, out_proc), callback));
        Some(id)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Registered_name(
    class: *mut hg_class,
    name: *const c_char,
    id: *mut u64,
    flag: *mut u8,
) -> Code {
    answer(|| {
        // SAFETY: a class and a string of the program's.
        let (shared, name) = unsafe { (shared(class)?, text(name)?) };
        let number = number(name);
        // SAFETY: null, or places for the results.
        unsafe {
            if !id.is_null() {
                id.write(number);
            }
            if !flag.is_null() {
                flag.write(u8::from(shared.rpc(number).is_some()));
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Register(
    class: *mut hg_class,
    id: u64,
    in_proc: ProcCb,
    out_proc: ProcCb,
    callback: RpcCb,
) -> Code {
    answer(|| {
        // SAFETY: a class of the program's.
        unsafe { shared(class)? }.set_rpc(Rpc::upper(id, (in_proc, out_proc), callback));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_register(
    class: *mut hg_core_class,
    id: u64,
    callback: CoreRpcCb,
) -> Code {
    answer(|| {
        // SAFETY: a class of the program's.
        unsafe { core_shared(class)? }.set_rpc(Rpc::core(id, callback));
        Ok(())
    })
}

fn deregister(shared: &Shared, id: u64) -> Result<(), Code> {
    if shared.remove_rpc(id) { Ok(()) } else { Err(NOENTRY) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Deregister(class: *mut hg_class, id: u64) -> Code {
    // SAFETY: a class of the program's.
    answer(|| deregister(unsafe { shared(class)? }, id))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_deregister(class: *mut hg_core_class, id: u64) -> Code {
    // SAFETY: a class of the program's.
    answer(|| deregister(unsafe { core_shared(class)? }, id))
}

/// # Safety
/// `flag` is null, or a place for a result.
unsafe fn registered(shared: &Shared, id: u64, flag: *mut u8) -> Result<(), Code> {
    let flag = some(flag, "the place for the result")?;
    // SAFETY: a place (the caller's promise).
    unsafe { flag.write(u8::from(shared.rpc(id).is_some())) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Registered(class: *mut hg_class, id: u64, flag: *mut u8) -> Code {
    // SAFETY: a class of the program's, and a place.
    answer(|| unsafe { registered(shared(class)?, id, flag) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_registered(class: *mut hg_core_class, id: u64, flag: *mut u8) -> Code {
    // SAFETY: a class of the program's, and a place.
    answer(|| unsafe { registered(core_shared(class)?, id, flag) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Registered_proc_cb(
    class: *mut hg_class,
    id: u64,
    flag: *mut u8,
    in_proc: *mut ProcCb,
    out_proc: *mut ProcCb,
) -> Code {
    answer(|| {
        // SAFETY: a class of the program's.
        let rpc = unsafe { shared(class)? }.rpc(id);
        // SAFETY: null, or places for the results.
        unsafe {
            if !flag.is_null() {
                flag.write(u8::from(rpc.is_some()));
            }
            let procs = rpc.and_then(|rpc| rpc.procs).unwrap_or((None, None));
            for (at, proc) in [(in_proc, procs.0), (out_proc, procs.1)] {
                if !at.is_null() {
                    at.write(proc);
                }
            }
        }
        Ok(())
    })
}

fn set_data(shared: &Shared, id: u64, data: *mut c_void, free: FreeData) -> Result<(), Code> {
    shared.rpc(id).ok_or(NOENTRY)?.set_data(data, free);
    Ok(())
}

fn data(shared: &Shared, id: u64) -> Option<*mut c_void> {
    let rpc = shared.rpc(id)?;
    let data = lock(&rpc.data).0.0;
    Some(data)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Register_data(
    class: *mut hg_class,
    id: u64,
    data: *mut c_void,
    free: FreeData,
) -> Code {
    // SAFETY: a class of the program's.
    answer(|| set_data(unsafe { shared(class)? }, id, data, free))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Registered_data(class: *mut hg_class, id: u64) -> *mut c_void {
    // SAFETY: a class of the program's.
    value(ptr::null_mut(), || data(unsafe { shared(class) }.ok()?, id))
}

/// The data of the core layer is where inline functions read it, so it may be set once.
#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_register_data(
    class: *mut hg_core_class,
    id: u64,
    data: *mut c_void,
    free: FreeData,
) -> Code {
    answer(|| {
        // SAFETY: a class of the program's.
        let shared = unsafe { core_shared(class)? };
        let rpc = shared.rpc(id).ok_or(NOENTRY)?;
        if !rpc.core.data.is_null() {
            return Err(INVALID_ARG);
        }
        let mut new = Rpc::core(id, rpc.core.rpc_cb);
        (new.procs, new.callback) = (rpc.procs, rpc.callback);
        // Freed once, when the new one goes.
        let upper = std::mem::replace(&mut *lock(&rpc.data), (Arg(ptr::null_mut()), None));
        new.data = Mutex::new(upper);
        (new.core.data, new.core.free) = (data, free);
        new.core.no_response = rpc.core.no_response;
        new.no_response = rpc.no_response.load(Ordering::Relaxed).into();
        shared.set_rpc(new);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_registered_data(class: *mut hg_core_class, id: u64) -> *mut c_void {
    value(ptr::null_mut(), || {
        // SAFETY: a class of the program's.
        Some(unsafe { core_shared(class) }.ok()?.rpc(id)?.core.data)
    })
}

fn disable(shared: &Shared, id: u64, disable: u8) -> Result<(), Code> {
    let rpc = shared.rpc(id).ok_or(NOENTRY)?;
    rpc.no_response.store(disable != 0, Ordering::Relaxed);
    Ok(())
}

/// # Safety
/// `out` is null, or a place for a result.
unsafe fn disabled(shared: &Shared, id: u64, out: *mut u8) -> Result<(), Code> {
    let out = some(out, "the place for the result")?;
    let rpc = shared.rpc(id).ok_or(NOENTRY)?;
    // SAFETY: a place (the caller's promise).
    unsafe { out.write(u8::from(rpc.no_response.load(Ordering::Relaxed))) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Registered_disable_response(
    class: *mut hg_class,
    id: u64,
    flag: u8,
) -> Code {
    // SAFETY: a class of the program's.
    answer(|| disable(unsafe { shared(class)? }, id, flag))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Registered_disabled_response(
    class: *mut hg_class,
    id: u64,
    out: *mut u8,
) -> Code {
    // SAFETY: a class of the program's, and a place.
    answer(|| unsafe { disabled(shared(class)?, id, out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_registered_disable_response(
    class: *mut hg_core_class,
    id: u64,
    flag: u8,
) -> Code {
    // SAFETY: a class of the program's.
    answer(|| disable(unsafe { core_shared(class)? }, id, flag))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_registered_disabled_response(
    class: *mut hg_core_class,
    id: u64,
    out: *mut u8,
) -> Code {
    // SAFETY: a class of the program's, and a place.
    answer(|| unsafe { disabled(core_shared(class)?, id, out) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_those_that_programs_compute() {
        assert_eq!(super::number(""), 5381);
        assert_eq!(super::number("a"), 5381 * 33 + 97);
        assert_eq!(super::number("hg_test_rpc_null") >> 32, 0);
    }
}
