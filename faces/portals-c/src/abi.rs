//! Numbers and layouts of `portals4.h`. The tests compare them with the header.

use std::ffi::{c_int, c_uint, c_void};

/// A value that a function returns.
pub(crate) type Code = c_int;
/// A handle of any kind.
pub(crate) type CHandle = u32;

pub(crate) const OK: Code = 0;
pub(crate) const ARG_INVALID: Code = 1;
pub(crate) const CT_NONE_REACHED: Code = 2;
pub(crate) const EQ_DROPPED: Code = 3;
pub(crate) const EQ_EMPTY: Code = 4;
pub(crate) const FAIL: Code = 5;
pub(crate) const IGNORED: Code = 6;
pub(crate) const IN_USE: Code = 7;
pub(crate) const NO_INIT: Code = 9;
pub(crate) const NO_SPACE: Code = 10;
pub(crate) const PID_IN_USE: Code = 11;
pub(crate) const PT_FULL: Code = 12;
pub(crate) const PT_EQ_NEEDED: Code = 13;
pub(crate) const PT_IN_USE: Code = 14;
pub(crate) const ABORTED: Code = 15;

pub(crate) const EQ_NONE: CHandle = 0x3fff_ffff;
pub(crate) const CT_NONE: CHandle = 0x5fff_ffff;
pub(crate) const IFACE_DEFAULT: c_uint = u32::MAX;
/// Any node, or any process number.
pub(crate) const PART_ANY: u32 = 0xffff;
pub(crate) const PID_MAX: u32 = 1024;
/// Any rank, user, or portal.
pub(crate) const ANY: u32 = u32::MAX;
pub(crate) const TIME_FOREVER: c_uint = u32::MAX;

/// Options of interfaces.
pub(crate) mod ni {
    pub(crate) const MATCHING: u32 = 1 << 0;
    pub(crate) const NO_MATCHING: u32 = 1 << 1;
    pub(crate) const LOGICAL: u32 = 1 << 2;
    pub(crate) const PHYSICAL: u32 = 1 << 3;
    pub(crate) const MASK: u32 = (1 << 4) - 1;
}

/// What an interface can do.
pub(crate) mod features {
    pub(crate) const BIND_INACCESSIBLE: u32 = 1 << 0;
    pub(crate) const COHERENT_ATOMICS: u32 = 1 << 2;
}

/// Options of portal table entries.
pub(crate) mod pt {
    pub(crate) const FLOWCTRL: u32 = 1 << 1;
    pub(crate) const ALLOC_DISABLED: u32 = 1 << 4;
    pub(crate) const MASK: u32 = (1 << 5) - 1;
}

/// Of descriptors and entries: memory in several pieces.
pub(crate) const IOVEC: u32 = 1 << 0;

/// Options of memory descriptors.
pub(crate) mod md {
    pub(crate) const CT_SEND: u32 = 1 << 1;
    pub(crate) const CT_REPLY: u32 = 1 << 2;
    pub(crate) const CT_ACK: u32 = 1 << 3;
    pub(crate) const SUCCESS_DISABLE: u32 = 1 << 5;
    pub(crate) const VOLATILE: u32 = 1 << 6;
    pub(crate) const SEND_DISABLE: u32 = 1 << 7;
    pub(crate) const CT_BYTES: u32 = 1 << 14;
    pub(crate) const MASK: u32 = ((1 << 9) - 1) | CT_BYTES;
}

/// Options of list entries and match list entries.
pub(crate) mod me {
    pub(crate) const OP_PUT: u32 = 1 << 1;
    pub(crate) const OP_GET: u32 = 1 << 2;
    pub(crate) const USE_ONCE: u32 = 1 << 3;
    pub(crate) const UNEXPECTED_HDR_DISABLE: u32 = 1 << 4;
    pub(crate) const LINK_DISABLE: u32 = 1 << 6;
    pub(crate) const COMM_DISABLE: u32 = 1 << 7;
    pub(crate) const FLOWCTRL_DISABLE: u32 = 1 << 8;
    pub(crate) const SUCCESS_DISABLE: u32 = 1 << 9;
    pub(crate) const OVER_DISABLE: u32 = 1 << 10;
    pub(crate) const UNLINK_DISABLE: u32 = 1 << 11;
    pub(crate) const CT_COMM: u32 = 1 << 12;
    pub(crate) const CT_OVERFLOW: u32 = 1 << 13;
    pub(crate) const CT_BYTES: u32 = 1 << 14;
    pub(crate) const MANAGE_LOCAL: u32 = 1 << 15;
    pub(crate) const NO_TRUNCATE: u32 = 1 << 16;
    pub(crate) const LOCAL_INC_UH_RLENGTH: u32 = 1 << 18;
    pub(crate) const MASK: u32 = (1 << 19) - 1;
    pub(crate) const LE_MASK: u32 = (1 << 15) - 1;
}

/// Kinds of events.
pub(crate) mod kind {
    pub(crate) const GET: u8 = 0;
    pub(crate) const PUT: u8 = 2;
    pub(crate) const ATOMIC: u8 = 4;
    pub(crate) const FETCH_ATOMIC: u8 = 6;
    /// Added to the four above for a message that came before its entry.
    pub(crate) const OVERFLOW: u8 = 1;
    pub(crate) const REPLY: u8 = 8;
    pub(crate) const SEND: u8 = 9;
    pub(crate) const ACK: u8 = 10;
    pub(crate) const PT_DISABLED: u8 = 11;
    pub(crate) const LINK: u8 = 12;
    pub(crate) const AUTO_UNLINK: u8 = 13;
    pub(crate) const AUTO_FREE: u8 = 14;
    pub(crate) const SEARCH: u8 = 15;
}

