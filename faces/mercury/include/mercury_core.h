/* The core layer: calls whose input and output are bytes in buffers of their handles. */
#ifndef MERCURY_CORE_H
#define MERCURY_CORE_H

#include "mercury_core_header.h"
#include "mercury_core_types.h"
#include "na.h"

typedef struct hg_core_class hg_core_class_t;
typedef struct hg_core_context hg_core_context_t;
typedef struct hg_core_addr *hg_core_addr_t;
typedef struct hg_core_handle *hg_core_handle_t;
typedef struct hg_core_op_id *hg_core_op_id_t;

struct hg_core_info {
    hg_core_class_t *core_class;
    hg_core_context_t *context;
    hg_core_addr_t addr;
    hg_id_t id;
    uint8_t context_id;
};

struct hg_core_cb_info_lookup {
    hg_core_addr_t addr;
};

struct hg_core_cb_info_forward {
    hg_core_handle_t handle;
};

struct hg_core_cb_info_respond {
    hg_core_handle_t handle;
};

struct hg_core_cb_info {
    union {
        struct hg_core_cb_info_lookup lookup;
        struct hg_core_cb_info_forward forward;
        struct hg_core_cb_info_respond respond;
    } info;
    void *arg;
    hg_cb_type_t type;
    hg_return_t ret;
};

typedef hg_return_t (*hg_core_rpc_cb_t)(hg_core_handle_t handle);
typedef hg_return_t (*hg_core_cb_t)(const struct hg_core_cb_info *info);

#define HG_CORE_ADDR_NULL ((hg_core_addr_t)0)
#define HG_CORE_HANDLE_NULL ((hg_core_handle_t)0)
#define HG_CORE_OP_ID_NULL ((hg_core_op_id_t)0)
#define HG_CORE_OP_ID_IGNORE ((hg_core_op_id_t *)1)

/* Refused in HG_Core_forward and HG_Core_respond: the upper layer moves what is long. */
#define HG_CORE_MORE_DATA (1 << 0)

