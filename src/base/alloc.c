#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* Counters for tests only; nothing in the library depends on them. */
static _Atomic uint64_t n_calls;
static _Atomic uint64_t fail_at;

void *gmi_alloc(size_t count, size_t elem_bytes)
{
    size_t bytes, padded;
    uint64_t call = atomic_fetch_add(&n_calls, 1) + 1;
    if (call == atomic_load(&fail_at)) return NULL;
    if (!gmi_mul_sizes(count, elem_bytes, &bytes)) return NULL;
    if (!gmi_add_sizes(bytes ? bytes : 1, GMI_CACHE_LINE - 1, &padded)) return NULL;
    padded -= padded % GMI_CACHE_LINE;
    void *memory = aligned_alloc(GMI_CACHE_LINE, padded);
    if (memory != NULL) memset(memory, 0, padded);
    return memory;
}

void gmi_free(void *memory) { free(memory); }

char *gmi_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = gmi_alloc(bytes, 1);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

uint64_t gmi_alloc_calls(void) { return atomic_load(&n_calls); }

void gmi_alloc_fail_at(uint64_t nth)
{
    atomic_store(&fail_at, nth == 0 ? 0 : atomic_load(&n_calls) + nth);
}
