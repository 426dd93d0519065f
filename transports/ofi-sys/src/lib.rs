//! The binary interface of libfabric, as far as it is used (`petasos-ofi`) and provided
//! (`petasos-provider`) here, written down by hand.
//!
//! libfabric exports a handful of functions; all else goes through tables of functions that its
//! objects carry. Structures grow at their end from release to release. So a program that uses the
//! library makes none that the library fills (descriptions of providers are the library's own, by
//! `fi_getinfo` and `fi_dupinfo`), and those that it fills in the program's memory have slack
//! behind them; a provider allocates what the library reads with zeros behind it. The layouts are
//! those of 1.17, which is the version that is asked for; a test compares them with the headers,
//! where these are installed.
//!
//! Only declarations: there is no code here.

#![allow(non_camel_case_types, reason = "the names of libfabric")]
#![allow(missing_docs, reason = "documented by libfabric")]

#[cfg(test)]
mod layout;

use std::ffi::{c_char, c_int, c_void};

/// The interface that is asked for: 1.17.
pub const VERSION: u32 = 1 << 16 | 17;
/// The last one whose versions are known to have it, by their first number.
pub const LAST_MAJOR: u32 = 2;

/// An address in a table of addresses.
pub type fi_addr_t = u64;
pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;

// What an endpoint can do.
pub const FI_MSG: u64 = 1 << 1;
pub const FI_RMA: u64 = 1 << 2;
pub const FI_TAGGED: u64 = 1 << 3;
pub const FI_ATOMIC: u64 = 1 << 4;
pub const FI_READ: u64 = 1 << 8;
pub const FI_WRITE: u64 = 1 << 9;
pub const FI_RECV: u64 = 1 << 10;
pub const FI_SEND: u64 = 1 << 11;
pub const FI_REMOTE_READ: u64 = 1 << 12;
pub const FI_REMOTE_WRITE: u64 = 1 << 13;
pub const FI_MULTI_RECV: u64 = 1 << 16;
// Flags of operations and completions.
pub const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub const FI_MORE: u64 = 1 << 18;
pub const FI_PEEK: u64 = 1 << 19;
pub const FI_TRIGGER: u64 = 1 << 20;
pub const FI_FENCE: u64 = 1 << 21;
pub const FI_COMPLETION: u64 = 1 << 24;
pub const FI_EVENT: u64 = FI_COMPLETION;
pub const FI_INJECT: u64 = 1 << 25;
pub const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub const FI_COMMIT_COMPLETE: u64 = 1 << 30;
pub const FI_MATCH_COMPLETE: u64 = 1 << 31;
pub const FI_DISCARD: u64 = 1 << 58;
pub const FI_CLAIM: u64 = 1 << 59;
pub const FI_FETCH_ATOMIC: u64 = 1 << 58;
pub const FI_COMPARE_ATOMIC: u64 = 1 << 59;
pub const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
pub const FI_SYMMETRIC: u64 = 1 << 59;
pub const FI_SYNC_ERR: u64 = 1 << 58;
pub const FI_LOCAL_COMM: u64 = 1 << 51;
pub const FI_REMOTE_COMM: u64 = 1 << 52;
pub const FI_PROV_ATTR_ONLY: u64 = 1 << 54;
pub const FI_DIRECTED_RECV: u64 = 1 << 59;
// Flags of binding and of looking for providers.
pub const FI_NUMERICHOST: u64 = 1 << 55;
pub const FI_TRANSMIT: u64 = FI_SEND;
pub const FI_SOURCE: u64 = 1 << 57;
// Modes: what a provider wants of its user.
pub const FI_CONTEXT: u64 = 1 << 59;
pub const FI_CONTEXT2: u64 = 1 << 52;
// How memory is registered.
pub const FI_MR_BASIC: c_int = 1;
pub const FI_MR_SCALABLE: c_int = 2;
pub const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub const FI_MR_ALLOCATED: c_int = 1 << 5;
pub const FI_MR_PROV_KEY: c_int = 1 << 6;
pub const FI_MR_ENDPOINT: c_int = 1 << 9;
// Order: sends after sends.
pub const FI_ORDER_SAS: u64 = 1 << 8;

/// An address format of a provider's own.
pub const FI_PROV_SPECIFIC: u32 = 1 << 31;
pub const FI_NAME_MAX: usize = 64;

