/* Sizes and offsets of portals4.h, where they are part of the binary interface. The same numbers
 * are in src/abi.rs. */
#include <portals4.h>
#include <portals4_job.h>
#include <stddef.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)

SIZE(ptl_size_t, 8); SIZE(ptl_handle_any_t, 4); SIZE(ptl_time_t, 4); SIZE(ptl_event_kind_t, 1);
SIZE(ptl_sr_value_t, 4); SIZE(ptl_sr_index_t, 4); SIZE(ptl_ack_req_t, 1); SIZE(ptl_list_t, 1);
SIZE(ptl_process_t, 8); AT(ptl_process_t, rank, 0); AT(ptl_process_t, phys.nid, 0);
AT(ptl_process_t, phys.pid, 4);
SIZE(ptl_iovec_t, 16); AT(ptl_iovec_t, iov_len, 8);
SIZE(ptl_ct_event_t, 16); AT(ptl_ct_event_t, failure, 8);
SIZE(ptl_md_t, 32); AT(ptl_md_t, start, 0); AT(ptl_md_t, length, 8); AT(ptl_md_t, options, 16);
AT(ptl_md_t, eq_handle, 20); AT(ptl_md_t, ct_handle, 24);
SIZE(ptl_le_t, 32); AT(ptl_le_t, start, 0); AT(ptl_le_t, length, 8); AT(ptl_le_t, ct_handle, 16);
AT(ptl_le_t, uid, 20); AT(ptl_le_t, options, 24);
SIZE(ptl_me_t, 64); AT(ptl_me_t, start, 0); AT(ptl_me_t, length, 8); AT(ptl_me_t, ct_handle, 16);
AT(ptl_me_t, uid, 20); AT(ptl_me_t, options, 24); AT(ptl_me_t, match_id, 28);
AT(ptl_me_t, match_bits, 40); AT(ptl_me_t, ignore_bits, 48); AT(ptl_me_t, min_free, 56);
SIZE(ptl_event_t, 80); AT(ptl_event_t, start, 0); AT(ptl_event_t, user_ptr, 8);
AT(ptl_event_t, hdr_data, 16); AT(ptl_event_t, match_bits, 24); AT(ptl_event_t, rlength, 32);
AT(ptl_event_t, mlength, 40); AT(ptl_event_t, remote_offset, 48); AT(ptl_event_t, initiator, 56);
AT(ptl_event_t, uid, 64); AT(ptl_event_t, pt_index, 68); AT(ptl_event_t, type, 72);
AT(ptl_event_t, ptl_list, 73); AT(ptl_event_t, ni_fail_type, 74);
AT(ptl_event_t, atomic_operation, 75); AT(ptl_event_t, atomic_type, 76);
SIZE(ptl_ni_limits_t, 96); AT(ptl_ni_limits_t, max_entries, 0);
AT(ptl_ni_limits_t, max_unexpected_headers, 4); AT(ptl_ni_limits_t, max_mds, 8);
AT(ptl_ni_limits_t, max_cts, 12); AT(ptl_ni_limits_t, max_eqs, 16);
AT(ptl_ni_limits_t, max_pt_index, 20); AT(ptl_ni_limits_t, max_iovecs, 24);
AT(ptl_ni_limits_t, max_list_size, 28); AT(ptl_ni_limits_t, max_triggered_ops, 32);
AT(ptl_ni_limits_t, max_msg_size, 40); AT(ptl_ni_limits_t, max_atomic_size, 48);
AT(ptl_ni_limits_t, max_fetch_atomic_size, 56); AT(ptl_ni_limits_t, max_waw_ordered_size, 64);
AT(ptl_ni_limits_t, max_war_ordered_size, 72); AT(ptl_ni_limits_t, max_volatile_size, 80);
AT(ptl_ni_limits_t, features, 88);

_Static_assert(PTL_ABORTED == 15 && PTL_NO_INIT == 9 && PTL_PT_EQ_NEEDED == 13, "return values");
_Static_assert(PTL_ME_LOCAL_INC_UH_RLENGTH == 1u << 18 && PTL_ME_EVENT_CT_BYTES == 1u << 14, "me");
_Static_assert(PTL_MD_OPTIONS_MASK == 0x41ff && PTL_PT_ALLOC_DISABLED == 16, "md, pt");
_Static_assert(PTL_OP_LAST == 18 && PTL_DATATYPE_LAST == 14 && PTL_EVENT_SEARCH == 15, "numbers");

int main(void)
{
    return PtlHandleIsEqual(PTL_INVALID_HANDLE, PTL_INVALID_HANDLE) ? 0 : 1;
}
