/* How long the headers of messages are that inline functions leave room for. */
#ifndef MERCURY_CORE_HEADER_H
#define MERCURY_CORE_HEADER_H

#include "mercury_core_types.h"

#ifdef __cplusplus
extern "C" {
#endif

static HG_INLINE size_t hg_core_header_request_get_size(void)
{
    return 16;
}

static HG_INLINE size_t hg_core_header_response_get_size(void)
{
    return 16;
}

#ifdef __cplusplus
}
#endif

#endif
