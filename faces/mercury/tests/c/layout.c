/* Sizes and offsets of what programs that were compiled with Mercury's own headers have compiled
 * in: those of a build with checksums and shared memory, on 64 bits. */
#include "common.h"

#define SIZE(type, size) CHECK(sizeof(type) == (size))
#define AT(type, field, offset) CHECK(offsetof(type, field) == (offset))

int main(void)
{
    SIZE(struct hg_info, 40);
    AT(struct hg_info, context_id, 32);
    SIZE(struct hg_handle, 64);
    AT(struct hg_handle, core_handle, 40);
    SIZE(struct hg_core_handle, 128);
    AT(struct hg_core_handle, rpc_info, 40);
    AT(struct hg_core_handle, in_buf, 64);
    AT(struct hg_core_handle, na_in_header_offset, 96);
    AT(struct hg_core_handle, out_buf_used, 120);
    SIZE(struct hg_class, 24);
    SIZE(struct hg_core_class, 32);
    AT(struct hg_core_class, data, 16);
    SIZE(struct hg_core_context, 48);
    AT(struct hg_core_context, id, 40);
    SIZE(struct hg_core_addr, 32);
    AT(struct hg_core_addr, is_self, 24);
    AT(struct hg_core_rpc_info, data, 8);
    SIZE(struct hg_cb_info, 48);
    AT(struct hg_cb_info, arg, 32);
    AT(struct hg_cb_info, type, 40);
    AT(struct hg_cb_info, ret, 44);
    SIZE(struct hg_core_cb_info, 24);
    SIZE(struct hg_bulk_desc_info, 16);
    SIZE(struct hg_proc_buf, 40);
    SIZE(struct hg_proc, 136);
    AT(struct hg_proc, hg_class, 80);
    AT(struct hg_proc, current_buf, 88);
    AT(struct hg_proc, op, 120);
    AT(struct hg_proc, flags, 124);
    AT(struct hg_proc, handle, 128);
    SIZE(struct na_init_info_4_0, 48);
    SIZE(struct hg_init_info, 112);
    AT(struct hg_init_info, na_class, 48);
    AT(struct hg_init_info, auto_sm, 64);
    AT(struct hg_init_info, checksum_level, 80);
    AT(struct hg_init_info, release_input_early, 88);
    AT(struct hg_init_info, no_overflow, 96);
    SIZE(struct na_class, 32);
    AT(struct na_class, protocol_name, 16);
    AT(struct na_class, listen, 25);
    SIZE(struct na_class_ops, 52 * 8);
    AT(struct na_class_ops, addr_is_self, 17 * 8);
    AT(struct na_class_ops, msg_get_max_unexpected_size, 22 * 8);
    SIZE(struct hg_diag_counters, 72);
    SIZE(hg_string_object_t, 16);
    CHECK(HG_CANCELED == 21 && HG_OTHER_ERROR == 26 && HG_BUSY == 8 && HG_HOSTUNREACH == 19);
    CHECK(HG_NOENTRY == 2 && HG_OVERFLOW == 13 && HG_TIMEOUT == 20 && NA_HOSTFIREWALL == 23);
    puts("ok");
    return 0;
}
