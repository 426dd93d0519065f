//! `mercury_thread.h` and its kin, `mercury_mem.h`: POSIX under other names.

use super::result;
use libc::{
    CLOCK_MONOTONIC, pthread_cond_t, pthread_condattr_t, pthread_key_t, pthread_mutex_t, pthread_t,
};
use std::{
    ffi::{c_int, c_long, c_uint, c_void},
    mem::MaybeUninit,
    ptr,
};

// SAFETY of all of these: pointers are those of the program to objects of POSIX, as the functions
// of POSIX that are called take them.

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_init(thread: *mut pthread_t) {
    if !thread.is_null() {
        // SAFETY: a place, see above.
        unsafe { thread.write(0) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_create(
    thread: *mut pthread_t,
    function: extern "C" fn(*mut c_void) -> *mut c_void,
    data: *mut c_void,
) -> c_int {
    // SAFETY: see above.
    result(unsafe { libc::pthread_create(thread, ptr::null(), function, data) } == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_join(thread: pthread_t) -> c_int {
    // SAFETY: see above.
    result(unsafe { libc::pthread_join(thread, ptr::null_mut()) } == 0)
}

#[unsafe(no_mangle)]
extern "C" fn hg_thread_yield() -> c_int {
    std::thread::yield_now();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_key_create(key: *mut pthread_key_t) -> c_int {
    // SAFETY: see above.
    result(!key.is_null() && unsafe { libc::pthread_key_create(key, None) } == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_key_delete(key: pthread_key_t) -> c_int {
    // SAFETY: see above.
    result(unsafe { libc::pthread_key_delete(key) } == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_mutex_init(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: see above.
    result(unsafe { libc::pthread_mutex_init(mutex, ptr::null()) } == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_mutex_init_fast(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: see above.
    unsafe { hg_thread_mutex_init(mutex) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_mutex_destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: see above.
    result(unsafe { libc::pthread_mutex_destroy(mutex) } == 0)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn hg_thread_cond_init(cond: *mut pthread_cond_t) -> c_int {
    let mut attributes = MaybeUninit::<pthread_condattr_t>::uninit();
    let at = attributes.as_mut_ptr();
    // SAFETY: see above; the attributes are initialised by the first call, and ended by the last.
    unsafe {
        if libc::pthread_condattr_init(at) != 0 {
            return -1;
        }
        let good = libc::pthread_condattr_setclock(at, CLOCK_MONOTONIC) == 0
            && libc::pthread_cond_init(cond, at) == 0;
        libc::pthread_condattr_destroy(at);
        result(good)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_cond_destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: see above.
    result(unsafe { libc::pthread_cond_destroy(cond) } == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    timeout: c_uint,
) -> c_int {
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: see above; the time is a place of this function's.
    unsafe {
        libc::clock_gettime(CLOCK_MONOTONIC, &raw mut until);
        let nanos = until.tv_nsec + c_long::from(timeout % 1000) * 1_000_000;
        until.tv_sec += i64::from(timeout / 1000) + nanos / 1_000_000_000;
        until.tv_nsec = nanos % 1_000_000_000;
        result(libc::pthread_cond_timedwait(cond, mutex, &raw const until) == 0)
    }
}

#[unsafe(no_mangle)]
extern "C" fn hg_mem_get_page_size() -> c_long {
    rustix::param::page_size() as c_long
}

#[unsafe(no_mangle)]
extern "C" fn hg_mem_aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    let mut memory = ptr::null_mut();
    // SAFETY: the function checks the alignment, and writes where it is told, or nothing.
    match unsafe { libc::posix_memalign(&raw mut memory, alignment, size) } {
        0 => memory,
        _ => ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_mem_aligned_free(memory: *mut c_void) {
    // SAFETY: null, or memory of the function above, which the program gives back.
    unsafe { libc::free(memory) };
}
