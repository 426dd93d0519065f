//! `mercury_thread_pool.h`: threads that work off a list, to which inline functions add.

use super::threads::hg_thread_cond_init;
use libc::{pthread_cond_t, pthread_mutex_t, pthread_t};
use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
};

#[repr(C)]
struct Work {
    function: Option<extern "C" fn(*mut c_void) -> *mut c_void>,
    data: *mut c_void,
    next: *mut Work,
}

/// `struct hg_thread_pool`, and the threads.
#[repr(C)]
struct Pool {
    sleeping: c_uint,
    first: *mut Work,
    /// Where the next one is linked.
    last: *mut *mut Work,
    shutdown: c_int,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    threads: Vec<pthread_t>,
}

extern "C" fn work(pool: *mut c_void) -> *mut c_void {
    let pool = pool.cast::<Pool>();
    // SAFETY: the pool stays until its threads were joined; what several threads change is changed
    // under its mutex, also by the inline functions of the header, and no reference is kept.
    unsafe {
        let mutex = &raw mut (*pool).mutex;
        loop {
            libc::pthread_mutex_lock(mutex);
            while (*pool).first.is_null() && (*pool).shutdown == 0 {
                (*pool).sleeping += 1;
                libc::pthread_cond_wait(&raw mut (*pool).cond, mutex);
                (*pool).sleeping -= 1;
            }
            let first = (*pool).first;
            if first.is_null() {
                libc::pthread_mutex_unlock(mutex);
                return ptr::null_mut();
            }
            (*pool).first = (*first).next;
            if (*pool).first.is_null() {
                (*pool).last = &raw mut (*pool).first;
            }
            let (function, data) = ((*first).function, (*first).data);
            libc::pthread_mutex_unlock(mutex);
            if let Some(function) = function {
                function(data);
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_pool_init(count: c_uint, out: *mut *mut Pool) -> c_int {
    if out.is_null() || count == 0 || count > 4096 {
        return -1;
    }
    let pool = Box::into_raw(Box::new(Pool {
        sleeping: 0,
        first: ptr::null_mut(),
        last: ptr::null_mut(),
        shutdown: 0,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        threads: Vec::with_capacity(count as usize),
    }));
    // SAFETY: it was made just now, and stays where it is; a place.
    unsafe {
        (*pool).last = &raw mut (*pool).first;
        let mut good = hg_thread_cond_init(&raw mut (*pool).cond) == 0;
        while good && (*pool).threads.len() < count as usize {
            let mut thread = 0;
            good = libc::pthread_create(&raw mut thread, ptr::null(), work, pool.cast()) == 0;
            if good {
                let threads = &mut (*pool).threads;
                threads.push(thread);
            }
        }
        if !good {
            hg_thread_pool_destroy(pool);
            return -1;
        }
        out.write(pool);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_thread_pool_destroy(pool: *mut Pool) -> c_int {
    if pool.is_null() {
        return 0;
    }
    // SAFETY: the function above made it, and the program gives it back. It is freed when its
    // threads have ended.
    unsafe {
        libc::pthread_mutex_lock(&raw mut (*pool).mutex);
        (*pool).shutdown = 1;
        libc::pthread_cond_broadcast(&raw mut (*pool).cond);
        libc::pthread_mutex_unlock(&raw mut (*pool).mutex);
        let threads = std::mem::take(&mut (*pool).threads);
        for thread in threads {
            libc::pthread_join(thread, ptr::null_mut());
        }
        libc::pthread_cond_destroy(&raw mut (*pool).cond);
        libc::pthread_mutex_destroy(&raw mut (*pool).mutex);
        drop(Box::from_raw(pool));
    }
    0
}
