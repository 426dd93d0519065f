#ifndef MERCURY_THREAD_CONDITION_H
#define MERCURY_THREAD_CONDITION_H

#include "mercury_thread_mutex.h"

#include <time.h>

typedef pthread_cond_t hg_thread_cond_t;

#ifdef __cplusplus
extern "C" {
#endif

/* It counts by CLOCK_MONOTONIC. */
HG_UTIL_PUBLIC int hg_thread_cond_init(hg_thread_cond_t *cond);
HG_UTIL_PUBLIC int hg_thread_cond_destroy(hg_thread_cond_t *cond);
/* HG_UTIL_FAIL after so many milliseconds. */
HG_UTIL_PUBLIC int hg_thread_cond_timedwait(
    hg_thread_cond_t *cond, hg_thread_mutex_t *mutex, unsigned int timeout);

static HG_UTIL_INLINE int hg_thread_cond_signal(hg_thread_cond_t *cond)
{
    return pthread_cond_signal(cond) == 0 ? HG_UTIL_SUCCESS : HG_UTIL_FAIL;
}

static HG_UTIL_INLINE int hg_thread_cond_broadcast(hg_thread_cond_t *cond)
{
    return pthread_cond_broadcast(cond) == 0 ? HG_UTIL_SUCCESS : HG_UTIL_FAIL;
}

static HG_UTIL_INLINE int hg_thread_cond_wait(hg_thread_cond_t *cond, hg_thread_mutex_t *mutex)
{
    return pthread_cond_wait(cond, mutex) == 0 ? HG_UTIL_SUCCESS : HG_UTIL_FAIL;
}

#ifdef __cplusplus
}
#endif

#endif
