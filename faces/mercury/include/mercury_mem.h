#ifndef MERCURY_MEM_H
#define MERCURY_MEM_H

#include "mercury_util_config.h"

#define HG_MEM_CACHE_LINE_SIZE 64
#define HG_MEM_PAGE_SIZE 4096

#ifdef __cplusplus
extern "C" {
#endif

HG_UTIL_PUBLIC long hg_mem_get_page_size(void);
HG_UTIL_PUBLIC void *hg_mem_aligned_alloc(size_t alignment, size_t size);
HG_UTIL_PUBLIC void hg_mem_aligned_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
