/* Types of NA, as far as programs of HG use them. */
#ifndef NA_TYPES_H
#define NA_TYPES_H

#include "na_config.h"

#include <limits.h>

typedef struct na_class na_class_t;
typedef struct na_context na_context_t;
typedef struct na_addr na_addr_t;
typedef struct na_op_id na_op_id_t;
typedef struct na_mem_handle na_mem_handle_t;
typedef uint32_t na_tag_t;
typedef uint64_t na_offset_t;

enum na_addr_format { NA_ADDR_UNSPEC, NA_ADDR_IPV4, NA_ADDR_IPV6, NA_ADDR_NATIVE };

enum na_addr_flags { NA_ADDR_FIREWALL = 1 << 0 };

enum na_traffic_class {
    NA_TC_UNSPEC,
    NA_TC_BEST_EFFORT,
    NA_TC_LOW_LATENCY,
    NA_TC_BULK_DATA,
    NA_TC_DEDICATED_ACCESS,
    NA_TC_SCAVENGER,
    NA_TC_NETWORK_CTRL
};

/* Memory of devices is refused. */
enum na_mem_type {
    NA_MEM_TYPE_HOST,
    NA_MEM_TYPE_CUDA,
    NA_MEM_TYPE_ROCM,
    NA_MEM_TYPE_ZE,
    NA_MEM_TYPE_MAX,
    NA_MEM_TYPE_UNKNOWN = NA_MEM_TYPE_MAX
};

/* What a class is opened with. */
struct na_init_info {
    const char *ip_subnet; /* the address to listen at, where the information string has none */
    const char *auth_key;  /* the secret of connections over a network: 16 bytes or more */
    size_t max_unexpected_size; /* bytes of a message: requests; 0: 4,096 */
    size_t max_expected_size;   /* the same for responses */
    uint8_t progress_mode;      /* NA_NO_BLOCK: poll, and never sleep */
    enum na_addr_format addr_format; /* not looked at: addresses say it */
    uint8_t max_contexts;            /* not looked at: there may be 256 */
    uint8_t thread_mode;             /* not looked at: any thread, always */
    bool request_mem_device;         /* refused */
    enum na_traffic_class traffic_class; /* not looked at */
};

/* The same, as it was in version 4. */
struct na_init_info_4_0 {
    const char *ip_subnet;
    const char *auth_key;
    size_t max_unexpected_size;
    size_t max_expected_size;
    uint8_t progress_mode;
    enum na_addr_format addr_format;
    uint8_t max_contexts;
    uint8_t thread_mode;
    bool request_mem_device;
};

struct na_segment {
    void *base;
    size_t len;
};

struct na_protocol_info {
    struct na_protocol_info *next;
    char *class_name;
    char *protocol_name;
    char *device_name;
};

/* The numbers are those of HG, under names of NA. */
#define NA_RETURN_VALUES                                                                           \
    X(NA_SUCCESS)                                                                                  \
    X(NA_PERMISSION)                                                                               \
    X(NA_NOENTRY)                                                                                  \
    X(NA_INTERRUPT)                                                                                \
    X(NA_AGAIN)                                                                                    \
    X(NA_NOMEM)                                                                                    \
    X(NA_ACCESS)                                                                                   \
    X(NA_FAULT)                                                                                    \
    X(NA_BUSY)                                                                                     \
    X(NA_EXIST)                                                                                    \
    X(NA_NODEV)                                                                                    \
    X(NA_INVALID_ARG)                                                                              \
    X(NA_PROTOCOL_ERROR)                                                                           \
    X(NA_OVERFLOW)                                                                                 \
    X(NA_MSGSIZE)                                                                                  \
    X(NA_PROTONOSUPPORT)                                                                           \
    X(NA_OPNOTSUPPORTED)                                                                           \
    X(NA_ADDRINUSE)                                                                                \
    X(NA_ADDRNOTAVAIL)                                                                             \
    X(NA_HOSTUNREACH)                                                                              \
    X(NA_TIMEOUT)                                                                                  \
    X(NA_CANCELED)                                                                                 \
    X(NA_IO_ERROR)                                                                                 \
    X(NA_HOSTFIREWALL)                                                                             \
    X(NA_RETURN_MAX)
#define X(name) name,
typedef enum na_return { NA_RETURN_VALUES } na_return_t;
#undef X

#define NA_VERSION(major, minor) (((major) << 16) | (minor))
#define NA_MAJOR(version) ((version) >> 16)
#define NA_MINOR(version) ((version)&0xffff)
#define NA_VERSION_GE(v1, v2) ((v1) >= (v2))
#define NA_VERSION_LT(v1, v2) ((v1) < (v2))

#define NA_OPT_MULTI_RECV (1 << 0)
#define NA_OPT_FIREWALL_ADDR (1 << 1)
#define NA_MAX_IDLE_TIME (3600 * 1000)
#define NA_CONTEXT_ID_MAX UINT8_MAX
#define NA_TAG_MAX UINT_MAX

#define NA_MEM_READ_ONLY 0x01
#define NA_MEM_WRITE_ONLY 0x02
#define NA_MEM_READWRITE 0x03

/* Modes of progress. */
#define NA_NO_BLOCK 0x01
#define NA_NO_RETRY 0x02 /* nothing is tried again here anyway */

#define NA_THREAD_MODE_SINGLE_CLS 0x01
#define NA_THREAD_MODE_SINGLE_CTX 0x02
#define NA_THREAD_MODE_SINGLE (NA_THREAD_MODE_SINGLE_CLS | NA_THREAD_MODE_SINGLE_CTX)

#define NA_INIT_INFO_INITIALIZER                                                                   \
    ((struct na_init_info){NULL, NULL, 0, 0, 0, NA_ADDR_UNSPEC, 1, 0, false, NA_TC_UNSPEC})
#define NA_INIT_INFO_INITIALIZER_4_0                                                               \
    ((struct na_init_info_4_0){NULL, NULL, 0, 0, 0, NA_ADDR_UNSPEC, 1, 0, false})

#endif
