//! libfabric's log: by its own functions, if they are found in the process, else as it would write.

use super::provider;
use petasos_ofi_sys::{FI_LOG_CORE, FI_LOG_WARN, fi_provider};
use std::{
    env,
    ffi::{CStr, CString, c_char, c_int},
    mem, ptr,
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

/// A function of this name in the process: global, or of the library by its usual name.
fn symbol(name: &CStr) -> Option<ptr::NonNull<libc::c_void>> {
    // SAFETY: only looks for a name.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    ptr::NonNull::new(global).or_else(|| {
        let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
        // SAFETY: with these flags nothing is loaded, and no initialiser runs.
        let library = unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), flags) };
        // SAFETY: only looks for a name, in a library that is loaded if the pointer is not null.
        let found = (!library.is_null()).then(|| unsafe { libc::dlsym(library, name.as_ptr()) });
        ptr::NonNull::new(found?)
    })
}

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
