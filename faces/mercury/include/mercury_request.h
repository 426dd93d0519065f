/* Something that is waited for, while progress is made. */
#ifndef MERCURY_REQUEST_H
#define MERCURY_REQUEST_H

#include "mercury_atomic.h"
#include "mercury_util_config.h"

typedef struct hg_request_class hg_request_class_t;
typedef struct hg_request hg_request_t;

struct hg_request {
    hg_request_class_t *request_class;
    void *data;
    hg_atomic_int32_t completed;
};

typedef int (*hg_request_progress_func_t)(unsigned int timeout, void *arg);
typedef int (*hg_request_trigger_func_t)(unsigned int timeout, unsigned int *flag, void *arg);

#ifdef __cplusplus
extern "C" {
#endif

HG_UTIL_PUBLIC hg_request_class_t *hg_request_init(
    hg_request_progress_func_t progress, hg_request_trigger_func_t trigger, void *arg);
HG_UTIL_PUBLIC void hg_request_finalize(hg_request_class_t *request_class, void **arg);
HG_UTIL_PUBLIC hg_request_t *hg_request_create(hg_request_class_t *request_class);
HG_UTIL_PUBLIC void hg_request_destroy(hg_request_t *request);
HG_UTIL_PUBLIC int hg_request_wait(
    hg_request_t *request, unsigned int timeout, unsigned int *flag);

static HG_UTIL_INLINE void hg_request_reset(hg_request_t *request)
{
    hg_atomic_set32(&request->completed, 0);
}

static HG_UTIL_INLINE void hg_request_complete(hg_request_t *request)
{
    hg_atomic_set32(&request->completed, 1);
}

static HG_UTIL_INLINE int hg_request_waitall(
    int count, hg_request_t *request[], unsigned int timeout, unsigned int *flag)
{
    int i;

    for (i = 0; i < count; i++)
        hg_request_wait(request[i], timeout, flag);
    return HG_UTIL_SUCCESS;
}

static HG_UTIL_INLINE void hg_request_set_data(hg_request_t *request, void *data)
{
    request->data = data;
}

static HG_UTIL_INLINE void *hg_request_get_data(hg_request_t *request)
{
    return request->data;
}

#ifdef __cplusplus
}
#endif

#endif
