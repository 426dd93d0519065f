/* An event that a descriptor tells: an eventfd. */
#ifndef MERCURY_EVENT_H
#define MERCURY_EVENT_H

#include "mercury_util_config.h"

#include <errno.h>
#include <sys/eventfd.h>

#ifdef __cplusplus
extern "C" {
#endif

HG_UTIL_PUBLIC int hg_event_create(void);
HG_UTIL_PUBLIC int hg_event_destroy(int fd);

static HG_UTIL_INLINE int hg_event_set(int fd)
{
    return eventfd_write(fd, 1) == 0 ? HG_UTIL_SUCCESS : HG_UTIL_FAIL;
}

/* Whether it was set since the last time. */
static HG_UTIL_INLINE int hg_event_get(int fd, bool *signaled)
{
    eventfd_t count = 0;

    if (eventfd_read(fd, &count) != 0 && errno != EAGAIN)
        return HG_UTIL_FAIL;
    *signaled = count > 0;
    return HG_UTIL_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#endif
