#include "coll/algo.h"

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
#include "coll/hierarchical.h"
#include "coll/lean.h"
#include "coll/naive.h"
#include "coll/pairwise.h"
#include "coll/profile.h"
#include "coll/ring.h"
#include "coll/star.h"
#include "coll/tree.h"
#include "coll/tree_gather.h"
#include "coll/tree_reduce.h"

/* Of rows that cost the same "auto" takes the first. */
static const struct gmi_algo *const rows[] = {
    &gmi_ring_all_reduce,       &gmi_direct_all_reduce,     &gmi_halving_all_reduce,
    &gmi_doubling_all_reduce,   &gmi_exchange_all_reduce,   &gmi_naive_all_reduce,
    &gmi_hierarchical_all_reduce,
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

static bool may_run(const struct gmi_algo *row, gm_collective which, int n_ranks, enum gmi_view needs)
{
    return row->collective == which && (row->max_ranks == 0 || n_ranks <= row->max_ranks) && gmi_algo_serves(row, needs);
}

double gmi_algo_us(const struct gmi_algo *algo, const struct gmi_costs *costs, size_t total_bytes)
{
    if (algo->us != NULL) return algo->us(costs, (double)total_bytes);
    struct gmi_effort effort = algo->effort(costs->n_ranks, (double)total_bytes);
    return gmi_cost_us(costs, costs->kind, &effort);
}

/* Of several that are equally good the first one, on all ranks alike. */
static const struct gmi_algo *fastest(gm_collective which, const struct gmi_costs *costs, size_t total_bytes, enum gmi_view needs)
{
    const struct gmi_algo *row, *best = NULL;
    double                 best_us = 0;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (!may_run(row, which, costs->n_ranks, needs)) continue;
        double us = gmi_algo_us(row, costs, total_bytes);
        if (best != NULL && us >= best_us) continue;
        best = row;
        best_us = us;
    }
    return best;
}

static const struct gmi_algo *named(const char *name, gm_collective which, int n_ranks, enum gmi_view needs)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (strcmp(row->name, name) == 0 && may_run(row, which, n_ranks, needs)) return row;
    }
    return NULL;
}

/* What the profile says; of what needs algorithms of its own it says nothing. */
static const struct gmi_algo *measured(gm_collective which, const struct gmi_costs *costs, size_t total_bytes, enum gmi_view needs)
{
    const struct gmi_algo *row;
    if (needs >= GMI_VIEW_LEAN) return NULL;
    uint8_t id = gmi_profile_choice(&costs->profile, gmi_costs_site(costs), (int)which, total_bytes);
    for (size_t i = 0; id != 0 && (row = gmi_algo_row(i)) != NULL; i++) {
        if (row->id == id && may_run(row, which, costs->n_ranks, needs)) return row;
    }
    return NULL;
}

const struct gmi_algo *gmi_algo_choose(const char *name, gm_collective which, const struct gmi_costs *costs,
                                       size_t total_bytes, enum gmi_view needs)
{
    const struct gmi_algo *row = named(name, which, costs->n_ranks, needs);
    if (row == NULL) row = measured(which, costs, total_bytes, needs);
    return row != NULL ? row : fastest(which, costs, total_bytes, needs);
}

void gmi_all_peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    for (int peer = 0; peer < s->n_ranks; peer++) {
        if (peer != s->rank) need(user, peer);
    }
}

void gmi_ring_peers(const struct gmi_shape *s, gmi_need_fn need, void *user)
{
    need(user, (s->rank + 1) % s->n_ranks);
    need(user, (s->rank + s->n_ranks - 1) % s->n_ranks);
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

static bool is_first_of_name(const struct gmi_algo *row)
{
    const struct gmi_algo *first;
    for (size_t i = 0; (first = gmi_algo_row(i)) != NULL && strcmp(first->name, row->name) != 0;) i++;
    return first == row;
}

const char *gmi_algo_names(char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes, "auto");
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL && used < text_bytes; i++) {
        if (is_first_of_name(row)) used += (size_t)snprintf(text + used, text_bytes - used, ", %s", row->name);
    }
    return text;
}

const char *gm_algorithm_name(int index)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if (is_first_of_name(row) && index-- == 0) return row->name;
    }
    return NULL;
}
