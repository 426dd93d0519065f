//! What programs use of NA: its version, its errors, and which transports there are. Messages and
//! memory of NA are not an interface of their own here.

use super::{answer, some, text};
use crate::{
    abi::{Code, NOENTRY, na_protocol_info},
    log,
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
