//! What programs use of NA: its version, its errors, which transports there are, and classes as far
//! as they are given to `HG_Init_opt`. Messages and memory of NA are not an interface of their own
//! here, so such a class has no endpoint: it remembers what it was asked for.

use super::{answer, some, start, text, value};
use crate::{
    abi::{Code, NOENTRY, na_class, na_class_ops, na_init_info_4_0, na_protocol_info},
    class::{EAGER, Settings},
    log,
    names::Named,
};
use std::{
    ffi::{CString, c_char, c_uint},
    ptr,
};

#[unsafe(no_mangle)]
unsafe extern "C" fn NA_Version_get(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint) {
    for (at, number) in [(major, 6), (minor, 0), (patch, 0)] {
        if !at.is_null() {
            // SAFETY: not null, and a place for a number.
            unsafe { at.write(number) };
        }
    }
}

/// Codes of NA are those of HG, as far as NA has them.
#[unsafe(no_mangle)]
extern "C" fn NA_Error_to_string(code: c_uint) -> *const c_char {
    const NAMES: [&std::ffi::CStr; 24] = [
        c"NA_SUCCESS",
        c"NA_PERMISSION",
        c"NA_NOENTRY",
        c"NA_INTERRUPT",
        c"NA_AGAIN",
        c"NA_NOMEM",
        c"NA_ACCESS",
        c"NA_FAULT",
        c"NA_BUSY",
        c"NA_EXIST",
        c"NA_NODEV",
        c"NA_INVALID_ARG",
        c"NA_PROTOCOL_ERROR",
        c"NA_OVERFLOW",
        c"NA_MSGSIZE",
        c"NA_PROTONOSUPPORT",
        c"NA_OPNOTSUPPORTED",
        c"NA_ADDRINUSE",
        c"NA_ADDRNOTAVAIL",
        c"NA_HOSTUNREACH",
        c"NA_TIMEOUT",
        c"NA_CANCELED",
        c"NA_IO_ERROR",
        c"NA_HOSTFIREWALL",
    ];
    NAMES.get(code as usize).copied().unwrap_or(c"Unknown error").as_ptr()
}

