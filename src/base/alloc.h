/* alloc.h - memory: overflow-checked, cache-line aligned, and able to fail on purpose in tests. */
#ifndef GMI_ALLOC_H
#define GMI_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#define GMI_CACHE_LINE 64

/* count * elem_bytes bytes, zeroed, aligned to a cache line; NULL when there is no memory or the product
 * overflows. Never NULL for a size of 0. Freed with gmi_free. */
void *gmi_alloc(size_t count, size_t elem_bytes);
void  gmi_free(void *memory);

/* A copy of the text; NULL when there is no memory. Freed with gmi_free. */
char *gmi_strdup(const char *text);

/* For tests: how many allocations this process has made, and the allocation that fails next
 * (1 = the next one; 0 = none). */
uint64_t gmi_alloc_calls(void);
void     gmi_alloc_fail_at(uint64_t nth);

#endif