pub const FI_EP_UNSPEC: c_int = 0;
pub const FI_EP_RDM: c_int = 3;
pub const FI_THREAD_SAFE: c_int = 1;
pub const FI_PROGRESS_AUTO: c_int = 1;
pub const FI_PROGRESS_MANUAL: c_int = 2;
pub const FI_AV_MAP: c_int = 1;
pub const FI_CQ_FORMAT_UNSPEC: c_int = 0;
pub const FI_CQ_FORMAT_CONTEXT: c_int = 1;
pub const FI_CQ_FORMAT_MSG: c_int = 2;
pub const FI_CQ_FORMAT_TAGGED: c_int = 4;
pub const FI_WAIT_UNSPEC: c_int = 1;
pub const FI_WAIT_YIELD: c_int = 5;
pub const FI_CQ_COND_NONE: c_int = 0;
pub const FI_CNTR_EVENTS_COMP: c_int = 0;
pub const FI_GETOPSFLAG: c_int = 2;
pub const FI_SETOPSFLAG: c_int = 3;
pub const FI_GETWAITOBJ: c_int = 16;
pub const FI_TC_UNSPEC: u32 = 0;
pub const FI_LOG_WARN: c_int = 0;
pub const FI_LOG_INFO: c_int = 2;
pub const FI_LOG_CORE: c_int = 0;

// Classes of objects.
pub const FI_CLASS_FABRIC: usize = 1;
pub const FI_CLASS_DOMAIN: usize = 2;
pub const FI_CLASS_EP: usize = 3;
pub const FI_CLASS_AV: usize = 11;
pub const FI_CLASS_MR: usize = 12;
pub const FI_CLASS_EQ: usize = 13;
pub const FI_CLASS_CQ: usize = 14;
pub const FI_CLASS_CNTR: usize = 15;

// Types and operations of atomics.
pub const FI_INT8: c_int = 0;
pub const FI_UINT8: c_int = 1;
pub const FI_INT16: c_int = 2;
pub const FI_UINT16: c_int = 3;
pub const FI_INT32: c_int = 4;
pub const FI_UINT32: c_int = 5;
pub const FI_INT64: c_int = 6;
pub const FI_UINT64: c_int = 7;
pub const FI_FLOAT: c_int = 8;
pub const FI_DOUBLE: c_int = 9;
pub const FI_MIN: c_int = 0;
pub const FI_MAX: c_int = 1;
pub const FI_SUM: c_int = 2;
pub const FI_PROD: c_int = 3;
pub const FI_LOR: c_int = 4;
pub const FI_LAND: c_int = 5;
pub const FI_BOR: c_int = 6;
pub const FI_BAND: c_int = 7;
pub const FI_LXOR: c_int = 8;
pub const FI_BXOR: c_int = 9;
pub const FI_ATOMIC_READ: c_int = 10;
pub const FI_ATOMIC_WRITE: c_int = 11;
pub const FI_CSWAP: c_int = 12;

pub const FI_THREAD_DOMAIN: c_int = 3;
pub const FI_RM_ENABLED: c_int = 2;
pub const FI_AV_TABLE: c_int = 2;
pub const FI_CQ_FORMAT_DATA: c_int = 3;
pub const FI_WAIT_NONE: c_int = 0;
pub const FI_WAIT_FD: c_int = 3;
pub const FI_GETWAIT: c_int = 5;
pub const FI_ENABLE: c_int = 6;
pub const FI_OPT_ENDPOINT: c_int = 0;
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;

pub const FI_EAGAIN: isize = libc::EAGAIN as isize;
pub const FI_ECANCELED: c_int = libc::ECANCELED;
pub const FI_ETOOSMALL: c_int = 257;
pub const FI_EOPBADSTATE: c_int = 258;
pub const FI_EOTHER: c_int = 256;
pub const FI_EBADFLAGS: c_int = 260;
pub const FI_EDOMAIN: c_int = 262;
pub const FI_ENOCQ: c_int = 263;
pub const FI_ETRUNC: c_int = 265;
pub const FI_ENOKEY: c_int = 266;
pub const FI_ENOAV: c_int = 267;
pub const FI_EAVAIL: isize = 259;