/// Logs of NA are those of HG.
#[unsafe(no_mangle)]
unsafe extern "C" fn NA_Set_log_level(name: *const c_char) {
    answer(|| {
        // SAFETY: null, or a string.
        if let Some(level) = log::level(unsafe { text(name) }?) {
            log::set_level(level);
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn NA_Cleanup() {}

/// Class, protocol and device of what can be asked for everywhere; networks of libfabric and UCX
/// are known once they are opened.
const KNOWN: [(&str, &str, &str); 4] =
    [("na", "sm", "shm"), ("ofi", "tcp", "any"), ("ucx", "tcp", "any"), ("petasos", "auto", "any")];

/// # Safety
/// `info` is null or a string, `out` null or a place.
unsafe fn protocols(info: *const c_char, out: *mut *mut na_protocol_info) -> Result<(), Code> {
    let out = some(out, "the place for the list")?;
    let wanted = match info.is_null() {
        true => "",
        // SAFETY: a string (the caller's promise).
        false => unsafe { text(info) }?,
    };
    let wanted = wanted.split("://").next().unwrap_or(wanted);
    let (class, protocol) = wanted.split_once('+').unwrap_or(("", wanted));
    let own = |text: &str| CString::new(text).map_or(ptr::null_mut(), CString::into_raw);
    let mut list: *mut na_protocol_info = ptr::null_mut();
    for (known_class, known, device) in KNOWN.iter().rev() {
        let fits = (class.is_empty() || class == *known_class)
            && (protocol.is_empty() || protocol == *known || protocol == *known_class);
        if fits {
            list = Box::into_raw(Box::new(na_protocol_info {
                next: list,
                class_name: own(known_class),
                protocol_name: own(known),
                device_name: own(device),
            }));
        }
    }
    // SAFETY: a place (the caller's promise).
    unsafe { out.write(list) };
    if list.is_null() { Err(NOENTRY) } else { Ok(()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn NA_Get_protocol_info(
    info: *const c_char,
    out: *mut *mut na_protocol_info,
) -> Code {
    // SAFETY: as `protocols`.
    answer(|| unsafe { protocols(info, out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_get_na_protocol_info(
    info: *const c_char,
    out: *mut *mut na_protocol_info,
) -> Code {
    // SAFETY: as `protocols`.
    answer(|| unsafe { protocols(info, out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn NA_Free_protocol_info(list: *mut na_protocol_info) {
    answer(|| {
        let mut next = list;
        while !next.is_null() {
            // SAFETY: `protocols` made it, of boxes and strings of its own, and the program gives it
            // back.
            unsafe {
                let one = Box::from_raw(next);
                next = one.next;
                for text in [one.class_name, one.protocol_name, one.device_name] {
                    if !text.is_null() {
                        drop(CString::from_raw(text));
                    }
                }
            }
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_free_na_protocol_info(list: *mut na_protocol_info) {
    // SAFETY: as above.
    unsafe { NA_Free_protocol_info(list) };
}

/// A class of NA. Its first part is what inline functions of the headers look at.
#[repr(C)]
struct NaClass {
    na: na_class,
    ops: na_class_ops,
    settings: Settings,
    named: Named,
    texts: (CString, CString),
}

/// What a class was asked for.
///
/// # Safety
/// It is one of [`NA_Initialize_opt2`].
pub(super) unsafe fn remembered(class: *mut na_class) -> (Settings, Named) {
    // SAFETY: the caller's promise.
    let class = unsafe { &*class.cast::<NaClass>() };
    (class.settings.clone(), class.named.clone())
}

unsafe extern "C" fn max_unexpected(class: *const na_class) -> usize {
    // SAFETY: inline functions of the headers call it with the pointer that they found in a class.
    match unsafe { (*class.cast::<NaClass>()).settings.max_input } {
        0 => EAGER,
        size => size,
    }
}

unsafe extern "C" fn max_expected(class: *const na_class) -> usize {
    // SAFETY: as above.
    match unsafe { (*class.cast::<NaClass>()).settings.max_output } {
        0 => EAGER,
        size => size,
    }
}

unsafe extern "C" fn header(_: *const na_class) -> usize {
    crate::wire::NA
}

unsafe extern "C" fn max_tag(_: *const na_class) -> u32 {
    u32::MAX
}

/// # Safety
/// `info` is null or a string; `asked` is null or settings, of which each later version has more at
/// its end than version 4.
#[unsafe(no_mangle)]
unsafe extern "C" fn NA_Initialize_opt2(
    info: *const c_char,
    listen: bool,
    _: c_uint,
    asked: *const na_init_info_4_0,
) -> *mut na_class {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (info, (settings, net)) =
            unsafe { (text(info).ok()?, start::settings_of(asked, listen)?) };
        let named = start::named(info, net.as_deref(), false)?;
        let own = |text: &str| CString::new(text).ok();
        let texts = (own(&named.class)?, own(&named.protocol)?);
        let class = NaClass {
            na: na_class {
                ops: ptr::null(),
                plugin_class: ptr::null_mut(),
                protocol_name: texts.1.as_ptr().cast_mut(),
                progress_mode: u8::from(settings.never_sleep),
                listen,
            },
            ops: na_class_ops {
                class_name: texts.0.as_ptr(),
                before_is_self: [0; 16],
                addr_is_self: None,
                after_is_self: [0; 4],
                max_unexpected: Some(max_unexpected),
                max_expected: Some(max_expected),
                unexpected_header: Some(header),
                expected_header: Some(header),
                max_tag: Some(max_tag),
                rest: [0; 25],
            },
            settings,
            named,
            texts,
        };
        let class = Box::into_raw(Box::new(class));
        // SAFETY: it was made just now.
        unsafe { (*class).na.ops = &raw const (*class).ops };
        Some(class)
    })
    .cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn NA_Initialize_opt(
    info: *const c_char,
    listen: bool,
    asked: *const na_init_info_4_0,
) -> *mut na_class {
    // SAFETY: as `NA_Initialize_opt2`.
    unsafe { NA_Initialize_opt2(info, listen, 4 << 16, asked) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn NA_Initialize(info: *const c_char, listen: bool) -> *mut na_class {
    // SAFETY: as `NA_Initialize_opt2`.
    unsafe { NA_Initialize_opt2(info, listen, 4 << 16, ptr::null()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn NA_Finalize(class: *mut na_class) -> Code {
    answer(|| {
        if !class.is_null() {
            // SAFETY: one of the functions above made it, and the program gives it back. Classes of
            // HG that were opened by it do not refer to it.
            let class = unsafe { Box::from_raw(class.cast::<NaClass>()) };
            drop(class.texts);
        }
        Ok(())
    })
}
