//! Access to the memory of peers: read, write, atomics.

use super::{fi_addr_t, fid_ep};
use std::ffi::{c_int, c_void};

#[repr(C)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub struct fi_msg_rma {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct fi_ops_rma {
    pub size: usize,
    pub read: unsafe extern "C" fn(
        *mut fid_ep,
        *mut c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub readv: unsafe extern "C" fn(
        *mut fid_ep,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub readmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
    pub write: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub writev: unsafe extern "C" fn(
        *mut fid_ep,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub writemsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
    pub inject:
        unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64) -> isize,
    pub writedata: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub injectdata:
        unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> isize,
}

#[repr(C)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

#[repr(C)]
pub struct fi_rma_ioc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

#[repr(C)]
pub struct fi_msg_atomic {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_ioc,
    pub rma_iov_count: usize,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

/// Descriptors of local memory.
type Descs = *mut *mut c_void;
type Valid = unsafe extern "C" fn(*mut fid_ep, c_int, c_int, *mut usize) -> c_int;

#[repr(C)]
pub struct fi_ops_atomic {
    pub size: usize,
    pub write: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub writev: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_ioc,
        Descs,
        usize,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub writemsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_atomic, u64) -> isize,
    pub inject: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
    ) -> isize,
    pub readwrite: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub readwritev: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_ioc,
        Descs,
        usize,
        *mut fi_ioc,
        Descs,
        usize,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub readwritemsg: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_msg_atomic,
        *mut fi_ioc,
        Descs,
        usize,
        u64,
    ) -> isize,
    pub compwrite: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub compwritev: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_ioc,
        Descs,
        usize,
        *const fi_ioc,
        Descs,
        usize,
        *mut fi_ioc,
        Descs,
        usize,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub compwritemsg: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_msg_atomic,
        *const fi_ioc,
        Descs,
        usize,
        *mut fi_ioc,
        Descs,
        usize,
        u64,
    ) -> isize,
    pub writevalid: Valid,
    pub readwritevalid: Valid,
    pub compwritevalid: Valid,
}
