/* mercury_util: what programs of Mercury use beside it. */
#ifndef MERCURY_UTIL_CONFIG_H
#define MERCURY_UTIL_CONFIG_H

#include <mercury_compiler_attributes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HG_UTIL_VERSION_MAJOR 4
#define HG_UTIL_VERSION_MINOR 0
#define HG_UTIL_VERSION_PATCH 0

#define HG_UTIL_SUCCESS 0
#define HG_UTIL_FAIL -1

#define HG_UTIL_HAS_SYSPARAM_H
#define HG_UTIL_HAS_SYSEVENTFD_H
#define HG_UTIL_HAS_SYSEPOLL_H
#define HG_UTIL_HAS_SYSTIME_H
#define HG_UTIL_HAS_TIME_H
#define HG_UTIL_HAS_CLOCK_GETTIME

#define HG_UTIL_INLINE __inline__
#define HG_UTIL_ALIGNED(x, a) HG_ATTR_ALIGNED(x, a)
#define HG_UTIL_PRINTF(fmt, first) HG_ATTR_PRINTF(fmt, first)
#define HG_UTIL_PUBLIC HG_ATTR_ABI_IMPORT
#define HG_UTIL_PRIVATE HG_ATTR_ABI_HIDDEN

#endif
