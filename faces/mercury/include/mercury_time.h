#ifndef MERCURY_TIME_H
#define MERCURY_TIME_H

#include "mercury_util_config.h"

#include <stdio.h>
#include <time.h>

typedef struct timespec hg_time_t;

#ifdef __cplusplus
extern "C" {
#endif

static HG_UTIL_INLINE int hg_time_get_current(hg_time_t *time)
{
    clock_gettime(CLOCK_MONOTONIC, time);
    return HG_UTIL_SUCCESS;
}

static HG_UTIL_INLINE int hg_time_get_current_ms(hg_time_t *time)
{
    return hg_time_get_current(time);
}

/* In seconds. */
static HG_UTIL_INLINE double hg_time_to_double(hg_time_t time)
{
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static HG_UTIL_INLINE hg_time_t hg_time_from_double(double seconds)
{
    hg_time_t time;

    time.tv_sec = (time_t)seconds;
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    return time;
}

static HG_UTIL_INLINE unsigned int hg_time_to_ms(hg_time_t time)
{
    return (unsigned int)(time.tv_sec * 1000 + (time.tv_nsec + 999999) / 1000000);
}

static HG_UTIL_INLINE hg_time_t hg_time_from_ms(unsigned int ms)
{
    hg_time_t time;

    time.tv_sec = (time_t)(ms / 1000);
    time.tv_nsec = (long)(ms % 1000) * 1000000;
    return time;
}

static HG_UTIL_INLINE bool hg_time_less(hg_time_t one, hg_time_t two)
{
    return one.tv_sec < two.tv_sec || (one.tv_sec == two.tv_sec && one.tv_nsec < two.tv_nsec);
}

static HG_UTIL_INLINE hg_time_t hg_time_add(hg_time_t one, hg_time_t two)
{
    one.tv_sec += two.tv_sec;
    one.tv_nsec += two.tv_nsec;
    if (one.tv_nsec >= 1000000000) {
        one.tv_nsec -= 1000000000;
        one.tv_sec++;
    }
    return one;
}

static HG_UTIL_INLINE hg_time_t hg_time_subtract(hg_time_t one, hg_time_t two)
{
    one.tv_sec -= two.tv_sec;
    one.tv_nsec -= two.tv_nsec;
    if (one.tv_nsec < 0) {
        one.tv_nsec += 1000000000;
        one.tv_sec--;
    }
    return one;
}

/* From `earlier` to `later`, in seconds. */
static HG_UTIL_INLINE double hg_time_diff(hg_time_t later, hg_time_t earlier)
{
    return hg_time_to_double(hg_time_subtract(later, earlier));
}

static HG_UTIL_INLINE int hg_time_sleep(const hg_time_t time)
{
    return nanosleep(&time, NULL) == 0 ? HG_UTIL_SUCCESS : HG_UTIL_FAIL;
}

static HG_UTIL_INLINE char *hg_time_stamp(void)
{
    static char text[32] = {'\0'};
    struct tm parts;
    time_t now = time(NULL);

    if (localtime_r(&now, &parts) == NULL ||
        strftime(text, sizeof(text), "%a, %d %b %Y %T %Z", &parts) == 0)
        text[0] = '\0';
    return text;
}

#ifdef __cplusplus
}
#endif

#endif