/// Why an operation failed.
pub(crate) mod ni_fail {
    pub(crate) const OK: u8 = 0;
    pub(crate) const UNDELIVERABLE: u8 = 1;
    pub(crate) const DROPPED: u8 = 2;
    pub(crate) const PT_DISABLED: u8 = 3;
    pub(crate) const PERM_VIOLATION: u8 = 4;
    pub(crate) const OP_VIOLATION: u8 = 5;
    pub(crate) const NO_MATCH: u8 = 6;
    pub(crate) const SEGV: u8 = 7;
}

/// A process: the rank is where the node is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ptl_process_t {
    pub(crate) nid: u32,
    pub(crate) pid: u32,
}

/// A memory descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ptl_md_t {
    pub(crate) start: *mut c_void,
    pub(crate) length: u64,
    pub(crate) options: c_uint,
    pub(crate) eq_handle: CHandle,
    pub(crate) ct_handle: CHandle,
}

/// A piece of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ptl_iovec_t {
    pub(crate) iov_base: *mut c_void,
    pub(crate) iov_len: u64,
}

/// A list entry.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ptl_le_t {
    pub(crate) start: *mut c_void,
    pub(crate) length: u64,
    pub(crate) ct_handle: CHandle,
    pub(crate) uid: u32,
    pub(crate) options: c_uint,
}

/// A match list entry.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ptl_me_t {
    pub(crate) start: *mut c_void,
    pub(crate) length: u64,
    pub(crate) ct_handle: CHandle,
    pub(crate) uid: u32,
    pub(crate) options: c_uint,
    pub(crate) match_id: ptl_process_t,
    pub(crate) match_bits: u64,
    pub(crate) ignore_bits: u64,
    pub(crate) min_free: u64,
}

/// The value of a counter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ptl_ct_event_t {
    pub(crate) success: u64,
    pub(crate) failure: u64,
}

/// An event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ptl_event_t {
    pub(crate) start: *mut c_void,
    pub(crate) user_ptr: *mut c_void,
    pub(crate) hdr_data: u64,
    pub(crate) match_bits: u64,
    pub(crate) rlength: u64,
    pub(crate) mlength: u64,
    pub(crate) remote_offset: u64,
    pub(crate) initiator: ptl_process_t,
    pub(crate) uid: u32,
    pub(crate) pt_index: u32,
    pub(crate) type_: u8,
    pub(crate) ptl_list: u8,
    pub(crate) ni_fail_type: u8,
    pub(crate) atomic_operation: u8,
    pub(crate) atomic_type: u8,
}

/// Limits of an interface.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ptl_ni_limits_t {
    pub(crate) max_entries: c_int,
    pub(crate) max_unexpected_headers: c_int,
    pub(crate) max_mds: c_int,
    pub(crate) max_cts: c_int,
    pub(crate) max_eqs: c_int,
    pub(crate) max_pt_index: c_int,
    pub(crate) max_iovecs: c_int,
    pub(crate) max_list_size: c_int,
    pub(crate) max_triggered_ops: c_int,
    pub(crate) max_msg_size: u64,
    pub(crate) max_atomic_size: u64,
    pub(crate) max_fetch_atomic_size: u64,
    pub(crate) max_waw_ordered_size: u64,
    pub(crate) max_war_ordered_size: u64,
    pub(crate) max_volatile_size: u64,
    pub(crate) features: c_uint,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    macro_rules! layout {
        ($type:ty, $size:expr, $($field:ident: $at:expr),*) => {
            assert_eq!(size_of::<$type>(), $size, stringify!($type));
            $(assert_eq!(
                offset_of!($type, $field), $at, concat!(stringify!($type), ".", stringify!($field))
            );)*
        };
    }

    /// The same numbers are in `tests/c/layout.c`, which the C compiler checks.
    #[test]
    fn layouts_are_those_of_c() {
        layout!(ptl_process_t, 8, nid: 0, pid: 4);
        layout!(ptl_iovec_t, 16, iov_base: 0, iov_len: 8);
        layout!(ptl_ct_event_t, 16, success: 0, failure: 8);
        layout!(ptl_md_t, 32, start: 0, length: 8, options: 16, eq_handle: 20, ct_handle: 24);
        layout!(ptl_le_t, 32, start: 0, length: 8, ct_handle: 16, uid: 20, options: 24);
        layout!(ptl_me_t, 64, start: 0, length: 8, ct_handle: 16, uid: 20, options: 24,
            match_id: 28, match_bits: 40, ignore_bits: 48, min_free: 56);
        layout!(ptl_event_t, 80, start: 0, user_ptr: 8, hdr_data: 16, match_bits: 24, rlength: 32,
            mlength: 40, remote_offset: 48, initiator: 56, uid: 64, pt_index: 68, type_: 72,
            ptl_list: 73, ni_fail_type: 74, atomic_operation: 75, atomic_type: 76);
        layout!(ptl_ni_limits_t, 96, max_entries: 0, max_unexpected_headers: 4, max_mds: 8,
            max_cts: 12, max_eqs: 16, max_pt_index: 20, max_iovecs: 24, max_list_size: 28,
            max_triggered_ops: 32, max_msg_size: 40, max_atomic_size: 48,
            max_fetch_atomic_size: 56, max_waw_ordered_size: 64, max_war_ordered_size: 72,
            max_volatile_size: 80, features: 88);
    }
}
