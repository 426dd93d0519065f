//! What C sees: numbers and layouts of the headers, those of a build of Mercury 2.4 with checksums
//! and shared memory, as it is built by default. `tests/c/layout.c` compares them with the headers.

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    mem::offset_of,
    ptr,
    sync::atomic::AtomicI32,
};

/// `hg_return_t`.
pub(crate) type Code = c_uint;

macro_rules! codes {
    ($($name:ident $text:literal),* $(,)?) => {
        codes!(@each 0, $($name)*);
        /// The names of the codes, in their order.
        pub(crate) const NAMES: &[&std::ffi::CStr] = &[$($text),*];
    };
    (@each $at:expr, $name:ident $($rest:ident)*) => {
        pub(crate) const $name: Code = $at;
        codes!(@each $at + 1, $($rest)*);
    };
    (@each $at:expr,) => {};
}

#[allow(dead_code, reason = "the order gives the numbers")]
mod code {
    use super::Code;
    codes! {
        SUCCESS c"HG_SUCCESS", PERMISSION c"HG_PERMISSION", NOENTRY c"HG_NOENTRY",
        INTERRUPT c"HG_INTERRUPT", AGAIN c"HG_AGAIN", NOMEM c"HG_NOMEM", ACCESS c"HG_ACCESS",
        FAULT c"HG_FAULT", BUSY c"HG_BUSY", EXIST c"HG_EXIST", NODEV c"HG_NODEV",
        INVALID_ARG c"HG_INVALID_ARG", PROTOCOL_ERROR c"HG_PROTOCOL_ERROR",
        OVERFLOW c"HG_OVERFLOW", MSGSIZE c"HG_MSGSIZE", PROTONOSUPPORT c"HG_PROTONOSUPPORT",
        OPNOTSUPPORTED c"HG_OPNOTSUPPORTED", ADDRINUSE c"HG_ADDRINUSE",
        ADDRNOTAVAIL c"HG_ADDRNOTAVAIL", HOSTUNREACH c"HG_HOSTUNREACH", TIMEOUT c"HG_TIMEOUT",
        CANCELED c"HG_CANCELED", IO_ERROR c"HG_IO_ERROR", HOSTFIREWALL c"HG_HOSTFIREWALL",
        CHECKSUM_ERROR c"HG_CHECKSUM_ERROR", NA_ERROR c"HG_NA_ERROR",
        OTHER_ERROR c"HG_OTHER_ERROR",
    }
}
pub(crate) use code::*;

/// `hg_cb_type_t`.
pub(crate) mod kind {
    pub(crate) const LOOKUP: u32 = 0;
    pub(crate) const FORWARD: u32 = 1;
    pub(crate) const RESPOND: u32 = 2;
    pub(crate) const BULK: u32 = 3;
}

/// `hg_proc_op_t`.
pub(crate) const ENCODE: c_uint = 0;
pub(crate) const DECODE: c_uint = 1;
pub(crate) const FREE: c_uint = 2;

/// `HG_CORE_MORE_DATA`.
pub(crate) const MORE_DATA: u8 = 1;

/// Flags of `hg_proc`.
pub(crate) const PROC_BULK_EAGER: u8 = 1 << 1;

/// Flags of memory, and of its descriptor.
pub(crate) const READ_ONLY: u8 = 1;
pub(crate) const WRITE_ONLY: u8 = 1 << 1;
pub(crate) const BULK_EAGER: u32 = 1 << 2;
pub(crate) const BULK_ALLOC: u32 = 1 << 4;
pub(crate) const BULK_BIND: u32 = 1 << 5;

/// `HG_BULK_PUSH` is 0.
pub(crate) const PULL: c_uint = 1;

/// `HG_OP_ID_IGNORE`.
pub(crate) const OP_ID_IGNORE: usize = 1;

