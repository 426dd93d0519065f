//! Contexts.

use super::{answer, some, value};
use crate::{
    abi::{
        Code, CoreCreateCb, CreateCb, OPNOTSUPPORTED, hg_class, hg_context, hg_core_class,
        hg_core_context, hg_core_handle,
    },
    class::{Class, Context, lock},
    log::{Level, refuse, say},
    queue::Arg,
};
use std::{ffi::c_void, ptr};

/// # Safety
/// The class is null, or open.
unsafe fn create(class: *mut Class, id: u8) -> *mut Context {
    value(ptr::null_mut(), || {
        let class = some(class, "the class").ok()?;
        // SAFETY: not null (above), and open (the caller's promise).
        unsafe { Context::open(class, id) }.ok()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Context_create(class: *mut hg_class) -> *mut hg_context {
    // SAFETY: a class of the program's.
    unsafe { create(class.cast(), 0) }.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Context_create_id(class: *mut hg_class, id: u8) -> *mut hg_context {
    // SAFETY: a class of the program's.
    unsafe { create(class.cast(), id) }.cast()
}

fn core(context: *mut Context) -> *mut hg_core_context {
    if context.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: computed within the context.
    unsafe { &raw mut (*context).core }
}

fn class_of(class: *mut hg_core_class) -> *mut Class {
    if class.is_null() { ptr::null_mut() } else { Class::of_core(class) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_context_create(class: *mut hg_core_class) -> *mut hg_core_context {
    // SAFETY: a class of the program's.
    core(unsafe { create(class_of(class), 0) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_context_create_id(
    class: *mut hg_core_class,
    id: u8,
) -> *mut hg_core_context {
    // SAFETY: a class of the program's.
    core(unsafe { create(class_of(class), id) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Context_destroy(context: *mut hg_context) -> Code {
    answer(|| match context.is_null() {
        true => Ok(()),
        // SAFETY: one that was opened, and that the program does not use any more.
        false => unsafe { Context::close(context.cast()) },
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_context_destroy(context: *mut hg_core_context) -> Code {
    answer(|| match context.is_null() {
        true => Ok(()),
        // SAFETY: as above.
        false => unsafe { Context::close(Context::of_core(context)) },
    })
}

/// Nothing is posted: there is memory for a request when it comes.
#[unsafe(no_mangle)]
extern "C" fn HG_Context_unpost(context: *mut hg_context) -> Code {
    answer(|| some(context, "the context").map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn HG_Core_context_unpost(context: *mut hg_core_context) -> Code {
    answer(|| some(context, "the context").map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn HG_Core_context_post(context: *mut hg_core_context) -> Code {
    answer(|| some(context, "the context").map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_context_get_completion_count(context: *const hg_core_context) -> u32 {
    value(0, || {
        let context = some(context.cast_mut(), "the context").ok()?;
        // SAFETY: an open context.
        Some(unsafe { (*Context::of_core(context)).queue.len() } as u32)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Class_set_handle_create_callback(
    class: *mut hg_class,
    callback: CreateCb,
    arg: *mut c_void,
) -> Code {
    answer(|| {
        let class = some(class, "the class")?.cast::<Class>();
        // SAFETY: an open class.
        let shared = unsafe { (*class).shared.clone() };
        *lock(&shared.on_create) = (callback, Arg(arg));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_context_set_handle_create_callback(
    context: *mut hg_core_context,
    callback: CoreCreateCb,
    arg: *mut c_void,
) -> Code {
    answer(|| {
        let context = Context::of_core(some(context, "the context")?);
        // SAFETY: an open context.
        let shared = unsafe { (*context).shared.clone() };
        *lock(&shared.core_on_create) = (callback, Arg(arg));
        Ok(())
    })
}

type Acquire = Option<
    unsafe extern "C" fn(
        *mut hg_core_handle,
        u32,
        Option<unsafe extern "C" fn(*mut hg_core_handle, Code)>,
    ) -> Code,
>;

/// What is longer than a message is moved by the library itself.
#[unsafe(no_mangle)]
extern "C" fn HG_Core_set_more_data_callback(
    _: *mut hg_core_class,
    acquire: Acquire,
    release: Option<unsafe extern "C" fn(*mut hg_core_handle)>,
) -> Code {
    if acquire.is_none() && release.is_none() {
        return 0;
    }
    refuse(OPNOTSUPPORTED, "rpc", || {
        "HG_Core_set_more_data_callback: long input is moved by the library".to_owned()
    })
}

/// Counts are those of `HG_Class_get_counters`.
#[unsafe(no_mangle)]
extern "C" fn HG_Diag_dump_counters() {
    say(Level::Info, "diag", || "see HG_Class_get_counters".to_owned());
}
