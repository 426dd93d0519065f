//! Classes: `HG_Init` to `HG_Finalize`.

use super::{answer, some, text, value};
use crate::{
    abi::{
        Code, SUCCESS, hg_class, hg_core_class, hg_diag_counters, hg_init_info, na_init_info_4_0,
    },
    class::{Class, Settings},
    engine::Counters,
    log::{self, Level, say},
    names,
};
use std::{
    ffi::{c_char, c_uint},
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

/// `NA_NO_BLOCK`.
const NO_BLOCK: u8 = 1;
/// `HG_CHECKSUM_RPC_PAYLOAD`.
const SUM_PAYLOAD: c_uint = 2;
/// Versions of `struct hg_init_info`: each later one has more at its end.
const OLDEST: c_uint = 2 << 16 | 2;
const OVERFLOW_SINCE: c_uint = 2 << 16 | 4;
const NEWEST: c_uint = 2 << 16 | 4;

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Version_get(
    major: *mut c_uint,
    minor: *mut c_uint,
    patch: *mut c_uint,
) -> Code {
    answer(|| {
        for (at, number) in [(major, 2), (minor, 4), (patch, 1)] {
            if !at.is_null() {
                // SAFETY: not null, and a place for a number.
                unsafe { at.write(number) };
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn HG_Error_to_string(code: c_uint) -> *const c_char {
    log::name(code).as_ptr()
}

/// What settings of NA say, and the network to listen on.
///
/// # Safety
/// They are null, or filled in as version 4 has them, with strings or null in them.
pub(super) unsafe fn settings_of(
    na: *const na_init_info_4_0,
    listen: bool,
) -> Option<(Settings, Option<String>)> {
    let mut settings = Settings {
        listen,
        never_sleep: false,
        secret: None,
        max_input: 0,
        max_output: 0,
        sum_payload: false,
        bulk_eager: true,
        no_overflow: false,
    };
    if na.is_null() {
        return Some((settings, None));
    }
    // SAFETY: the caller's promise.
    unsafe {
        let string = |at: *const c_char| if at.is_null() { None } else { text(at).ok() };
        let subnet = string((*na).ip_subnet).map(str::to_owned);
        settings.secret = string((*na).auth_key).map(str::to_owned);
        settings.never_sleep = (*na).progress_mode & NO_BLOCK != 0;
        settings.max_input = (*na).max_unexpected_size;
        settings.max_output = (*na).max_expected_size;
        if (*na).request_mem_device {
            say(Level::Error, "cls", || {
                "request_mem_device: memory of devices is not moved".to_owned()
            });
            return None;
        }
        Some((settings, subnet))
    }
}

/// Opens a class.
///
/// # Safety
/// As [`HG_Init_opt2`].
unsafe fn open(
    info: *const c_char,
    listen: u8,
    version: c_uint,
    asked: *const hg_init_info,
) -> Option<*mut Class> {
    if asked.is_null() {
        // SAFETY: null, or a string.
        unsafe {
            let (settings, _) = settings_of(std::ptr::null(), listen != 0)?;
            return Class::open(&named(text(info).ok()?, None, false)?, settings).ok();
        }
    }
    if !(OLDEST..=NEWEST).contains(&version) {
        say(Level::Error, "cls", || {
            let (major, minor) = (version >> 16, version & 0xffff);
            format!("settings of version {major}.{minor}: those of 2.2 to 2.4 are known")
        });
        return None;
    }
    // SAFETY: the program has filled in what this version has, with strings or null in it; a class
    // of NA is one of `NA_Initialize`. Through a reference more might be read than is there.
    unsafe {
        let (mut settings, named) = match (*asked).na_class.is_null() {
            true => {
                let (settings, net) = settings_of(&raw const (*asked).na_init_info, listen != 0)?;
                let both = (*asked).auto_sm != 0;
                (settings, named(text(info).ok()?, net.as_deref(), both)?)
            }
            false => super::na::remembered((*asked).na_class),
        };
        settings.listen = listen != 0;
        settings.sum_payload = (*asked).checksum_level == SUM_PAYLOAD;
        settings.bulk_eager = (*asked).no_bulk_eager == 0;
        settings.no_overflow = version >= OVERFLOW_SINCE && (*asked).no_overflow;
        Class::open(&named, settings).ok()
    }
}

/// What an information string names; the log has why it names nothing.
pub(super) fn named(info: &str, subnet: Option<&str>, both: bool) -> Option<names::Named> {
    names::open(info, subnet, both).map_err(|why| say(Level::Error, "cls", || why)).ok()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Init(info: *const c_char, listen: u8) -> *mut hg_class {
    // SAFETY: as `HG_Init_opt2`.
    value(ptr::null_mut(), || unsafe { open(info, listen, NEWEST, ptr::null()) }).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Init_opt(
    info: *const c_char,
    listen: u8,
    asked: *const hg_init_info,
) -> *mut hg_class {
    // SAFETY: as `HG_Init_opt2`. As in Mercury, no more is read than version 2.2 had.
    value(ptr::null_mut(), || unsafe { open(info, listen, OLDEST, asked) }).cast()
}

/// # Safety
/// `info` is null or a string; `asked` is null or settings of this version.
#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Init_opt2(
    info: *const c_char,
    listen: u8,
    version: c_uint,
    asked: *const hg_init_info,
) -> *mut hg_class {
    // SAFETY: the caller's promise.
    value(ptr::null_mut(), || unsafe { open(info, listen, version, asked) }).cast()
}

/// The core part of a class.
fn core(class: *mut Class) -> *mut hg_core_class {
    if class.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: computed within the class.
    unsafe { &raw mut (*class).core }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_init(info: *const c_char, listen: u8) -> *mut hg_core_class {
    // SAFETY: as `HG_Init_opt2`.
    core(value(ptr::null_mut(), || unsafe { open(info, listen, NEWEST, ptr::null()) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_init_opt(
    info: *const c_char,
    listen: u8,
    asked: *const hg_init_info,
) -> *mut hg_core_class {
    // SAFETY: as `HG_Init_opt2`.
    core(value(ptr::null_mut(), || unsafe { open(info, listen, OLDEST, asked) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_init_opt2(
    info: *const c_char,
    listen: u8,
    version: c_uint,
    asked: *const hg_init_info,
) -> *mut hg_core_class {
    // SAFETY: as `HG_Init_opt2`.
    core(value(ptr::null_mut(), || unsafe { open(info, listen, version, asked) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Finalize(class: *mut hg_class) -> Code {
    answer(|| match class.is_null() {
        true => Ok(()),
        // SAFETY: one that was opened, and that the program does not use any more.
        false => unsafe { Class::close(class.cast()) },
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_finalize(class: *mut hg_core_class) -> Code {
    answer(|| match class.is_null() {
        true => Ok(()),
        // SAFETY: as `HG_Finalize`.
        false => unsafe { Class::close(Class::of_core(class)) },
    })
}

/// Nothing is left behind that would have to be cleaned up.
#[unsafe(no_mangle)]
extern "C" fn HG_Cleanup() {}

#[unsafe(no_mangle)]
extern "C" fn HG_Core_cleanup() {}

fn counted(counters: &Counters) -> hg_diag_counters {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    hg_diag_counters {
        req_sent: read(&counters.req_sent),
        req_recv: read(&counters.req_recv),
        resp_sent: read(&counters.resp_sent),
        resp_recv: read(&counters.resp_recv),
        req_extra: read(&counters.req_extra),
        resp_extra: read(&counters.resp_extra),
        req_recv_active: read(&counters.active),
        multi_recv_copy: read(&counters.copied),
        bulk: read(&counters.bulk),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Class_get_counters(
    class: *const hg_class,
    out: *mut hg_diag_counters,
) -> Code {
    answer(|| {
        let class = some(class.cast_mut(), "the class")?.cast::<Class>();
        let out = some(out, "the place for counters")?;
        // SAFETY: an open class, and a place.
        unsafe {
            let shared = &(*class).shared;
            out.write(counted(&shared.counters));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_class_get_counters(
    class: *const hg_core_class,
    out: *mut hg_diag_counters,
) -> Code {
    answer(|| {
        let class = Class::of_core(some(class.cast_mut(), "the class")?);
        // SAFETY: as above.
        match unsafe { HG_Class_get_counters(class.cast(), out) } {
            SUCCESS => Ok(()),
            code => Err(code),
        }
    })
}
