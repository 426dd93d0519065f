/* Threads, as POSIX has them. Functions return HG_UTIL_SUCCESS or HG_UTIL_FAIL. */
#ifndef MERCURY_THREAD_H
#define MERCURY_THREAD_H

#include "mercury_util_config.h"

#include <pthread.h>

typedef pthread_t hg_thread_t;
typedef void *(*hg_thread_func_t)(void *);
typedef void *hg_thread_ret_t;
#define HG_THREAD_RETURN_TYPE hg_thread_ret_t
typedef pthread_key_t hg_thread_key_t;

#ifdef __cplusplus
extern "C" {
#endif

HG_UTIL_PUBLIC void hg_thread_init(hg_thread_t *thread);
HG_UTIL_PUBLIC int hg_thread_create(hg_thread_t *thread, hg_thread_func_t function, void *data);
HG_UTIL_PUBLIC int hg_thread_join(hg_thread_t thread);
HG_UTIL_PUBLIC int hg_thread_yield(void);
HG_UTIL_PUBLIC int hg_thread_key_create(hg_thread_key_t *key);
HG_UTIL_PUBLIC int hg_thread_key_delete(hg_thread_key_t key);

static HG_UTIL_INLINE void hg_thread_exit(hg_thread_ret_t ret)
{
    pthread_exit(ret);
}

static HG_UTIL_INLINE int hg_thread_cancel(hg_thread_t thread)
{
    return pthread_cancel(thread) == 0 ? HG_UTIL_SUCCESS : HG_UTIL_FAIL;
}

static HG_UTIL_INLINE hg_thread_t hg_thread_self(void)
{
    return pthread_self();
}

static HG_UTIL_INLINE int hg_thread_equal(hg_thread_t one, hg_thread_t two)
{
    return pthread_equal(one, two);
}

static HG_UTIL_INLINE void *hg_thread_getspecific(hg_thread_key_t key)
{
    return pthread_getspecific(key);
}

static HG_UTIL_INLINE int hg_thread_setspecific(hg_thread_key_t key, const void *value)
{
    return pthread_setspecific(key, value) == 0 ? HG_UTIL_SUCCESS : HG_UTIL_FAIL;
}

#ifdef __cplusplus
}
#endif

#endif