pub(crate) type FreeData = Option<unsafe extern "C" fn(*mut c_void)>;
pub(crate) type ProcCb = Option<unsafe extern "C" fn(*mut hg_proc, *mut c_void) -> Code>;
pub(crate) type RpcCb = Option<unsafe extern "C" fn(*mut hg_handle) -> Code>;
pub(crate) type Cb = Option<unsafe extern "C" fn(*const hg_cb_info) -> Code>;
pub(crate) type CoreRpcCb = Option<unsafe extern "C" fn(*mut hg_core_handle) -> Code>;
pub(crate) type CoreCb = Option<unsafe extern "C" fn(*const hg_core_cb_info) -> Code>;
pub(crate) type CreateCb = Option<unsafe extern "C" fn(*mut hg_handle, *mut c_void) -> Code>;
pub(crate) type CoreCreateCb =
    Option<unsafe extern "C" fn(*mut hg_core_handle, *mut c_void) -> Code>;

#[repr(C)]
pub(crate) struct na_init_info_4_0 {
    pub(crate) ip_subnet: *const c_char,
    pub(crate) auth_key: *const c_char,
    pub(crate) max_unexpected_size: usize,
    pub(crate) max_expected_size: usize,
    pub(crate) progress_mode: u8,
    pub(crate) addr_format: c_uint,
    pub(crate) max_contexts: u8,
    pub(crate) thread_mode: u8,
    pub(crate) request_mem_device: bool,
}

#[repr(C)]
pub(crate) struct hg_init_info {
    pub(crate) na_init_info: na_init_info_4_0,
    pub(crate) na_class: *mut na_class,
    pub(crate) request_post_init: u32,
    pub(crate) request_post_incr: i32,
    pub(crate) auto_sm: u8,
    pub(crate) sm_info_string: *const c_char,
    pub(crate) checksum_level: c_uint,
    pub(crate) no_bulk_eager: u8,
    pub(crate) no_loopback: u8,
    pub(crate) stats: u8,
    pub(crate) no_multi_recv: u8,
    pub(crate) release_input_early: u8,
    pub(crate) traffic_class: c_uint,
    pub(crate) no_overflow: bool,
    pub(crate) multi_recv_op_max: c_uint,
    pub(crate) multi_recv_copy_threshold: c_uint,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct hg_diag_counters {
    pub(crate) req_sent: u64,
    pub(crate) req_recv: u64,
    pub(crate) resp_sent: u64,
    pub(crate) resp_recv: u64,
    pub(crate) req_extra: u64,
    pub(crate) resp_extra: u64,
    pub(crate) req_recv_active: u64,
    pub(crate) multi_recv_copy: u64,
    pub(crate) bulk: u64,
}

/// Entries of `struct na_class_ops` that inline functions of the headers call; all others are null.
#[repr(C)]
pub(crate) struct na_class_ops {
    pub(crate) class_name: *const c_char,
    pub(crate) before_is_self: [usize; 16],
    pub(crate) addr_is_self: Option<unsafe extern "C" fn(*mut na_class, *mut c_void) -> bool>,
    pub(crate) after_is_self: [usize; 4],
    pub(crate) max_unexpected: Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) max_expected: Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) unexpected_header: Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) expected_header: Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) max_tag: Option<unsafe extern "C" fn(*const na_class) -> u32>,
    pub(crate) rest: [usize; 25],
}

#[repr(C)]
pub(crate) struct na_class {
    pub(crate) ops: *const na_class_ops,
    pub(crate) plugin_class: *mut c_void,
    pub(crate) protocol_name: *mut c_char,
    pub(crate) progress_mode: u8,
    pub(crate) listen: bool,
}

#[repr(C)]
pub(crate) struct na_context {
    pub(crate) plugin_context: *mut c_void,
}

#[repr(C)]
pub(crate) struct na_protocol_info {
    pub(crate) next: *mut na_protocol_info,
    pub(crate) class_name: *mut c_char,
    pub(crate) protocol_name: *mut c_char,
    pub(crate) device_name: *mut c_char,
}

#[repr(C)]
pub(crate) struct hg_class {
    pub(crate) core_class: *mut hg_core_class,
    pub(crate) in_offset: u64,
    pub(crate) out_offset: u64,
}

#[repr(C)]
pub(crate) struct hg_core_class {
    pub(crate) na_class: *mut na_class,
    pub(crate) na_sm_class: *mut na_class,
    pub(crate) data: *mut c_void,
    pub(crate) data_free: FreeData,
}

