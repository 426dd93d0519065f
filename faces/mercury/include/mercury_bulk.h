/* Bulk data: memory that stays where it is, and that the target of a call moves. */
#ifndef MERCURY_BULK_H
#define MERCURY_BULK_H

#include "mercury_types.h"

/* What may be done with the memory: pulled from, pushed to, or both. */
#define HG_BULK_READ_ONLY (1 << 0)
#define HG_BULK_WRITE_ONLY (1 << 1)
#define HG_BULK_READWRITE (HG_BULK_READ_ONLY | HG_BULK_WRITE_ONLY)
/* For HG_Bulk_serialize: little data that is only read travels with its descriptor. */
#define HG_BULK_EAGER (1 << 2)
#define HG_BULK_SM (1 << 3)

#ifdef __cplusplus
extern "C" {
#endif

/* Any number of pieces, one after the other in one space of offsets; without pointers, or where one
 * is NULL, the library allocates the memory, zeroed. */
HG_PUBLIC hg_return_t HG_Bulk_create(hg_class_t *hg_class, uint32_t count, void **pieces,
    const hg_size_t *sizes, uint8_t flags, hg_bulk_t *handle);
HG_PUBLIC hg_return_t HG_Bulk_create_attr(hg_class_t *hg_class, uint32_t count, void **pieces,
    const hg_size_t *sizes, uint8_t flags, const struct hg_bulk_attr *attributes,
    hg_bulk_t *handle);
/* When the last reference was freed, nothing reads or writes the memory any more. A peer that is
 * stopped in the middle of an access may hold that up: after 5 seconds it is HG_BUSY, the handle
 * stays, and may be freed again. */
HG_PUBLIC hg_return_t HG_Bulk_free(hg_bulk_t handle);
HG_PUBLIC hg_return_t HG_Bulk_ref_incr(hg_bulk_t handle);
/* Puts this process's address into the descriptor, so that it can be passed on. */
HG_PUBLIC hg_return_t HG_Bulk_bind(hg_bulk_t handle, hg_context_t *context);
HG_PUBLIC hg_addr_t HG_Bulk_get_addr(hg_bulk_t handle);
HG_PUBLIC uint8_t HG_Bulk_get_context_id(hg_bulk_t handle);
/* The pieces of a part: of memory of this process, or that came with its descriptor. */
HG_PUBLIC hg_return_t HG_Bulk_access(hg_bulk_t handle, hg_size_t offset, hg_size_t size,
    uint8_t flags, uint32_t max_count, void **pieces, hg_size_t *sizes, uint32_t *count);
HG_PUBLIC hg_size_t HG_Bulk_get_serialize_size(hg_bulk_t handle, unsigned long flags);
HG_PUBLIC hg_return_t HG_Bulk_serialize(
    void *buf, hg_size_t size, unsigned long flags, hg_bulk_t handle);
HG_PUBLIC hg_return_t HG_Bulk_deserialize(
    hg_class_t *hg_class, hg_bulk_t *handle, const void *buf, hg_size_t size);
/* Each transfer has one callback. */
HG_PUBLIC hg_return_t HG_Bulk_transfer(hg_context_t *context, hg_cb_t callback, void *arg,
    hg_bulk_op_t op, hg_addr_t origin_addr, hg_bulk_t origin, hg_size_t origin_offset,
    hg_bulk_t local, hg_size_t local_offset, hg_size_t size, hg_op_id_t *op_id);
HG_PUBLIC hg_return_t HG_Bulk_bind_transfer(hg_context_t *context, hg_cb_t callback, void *arg,
    hg_bulk_op_t op, hg_bulk_t origin, hg_size_t origin_offset, hg_bulk_t local,
    hg_size_t local_offset, hg_size_t size, hg_op_id_t *op_id);
HG_PUBLIC hg_return_t HG_Bulk_transfer_id(hg_context_t *context, hg_cb_t callback, void *arg,
    hg_bulk_op_t op, hg_addr_t origin_addr, uint8_t origin_id, hg_bulk_t origin,
    hg_size_t origin_offset, hg_bulk_t local, hg_size_t local_offset, hg_size_t size,
    hg_op_id_t *op_id);
HG_PUBLIC hg_return_t HG_Bulk_cancel(hg_op_id_t op_id);

/* The layout that inline functions look into. */
struct hg_bulk_desc_info {
    hg_size_t len;
    uint32_t segment_count;
    uint32_t flags;
};

static HG_INLINE hg_size_t HG_Bulk_get_size(hg_bulk_t handle)
{
    return ((struct hg_bulk_desc_info *)handle)->len;
}

static HG_INLINE uint32_t HG_Bulk_get_segment_count(hg_bulk_t handle)
{
    return ((struct hg_bulk_desc_info *)handle)->segment_count;
}

static HG_INLINE uint8_t HG_Bulk_get_flags(hg_bulk_t handle)
{
    return (uint8_t)(((struct hg_bulk_desc_info *)handle)->flags & HG_BULK_READWRITE);
}

#ifdef __cplusplus
}
#endif

#endif
