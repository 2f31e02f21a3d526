#include "tests/support/guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/test.h"

enum { FRONT_BYTES = 64, FRONT_FILL = 0xa5, FILL = 0xcd };

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static void map_anew(struct guard *g, size_t n_bytes)
{
    size_t page = page_bytes();
    guard_fini(g);
    g->map_bytes = (n_bytes + FRONT_BYTES + page - 1) / page * page + page;
    g->map = mmap(NULL, g->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g->map != MAP_FAILED);
    assert_int_equal(mprotect(g->map + g->map_bytes - page, page, PROT_NONE), 0);
}

void guard_make_raw(struct guard *g, size_t n_bytes)
{
    size_t page = page_bytes();
    if (g->map == NULL || n_bytes + FRONT_BYTES + page > g->map_bytes) map_anew(g, n_bytes);
    g->bytes = g->map + g->map_bytes - page - n_bytes;
    g->n_bytes = n_bytes;
    memset(g->bytes - FRONT_BYTES, FRONT_FILL, FRONT_BYTES);
}

void guard_make(struct guard *g, size_t n_bytes)
{
    guard_make_raw(g, n_bytes);
    memset(g->bytes, FILL, n_bytes);
}

void guard_check(const struct guard *g)
{
    if (g->map == NULL) return;
    for (const uint8_t *p = g->bytes - FRONT_BYTES; p < g->bytes; p++) assert_int_equal(*p, FRONT_FILL);
}

void guard_fini(struct guard *g)
{
    if (g->map != NULL) munmap(g->map, g->map_bytes);
    *g = (struct guard){ 0 };
}