#[repr(C)]
pub(crate) struct hg_context {
    pub(crate) core_context: *mut hg_core_context,
    pub(crate) hg_class: *mut hg_class,
}

#[repr(C)]
pub(crate) struct hg_core_context {
    pub(crate) core_class: *mut hg_core_class,
    pub(crate) na_context: *mut na_context,
    pub(crate) na_sm_context: *mut na_context,
    pub(crate) data: *mut c_void,
    pub(crate) data_free: FreeData,
    pub(crate) id: u8,
}

#[repr(C)]
pub(crate) struct hg_core_addr {
    pub(crate) core_class: *mut hg_core_class,
    pub(crate) na_addr: *mut c_void,
    pub(crate) na_sm_addr: *mut c_void,
    pub(crate) is_self: u8,
}

#[repr(C)]
pub(crate) struct hg_core_rpc_info {
    pub(crate) rpc_cb: CoreRpcCb,
    pub(crate) data: *mut c_void,
    pub(crate) free: FreeData,
    pub(crate) id: u64,
    pub(crate) no_response: u8,
}

#[repr(C)]
pub(crate) struct hg_info {
    pub(crate) hg_class: *mut hg_class,
    pub(crate) context: *mut hg_context,
    pub(crate) addr: *mut hg_core_addr,
    pub(crate) id: u64,
    pub(crate) context_id: u8,
}

#[repr(C)]
pub(crate) struct hg_core_info {
    pub(crate) core_class: *mut hg_core_class,
    pub(crate) context: *mut hg_core_context,
    pub(crate) addr: *mut hg_core_addr,
    pub(crate) id: u64,
    pub(crate) context_id: u8,
}

#[repr(C)]
pub(crate) struct hg_handle {
    pub(crate) info: hg_info,
    pub(crate) core_handle: *mut hg_core_handle,
    pub(crate) data: *mut c_void,
    pub(crate) data_free: FreeData,
}

