/* Mercury 2.4 for programs of C and C++, on Petasos: link with -lmercury. docs/mercury.md says how.
 *
 * Names, numbers and layouts are those of Mercury. The comments say what is decided by this
 * implementation. All functions may be called by any thread, at any time, but for one handle by one
 * thread at a time; HG_Cancel, references and HG_Get_info excepted. Each operation has exactly one
 * callback, from HG_Trigger, whatever becomes of it: a lost peer is HG_HOSTUNREACH.
 */
#ifndef MERCURY_H
#define MERCURY_H

#include "mercury_core.h"
#include "mercury_header.h"
#include "mercury_types.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

HG_PUBLIC hg_return_t HG_Version_get(
    unsigned int *major, unsigned int *minor, unsigned int *patch);
HG_PUBLIC const char *HG_Error_to_string(hg_return_t code) HG_WARN_UNUSED_RESULT;

/* Opens a class: NULL if that fails, and the log says why. The string names a transport:
 * "na+sm", "tcp", "ofi+tcp", "ofi+verbs", "ucx+all", or an address of Petasos, as "auto://HOST:PORT".
 * HG_Init_opt reads of the settings what version 2.2 had, HG_Init_opt2 what `version` has. */
HG_PUBLIC hg_class_t *HG_Init(const char *info, uint8_t listen) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_class_t *HG_Init_opt(const char *info, uint8_t listen,
    const struct hg_init_info *settings) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_class_t *HG_Init_opt2(const char *info, uint8_t listen, unsigned int version,
    const struct hg_init_info *settings) HG_WARN_UNUSED_RESULT;
/* HG_BUSY while there are contexts, or bulk handles of memory of this process. Waits half a second
 * at most until the last responses have come. */
HG_PUBLIC hg_return_t HG_Finalize(hg_class_t *hg_class);
HG_PUBLIC void HG_Cleanup(void);

/* Levels: none, fatal, error (the default), warning, info, debug; HG_LOG_LEVEL in the environment.
 * Parts, as of HG_LOG_SUBSYS: with a ~ they are silent. Streams are stderr until they are set. The
 * function may be called while the library holds a lock: it is to call nothing of HG_*. */
HG_PUBLIC void HG_Set_log_level(const char *level);
HG_PUBLIC void HG_Set_log_subsys(const char *parts);
HG_PUBLIC void HG_Set_log_func(int (*function)(FILE *stream, const char *format, ...));
HG_PUBLIC void HG_Set_log_stream(const char *level, FILE *stream);
HG_PUBLIC void HG_Diag_dump_counters(void);
HG_PUBLIC hg_return_t HG_Class_get_counters(
    const hg_class_t *hg_class, struct hg_diag_counters *counters);

/* Called with each new handle: those of HG_Create, and those that requests get. */
HG_PUBLIC hg_return_t HG_Class_set_handle_create_callback(
    hg_class_t *hg_class, hg_return_t (*callback)(hg_handle_t, void *), void *arg);

/* Contexts: up to 256 of a class, by number. HG_BUSY to destroy one that has handles. */
HG_PUBLIC hg_context_t *HG_Context_create(hg_class_t *hg_class) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_context_t *HG_Context_create_id(
    hg_class_t *hg_class, uint8_t id) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Context_destroy(hg_context_t *context);
HG_PUBLIC hg_return_t HG_Context_unpost(hg_context_t *context);

/* Registered calls. The number of a name is the same everywhere. */
HG_PUBLIC hg_id_t HG_Register_name(hg_class_t *hg_class, const char *name, hg_proc_cb_t in_proc,
    hg_proc_cb_t out_proc, hg_rpc_cb_t callback) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Registered_name(
    hg_class_t *hg_class, const char *name, hg_id_t *id, uint8_t *flag);
HG_PUBLIC hg_return_t HG_Register(hg_class_t *hg_class, hg_id_t id, hg_proc_cb_t in_proc,
    hg_proc_cb_t out_proc, hg_rpc_cb_t callback);
HG_PUBLIC hg_return_t HG_Deregister(hg_class_t *hg_class, hg_id_t id);
HG_PUBLIC hg_return_t HG_Registered(hg_class_t *hg_class, hg_id_t id, uint8_t *flag);
HG_PUBLIC hg_return_t HG_Registered_proc_cb(hg_class_t *hg_class, hg_id_t id, uint8_t *flag,
    hg_proc_cb_t *in_proc, hg_proc_cb_t *out_proc);
HG_PUBLIC hg_return_t HG_Register_data(
    hg_class_t *hg_class, hg_id_t id, void *data, void (*free_callback)(void *));
HG_PUBLIC void *HG_Registered_data(hg_class_t *hg_class, hg_id_t id) HG_WARN_UNUSED_RESULT;
HG_PUBLIC hg_return_t HG_Registered_disable_response(
    hg_class_t *hg_class, hg_id_t id, uint8_t disable);
