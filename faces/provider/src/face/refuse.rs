//! Functions of tables that this provider does not have: they say so.

use petasos_ofi_sys::*;
use std::ffi::{c_char, c_int, c_void};

const NOT_HERE: c_int = -libc::ENOSYS;

/// Functions that return `$result` whatever they are given.
macro_rules! refuse {
    ($($name:ident($($of:ty),*) -> $result:ty = $value:expr;)+) => {
        $(pub(super) extern "C" fn $name($(_: $of),*) -> $result {
            $value
        })+
    };
}

refuse! {
    bind(*mut fid, *mut fid, u64) -> c_int = NOT_HERE;
    control(*mut fid, c_int, *mut c_void) -> c_int = NOT_HERE;
    ops_open(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int = NOT_HERE;
    tostr(*const fid, *mut c_char, usize) -> c_int = NOT_HERE;
    ops_set(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int = NOT_HERE;
    passive_ep(*mut fid_fabric, *mut fi_info, *mut *mut c_void, *mut c_void) -> c_int = NOT_HERE;
    wait_open(*mut fid_fabric, *mut c_void, *mut *mut c_void) -> c_int = NOT_HERE;
    scalable_ep(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int = NOT_HERE;
    poll_open(*mut fid_domain, *mut c_void, *mut *mut c_void) -> c_int = NOT_HERE;
    stx_ctx(*mut fid_domain, *mut fi_tx_attr, *mut *mut c_void, *mut c_void) -> c_int = NOT_HERE;
    srx_ctx(*mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int = NOT_HERE;
    query_collective(*mut fid_domain, c_int, *mut c_void, u64) -> c_int = NOT_HERE;
    av_set(*mut fid_av, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int = NOT_HERE;
    tx_ctx(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int = NOT_HERE;
    rx_ctx(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int = NOT_HERE;
    size_left(*mut fid_ep) -> isize = NOT_HERE as isize;
    setname(*mut fid, *mut c_void, usize) -> c_int = NOT_HERE;
    getpeer(*mut fid_ep, *mut c_void, *mut usize) -> c_int = NOT_HERE;
    connect(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int = NOT_HERE;
    listen(*mut c_void) -> c_int = NOT_HERE;
    accept(*mut fid_ep, *const c_void, usize) -> c_int = NOT_HERE;
    reject(*mut c_void, *mut fid, *const c_void, usize) -> c_int = NOT_HERE;
    shutdown(*mut fid_ep, u64) -> c_int = NOT_HERE;
    join(*mut fid_ep, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int = NOT_HERE;
}
