//! The binary interface of UCX's UCP, as far as it is used here, written down by hand.
//!
//! Structures that are handed to the library say by a mask which of their fields are there, and
//! grow at their end from release to release; so those of 1.13, with their masks, are understood by
//! all that came after. A test compares the layouts with the headers, where these are installed.

#![allow(non_camel_case_types, reason = "the names of UCX")]
#![allow(missing_docs, reason = "documented by UCX")]

#[cfg(test)]
mod layout;
pub(crate) mod library;

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The interface that is asked for: 1.13.
pub(crate) const VERSION: (c_uint, c_uint) = (1, 13);

pub(crate) type ucs_status_t = i8;
/// Null: done. An error between -1 and -100. Else a request.
pub(crate) type ucs_status_ptr_t = *mut c_void;

pub(crate) const UCS_OK: ucs_status_t = 0;
pub(crate) const UCS_INPROGRESS: ucs_status_t = 1;
pub(crate) const UCS_ERR_NO_RESOURCE: ucs_status_t = -2;
pub(crate) const UCS_ERR_NO_MEMORY: ucs_status_t = -4;
pub(crate) const UCS_ERR_INVALID_PARAM: ucs_status_t = -5;
pub(crate) const UCS_ERR_UNREACHABLE: ucs_status_t = -6;
pub(crate) const UCS_ERR_EXCEEDS_LIMIT: ucs_status_t = -21;
const UCS_ERR_LAST: isize = -100;

/// What a call gave that may go on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Began {
    /// It is over already.
    Done,
    /// Its callback comes.
    Running,
    /// It did not begin.
    Failed(ucs_status_t),
}

impl Began {
    pub(crate) fn of(pointer: ucs_status_ptr_t) -> Began {
        match pointer as isize {
            0 => Began::Done,
            code @ UCS_ERR_LAST..=-1 => Began::Failed(code as ucs_status_t),
            _ => Began::Running,
        }
    }
}

/// Objects of the library's.
pub(crate) enum ucp_config {}
pub(crate) enum ucp_context {}
pub(crate) enum ucp_worker {}
pub(crate) enum ucp_ep {}
pub(crate) enum ucp_rkey {}
pub(crate) enum ucp_mem {}

pub(crate) const UCP_PARAM_FIELD_FEATURES: u64 = 1;
pub(crate) const UCP_PARAM_FIELD_MT_WORKERS_SHARED: u64 = 1 << 5;
pub(crate) const UCP_FEATURE_RMA: u64 = 1 << 1;
pub(crate) const UCP_FEATURE_WAKEUP: u64 = 1 << 4;
pub(crate) const UCP_FEATURE_AM: u64 = 1 << 6;

#[repr(C)]
pub(crate) struct ucp_params {
    pub field_mask: u64,
    pub features: u64,
    pub request_size: usize,
    pub request_init: *const c_void,
    pub request_cleanup: *const c_void,
    pub tag_sender_mask: u64,
    pub mt_workers_shared: c_int,
    pub estimated_num_eps: usize,
    pub estimated_num_ppn: usize,
    pub name: *const c_char,
}

pub(crate) const UCP_WORKER_PARAM_FIELD_THREAD_MODE: u64 = 1;
pub(crate) const UCP_WORKER_PARAM_FIELD_FLAGS: u64 = 1 << 5;
pub(crate) const UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK: u64 = 1;
/// Several threads, one at a time.
pub(crate) const UCS_THREAD_MODE_SERIALIZED: c_int = 1;

#[repr(C)]
pub(crate) struct ucp_worker_params {
    pub field_mask: u64,
    pub thread_mode: c_int,
    pub cpu_mask: [u64; 16],
    pub events: c_uint,
    pub user_data: *mut c_void,
    pub event_fd: c_int,
    pub flags: u64,
}

pub(crate) const UCP_AM_HANDLER_PARAM_FIELD_ID: u64 = 1;
pub(crate) const UCP_AM_HANDLER_PARAM_FIELD_FLAGS: u64 = 1 << 1;
pub(crate) const UCP_AM_HANDLER_PARAM_FIELD_CB: u64 = 1 << 2;
pub(crate) const UCP_AM_HANDLER_PARAM_FIELD_ARG: u64 = 1 << 3;
/// The callback comes with a whole message.
pub(crate) const UCP_AM_FLAG_WHOLE_MSG: u32 = 1;