HG_PUBLIC hg_return_t HG_Registered_disabled_response(
    hg_class_t *hg_class, hg_id_t id, uint8_t *disabled);

/* Addresses. A look-up reads the name; the peer is connected by the first call. */
HG_PUBLIC hg_return_t HG_Addr_lookup1(
    hg_context_t *context, hg_cb_t callback, void *arg, const char *name, hg_op_id_t *op_id);
#ifndef HG_Addr_lookup
#define HG_Addr_lookup HG_Addr_lookup1
#endif
HG_PUBLIC hg_return_t HG_Addr_lookup2(hg_class_t *hg_class, const char *name, hg_addr_t *addr);
HG_PUBLIC hg_return_t HG_Addr_free(hg_class_t *hg_class, hg_addr_t addr);
/* The peer is gone: what is known of it is forgotten, unless calls to it are under way. */
HG_PUBLIC hg_return_t HG_Addr_set_remove(hg_class_t *hg_class, hg_addr_t addr);
HG_PUBLIC hg_return_t HG_Addr_self(hg_class_t *hg_class, hg_addr_t *addr);
HG_PUBLIC hg_return_t HG_Addr_dup(hg_class_t *hg_class, hg_addr_t addr, hg_addr_t *new_addr);
HG_PUBLIC uint8_t HG_Addr_cmp(
    hg_class_t *hg_class, hg_addr_t one, hg_addr_t two) HG_WARN_UNUSED_RESULT;
/* `size` becomes the length with the zero at its end; without a buffer that is all. */
HG_PUBLIC hg_return_t HG_Addr_to_string(
    hg_class_t *hg_class, char *buf, hg_size_t *size, hg_addr_t addr);

/* Handles. HG_BUSY to reset, forward or answer one whose call is under way. */
HG_PUBLIC hg_return_t HG_Create(
    hg_context_t *context, hg_addr_t addr, hg_id_t id, hg_handle_t *handle);
HG_PUBLIC hg_return_t HG_Destroy(hg_handle_t handle);
HG_PUBLIC hg_return_t HG_Reset(hg_handle_t handle, hg_addr_t addr, hg_id_t id);

/* Input and output. What was got is valid until it is freed, whatever becomes of the handle. */
HG_PUBLIC hg_size_t HG_Get_input_payload_size(hg_handle_t handle);
HG_PUBLIC hg_return_t HG_Get_input(hg_handle_t handle, void *structure);
HG_PUBLIC hg_return_t HG_Free_input(hg_handle_t handle, void *structure);
HG_PUBLIC hg_size_t HG_Get_output_payload_size(hg_handle_t handle);
HG_PUBLIC hg_return_t HG_Get_output(hg_handle_t handle, void *structure);
HG_PUBLIC hg_return_t HG_Free_output(hg_handle_t handle, void *structure);
HG_PUBLIC hg_return_t HG_Get_input_buf(hg_handle_t handle, void **buf, hg_size_t *size);
HG_PUBLIC hg_return_t HG_Release_input_buf(hg_handle_t handle);
HG_PUBLIC hg_return_t HG_Get_output_buf(hg_handle_t handle, void **buf, hg_size_t *size);
/* What was longer than a message; NULL if nothing was. */
HG_PUBLIC hg_return_t HG_Get_input_extra_buf(hg_handle_t handle, void **buf, hg_size_t *size);
HG_PUBLIC hg_return_t HG_Get_output_extra_buf(hg_handle_t handle, void **buf, hg_size_t *size);

/* Calls. A call that is cancelled ends at once, as HG_CANCELED, whatever its peer does. */
HG_PUBLIC hg_return_t HG_Forward(
    hg_handle_t handle, hg_cb_t callback, void *arg, void *structure);
HG_PUBLIC hg_return_t HG_Respond(
    hg_handle_t handle, hg_cb_t callback, void *arg, void *structure);
HG_PUBLIC hg_return_t HG_Cancel(hg_handle_t handle);

/* Makes progress until there is something to call back: HG_TIMEOUT (milliseconds) if there is not. */
HG_PUBLIC hg_return_t HG_Progress(hg_context_t *context, unsigned int timeout);
/* Calls back; waits for the first. HG_TIMEOUT if there was none. */
HG_PUBLIC hg_return_t HG_Trigger(
    hg_context_t *context, unsigned int timeout, unsigned int max_count, unsigned int *count);

/* Layouts that inline functions look into. */
struct hg_class {
    hg_core_class_t *core_class;
    hg_size_t in_offset;
    hg_size_t out_offset;
};

struct hg_context {
    hg_core_context_t *core_context;
    hg_class_t *hg_class;
};

struct hg_handle {
    struct hg_info info;
    hg_core_handle_t core_handle;
    void *data;
    void (*data_free_callback)(void *);
};

static HG_INLINE hg_return_t HG_Get_na_protocol_info(
    const char *info, struct na_protocol_info **list)
{
    return HG_Core_get_na_protocol_info(info, list);
}