#ifdef __cplusplus
extern "C" {
#endif

/* Classes. */
HG_PUBLIC hg_return_t HG_Core_get_na_protocol_info(
    const char *info, struct na_protocol_info **list);
HG_PUBLIC void HG_Core_free_na_protocol_info(struct na_protocol_info *list);
HG_PUBLIC hg_core_class_t *HG_Core_init(const char *info, uint8_t listen) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_core_class_t *HG_Core_init_opt(const char *info, uint8_t listen,
    const struct hg_init_info *settings) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_core_class_t *HG_Core_init_opt2(const char *info, uint8_t listen,
    unsigned int version, const struct hg_init_info *settings) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Core_finalize(hg_core_class_t *core_class);
HG_PUBLIC void HG_Core_cleanup(void);
/* HG_OPNOTSUPPORTED, unless both are NULL. */
HG_PUBLIC hg_return_t HG_Core_set_more_data_callback(hg_core_class_t *core_class,
    hg_return_t (*acquire)(
        hg_core_handle_t, hg_op_t, void (*done)(hg_core_handle_t, hg_return_t)),
    void (*release)(hg_core_handle_t));
HG_PUBLIC hg_return_t HG_Core_class_get_counters(
    const hg_core_class_t *core_class, struct hg_diag_counters *counters);

/* Contexts. */
HG_PUBLIC hg_core_context_t *HG_Core_context_create(
    hg_core_class_t *core_class) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_core_context_t *HG_Core_context_create_id(
    hg_core_class_t *core_class, uint8_t id) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Core_context_destroy(hg_core_context_t *context);
HG_PUBLIC unsigned int HG_Core_context_get_completion_count(
    const hg_core_context_t *context) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Core_context_set_handle_create_callback(hg_core_context_t *context,
    hg_return_t (*callback)(hg_core_handle_t, void *), void *arg);
HG_PUBLIC hg_return_t HG_Core_context_post(hg_core_context_t *context);
HG_PUBLIC hg_return_t HG_Core_context_unpost(hg_core_context_t *context);

/* Registered calls. */
HG_PUBLIC hg_return_t HG_Core_register(
    hg_core_class_t *core_class, hg_id_t id, hg_core_rpc_cb_t callback);
HG_PUBLIC hg_return_t HG_Core_deregister(hg_core_class_t *core_class, hg_id_t id);
HG_PUBLIC hg_return_t HG_Core_registered(
    hg_core_class_t *core_class, hg_id_t id, uint8_t *flag);
HG_PUBLIC hg_return_t HG_Core_register_data(
    hg_core_class_t *core_class, hg_id_t id, void *data, void (*free_callback)(void *));
HG_PUBLIC void *HG_Core_registered_data(
    hg_core_class_t *core_class, hg_id_t id) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Core_registered_disable_response(
    hg_core_class_t *core_class, hg_id_t id, uint8_t disable);
HG_PUBLIC hg_return_t HG_Core_registered_disabled_response(
    hg_core_class_t *core_class, hg_id_t id, uint8_t *disabled);

/* Addresses. */
HG_PUBLIC hg_return_t HG_Core_addr_lookup1(hg_core_context_t *context, hg_core_cb_t callback,
    void *arg, const char *name, hg_core_op_id_t *op_id);
HG_PUBLIC hg_return_t HG_Core_addr_lookup2(
    hg_core_class_t *core_class, const char *name, hg_core_addr_t *addr);
HG_PUBLIC hg_return_t HG_Core_addr_free(hg_core_addr_t addr);
HG_PUBLIC hg_return_t HG_Core_addr_set_remove(hg_core_addr_t addr);
HG_PUBLIC hg_return_t HG_Core_addr_self(hg_core_class_t *core_class, hg_core_addr_t *addr);
HG_PUBLIC hg_return_t HG_Core_addr_dup(hg_core_addr_t addr, hg_core_addr_t *new_addr);
HG_PUBLIC uint8_t HG_Core_addr_cmp(
    hg_core_addr_t one, hg_core_addr_t two) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Core_addr_to_string(char *buf, hg_size_t *size, hg_core_addr_t addr);
HG_PUBLIC hg_size_t HG_Core_addr_get_serialize_size(
    hg_core_addr_t addr, unsigned long flags) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Core_addr_serialize(
    void *buf, hg_size_t size, unsigned long flags, hg_core_addr_t addr);
HG_PUBLIC hg_return_t HG_Core_addr_deserialize(hg_core_class_t *core_class,
    hg_core_addr_t *addr, const void *buf, hg_size_t size, uint64_t flags);

/* Handles. */
HG_PUBLIC hg_return_t HG_Core_create(
    hg_core_context_t *context, hg_core_addr_t addr, hg_id_t id, hg_core_handle_t *handle);
HG_PUBLIC hg_return_t HG_Core_destroy(hg_core_handle_t handle);
HG_PUBLIC hg_return_t HG_Core_reset(hg_core_handle_t handle, hg_core_addr_t addr, hg_id_t id);
HG_PUBLIC hg_return_t HG_Core_ref_incr(hg_core_handle_t handle);
HG_PUBLIC int32_t HG_Core_ref_get(hg_core_handle_t handle) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Core_release_input(hg_core_handle_t handle);

/* Calls. Each has one callback, from HG_Core_trigger. */
HG_PUBLIC hg_return_t HG_Core_forward(hg_core_handle_t handle, hg_core_cb_t callback, void *arg,
    uint8_t flags, hg_size_t payload_size);
HG_PUBLIC hg_return_t HG_Core_respond(hg_core_handle_t handle, hg_core_cb_t callback, void *arg,
    uint8_t flags, hg_size_t payload_size);
HG_PUBLIC hg_return_t HG_Core_cancel(hg_core_handle_t handle);

/* Progress: see mercury.h. */
HG_PUBLIC hg_return_t HG_Core_progress(hg_core_context_t *context, unsigned int timeout);
HG_PUBLIC hg_return_t HG_Core_trigger(hg_core_context_t *context, unsigned int timeout,
    unsigned int max_count, unsigned int *count);
HG_PUBLIC int HG_Core_event_get_wait_fd(const hg_core_context_t *context) HG_WARN_UNUSED_RESULT;
HG_PUBLIC bool HG_Core_event_ready(hg_core_context_t *context) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Core_event_progress(hg_core_context_t *context, unsigned int *count);
HG_PUBLIC hg_return_t HG_Core_event_trigger(
    hg_core_context_t *context, unsigned int max_count, unsigned int *count);

/* Layouts that inline functions look into. */
struct hg_core_class {
    na_class_t *na_class;
    na_class_t *na_sm_class;
    void *data;
    void (*data_free_callback)(void *);
};

struct hg_core_context {
    struct hg_core_class *core_class;
    na_context_t *na_context;
    na_context_t *na_sm_context;
    void *data;
    void (*data_free_callback)(void *);
    uint8_t id;
};

struct hg_core_addr {
    struct hg_core_class *core_class;
    na_addr_t *na_addr;
    na_addr_t *na_sm_addr;
    uint8_t is_self;
};

struct hg_core_rpc_info {
    hg_core_rpc_cb_t rpc_cb;
    void *data;
    void (*free_callback)(void *);
    hg_id_t id;
    uint8_t no_response;
};

struct hg_core_handle {
    struct hg_core_info info;
    struct hg_core_rpc_info *rpc_info;
    void *data;
    void (*data_free_callback)(void *);
    void *in_buf;
    void *out_buf;
    size_t in_buf_size;
    size_t out_buf_size;
    size_t na_in_header_offset;
    size_t na_out_header_offset;
    size_t in_buf_used;
    size_t out_buf_used;
};

static HG_INLINE const char *HG_Core_class_get_name(const hg_core_class_t *core_class)
{
    return NA_Get_class_name(core_class->na_class);
}

static HG_INLINE const char *HG_Core_class_get_protocol(const hg_core_class_t *core_class)
{
    return NA_Get_class_protocol(core_class->na_class);
}

static HG_INLINE bool HG_Core_class_is_listening(const hg_core_class_t *core_class)
{
    return NA_Is_listening(core_class->na_class);
}

static HG_INLINE na_class_t *HG_Core_class_get_na(const hg_core_class_t *core_class)
{
    return core_class->na_class;
}

static HG_INLINE na_class_t *HG_Core_class_get_na_sm(const hg_core_class_t *core_class)
{
    return core_class->na_sm_class;
}

static HG_INLINE hg_size_t HG_Core_class_get_input_eager_size(const hg_core_class_t *core_class)
{
    const na_class_t *na = core_class->na_class;
    size_t header = hg_core_header_request_get_size() + NA_Msg_get_unexpected_header_size(na);
    size_t size = NA_Msg_get_max_unexpected_size(na);

    return size > header ? size - header : 0;
}

static HG_INLINE hg_size_t HG_Core_class_get_output_eager_size(const hg_core_class_t *core_class)
{
    const na_class_t *na = core_class->na_class;
    size_t header = hg_core_header_response_get_size() + NA_Msg_get_expected_header_size(na);
    size_t size = NA_Msg_get_max_expected_size(na);

    return size > header ? size - header : 0;
}

static HG_INLINE hg_return_t HG_Core_class_set_data(
    hg_core_class_t *core_class, void *data, void (*free_callback)(void *))
{
    core_class->data = data;
    core_class->data_free_callback = free_callback;
    return HG_SUCCESS;
}

static HG_INLINE void *HG_Core_class_get_data(const hg_core_class_t *core_class)
{
    return core_class->data;
}

static HG_INLINE hg_core_class_t *HG_Core_context_get_class(const hg_core_context_t *context)
{
    return context->core_class;
}

static HG_INLINE na_context_t *HG_Core_context_get_na(const hg_core_context_t *context)
{
    return context->na_context;
}

static HG_INLINE na_context_t *HG_Core_context_get_na_sm(const hg_core_context_t *context)
{
    return context->na_sm_context;
}

static HG_INLINE uint8_t HG_Core_context_get_id(const hg_core_context_t *context)
{
    return context->id;
}

static HG_INLINE hg_return_t HG_Core_context_set_data(
    hg_core_context_t *context, void *data, void (*free_callback)(void *))
{
    context->data = data;
    context->data_free_callback = free_callback;
    return HG_SUCCESS;
}

static HG_INLINE void *HG_Core_context_get_data(const hg_core_context_t *context)
{
    return context->data;
}

static HG_INLINE na_addr_t *HG_Core_addr_get_na(hg_core_addr_t addr)
{
    return addr->na_addr;
}

static HG_INLINE na_addr_t *HG_Core_addr_get_na_sm(hg_core_addr_t addr)
{
    return addr->na_sm_addr;
}

static HG_INLINE bool HG_Core_addr_is_self(hg_core_addr_t addr)
{
    return addr->is_self != 0;
}

static HG_INLINE hg_return_t HG_Core_set_data(
    hg_core_handle_t handle, void *data, void (*free_callback)(void *))
{
    handle->data = data;
    handle->data_free_callback = free_callback;
    return HG_SUCCESS;
}

static HG_INLINE void *HG_Core_get_data(hg_core_handle_t handle)
{
    return handle->data;
}

static HG_INLINE const struct hg_core_info *HG_Core_get_info(hg_core_handle_t handle)
{
    return &handle->info;
}

static HG_INLINE const void *HG_Core_get_rpc_data(hg_core_handle_t handle)
{
    return handle->rpc_info ? handle->rpc_info->data : NULL;
}

static HG_INLINE hg_return_t HG_Core_set_target_id(hg_core_handle_t handle, uint8_t id)
{
    handle->info.context_id = id;
    return HG_SUCCESS;
}

static HG_INLINE size_t HG_Core_get_input_payload_size(hg_core_handle_t handle)
{
    size_t header = hg_core_header_request_get_size() + handle->na_in_header_offset;

    return handle->in_buf_used > header ? handle->in_buf_used - header : 0;
}

static HG_INLINE hg_return_t HG_Core_get_input(
    hg_core_handle_t handle, void **buf, hg_size_t *size)
{
    size_t header = hg_core_header_request_get_size() + handle->na_in_header_offset;

    *buf = (char *)handle->in_buf + header;
    *size = handle->in_buf_size - header;
    return HG_SUCCESS;
}

static HG_INLINE size_t HG_Core_get_output_payload_size(hg_core_handle_t handle)
{
    size_t header = hg_core_header_response_get_size() + handle->na_out_header_offset;

    return handle->out_buf_used > header ? handle->out_buf_used - header : 0;
}

static HG_INLINE hg_return_t HG_Core_get_output(
    hg_core_handle_t handle, void **buf, hg_size_t *size)
{
    size_t header = hg_core_header_response_get_size() + handle->na_out_header_offset;

    *buf = (char *)handle->out_buf + header;
    *size = handle->out_buf_size - header;
    return HG_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#endif
