#ifndef MERCURY_THREAD_MUTEX_H
#define MERCURY_THREAD_MUTEX_H

#include "mercury_util_config.h"

#include <pthread.h>

typedef pthread_mutex_t hg_thread_mutex_t;
#define HG_THREAD_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER

#ifdef __cplusplus
extern "C" {
#endif

HG_UTIL_PUBLIC int hg_thread_mutex_init(hg_thread_mutex_t *mutex);
HG_UTIL_PUBLIC int hg_thread_mutex_init_fast(hg_thread_mutex_t *mutex);
HG_UTIL_PUBLIC int hg_thread_mutex_destroy(hg_thread_mutex_t *mutex);

static HG_UTIL_INLINE void hg_thread_mutex_lock(hg_thread_mutex_t *mutex)
{
    (void)pthread_mutex_lock(mutex);
}

static HG_UTIL_INLINE int hg_thread_mutex_try_lock(hg_thread_mutex_t *mutex)
{
    return pthread_mutex_trylock(mutex) == 0 ? HG_UTIL_SUCCESS : HG_UTIL_FAIL;
}

static HG_UTIL_INLINE void hg_thread_mutex_unlock(hg_thread_mutex_t *mutex)
{
    (void)pthread_mutex_unlock(mutex);
}

#ifdef __cplusplus
}
#endif

#endif
