/* Strings as input and output. NULL is a string, too. */
#ifndef MERCURY_PROC_STRING_H
#define MERCURY_PROC_STRING_H

#include "mercury_proc.h"
#include "mercury_string_object.h"

typedef const char *hg_const_string_t;
typedef char *hg_string_t;

#ifdef __cplusplus
extern "C" {
#endif

HG_PUBLIC hg_return_t hg_proc_hg_string_object_t(hg_proc_t proc, void *string);

static HG_INLINE hg_return_t hg_proc_hg_string_t(hg_proc_t proc, void *data)
{
    hg_string_object_t string;
    char **text = (char **)data;
    hg_proc_op_t op = hg_proc_get_op(proc);
    hg_return_t ret;

    if (op == HG_DECODE)
        *text = NULL;
    /* What was decoded is freed; what is encoded stays the caller's. */
    hg_string_object_init_char(&string, *text, op == HG_FREE);
    ret = hg_proc_hg_string_object_t(proc, &string);
    if (ret == HG_SUCCESS && op == HG_DECODE)
        *text = hg_string_object_swap(&string, NULL);
    return ret;
}

static HG_INLINE hg_return_t hg_proc_hg_const_string_t(hg_proc_t proc, void *data)
{
    return hg_proc_hg_string_t(proc, data);
}

#ifdef __cplusplus
}
#endif

#endif
