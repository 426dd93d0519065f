//! libfabric's log: by its own functions, if they are found in the process, else as it would write.

use super::{host::symbol, provider};
use petasos_ofi_sys::{FI_LOG_CORE, FI_LOG_WARN, fi_provider};
use std::{
    env,
    ffi::{CString, c_char, c_int},
    mem,
};

type Enabled = unsafe extern "C" fn(*const fi_provider, c_int, c_int) -> c_int;
type Log = unsafe extern "C" fn(
    *const fi_provider,
    c_int,
    c_int,
    *const c_char,
    c_int,
    *const c_char,
    ...
);

/// Something that the user has to know, and what to do about it.
pub(super) fn warn(text: &str) {
    let enabled = symbol(c"fi_log_enabled");
    let Some((enabled, log)) = enabled.zip(symbol(c"fi_log")) else {
        // A copy within another library, whose functions are not seen.
        if env::var_os("FI_LOG_LEVEL").is_some_and(|level| !level.is_empty() && level != "none") {
            eprintln!("libfabric:{}:core:core:petasos:<warn> {text}", std::process::id());
        }
        return;
    };
    // SAFETY: the functions of libfabric with these names have had these signatures in all versions
    // that load this provider (providers/fi_log.h).
    let (enabled, log) = unsafe {
        (
            mem::transmute::<*mut libc::c_void, Enabled>(enabled.as_ptr()),
            mem::transmute::<*mut libc::c_void, Log>(log.as_ptr()),
        )
    };
    let provider = provider::table();
    // SAFETY: our provider, a level and a subsystem.
    if unsafe { enabled(provider, FI_LOG_WARN, FI_LOG_CORE) } == 0 {
        return;
    }
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // SAFETY: all strings end with a zero, and the format takes one string.
    unsafe {
        log(
            provider,
            FI_LOG_WARN,
            FI_LOG_CORE,
            c"petasos".as_ptr(),
            0,
            c"%s\n".as_ptr(),
            text.as_ptr(),
        )
    };
}
