/* Bulk descriptors as input and output. */
#ifndef MERCURY_PROC_BULK_H
#define MERCURY_PROC_BULK_H

#include "mercury_bulk.h"
#include "mercury_proc.h"

#ifdef __cplusplus
extern "C" {
#endif

HG_PUBLIC hg_return_t hg_proc_hg_bulk_t(hg_proc_t proc, void *data);

#ifdef __cplusplus
}
#endif

#endif
