/* Threads that work off a list. */
#ifndef MERCURY_THREAD_POOL_H
#define MERCURY_THREAD_POOL_H

#include "mercury_queue.h"
#include "mercury_thread.h"
#include "mercury_thread_condition.h"

typedef struct hg_thread_pool hg_thread_pool_t;

struct hg_thread_work {
    hg_thread_func_t func;
    void *args;
    STAILQ_ENTRY(hg_thread_work) entry;
};

/* The layout that inline functions look into. */
struct hg_thread_pool {
    unsigned int sleeping_worker_count;
    STAILQ_HEAD(, hg_thread_work) pending_queue;
    int shutdown;
    hg_thread_mutex_t mutex;
    hg_thread_cond_t cond;
};

#ifdef __cplusplus
extern "C" {
#endif

HG_UTIL_PUBLIC int hg_thread_pool_init(unsigned int thread_count, hg_thread_pool_t **pool);
/* Waits until what was posted is done. */
HG_UTIL_PUBLIC int hg_thread_pool_destroy(hg_thread_pool_t *pool);

/* The work is the caller's, and has to stay until it is done. */
static HG_UTIL_INLINE int hg_thread_pool_post(hg_thread_pool_t *pool, struct hg_thread_work *work)
{
    int ret = HG_UTIL_FAIL;

    if (pool == NULL || work == NULL || work->func == NULL)
        return ret;
    hg_thread_mutex_lock(&pool->mutex);
    if (!pool->shutdown) {
        STAILQ_INSERT_TAIL(&pool->pending_queue, work, entry);
        ret = HG_UTIL_SUCCESS;
        if (pool->sleeping_worker_count > 0)
            ret = hg_thread_cond_signal(&pool->cond);
    }
    hg_thread_mutex_unlock(&pool->mutex);
    return ret;
}

#ifdef __cplusplus
}
#endif

#endif
