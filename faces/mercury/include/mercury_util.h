#ifndef MERCURY_UTIL_H
#define MERCURY_UTIL_H

#include "mercury_util_config.h"

#ifdef __cplusplus
extern "C" {
#endif

HG_UTIL_PUBLIC void HG_Util_version_get(
    unsigned int *major, unsigned int *minor, unsigned int *patch);
HG_UTIL_PUBLIC void HG_Util_set_log_level(const char *level);

#ifdef __cplusplus
}
#endif

#endif