#[repr(C)]
pub struct fi_info {
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
pub struct fi_tx_attr {
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
pub struct fi_rx_attr {
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
pub struct fi_ep_attr {
    pub r#type: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

#[repr(C)]
pub struct fi_domain_attr {
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
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
}

#[repr(C)]
pub struct fi_fabric_attr {
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

#[repr(C)]
pub struct fi_ops {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
    pub ops_open:
        unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
    pub tostr: unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int,
    pub ops_set:
        unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
}

#[repr(C)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *const fi_ops_fabric,
    pub api_version: u32,
}

#[repr(C)]
pub struct fi_ops_fabric {
    pub size: usize,
    pub domain: unsafe extern "C" fn(
        *mut fid_fabric,
        *mut fi_info,
        *mut *mut fid_domain,
        *mut c_void,
    ) -> c_int,
    pub passive_ep:
        unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut c_void, *mut c_void) -> c_int,
    pub eq_open: unsafe extern "C" fn(
        *mut fid_fabric,
        *mut fi_eq_attr,
        *mut *mut fid_eq,
        *mut c_void,
    ) -> c_int,
    pub wait_open: unsafe extern "C" fn(*mut fid_fabric, *mut c_void, *mut *mut c_void) -> c_int,
    pub trywait: unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int,
    pub domain2: unsafe extern "C" fn(
        *mut fid_fabric,
        *mut fi_info,
        *mut *mut fid_domain,
        u64,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub struct fi_eq_attr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *const fi_ops_eq,
}

#[repr(C)]
pub struct fi_eq_err_entry {
    pub fid: *mut fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

#[repr(C)]
pub struct fi_ops_eq {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, usize, u64) -> isize,
    pub readerr: unsafe extern "C" fn(*mut fid_eq, *mut fi_eq_err_entry, u64) -> isize,
    pub write: unsafe extern "C" fn(*mut fid_eq, u32, *const c_void, usize, u64) -> isize,
    pub sread: unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    pub strerror: unsafe extern "C" fn(
        *mut fid_eq,
        c_int,
        *const c_void,
        *mut c_char,
        usize,
    ) -> *const c_char,
}

#[repr(C)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *const fi_ops_domain,
    pub mr: *const fi_ops_mr,
}

#[repr(C)]
pub struct fi_ops_domain {
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
    pub scalable_ep:
        unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
    pub cntr_open: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_cntr_attr,
        *mut *mut fid_cntr,
        *mut c_void,
    ) -> c_int,
    pub poll_open: unsafe extern "C" fn(*mut fid_domain, *mut c_void, *mut *mut c_void) -> c_int,
    pub stx_ctx: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_tx_attr,
        *mut *mut c_void,
        *mut c_void,
    ) -> c_int,
    pub srx_ctx: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_rx_attr,
        *mut *mut fid_ep,
        *mut c_void,
    ) -> c_int,
    pub query_atomic:
        unsafe extern "C" fn(*mut fid_domain, c_int, c_int, *mut fi_atomic_attr, u64) -> c_int,
    pub query_collective: unsafe extern "C" fn(*mut fid_domain, c_int, *mut c_void, u64) -> c_int,
    pub endpoint2: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_info,
        *mut *mut fid_ep,
        u64,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub struct fi_atomic_attr {
    pub count: usize,
    pub size: usize,
}

#[repr(C)]
pub struct fi_ops_mr {
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
    pub regv: unsafe extern "C" fn(
        *mut fid,
        *const libc::iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut fid_mr,
        *mut c_void,
    ) -> c_int,
    pub regattr: unsafe extern "C" fn(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int,
}

/// Later versions have more behind it.
#[repr(C)]
pub struct fi_mr_attr {
    pub mr_iov: *const libc::iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: c_int,
    pub device: u64,
}

#[repr(C)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub struct fi_av_attr {
    pub r#type: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *const fi_ops_av,
}

#[repr(C)]
pub struct fi_ops_av {
    pub size: usize,
    pub insert: unsafe extern "C" fn(
        *mut fid_av,
        *const c_void,
        usize,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsvc: unsafe extern "C" fn(
        *mut fid_av,
        *const c_char,
        *const c_char,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsym: unsafe extern "C" fn(
        *mut fid_av,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub remove: unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int,
    pub lookup: unsafe extern "C" fn(*mut fid_av, fi_addr_t, *mut c_void, *mut usize) -> c_int,
    pub straddr:
        unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub av_set:
        unsafe extern "C" fn(*mut fid_av, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
}

#[repr(C)]
pub struct fi_cq_attr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *const fi_ops_cq,
}

#[repr(C)]
pub struct fi_ops_cq {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> isize,
    pub readfrom: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *mut fi_addr_t) -> isize,
    pub readerr: unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize,
    pub sread: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub sreadfrom: unsafe extern "C" fn(
        *mut fid_cq,
        *mut c_void,
        usize,
        *mut fi_addr_t,
        *const c_void,
        c_int,
    ) -> isize,
    pub signal: unsafe extern "C" fn(*mut fid_cq) -> c_int,
    pub strerror: unsafe extern "C" fn(
        *mut fid_cq,
        c_int,
        *const c_void,
        *mut c_char,
        usize,
    ) -> *const c_char,
}

#[repr(C)]
pub struct fi_cntr_attr {
    pub events: c_int,
    pub wait_obj: c_int,
    pub wait_set: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *const fi_ops_cntr,
}

#[repr(C)]
pub struct fi_ops_cntr {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut fid_cntr) -> u64,
    pub readerr: unsafe extern "C" fn(*mut fid_cntr) -> u64,
    pub add: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
    pub set: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
    pub wait: unsafe extern "C" fn(*mut fid_cntr, u64, c_int) -> c_int,
    pub adderr: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
    pub seterr: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
}

/// A completion: `FI_CQ_FORMAT_DATA`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_data_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

/// A completion: `FI_CQ_FORMAT_TAGGED`. The shorter formats are its beginnings.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_tagged_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// A completion with an error.
#[repr(C)]
pub struct fi_cq_err_entry {
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
pub struct fi_msg {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
    pub msg: *const fi_ops_msg,
    pub rma: *const fi_ops_rma,
    pub tagged: *const fi_ops_tagged,
    pub atomic: *const fi_ops_atomic,
    pub collective: *const c_void,
}

#[repr(C)]
pub struct fi_ops_ep {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> isize,
    pub getopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub setopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub tx_ctx: unsafe extern "C" fn(
        *mut fid_ep,
        c_int,
        *mut fi_tx_attr,
        *mut *mut fid_ep,
        *mut c_void,
    ) -> c_int,
    pub rx_ctx: unsafe extern "C" fn(
        *mut fid_ep,
        c_int,
        *mut fi_rx_attr,
        *mut *mut fid_ep,
        *mut c_void,
    ) -> c_int,
    pub rx_size_left: unsafe extern "C" fn(*mut fid_ep) -> isize,
    pub tx_size_left: unsafe extern "C" fn(*mut fid_ep) -> isize,
}

#[repr(C)]
pub struct fi_ops_cm {
    pub size: usize,
    pub setname: unsafe extern "C" fn(*mut fid, *mut c_void, usize) -> c_int,
    pub getname: unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int,
    pub getpeer: unsafe extern "C" fn(*mut fid_ep, *mut c_void, *mut usize) -> c_int,
    pub connect: unsafe extern "C" fn(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int,
    pub listen: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub accept: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize) -> c_int,
    pub reject: unsafe extern "C" fn(*mut c_void, *mut fid, *const c_void, usize) -> c_int,
    pub shutdown: unsafe extern "C" fn(*mut fid_ep, u64) -> c_int,
    pub join: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        u64,
        *mut *mut c_void,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub struct fi_ops_msg {
    pub size: usize,
    pub recv: unsafe extern "C" fn(
        *mut fid_ep,
        *mut c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        *mut c_void,
    ) -> isize,
    pub recvv: unsafe extern "C" fn(
        *mut fid_ep,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        fi_addr_t,
        *mut c_void,
    ) -> isize,
    pub recvmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> isize,
    pub send: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        *mut c_void,
    ) -> isize,
    pub sendv: unsafe extern "C" fn(
        *mut fid_ep,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        fi_addr_t,
        *mut c_void,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> isize,
    pub inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t) -> isize,
    pub senddata: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        fi_addr_t,
        *mut c_void,
    ) -> isize,
    pub injectdata:
        unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t) -> isize,
}

#[repr(C)]
pub struct fi_msg_tagged {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct fi_ops_tagged {
    pub size: usize,
    pub recv: unsafe extern "C" fn(
        *mut fid_ep,
        *mut c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub recvv: unsafe extern "C" fn(
        *mut fid_ep,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub recvmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize,
    pub send: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        u64,
        *mut c_void,
    ) -> isize,
    pub sendv: unsafe extern "C" fn(
        *mut fid_ep,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        fi_addr_t,
        u64,
        *mut c_void,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize,
    pub inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64) -> isize,
    pub senddata: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        fi_addr_t,
        u64,
        *mut c_void,
    ) -> isize,
    pub injectdata:
        unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64) -> isize,
}

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

/// What the library finds in a shared object (`fi_prov_ini`).
#[repr(C)]
pub struct fi_provider {
    pub version: u32,
    pub fi_version: u32,
    /// The library's own.
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const fi_info,
        *mut *mut fi_info,
    ) -> c_int,
    pub fabric:
        unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}
