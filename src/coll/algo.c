#include "coll/algo.h"

#include <string.h>

#include "coll/chain.h"
#include "coll/naive.h"
#include "coll/ring.h"

static const struct gmi_algo *const rows[] = {
    &gmi_ring_all_reduce, &gmi_ring_reduce_scatter, &gmi_ring_all_gather,
    &gmi_ring_barrier,    &gmi_chain_broadcast,     &gmi_naive_all_reduce,
};

const struct gmi_algo *gmi_algo_row(size_t index)
{
    return index < sizeof rows / sizeof rows[0] ? rows[index] : NULL;
}

/* The first row of a collective is what "auto" takes. */
const struct gmi_algo *gmi_algo_choose(const char *name, gm_collective which)
{
    const struct gmi_algo *first = NULL, *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->collective != which) continue;
        if (strcmp(row->name, name) == 0) return row;
        if (first == NULL) first = row;
    }
    return first;
}

bool gmi_algo_is_name(const char *name)
{
    if (strcmp(name, "auto") == 0) return true;
    for (size_t i = 0; gmi_algo_row(i) != NULL; i++) {
        if (strcmp(gmi_algo_row(i)->name, name) == 0) return true;
    }
    return false;
}

const char *gmi_algo_name(uint8_t id)
{
    for (size_t i = 0; gmi_algo_row(i) != NULL; i++) {
        if (gmi_algo_row(i)->id == id) return gmi_algo_row(i)->name;
    }
    return "?";
}
