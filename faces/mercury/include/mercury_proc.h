/* Encoding and decoding: little-endian on the usual machines, as the memory is. */
#ifndef MERCURY_PROC_H
#define MERCURY_PROC_H

#include "mercury_types.h"

#include <string.h>

typedef enum { HG_CRC16, HG_CRC32, HG_CRC64, HG_NOHASH } hg_proc_hash_t;

#define HG_PROC_SM (1 << 0)
#define HG_PROC_BULK_EAGER (1 << 1)

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#endif
#ifndef unlikely
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

#ifdef __cplusplus
extern "C" {
#endif

HG_PUBLIC hg_return_t hg_proc_create(
    hg_class_t *hg_class, hg_proc_hash_t hash, hg_proc_t *proc);
HG_PUBLIC hg_return_t hg_proc_create_set(hg_class_t *hg_class, void *buf, hg_size_t size,
    hg_proc_op_t op, hg_proc_hash_t hash, hg_proc_t *proc);
HG_PUBLIC hg_return_t hg_proc_free(hg_proc_t proc);
HG_PUBLIC hg_return_t hg_proc_reset(
    hg_proc_t proc, void *buf, hg_size_t size, hg_proc_op_t op);
/* More room to encode into. While something is decoded there is no more than has come:
 * HG_OVERFLOW. */
HG_PUBLIC hg_return_t hg_proc_set_size(hg_proc_t proc, hg_size_t size);
/* The next bytes, to be used in place: NULL if there are not so many. */
HG_PUBLIC void *hg_proc_save_ptr(hg_proc_t proc, hg_size_t size);
HG_PUBLIC hg_return_t hg_proc_restore_ptr(hg_proc_t proc, void *data, hg_size_t size);
HG_PUBLIC hg_return_t hg_proc_set_extra_buf_is_mine(hg_proc_t proc, uint8_t mine);
HG_PUBLIC hg_return_t hg_proc_flush(hg_proc_t proc);
HG_PUBLIC hg_return_t hg_proc_checksum_get(hg_proc_t proc, void *hash, hg_size_t size);
HG_PUBLIC hg_return_t hg_proc_checksum_verify(hg_proc_t proc, const void *hash, hg_size_t size);
HG_PUBLIC void hg_proc_checksum_update(hg_proc_t proc, void *data, hg_size_t size);

/* Layouts that inline functions look into, here and in programs that were compiled with other
 * headers. */
struct hg_proc_buf {
    void *buf;
    void *buf_ptr;
    hg_size_t size;
    hg_size_t size_left;
    uint8_t is_mine;
};

struct hg_proc {
    struct hg_proc_buf proc_buf;
    struct hg_proc_buf extra_buf;
    hg_class_t *hg_class;
    struct hg_proc_buf *current_buf;
    struct mchecksum_object *checksum;
    void *checksum_hash;
    size_t checksum_size;
    hg_proc_op_t op;
    uint8_t flags;
    hg_handle_t handle;
};

static HG_INLINE hg_class_t *hg_proc_get_class(hg_proc_t proc)
{
    return proc->hg_class;
}

static HG_INLINE void hg_proc_set_handle(hg_proc_t proc, hg_handle_t handle)
{
    proc->handle = handle;
}

static HG_INLINE hg_handle_t hg_proc_get_handle(hg_proc_t proc)
{
    return proc->handle;
}

static HG_INLINE hg_proc_op_t hg_proc_get_op(hg_proc_t proc)
{
    return proc->op;
}

static HG_INLINE void hg_proc_set_flags(hg_proc_t proc, uint8_t flags)
{
    proc->flags = flags;
}

static HG_INLINE uint8_t hg_proc_get_flags(hg_proc_t proc)
{
    return proc->flags;
}

static HG_INLINE hg_size_t hg_proc_get_size(hg_proc_t proc)
{
    return proc->proc_buf.size + proc->extra_buf.size;
}

static HG_INLINE hg_size_t hg_proc_get_size_used(hg_proc_t proc)
{
    return proc->current_buf->size - proc->current_buf->size_left;
}

static HG_INLINE hg_size_t hg_proc_get_size_left(hg_proc_t proc)
{
    return proc->current_buf->size_left;
}

static HG_INLINE void *hg_proc_get_extra_buf(hg_proc_t proc)
{
    return proc->extra_buf.buf;
}

static HG_INLINE hg_size_t hg_proc_get_extra_size(hg_proc_t proc)
{
    return proc->extra_buf.size;
}

/* Encodes, decodes, or, for HG_FREE, does nothing. */
static HG_INLINE hg_return_t hg_proc_bytes(hg_proc_t proc, void *data, hg_size_t size)
{
    struct hg_proc_buf *buf;

    if (proc->op == HG_FREE || size == 0)
        return HG_SUCCESS;
    if (unlikely(proc->current_buf->size_left < size)) {
        hg_return_t ret = hg_proc_set_size(proc, hg_proc_get_size(proc) + size);

        if (ret != HG_SUCCESS)
            return ret;
    }
    buf = proc->current_buf;
    if (proc->op == HG_ENCODE)
        memcpy(buf->buf_ptr, data, (size_t)size);
    else
        memcpy(data, buf->buf_ptr, (size_t)size);
    buf->buf_ptr = (char *)buf->buf_ptr + size;
    buf->size_left -= size;
    if (unlikely(proc->checksum != NULL))
        hg_proc_checksum_update(proc, data, size);
    return HG_SUCCESS;
}

#define HG_PROC_OF_TYPE(type)                                                                      \
    static HG_INLINE hg_return_t hg_proc_##type(hg_proc_t proc, void *data)                        \
    {                                                                                              \
        return hg_proc_bytes(proc, data, sizeof(type));                                            \
    }
HG_PROC_OF_TYPE(int8_t)
HG_PROC_OF_TYPE(uint8_t)
HG_PROC_OF_TYPE(int16_t)
HG_PROC_OF_TYPE(uint16_t)
HG_PROC_OF_TYPE(int32_t)
HG_PROC_OF_TYPE(uint32_t)
HG_PROC_OF_TYPE(int64_t)
HG_PROC_OF_TYPE(uint64_t)
#undef HG_PROC_OF_TYPE

/* Other names of these. */
#define hg_proc_raw hg_proc_bytes
#define hg_proc_memcpy hg_proc_raw
#define hg_proc_hg_size_t hg_proc_uint64_t
#define hg_proc_hg_id_t hg_proc_uint32_t
#define hg_proc_hg_int8_t hg_proc_int8_t
#define hg_proc_hg_uint8_t hg_proc_uint8_t
#define hg_proc_hg_int16_t hg_proc_int16_t
#define hg_proc_hg_uint16_t hg_proc_uint16_t
#define hg_proc_hg_int32_t hg_proc_int32_t
#define hg_proc_hg_uint32_t hg_proc_uint32_t
#define hg_proc_hg_int64_t hg_proc_int64_t
#define hg_proc_hg_uint64_t hg_proc_uint64_t
#define hg_proc_hg_bool_t hg_proc_uint8_t
#define hg_proc_hg_ptr_t hg_proc_uint64_t

#ifdef __cplusplus
}
#endif

#endif