#[repr(C)]
pub(crate) struct ucp_am_handler_param {
    pub field_mask: u64,
    pub id: c_uint,
    pub flags: u32,
    pub cb: unsafe extern "C" fn(
        *mut c_void,
        *const c_void,
        usize,
        *mut c_void,
        usize,
        *const ucp_am_recv_param,
    ) -> ucs_status_t,
    pub arg: *mut c_void,
}

/// The data may be kept beyond the callback.
pub(crate) const UCP_AM_RECV_ATTR_FLAG_DATA: u64 = 1 << 16;
/// The data has to be fetched.
pub(crate) const UCP_AM_RECV_ATTR_FLAG_RNDV: u64 = 1 << 17;

#[repr(C)]
pub(crate) struct ucp_am_recv_param {
    pub recv_attr: u64,
    pub reply_ep: *mut ucp_ep,
}

pub(crate) const UCP_EP_PARAM_FIELD_REMOTE_ADDRESS: u64 = 1;
pub(crate) const UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE: u64 = 1 << 1;
pub(crate) const UCP_EP_PARAM_FIELD_ERR_HANDLER: u64 = 1 << 2;
pub(crate) const UCP_ERR_HANDLING_MODE_NONE: c_int = 0;
pub(crate) const UCP_ERR_HANDLING_MODE_PEER: c_int = 1;

pub(crate) type ucp_err_handler_cb = unsafe extern "C" fn(*mut c_void, *mut ucp_ep, ucs_status_t);

#[repr(C)]
pub(crate) struct ucp_err_handler {
    pub cb: ucp_err_handler_cb,
    pub arg: *mut c_void,
}

#[repr(C)]
pub(crate) struct ucs_sock_addr {
    pub addr: *const c_void,
    pub addrlen: u32,
}

#[repr(C)]
pub(crate) struct ucp_ep_params {
    pub field_mask: u64,
    pub address: *const c_void,
    pub err_mode: c_int,
    pub err_handler: ucp_err_handler,
    pub user_data: *mut c_void,
    pub flags: c_uint,
    pub sockaddr: ucs_sock_addr,
    pub conn_request: *mut c_void,
    pub name: *const c_char,
    pub local_sockaddr: ucs_sock_addr,
}

pub(crate) const UCP_OP_ATTR_FIELD_CALLBACK: u32 = 1 << 1;
pub(crate) const UCP_OP_ATTR_FIELD_USER_DATA: u32 = 1 << 2;
pub(crate) const UCP_OP_ATTR_FIELD_DATATYPE: u32 = 1 << 3;
pub(crate) const UCP_OP_ATTR_FIELD_FLAGS: u32 = 1 << 4;
pub(crate) const UCP_AM_SEND_FLAG_EAGER: u32 = 1 << 1;
pub(crate) const UCP_EP_CLOSE_FLAG_FORCE: u32 = 1;
/// Pieces of memory, not one.
pub(crate) const UCP_DATATYPE_IOV: u64 = 2;

pub(crate) type ucp_send_nbx_callback =
    unsafe extern "C" fn(*mut c_void, ucs_status_t, *mut c_void);

#[repr(C)]
pub(crate) struct ucp_request_param {
    pub op_attr_mask: u32,
    pub flags: u32,
    pub request: *mut c_void,
    pub cb: Option<ucp_send_nbx_callback>,
    pub datatype: u64,
    pub user_data: *mut c_void,
    pub reply_buffer: *mut c_void,
    pub memory_type: c_int,
    pub recv_info: *mut c_void,
    pub memh: *mut ucp_mem,
}

#[repr(C)]
pub(crate) struct ucp_dt_iov {
    pub buffer: *mut c_void,
    pub length: usize,
}

pub(crate) const UCP_MEM_MAP_PARAM_FIELD_ADDRESS: u64 = 1;
pub(crate) const UCP_MEM_MAP_PARAM_FIELD_LENGTH: u64 = 1 << 1;

#[repr(C)]
pub(crate) struct ucp_mem_map_params {
    pub field_mask: u64,
    pub address: *mut c_void,
    pub length: usize,
    pub flags: c_uint,
    pub prot: c_uint,
    pub memory_type: c_int,
}
