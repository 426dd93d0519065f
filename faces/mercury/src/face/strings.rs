//! Strings: `mercury_proc_string.h` and `mercury_string_object.h`.

use super::{answer, some, value};
use crate::abi::{
    Code, DECODE, ENCODE, INVALID_ARG, NOMEM, PROTOCOL_ERROR, hg_proc, hg_string_object,
};
use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

/// Makes a string object.
///
/// # Safety
/// `object` is null, or a place.
unsafe fn set(object: *mut hg_string_object, new: hg_string_object) -> Result<(), Code> {
    // SAFETY: a place (the caller's promise).
    unsafe { some(object, "the string")?.write(new) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_string_object_init(object: *mut hg_string_object) -> Code {
    let new = hg_string_object { data: ptr::null_mut(), is_const: false, is_owned: false };
    // SAFETY: as `set`.
    answer(|| unsafe { set(object, new) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_string_object_init_char(
    object: *mut hg_string_object,
    data: *mut c_char,
    is_owned: u8,
) -> Code {
    let new = hg_string_object { data, is_const: false, is_owned: is_owned != 0 };
    // SAFETY: as `set`.
    answer(|| unsafe { set(object, new) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_string_object_init_const_char(
    object: *mut hg_string_object,
    data: *const c_char,
    is_owned: u8,
) -> Code {
    let new = hg_string_object { data: data.cast_mut(), is_const: true, is_owned: is_owned != 0 };
    // SAFETY: as `set`.
    answer(|| unsafe { set(object, new) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_string_object_free(object: *mut hg_string_object) -> Code {
    answer(|| {
        // SAFETY: null, or an object, whose data came of `malloc` if it owns it.
        unsafe {
            let object = object.as_mut().ok_or(INVALID_ARG)?;
            if object.is_owned {
                libc::free(object.data.cast());
                object.data = ptr::null_mut();
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_string_object_dup(
    object: hg_string_object,
    new: *mut hg_string_object,
) -> Code {
    answer(|| {
        // SAFETY: the data is null or a string.
        let data = unsafe {
            if object.data.is_null() { ptr::null_mut() } else { libc::strdup(object.data) }
        };
        if data.is_null() && !object.data.is_null() {
            return Err(NOMEM);
        }
        // SAFETY: as `set`.
        unsafe { set(new, hg_string_object { data, is_const: object.is_const, is_owned: true }) }
    })
}

/// Puts another string there, and returns what was there: the caller's from now on.
#[unsafe(no_mangle)]
unsafe extern "C" fn hg_string_object_swap(
    object: *mut hg_string_object,
    data: *mut c_char,
) -> *mut c_char {
    value(ptr::null_mut(), || {
        // SAFETY: null, or an object.
        let object = unsafe { object.as_mut() }?;
        object.is_owned = false;
        Some(std::mem::replace(&mut object.data, data))
    })
}

/// A string: its length with the zero at its end, its bytes, whether it is constant, and whether it
/// was owned; for no string the length 0 alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn hg_proc_hg_string_object_t(proc: *mut hg_proc, string: *mut c_void) -> Code {
    answer(|| {
        // SAFETY: null, or a proc and an object that the program has.
        let (proc, object) = unsafe {
            let object = string.cast::<hg_string_object>().as_mut();
            (proc.as_mut().ok_or(INVALID_ARG)?, object.ok_or(INVALID_ARG)?)
        };
        match proc.op {
            ENCODE => {
                if object.data.is_null() {
                    return proc.put(&0u64.to_le_bytes());
                }
                // SAFETY: a string that the program has.
                let bytes = unsafe { CStr::from_ptr(object.data) }.to_bytes_with_nul();
                proc.put(&(bytes.len() as u64).to_le_bytes())?;
                proc.put(bytes)?;
                proc.put(&[u8::from(object.is_const), u8::from(object.is_owned)])
            }
            DECODE => {
                object.data = ptr::null_mut();
                let len = proc.get(8)?.try_into().map(u64::from_le_bytes);
                let len = len.map_err(|_| PROTOCOL_ERROR)?;
                if len == 0 {
                    (object.is_const, object.is_owned) = (false, false);
                    return Ok(());
                }
                let bytes = proc.get(len)?;
                if bytes.last() != Some(&0) {
                    return Err(PROTOCOL_ERROR);
                }
                let (from, len) = (bytes.as_ptr(), bytes.len());
                // SAFETY: `malloc` gives so many bytes or null; they are no part of the input.
                let data = unsafe {
                    let data = libc::malloc(len).cast::<u8>();
                    if data.is_null() {
                        return Err(NOMEM);
                    }
                    ptr::copy_nonoverlapping(from, data, len);
                    data
                };
                match proc.get(2) {
                    Ok(flags) => {
                        object.is_const = flags[0] != 0;
                        object.is_owned = true;
                        object.data = data.cast();
                        Ok(())
                    }
                    Err(code) => {
                        // SAFETY: of `malloc`, and no other has it.
                        unsafe { libc::free(data.cast()) };
                        Err(code)
                    }
                }
            }
            // SAFETY: what was decoded.
            _ => match unsafe { hg_string_object_free(object) } {
                0 => Ok(()),
                code => Err(code),
            },
        }
    })
}
