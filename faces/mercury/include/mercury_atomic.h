/* Numbers that threads share: reads acquire, writes release, all else does both. */
#ifndef MERCURY_ATOMIC_H
#define MERCURY_ATOMIC_H

#include "mercury_util_config.h"

typedef int32_t hg_atomic_int32_t;
typedef int64_t hg_atomic_int64_t;

#define HG_ATOMIC_VAR_INIT(x) (x)

#ifdef __cplusplus
extern "C" {
#endif

#define HG_ATOMIC_OF(bits)                                                                         \
    static HG_UTIL_INLINE void hg_atomic_init##bits(                                               \
        hg_atomic_int##bits##_t *at, int##bits##_t value)                                          \
    {                                                                                              \
        __atomic_store_n(at, value, __ATOMIC_RELEASE);                                             \
    }                                                                                              \
    static HG_UTIL_INLINE void hg_atomic_set##bits(                                                \
        hg_atomic_int##bits##_t *at, int##bits##_t value)                                          \
    {                                                                                              \
        __atomic_store_n(at, value, __ATOMIC_RELEASE);                                             \
    }                                                                                              \
    static HG_UTIL_INLINE int##bits##_t hg_atomic_get##bits(const hg_atomic_int##bits##_t *at)     \
    {                                                                                              \
        return __atomic_load_n(at, __ATOMIC_ACQUIRE);                                              \
    }                                                                                              \
    static HG_UTIL_INLINE int##bits##_t hg_atomic_incr##bits(hg_atomic_int##bits##_t *at)          \
    {                                                                                              \
        return __atomic_add_fetch(at, 1, __ATOMIC_ACQ_REL);                                        \
    }                                                                                              \
    static HG_UTIL_INLINE int##bits##_t hg_atomic_decr##bits(hg_atomic_int##bits##_t *at)          \
    {                                                                                              \
        return __atomic_sub_fetch(at, 1, __ATOMIC_ACQ_REL);                                        \
    }                                                                                              \
    static HG_UTIL_INLINE int##bits##_t hg_atomic_or##bits(                                        \
        hg_atomic_int##bits##_t *at, int##bits##_t value)                                          \
    {                                                                                              \
        return __atomic_fetch_or(at, value, __ATOMIC_ACQ_REL);                                     \
    }                                                                                              \
    static HG_UTIL_INLINE int##bits##_t hg_atomic_xor##bits(                                       \
        hg_atomic_int##bits##_t *at, int##bits##_t value)                                          \
    {                                                                                              \
        return __atomic_fetch_xor(at, value, __ATOMIC_ACQ_REL);                                    \
    }                                                                                              \
    static HG_UTIL_INLINE int##bits##_t hg_atomic_and##bits(                                       \
        hg_atomic_int##bits##_t *at, int##bits##_t value)                                          \
    {                                                                                              \
        return __atomic_fetch_and(at, value, __ATOMIC_ACQ_REL);                                    \
    }                                                                                              \
    static HG_UTIL_INLINE bool hg_atomic_cas##bits(                                                \
        hg_atomic_int##bits##_t *at, int##bits##_t expected, int##bits##_t value)                  \
    {                                                                                              \
        return __atomic_compare_exchange_n(                                                        \
            at, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);                      \
    }
HG_ATOMIC_OF(32)
HG_ATOMIC_OF(64)
#undef HG_ATOMIC_OF

static HG_UTIL_INLINE void hg_atomic_fence(void)
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

#ifdef __cplusplus
}
#endif

#endif
