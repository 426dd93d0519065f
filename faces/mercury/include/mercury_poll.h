/* Descriptors that are waited for together: epoll. */
#ifndef MERCURY_POLL_H
#define MERCURY_POLL_H

#include "mercury_util_config.h"

typedef struct hg_poll_set hg_poll_set_t;

typedef union hg_poll_data {
    void *ptr;
    int fd;
    uint32_t u32;
    uint64_t u64;
} hg_poll_data_t;

struct hg_poll_event {
    uint32_t events;
    hg_poll_data_t data;
};

#define HG_POLLIN (1 << 0)
#define HG_POLLOUT (1 << 1)
#define HG_POLLERR (1 << 2)
#define HG_POLLHUP (1 << 3)
#define HG_POLLINTR (1 << 4)

#ifdef __cplusplus
extern "C" {
#endif

HG_UTIL_PUBLIC hg_poll_set_t *hg_poll_create(void);
HG_UTIL_PUBLIC int hg_poll_destroy(hg_poll_set_t *poll_set);
HG_UTIL_PUBLIC int hg_poll_get_fd(const hg_poll_set_t *poll_set);
HG_UTIL_PUBLIC int hg_poll_add(hg_poll_set_t *poll_set, int fd, struct hg_poll_event *event);
HG_UTIL_PUBLIC int hg_poll_remove(hg_poll_set_t *poll_set, int fd);
/* Milliseconds. A wait that a signal has interrupted is one event, HG_POLLINTR. */
HG_UTIL_PUBLIC int hg_poll_wait(hg_poll_set_t *poll_set, unsigned int timeout,
    unsigned int max_events, struct hg_poll_event events[], unsigned int *count);

#ifdef __cplusplus
}
#endif

#endif