static HG_INLINE void HG_Free_na_protocol_info(struct na_protocol_info *list)
{
    HG_Core_free_na_protocol_info(list);
}

static HG_INLINE const char *HG_Class_get_name(const hg_class_t *hg_class)
{
    return HG_Core_class_get_name(hg_class->core_class);
}

static HG_INLINE const char *HG_Class_get_protocol(const hg_class_t *hg_class)
{
    return HG_Core_class_get_protocol(hg_class->core_class);
}

static HG_INLINE bool HG_Class_is_listening(const hg_class_t *hg_class)
{
    return HG_Core_class_is_listening(hg_class->core_class);
}

static HG_INLINE hg_size_t HG_Class_get_input_eager_size(const hg_class_t *hg_class)
{
    hg_size_t size = HG_Core_class_get_input_eager_size(hg_class->core_class);
    hg_size_t header = hg_header_get_size(HG_INPUT);

    return size > header ? size - header : 0;
}

static HG_INLINE hg_size_t HG_Class_get_output_eager_size(const hg_class_t *hg_class)
{
    hg_size_t size = HG_Core_class_get_output_eager_size(hg_class->core_class);
    hg_size_t header = hg_header_get_size(HG_OUTPUT);

    return size > header ? size - header : 0;
}

/* Room for data of the program's own before the encoded input. */
static HG_INLINE hg_return_t HG_Class_set_input_offset(hg_class_t *hg_class, hg_size_t offset)
{
    if (offset > HG_Class_get_input_eager_size(hg_class))
        return HG_INVALID_ARG;
    hg_class->in_offset = offset;
    return HG_SUCCESS;
}

static HG_INLINE hg_return_t HG_Class_set_output_offset(hg_class_t *hg_class, hg_size_t offset)
{
    if (offset > HG_Class_get_output_eager_size(hg_class))
        return HG_INVALID_ARG;
    hg_class->out_offset = offset;
    return HG_SUCCESS;
}

static HG_INLINE hg_return_t HG_Class_set_data(
    hg_class_t *hg_class, void *data, void (*free_callback)(void *))
{
    return HG_Core_class_set_data(hg_class->core_class, data, free_callback);
}

static HG_INLINE void *HG_Class_get_data(const hg_class_t *hg_class)
{
    return HG_Core_class_get_data(hg_class->core_class);
}

static HG_INLINE hg_class_t *HG_Context_get_class(const hg_context_t *context)
{
    return context->hg_class;
}

static HG_INLINE uint8_t HG_Context_get_id(const hg_context_t *context)
{
    return HG_Core_context_get_id(context->core_context);
}

static HG_INLINE hg_return_t HG_Context_set_data(
    hg_context_t *context, void *data, void (*free_callback)(void *))
{
    return HG_Core_context_set_data(context->core_context, data, free_callback);
}

static HG_INLINE void *HG_Context_get_data(const hg_context_t *context)
{
    return HG_Core_context_get_data(context->core_context);
}

static HG_INLINE hg_return_t HG_Ref_incr(hg_handle_t handle)
{
    return HG_Core_ref_incr(handle->core_handle);
}

static HG_INLINE int32_t HG_Ref_get(hg_handle_t handle)
{
    return HG_Core_ref_get(handle->core_handle);
}

static HG_INLINE const struct hg_info *HG_Get_info(hg_handle_t handle)
{
    return &handle->info;
}

static HG_INLINE hg_return_t HG_Set_data(
    hg_handle_t handle, void *data, void (*free_callback)(void *))
{
    handle->data = data;
    handle->data_free_callback = free_callback;
    return HG_SUCCESS;
}

static HG_INLINE void *HG_Get_data(hg_handle_t handle)
{
    return handle->data;
}

/* The context of the target that gets the request. */
static HG_INLINE hg_return_t HG_Set_target_id(hg_handle_t handle, uint8_t id)
{
    handle->info.context_id = id;
    return HG_Core_set_target_id(handle->core_handle, id);
}

/* Sleep: if not HG_Event_ready, until the descriptor is readable; then HG_Event_progress, and
 * HG_Event_trigger. */
static HG_INLINE int HG_Event_get_wait_fd(const hg_context_t *context)
{
    return HG_Core_event_get_wait_fd(context->core_context);
}

static HG_INLINE bool HG_Event_ready(hg_context_t *context)
{
    return HG_Core_event_ready(context->core_context);
}

static HG_INLINE hg_return_t HG_Event_progress(hg_context_t *context, unsigned int *count)
{
    return HG_Core_event_progress(context->core_context, count);
}

static HG_INLINE hg_return_t HG_Event_trigger(
    hg_context_t *context, unsigned int max_count, unsigned int *count)
{
    return HG_Core_event_trigger(context->core_context, max_count, count);
}

#ifdef __cplusplus
}
#endif

#endif
