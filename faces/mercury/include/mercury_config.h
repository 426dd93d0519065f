/* How this library was built: as Mercury is by default, with checksums, without XDR. */
#ifndef MERCURY_CONFIG_H
#define MERCURY_CONFIG_H

#include <mercury_compiler_attributes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HG_VERSION_MAJOR 2
#define HG_VERSION_MINOR 4
#define HG_VERSION_PATCH 1

#define HG_HAS_CHECKSUMS
#define HG_BUILD_SHARED_LIBS

#define HG_WARN_UNUSED_RESULT HG_ATTR_WARN_UNUSED_RESULT
#define HG_UNUSED HG_ATTR_UNUSED
#define HG_PACKED(x) HG_ATTR_PACKED(x)
#define HG_FALLTHROUGH HG_ATTR_FALLTHROUGH
#define HG_INLINE __inline__
#define HG_PUBLIC HG_ATTR_ABI_IMPORT
#define HG_PRIVATE HG_ATTR_ABI_HIDDEN

/* Names of old. */
typedef int8_t hg_int8_t;
typedef int16_t hg_int16_t;
typedef int32_t hg_int32_t;
typedef int64_t hg_int64_t;
typedef uint8_t hg_uint8_t;
typedef uint16_t hg_uint16_t;
typedef uint32_t hg_uint32_t;
typedef uint64_t hg_uint64_t;
typedef hg_uint64_t hg_ptr_t;
typedef hg_uint8_t hg_bool_t;
#define HG_TRUE 1
#define HG_FALSE 0

#endif
