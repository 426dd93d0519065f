/* Types of both layers of HG. */
#ifndef MERCURY_CORE_TYPES_H
#define MERCURY_CORE_TYPES_H

#include "mercury_config.h"
#include "na_types.h"

typedef uint64_t hg_size_t;
typedef uint64_t hg_id_t;

typedef enum hg_checksum_level {
    HG_CHECKSUM_NONE,
    HG_CHECKSUM_RPC_HEADERS, /* as NONE: headers are checked field by field */
    HG_CHECKSUM_RPC_PAYLOAD
} hg_checksum_level_t;

/* What a class is opened with: see HG_Init_opt2. */
struct hg_init_info {
    struct na_init_info_4_0 na_init_info;
    na_class_t *na_class;       /* of NA_Initialize: in place of the string and na_init_info */
    uint32_t request_post_init; /* not looked at: nothing is posted */
    int32_t request_post_incr;  /* the same */
    uint8_t auto_sm;            /* shared memory to peers of this node, beside the network */
    const char *sm_info_string; /* not looked at */
    hg_checksum_level_t checksum_level; /* must be the same on both sides */
    uint8_t no_bulk_eager;              /* little data does not travel with its descriptor */
    uint8_t no_loopback;                /* not looked at: there is one way */
    uint8_t stats;                      /* not looked at: HG_Class_get_counters */
    uint8_t no_multi_recv;              /* not looked at */
    uint8_t release_input_early;        /* not looked at: input is a copy */
    enum na_traffic_class traffic_class; /* not looked at */
    bool no_overflow; /* what does not fit into a message is HG_OVERFLOW */
    unsigned int multi_recv_op_max;         /* not looked at */
    unsigned int multi_recv_copy_threshold; /* not looked at */
};

#define HG_RETURN_VALUES                                                                           \
    X(HG_SUCCESS)                                                                                  \
    X(HG_PERMISSION)                                                                               \
    X(HG_NOENTRY)                                                                                  \
    X(HG_INTERRUPT)                                                                                \
    X(HG_AGAIN)                                                                                    \
    X(HG_NOMEM)                                                                                    \
    X(HG_ACCESS)                                                                                   \
    X(HG_FAULT)                                                                                    \
    X(HG_BUSY)                                                                                     \
    X(HG_EXIST)                                                                                    \
    X(HG_NODEV)                                                                                    \
    X(HG_INVALID_ARG)                                                                              \
    X(HG_PROTOCOL_ERROR)                                                                           \
    X(HG_OVERFLOW)                                                                                 \
    X(HG_MSGSIZE)                                                                                  \
    X(HG_PROTONOSUPPORT)                                                                           \
    X(HG_OPNOTSUPPORTED)                                                                           \
    X(HG_ADDRINUSE)                                                                                \
    X(HG_ADDRNOTAVAIL)                                                                             \
    X(HG_HOSTUNREACH)                                                                              \
    X(HG_TIMEOUT)                                                                                  \
    X(HG_CANCELED)                                                                                 \
    X(HG_IO_ERROR)                                                                                 \
    X(HG_HOSTFIREWALL)                                                                             \
    X(HG_CHECKSUM_ERROR)                                                                           \
    X(HG_NA_ERROR)                                                                                 \
    X(HG_OTHER_ERROR)                                                                              \
    X(HG_RETURN_MAX)
#define X(name) name,
typedef enum hg_return { HG_RETURN_VALUES } hg_return_t;
#undef X

/* Names of old. */
#define HG_INVALID_PARAM HG_INVALID_ARG
#define HG_SIZE_ERROR HG_MSGSIZE
#define HG_NOMEM_ERROR HG_NOMEM
#define HG_NO_MATCH HG_NOENTRY

typedef enum hg_cb_type { HG_CB_LOOKUP, HG_CB_FORWARD, HG_CB_RESPOND, HG_CB_BULK } hg_cb_type_t;

typedef enum { HG_UNDEF, HG_INPUT, HG_OUTPUT } hg_op_t;

typedef enum { HG_ENCODE, HG_DECODE, HG_FREE } hg_proc_op_t;

#define HG_CORE_SM (1 << 0)

struct hg_diag_counters {
    uint64_t rpc_req_sent_count;
    uint64_t rpc_req_recv_count;
    uint64_t rpc_resp_sent_count;
    uint64_t rpc_resp_recv_count;
    uint64_t rpc_req_extra_count;       /* longer than a message */
    uint64_t rpc_resp_extra_count;      /* the same */
    uint64_t rpc_req_recv_active_count; /* handlers that run now */
    uint64_t rpc_multi_recv_copy_count; /* copied, as too many waited */
    uint64_t bulk_count;
};

#define HG_VERSION(major, minor) (((major) << 16) | (minor))
#define HG_MAJOR(version) ((version) >> 16)
#define HG_MINOR(version) ((version)&0xffff)
#define HG_VERSION_GE(v1, v2) ((v1) >= (v2))
#define HG_VERSION_LT(v1, v2) ((v1) < (v2))
#define HG_MAX_IDLE_TIME (3600 * 1000)
#define HG_SIZE_MAX (UINT64_MAX)

#define HG_INIT_INFO_INITIALIZER                                                                   \
    (struct hg_init_info)                                                                          \
    {                                                                                              \
        NA_INIT_INFO_INITIALIZER_4_0, NULL, 0, 0, 0, NULL, HG_CHECKSUM_NONE, 0, 0, 0, 0, 0,         \
            NA_TC_UNSPEC, false, 0, 0                                                              \
    }

#endif
