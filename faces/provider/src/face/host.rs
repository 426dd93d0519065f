//! The libfabric that has loaded this provider.

use super::log;
use petasos_ofi_sys::LAST_MAJOR;
use std::{
    ffi::CStr,
    mem, ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// A function of this name in the process: global, or of the library by its usual name.
pub(super) fn symbol(name: &CStr) -> Option<ptr::NonNull<libc::c_void>> {
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

/// Whether the structures of that libfabric can be those that are written down here. In all versions
/// up to now they have only grown at their ends; of one with another first number nothing is known.
/// If not, it is said, once.
pub(super) fn is_known() -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    // One within another library, whose functions are not seen, is that of an MPI.
    let Some(version) = symbol(c"fi_version") else { return true };
    // SAFETY: the function of this name has had this signature in all versions.
    let version = unsafe {
        mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> u32>(version.as_ptr())
    };
    // SAFETY: takes nothing.
    let version = unsafe { version() };
    let known = (1..=LAST_MAJOR).contains(&(version >> 16));
    if !known && !SAID.swap(true, Relaxed) {
        log::warn(&format!(
            "this is libfabric {}.{}, and this provider knows those from 1 to {LAST_MAJOR}: it takes \
             a newer petasos (or an older libfabric, by LD_LIBRARY_PATH)",
            version >> 16,
            version & 0xffff
        ));
    }
    known
}
