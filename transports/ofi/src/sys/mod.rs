//! The binary interface of libfabric, as far as it is used here, written down by hand.
//!
//! libfabric exports a handful of functions; all else goes through tables of functions that its
//! objects carry. Structures grow at their end from release to release, so none that the library
//! fills is made here (descriptions of providers are the library's own, by `fi_getinfo` and
//! `fi_dupinfo`), and those that it fills in our memory have slack behind them. The layouts are
//! those of 1.17, which is the version that is asked for; a test compares them with the headers,
//! where these are installed.

#![allow(non_camel_case_types, reason = "the names of libfabric")]
#![allow(missing_docs, reason = "documented by libfabric")]

pub(crate) mod environment;
#[cfg(test)]
mod layout;
pub(crate) mod library;
pub(crate) mod offer;

use std::ffi::{c_char, c_int, c_void};

/// A field or an entry of a table that is not used.
pub(crate) type Hole = *const c_void;

/// The interface that is asked for: 1.17.
pub(crate) const VERSION: u32 = 1 << 16 | 17;
/// The last one whose versions are known to have it, by their first number.
pub(crate) const LAST_MAJOR: u32 = 2;

/// An address in a table of addresses.
pub(crate) type fi_addr_t = u64;
pub(crate) const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;

// What an endpoint can do.
pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_READ: u64 = 1 << 8;
pub(crate) const FI_WRITE: u64 = 1 << 9;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_SEND: u64 = 1 << 11;
pub(crate) const FI_REMOTE_READ: u64 = 1 << 12;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const FI_MULTI_RECV: u64 = 1 << 16;
// Flags of operations and completions.
pub(crate) const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub(crate) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
// Flags of binding and of looking for providers.
pub(crate) const FI_NUMERICHOST: u64 = 1 << 55;
pub(crate) const FI_TRANSMIT: u64 = FI_SEND;
pub(crate) const FI_SOURCE: u64 = 1 << 57;
// Modes: what a provider wants of its user.
pub(crate) const FI_CONTEXT: u64 = 1 << 59;
pub(crate) const FI_CONTEXT2: u64 = 1 << 52;
// How memory is registered.
pub(crate) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(crate) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const FI_MR_PROV_KEY: c_int = 1 << 6;
pub(crate) const FI_MR_ENDPOINT: c_int = 1 << 9;
// Order: sends after sends.
pub(crate) const FI_ORDER_SAS: u64 = 1 << 8;

pub(crate) const FI_EP_RDM: c_int = 3;
pub(crate) const FI_THREAD_DOMAIN: c_int = 3;
pub(crate) const FI_RM_ENABLED: c_int = 2;
pub(crate) const FI_AV_TABLE: c_int = 2;
pub(crate) const FI_CQ_FORMAT_DATA: c_int = 3;
pub(crate) const FI_WAIT_NONE: c_int = 0;
pub(crate) const FI_WAIT_FD: c_int = 3;
pub(crate) const FI_GETWAIT: c_int = 5;
pub(crate) const FI_ENABLE: c_int = 6;
pub(crate) const FI_OPT_ENDPOINT: c_int = 0;
pub(crate) const FI_OPT_MIN_MULTI_RECV: c_int = 0;

pub(crate) const FI_EAGAIN: isize = libc::EAGAIN as isize;
pub(crate) const FI_ECANCELED: c_int = libc::ECANCELED;
pub(crate) const FI_ETRUNC: c_int = 265;
pub(crate) const FI_EAVAIL: isize = 259;

#[repr(C)]
pub(crate) struct fi_info {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut fid,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    pub nic: *mut c_void,
}

#[repr(C)]
pub(crate) struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

#[repr(C)]
pub(crate) struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

#[repr(C)]
pub(crate) struct fi_ep_attr {
    pub r#type: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
}

#[repr(C)]
pub(crate) struct fi_domain_attr {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
}

#[repr(C)]
pub(crate) struct fi_fabric_attr {
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
pub(crate) struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

#[repr(C)]
pub(crate) struct fi_ops {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct fid_fabric {
    pub fid: fid,
    pub ops: *const fi_ops_fabric,
    pub api_version: u32,
}

#[repr(C)]
pub(crate) struct fi_ops_fabric {
    pub size: usize,
    pub domain: unsafe extern "C" fn(
        *mut fid_fabric,
        *mut fi_info,
        *mut *mut fid_domain,
        *mut c_void,
    ) -> c_int,
    pub passive_ep: Hole,
    pub eq_open: Hole,
    pub wait_open: Hole,
    pub trywait: unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int,
}

#[repr(C)]
pub(crate) struct fid_domain {
    pub fid: fid,
    pub ops: *const fi_ops_domain,
    pub mr: *const fi_ops_mr,
}

#[repr(C)]
pub(crate) struct fi_ops_domain {
    pub size: usize,
    pub av_open: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_av_attr,
        *mut *mut fid_av,
        *mut c_void,
    ) -> c_int,
    pub cq_open: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_cq_attr,
        *mut *mut fid_cq,
        *mut c_void,
    ) -> c_int,
    pub endpoint:
        unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct fi_ops_mr {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut fid_mr,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub(crate) struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub(crate) struct fi_av_attr {
    pub r#type: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub(crate) struct fid_av {
    pub fid: fid,
    pub ops: *const fi_ops_av,
}

#[repr(C)]
pub(crate) struct fi_ops_av {
    pub size: usize,
    pub insert: unsafe extern "C" fn(
        *mut fid_av,
        *const c_void,
        usize,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsvc: Hole,
    pub insertsym: Hole,
    pub remove: unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int,
}

#[repr(C)]
pub(crate) struct fi_cq_attr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct fid_cq {
    pub fid: fid,
    pub ops: *const fi_ops_cq,
}

#[repr(C)]
pub(crate) struct fi_ops_cq {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> isize,
    pub readfrom: Hole,
    pub readerr: unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize,
}

/// A completion: `FI_CQ_FORMAT_DATA`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct fi_cq_data_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

/// A completion with an error.
#[repr(C)]
pub(crate) struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// What later versions write behind it.
    pub slack: [u64; 8],
}

#[repr(C)]
pub(crate) struct fi_msg {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub(crate) struct fid_ep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
    pub msg: *const fi_ops_msg,
    pub rma: *const fi_ops_rma,
}

#[repr(C)]
pub(crate) struct fi_ops_ep {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> isize,
    pub getopt: Hole,
    pub setopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int,
}

#[repr(C)]
pub(crate) struct fi_ops_cm {
    pub size: usize,
    pub setname: unsafe extern "C" fn(*mut fid, *mut c_void, usize) -> c_int,
    pub getname: unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int,
}

#[repr(C)]
pub(crate) struct fi_ops_msg {
    pub size: usize,
    pub recv: Hole,
    pub recvv: Hole,
    pub recvmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> isize,
    pub send: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        *mut c_void,
    ) -> isize,
    pub sendv: Hole,
    pub sendmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> isize,
    pub inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t) -> isize,
}

#[repr(C)]
pub(crate) struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub(crate) struct fi_msg_rma {
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
pub(crate) struct fi_ops_rma {
    pub size: usize,
    pub read: Hole,
    pub readv: Hole,
    pub readmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
    pub write: Hole,
    pub writev: Hole,
    pub writemsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
}