#[repr(C)]
pub(crate) struct hg_core_handle {
    pub(crate) info: hg_core_info,
    pub(crate) rpc_info: *const hg_core_rpc_info,
    pub(crate) data: *mut c_void,
    pub(crate) data_free: FreeData,
    pub(crate) in_buf: *mut c_void,
    pub(crate) out_buf: *mut c_void,
    pub(crate) in_buf_size: usize,
    pub(crate) out_buf_size: usize,
    pub(crate) na_in_header_offset: usize,
    pub(crate) na_out_header_offset: usize,
    pub(crate) in_buf_used: usize,
    pub(crate) out_buf_used: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct hg_cb_info_bulk {
    pub(crate) origin: *mut hg_bulk_info,
    pub(crate) local: *mut hg_bulk_info,
    pub(crate) op: c_uint,
    pub(crate) size: u64,
}

#[repr(C)]
pub(crate) union hg_cb_info_union {
    pub(crate) addr: *mut hg_core_addr,
    pub(crate) handle: *mut hg_handle,
    pub(crate) bulk: hg_cb_info_bulk,
}

#[repr(C)]
pub(crate) struct hg_cb_info {
    pub(crate) info: hg_cb_info_union,
    pub(crate) arg: *mut c_void,
    pub(crate) kind: c_uint,
    pub(crate) ret: Code,
}

#[repr(C)]
pub(crate) struct hg_core_cb_info {
    /// An address, or a handle.
    pub(crate) info: *mut c_void,
    pub(crate) arg: *mut c_void,
    pub(crate) kind: c_uint,
    pub(crate) ret: Code,
}

/// `struct hg_bulk_desc_info`, with which each descriptor begins.
#[repr(C)]
pub(crate) struct hg_bulk_info {
    pub(crate) len: u64,
    pub(crate) count: u32,
    pub(crate) flags: u32,
}

#[repr(C)]
pub(crate) struct hg_bulk_attr {
    pub(crate) mem_type: c_uint,
    pub(crate) device: u64,
}

#[repr(C)]
pub(crate) struct hg_proc_buf {
    pub(crate) buf: *mut u8,
    pub(crate) at: *mut u8,
    pub(crate) size: u64,
    pub(crate) left: u64,
    pub(crate) is_mine: u8,
}

impl hg_proc_buf {
    pub(crate) const NONE: hg_proc_buf =
        hg_proc_buf { buf: ptr::null_mut(), at: ptr::null_mut(), size: 0, left: 0, is_mine: 0 };
}

#[repr(C)]
pub(crate) struct hg_proc {
    pub(crate) own: hg_proc_buf,
    pub(crate) extra: hg_proc_buf,
    pub(crate) hg_class: *mut hg_class,
    pub(crate) current: *mut hg_proc_buf,
    /// Null: nothing is summed. Else the sum so far, which programs see no more of.
    pub(crate) checksum: *mut c_void,
    pub(crate) checksum_hash: *mut c_void,
    pub(crate) checksum_size: usize,
    pub(crate) op: c_uint,
    pub(crate) flags: u8,
    pub(crate) handle: *mut hg_handle,
}

#[repr(C)]
pub(crate) struct hg_string_object {
    pub(crate) data: *mut c_char,
    pub(crate) is_const: bool,
    pub(crate) is_owned: bool,
}

/// `hg_request_t`.
#[repr(C)]
pub(crate) struct hg_request {
    pub(crate) class: *mut hg_request_class,
    pub(crate) data: *mut c_void,
    pub(crate) completed: AtomicI32,
}

pub(crate) type ProgressFn = Option<unsafe extern "C" fn(c_uint, *mut c_void) -> c_int>;
pub(crate) type TriggerFn = Option<unsafe extern "C" fn(c_uint, *mut c_uint, *mut c_void) -> c_int>;

pub(crate) struct hg_request_class {
    pub(crate) progress: ProgressFn,
    pub(crate) trigger: TriggerFn,
    pub(crate) arg: *mut c_void,
}

/// Sizes that programs have compiled in, as `tests/c/layout.c` has those of the headers.
const _: () = {
    let sizes = [
        (size_of::<hg_info>(), 40),
        (size_of::<hg_handle>(), 64),
        (size_of::<hg_core_handle>(), 128),
        (size_of::<hg_class>(), 24),
        (size_of::<hg_core_class>(), 32),
        (size_of::<hg_core_context>(), 48),
        (size_of::<hg_core_addr>(), 32),
        (size_of::<hg_cb_info>(), 48),
        (size_of::<hg_core_cb_info>(), 24),
        (size_of::<hg_bulk_info>(), 16),
        (size_of::<hg_proc_buf>(), 40),
        (size_of::<hg_proc>(), 136),
        (size_of::<na_init_info_4_0>(), 48),
        (size_of::<hg_init_info>(), 112),
        (size_of::<na_class>(), 32),
        (size_of::<na_class_ops>(), 52 * 8),
        (size_of::<hg_diag_counters>(), 72),
        (size_of::<hg_string_object>(), 16),
        (offset_of!(hg_info, context_id), 32),
        (offset_of!(hg_handle, core_handle), 40),
        (offset_of!(hg_core_handle, rpc_info), 40),
        (offset_of!(hg_core_handle, in_buf), 64),
        (offset_of!(hg_core_handle, na_in_header_offset), 96),
        (offset_of!(hg_core_handle, out_buf_used), 120),
        (offset_of!(hg_core_context, id), 40),
        (offset_of!(hg_core_addr, is_self), 24),
        (offset_of!(hg_core_rpc_info, data), 8),
        (offset_of!(hg_cb_info, arg), 32),
        (offset_of!(hg_cb_info, ret), 44),
        (offset_of!(hg_proc, current), 88),
        (offset_of!(hg_proc, op), 120),
        (offset_of!(hg_proc, handle), 128),
        (offset_of!(na_class, listen), 25),
        (offset_of!(na_class_ops, addr_is_self), 17 * 8),
        (offset_of!(na_class_ops, max_unexpected), 22 * 8),
    ];
    let mut nth = 0;
    while nth < sizes.len() {
        assert!(sizes[nth].0 == sizes[nth].1);
        nth += 1;
    }
};
