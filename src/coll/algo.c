#include "coll/algo.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "coll/bruck.h"
#include "coll/chain.h"
#include "coll/chain_reduce.h"
#include "coll/direct.h"
#include "coll/dissemination.h"
#include "coll/doubling.h"
#include "coll/exact.h"
#include "coll/exchange.h"
#include "coll/halving.h"
#include "coll/lean.h"
#include "coll/naive.h"
#include "coll/pairwise.h"
#include "coll/ring.h"
#include "coll/star.h"
#include "coll/tree.h"
#include "coll/tree_gather.h"
#include "coll/tree_reduce.h"

/* Within a collective the first row that may run it is what "auto" takes for large buffers. */
static const struct gmi_algo *const rows[] = {
    &gmi_ring_all_reduce,       &gmi_direct_all_reduce,     &gmi_halving_all_reduce,
    &gmi_doubling_all_reduce,   &gmi_exchange_all_reduce,   &gmi_naive_all_reduce,
    &gmi_ring_reduce_scatter,   &gmi_direct_reduce_scatter, &gmi_ring_all_gather,
    &gmi_direct_all_gather,     &gmi_bruck_all_gather,      &gmi_chain_broadcast,
    &gmi_tree_broadcast,        &gmi_chain_reduce,          &gmi_direct_reduce,
    &gmi_tree_reduce,           &gmi_star_gather,           &gmi_tree_gather,
    &gmi_star_scatter,          &gmi_tree_scatter,          &gmi_pairwise_all_to_all,
    &gmi_direct_all_to_all,     &gmi_dissemination_barrier, &gmi_ring_barrier,
    &gmi_lean_all_reduce,       &gmi_lean_reduce_scatter,   &gmi_exact_ring,
    &gmi_exact_direct,          &gmi_exact_halving,         &gmi_exact_tree,
};

const struct gmi_algo *gmi_algo_row(size_t index)
{
    return index < sizeof rows / sizeof rows[0] ? rows[index] : NULL;
}

/* `name` NULL: any. */
static const struct gmi_algo *find(const char *name, gm_collective which, int n_ranks, enum gmi_view needs)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->collective != which || (name != NULL && strcmp(row->name, name) != 0)) continue;
        if ((row->max_ranks == 0 || n_ranks <= row->max_ranks) && gmi_algo_serves(row, needs)) return row;
    }
    return NULL;
}

/* What "auto" means: for so many ranks and up to so many bytes of the whole buffer, this algorithm; the rows of a
 * collective in order of size. Behind the last one, the collective's first row that may run the reduction. Where the
 * figures come from: docs/tuning.md. */
static const struct {
    gm_collective which;
    const char   *name;
    int           min_ranks, max_ranks;
    size_t        max_bytes;
} choices[] = {
    { GM_ALL_REDUCE, "exchange", 2, 3, 8 * 1024 },
    { GM_ALL_REDUCE, "doubling", 2, INT_MAX, 32 * 1024 },
    { GM_ALL_REDUCE, "halving", 3, INT_MAX, 128 * 1024 },
    { GM_REDUCE_SCATTER, "direct", 3, 16, 64 * 1024 },
    { GM_ALL_GATHER, "bruck", 3, INT_MAX, 128 * 1024 },
    { GM_BROADCAST, "tree", 3, INT_MAX, 512 * 1024 },
    { GM_REDUCE, "tree", 3, INT_MAX, 512 * 1024 },
    { GM_GATHER, "tree", 17, INT_MAX, 8 * 1024 },
    { GM_SCATTER, "tree", 17, INT_MAX, 8 * 1024 },
    { GM_ALL_TO_ALL, "direct", 4, 16, 256 * 1024 },
};

static bool is_for(size_t choice, gm_collective which, int n_ranks, size_t total_bytes)
{
    return choices[choice].which == which && n_ranks >= choices[choice].min_ranks &&
           n_ranks <= choices[choice].max_ranks && total_bytes <= choices[choice].max_bytes;
}

const struct gmi_algo *gmi_algo_choose(const char *name, gm_collective which, int n_ranks, size_t total_bytes,
                                       enum gmi_view needs)
{
    const struct gmi_algo *row = find(name, which, n_ranks, needs);
    if (row != NULL) return row;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (!is_for(i, which, n_ranks, total_bytes)) continue;
        row = find(choices[i].name, which, n_ranks, needs);
        if (row != NULL) return row;
    }
    return find(NULL, which, n_ranks, needs);
}

void gmi_all_peers(int n_ranks, int rank, int root, gmi_need_fn need, void *user)
{
    (void)root;
    for (int peer = 0; peer < n_ranks; peer++) {
        if (peer != rank) need(user, peer);
    }
}

void gmi_ring_peers(int n_ranks, int rank, int root, gmi_need_fn need, void *user)
{
    (void)root;
    need(user, (rank + 1) % n_ranks);
    need(user, (rank + n_ranks - 1) % n_ranks);
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

static bool is_first_of_name(size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(gmi_algo_row(i)->name, gmi_algo_row(index)->name) == 0) return false;
    }
    return true;
}

const char *gmi_algo_names(char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes, "auto");
    for (size_t i = 0; gmi_algo_row(i) != NULL && used < text_bytes; i++) {
        if (is_first_of_name(i)) used += (size_t)snprintf(text + used, text_bytes - used, ", %s", gmi_algo_row(i)->name);
    }
    return text;
}
