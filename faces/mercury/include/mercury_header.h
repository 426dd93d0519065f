/* How long the header of the upper layer is: a checksum. */
#ifndef MERCURY_HEADER_H
#define MERCURY_HEADER_H

#include "mercury_core_types.h"

#ifdef __cplusplus
extern "C" {
#endif

static HG_INLINE size_t hg_header_get_size(hg_op_t op)
{
    return op == HG_UNDEF ? 0 : 4;
}

#ifdef __cplusplus
}
#endif

#endif
