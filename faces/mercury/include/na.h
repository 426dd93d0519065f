/* NA, as far as programs of HG use it: messages and memory of its own it has none here. */
#ifndef NA_H
#define NA_H

#include "na_types.h"

#ifdef __cplusplus
extern "C" {
#endif

NA_PUBLIC void NA_Version_get(unsigned int *major, unsigned int *minor, unsigned int *patch);
NA_PUBLIC const char *NA_Error_to_string(na_return_t code) NA_WARN_UNUSED_RESULT;
NA_PUBLIC void NA_Set_log_level(const char *level);
NA_PUBLIC void NA_Cleanup(void);

/* What can be given to HG_Init everywhere; networks beside TCP depend on the machine. */
NA_PUBLIC na_return_t NA_Get_protocol_info(const char *info, struct na_protocol_info **list);
NA_PUBLIC void NA_Free_protocol_info(struct na_protocol_info *list);

/* A class of NA remembers what it was asked for; given to HG_Init_opt2 in na_class, with no string,
 * that is opened. It has no messages, addresses or memory of its own. */
NA_PUBLIC na_class_t *NA_Initialize(const char *info, bool listen) NA_WARN_UNUSED_RESULT;
NA_PUBLIC na_class_t *NA_Initialize_opt(const char *info, bool listen,
    const struct na_init_info *settings) NA_WARN_UNUSED_RESULT;
NA_PUBLIC na_class_t *NA_Initialize_opt2(const char *info, bool listen, unsigned int version,
    const struct na_init_info *settings) NA_WARN_UNUSED_RESULT;
NA_PUBLIC na_return_t NA_Finalize(na_class_t *na_class);

/* Layouts that inline functions, here and in programs that were compiled with other headers, look
 * into. Functions that are not named are null. */
struct na_class_ops {
    const char *class_name;
    void (*reserved0[16])(void);
    bool (*addr_is_self)(na_class_t *, na_addr_t *);
    void (*reserved1[4])(void);
    size_t (*msg_get_max_unexpected_size)(const na_class_t *);
    size_t (*msg_get_max_expected_size)(const na_class_t *);
    size_t (*msg_get_unexpected_header_size)(const na_class_t *);
    size_t (*msg_get_expected_header_size)(const na_class_t *);
    na_tag_t (*msg_get_max_tag)(const na_class_t *);
    void (*reserved2[25])(void);
};

struct na_class {
    const struct na_class_ops *ops;
    void *plugin_class;
    char *protocol_name;
    uint8_t progress_mode;
    bool listen;
};

struct na_context {
    void *plugin_context;
};

static NA_INLINE const char *NA_Get_class_name(const na_class_t *na_class)
{
    return na_class->ops->class_name;
}

static NA_INLINE const char *NA_Get_class_protocol(const na_class_t *na_class)
{
    return na_class->protocol_name;
}

static NA_INLINE bool NA_Is_listening(const na_class_t *na_class)
{
    return na_class->listen;
}

static NA_INLINE size_t NA_Msg_get_max_unexpected_size(const na_class_t *na_class)
{
    return na_class->ops->msg_get_max_unexpected_size(na_class);
}

static NA_INLINE size_t NA_Msg_get_max_expected_size(const na_class_t *na_class)
{
    return na_class->ops->msg_get_max_expected_size(na_class);
}

static NA_INLINE size_t NA_Msg_get_unexpected_header_size(const na_class_t *na_class)
{
    return na_class->ops->msg_get_unexpected_header_size(na_class);
}

static NA_INLINE size_t NA_Msg_get_expected_header_size(const na_class_t *na_class)
{
    return na_class->ops->msg_get_expected_header_size(na_class);
}

static NA_INLINE na_tag_t NA_Msg_get_max_tag(const na_class_t *na_class)
{
    return na_class->ops->msg_get_max_tag(na_class);
}

#ifdef __cplusplus
}
#endif

#endif
